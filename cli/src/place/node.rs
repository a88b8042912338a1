//! Where a job should go, by what a node knows.
//!
//! Invariant: words of sites are printed without control characters; `--json` prints the node's answer.

use std::io::Write;

use fairmesh_api::{Answer, ForwardAsk, PlaceAsk, PlaceBody, PlacedBody};
use fairmesh_model::clean;
use fairmesh_node::words::number::core_hours;

use super::report::{self, seconds};
use super::{PlaceArgs, job, submit};
use crate::ask::{heading, unless_refused};
use crate::emulate::read_as;
use crate::output::{Exit, Table, or_dash};

pub(super) async fn run(args: &PlaceArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let ask = question(args)?;
    if args.submit {
        return submit::run(args, ask, out).await;
    }
    let body = serde_json::to_vec(&ask.job)?;
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

fn question(args: &PlaceArgs) -> anyhow::Result<ForwardAsk> {
    let mut ask = match &args.job {
        Some(file) => read_as(file, job::parse)?,
        None => ForwardAsk {
            job: PlaceAsk {
                vo: args.vo.clone(),
                user: args.user.clone(),
                account: args.account.clone(),
                cpus: args.cpus.unwrap_or_default(),
                wall_s: args.wall,
                staged_mib: args.disk_mib,
                ..PlaceAsk::default()
            },
            ..ForwardAsk::default()
        },
    };
    let job = &mut ask.job;
    if job.user.is_none() && job.group.is_none() && job.subject.is_none() {
        job.user = crate::ask::explain::me();
    }
    job.engine = Some(args.engine.to_string());
    job.selector = args.selector.map(|of| of.to_string());
    (job.seed, job.top, job.confirm) = (args.seed, args.top, args.confirm);
    ask.key = args.key.clone().or(ask.key);
    ask.ttl = args.hops;
    Ok(ask)
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
    let of_wishes = if wishes { "|>Utility|Met" } else { "" };
    let columns = format!("Site|Verdict|>Free|>Total|>Wait s|>Age s|>CoreHours|SLA{of_wishes}|Why");
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
            or_dash(charge.map(core_hours)),
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
        let mut cells = vec![String::new(); columns.split('|').count()];
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
        let option = or_dash(of.option.as_deref().map(clean));
        format!("{} {option}", clean(&of.kind))
    });
    met.collect::<Vec<_>>().join(", ")
}
