//! Where a job should go, by what a node knows.
//!
//! Invariant: words of sites are printed without control characters; `--json` prints the node's answer.

use std::io::Write;

use super::job::JobFile;
use super::report::{self, seconds};
use super::{PlaceArgs, job, submit};
use crate::ask::{core_hours, heading, unless_refused};
use crate::control::answer::{Answer, ForwardAsk, PlaceAsk, PlaceBody, PlacedBody};
use crate::control::clean;
use crate::emulate::read;
use crate::output::{Align, Exit, Table};

pub(super) async fn run(args: &PlaceArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let JobFile { ask, key, run } = question(args)?;
    if args.submit {
        let ask = ForwardAsk {
            key,
            run,
            ttl: args.hops,
            job: ask,
        };
        return submit::run(args, ask, out).await;
    }
    let body = serde_json::to_vec(&ask)?;
    let control = args.ask.control();
    let asked = control.post::<Answer<PlaceBody>>("/v1/place", body);
    let Some(answer) = unless_refused(asked.await.map_err(Into::into))? else {
        return Ok(Exit::Failure);
    };
    if args.ask.output.json {
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
        return Ok(Exit::Success);
    }
    let wishes = answer.body.sites.iter().any(|site| !site.met.is_empty());
    let table = table(&answer.body, wishes);
    let above = format!("{}\n{}", heading(&answer.rests_on), words(&answer.body));
    table.with_heading(above).write(out, &args.ask.output)?;
    Ok(Exit::Success)
}

fn question(args: &PlaceArgs) -> anyhow::Result<JobFile> {
    let of_file = args.job.as_ref().map(|file| {
        job::parse(&read(file)?, &file.display().to_string()).map_err(anyhow::Error::from)
    });
    let JobFile { ask: job, key, run } = match of_file {
        Some(of_file) => of_file?,
        None => JobFile {
            key: None,
            run: None,
            ask: PlaceAsk {
                vo: args.vo.clone(),
                user: args.user.clone(),
                account: args.account.clone(),
                cpus: args.cpus.unwrap_or_default(),
                wall_s: args.wall,
                staged_mib: args.disk_mib,
                ..PlaceAsk::default()
            },
        },
    };
    let is_somebodys = [&job.user, &job.group, &job.subject]
        .iter()
        .any(|of| of.is_some());
    let user = match is_somebodys {
        true => job.user,
        false => crate::ask::explain::me(),
    };
    let ask = PlaceAsk {
        user,
        engine: Some(args.engine.to_string()),
        selector: args.selector.map(|of| of.to_string()),
        seed: args.seed,
        top: args.top,
        confirm: args.confirm,
        ..job
    };
    Ok(JobFile {
        ask,
        key: args.key.clone().or(key),
        run,
    })
}

fn words(body: &PlaceBody) -> String {
    let vo = body.vo_name.as_deref();
    let vo = vo.map_or_else(|| body.vo.clone(), clean);
    let by = (&*body.engine, &*body.selector);
    let mut words = report::heading(body.cpus, &vo, body.sites_total == 0, by);
    if let Some(standing) = &body.standing {
        words += &format!(
            "\nThe job counts at {}, factor {}, rank {} of {} here.",
            clean(&standing.entry),
            standing.factor,
            standing.rank,
            standing.ranks
        );
    }
    let left_out = body.sites_total - body.sites.len();
    if left_out > 0 {
        words += &format!("\n{left_out} more sites may have it.");
    }
    words
}

fn table(body: &PlaceBody, wishes: bool) -> Table {
    let mut columns = vec![
        ("Site", Align::Left),
        ("Verdict", Align::Left),
        ("Free", Align::Right),
        ("Total", Align::Right),
        ("Wait s", Align::Right),
        ("Age s", Align::Right),
        ("CoreHours", Align::Right),
        ("SLA", Align::Left),
    ];
    let of_wishes = [("Utility", Align::Right), ("Met", Align::Left)];
    columns.extend(of_wishes.iter().filter(|_| wishes));
    columns.push(("Why", Align::Left));
    let mut table = Table::new(&columns);
    for site in &body.sites {
        let verdict = match site.confirmed {
            true => format!("{}, confirmed", clean(&site.verdict)),
            false => clean(&site.verdict),
        };
        let charge = site.charge_core_ms.as_deref();
        let mut cells = vec![
            clean(&site.name),
            verdict,
            site.free.to_string(),
            site.total.to_string(),
            seconds(site.wait_s),
            seconds(site.age_s),
            charge.map_or_else(|| "-".to_owned(), core_hours),
            sla(site),
        ];
        if wishes {
            cells.push(site.utility.as_deref().map_or_else(String::new, clean));
            cells.push(met(site));
        }
        cells.push(clean(&site.reason));
        table.row(cells);
    }
    for site in &body.refused {
        let mut cells = vec![String::new(); columns.len()];
        cells[0] = clean(&site.name);
        cells[1] = "no".to_owned();
        cells[5] = seconds(site.age_s);
        *cells.last_mut().expect("there are columns") = clean(&site.reason);
        table.row(cells);
    }
    table
}

fn sla(site: &PlacedBody) -> String {
    let Some(sla) = &site.sla else {
        return String::new();
    };
    let sign = match sla.sign.as_str() {
        "at-most" => "+",
        "at-least" => "-",
        _ => "",
    };
    let extensible = if sla.extensible { ", extensible" } else { "" };
    format!(
        "{} of {} %{sign}, {} of {} CPUs{extensible}",
        clean(&sla.epoch_used),
        clean(&sla.epoch_share),
        sla.held,
        sla.limit
    )
}

fn met(site: &PlacedBody) -> String {
    let met = site.met.iter().map(|of| {
        let option = of.option.as_deref().map_or_else(|| "-".to_owned(), clean);
        format!("{} {option}", clean(&of.kind))
    });
    met.collect::<Vec<_>>().join(", ")
}
