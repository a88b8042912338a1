//! How a VO stands at each of its sites, by what a node knows.
//!
//! Invariant: each row is what one site has said last, with its age; the room is what the broker would give.

use std::io::Write;

use fairmesh_api::Grid;
use fairmesh_broker::{Engine, Request, Sign, SiteView, Standing, engine};
use fairmesh_model::{Millis, clean};
use serde::Serialize;

use super::{ShowArgs, percent};
use crate::output::{Exit, Table, write_json};

/// Name and version of the JSON.
const SCHEMA: &str = "fairmesh.sla-sites/1";

#[derive(Serialize)]
struct Answer {
    vo: String,
    /// CPUs that the VO holds and could start on now, at all sites that are not silent.
    held: u64,
    room: u64,
    sites: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    site: String,
    total: u64,
    /// Percent of the epoch, with the sign of an SLA; absent where nothing is promised.
    granted: Option<String>,
    used: Option<String>,
    held: u64,
    limit: Option<u64>,
    waiting: u64,
    room: u64,
    /// What one CPU more would be told.
    verdict: String,
    why: String,
    /// For how long the VO has been over what it may have, as far as the site knows.
    over_s: Option<u64>,
    age_s: Option<u64>,
}

pub(super) fn show(
    args: &ShowArgs,
    vo: &str,
    grid: &Grid,
    silence: Millis,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let is_asked = |site: &&SiteView| args.site.as_ref().is_none_or(|name| site.name == *name);
    let sites: Vec<Row> = grid
        .sites
        .iter()
        .filter(is_asked)
        .map(|site| row(site, vo, silence))
        .collect();
    if let Some(name) = args.site.as_ref().filter(|_| sites.is_empty()) {
        anyhow::bail!("the node knows of no site `{name}` that publishes what is free there");
    }
    let answer = Answer {
        vo: vo.to_owned(),
        held: sites.iter().map(|of| of.held).fold(0, u64::saturating_add),
        room: sites.iter().map(|of| of.room).fold(0, u64::saturating_add),
        sites,
    };
    if args.output.json {
        write_json(out, SCHEMA, &answer)?;
        return Ok(Exit::Success);
    }
    write(&answer, args, out)?;
    Ok(Exit::Success)
}

fn row(site: &SiteView, vo: &str, silence: Millis) -> Row {
    let said = site.vos.get(vo).map(Box::as_ref);
    let judged = |cpus| {
        let request = Request::of_cpus(vo, cpus);
        engine::judge(Engine::Sound, site, &request, Some(silence))
    };
    // Who may start a job may start a smaller one.
    let (mut room, mut above) = (0, site.total.saturating_add(1));
    while above - room > 1 {
        let half = room + (above - room) / 2;
        match judged(half).is_now() {
            true => room = half,
            false => above = half,
        }
    }
    let verdict = judged(1);
    Row {
        site: site.name.clone(),
        total: site.total,
        granted: said.map(granted),
        used: said.map(|said| percent(said.epoch_used)),
        held: said.map_or(0, |said| said.burst_used),
        limit: said.map(|said| said.burst_limit),
        waiting: said.map_or(0, |said| said.waiting),
        room,
        why: match &verdict {
            engine::Verdict::No(refusal) => refusal.to_string(),
            _ => String::new(),
        },
        verdict: verdict.word().to_owned(),
        // By the site's word, which is some time old.
        over_s: said.and_then(|said| {
            let at_its_word = said.over_for?.0;
            Some(at_its_word.saturating_add(site.age.unwrap_or_default().0) / 1_000)
        }),
        age_s: site.age.map(|age| age.0 / 1_000),
    }
}

fn granted(said: &Standing) -> String {
    let sign = match said.sign {
        Sign::Target => "",
        Sign::AtMost => "+",
        Sign::AtLeast => "-",
    };
    let extensible = if said.extensible { ", extensible" } else { "" };
    format!("{}%{sign}{extensible}", said.epoch_share)
}

fn write(answer: &Answer, args: &ShowArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut table =
        Table::new("Site|>CPUs|Granted|>Used%|>Held|>Limit|>Waits|>Room|>Over s|>Age s|Why not");
    let number = |of: Option<u64>| of.map(|of| of.to_string()).unwrap_or_default();
    for row in &answer.sites {
        table.row([
            clean(&row.site),
            row.total.to_string(),
            row.granted.clone().unwrap_or_else(|| "nothing".to_owned()),
            row.used.clone().unwrap_or_default(),
            row.held.to_string(),
            number(row.limit),
            row.waiting.to_string(),
            row.room.to_string(),
            number(row.over_s),
            number(row.age_s),
            row.why.clone(),
        ]);
    }
    table.write(out, &args.output)?;
    if !args.output.parsable {
        writeln!(
            out,
            "\n{} CPUs are held, and {} more could start now.",
            answer.held, answer.room
        )?;
    }
    Ok(())
}
