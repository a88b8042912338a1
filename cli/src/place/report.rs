//! Placed sites as a table, as `-P` and as JSON.

use std::io::Write;

use fairmesh_broker::{SiteView, Verdict};
use fairmesh_model::clean;
use serde::Serialize;

use super::{PlaceArgs, Placed};
use crate::output::{Table, write_json};

/// Name and version of the JSON.
pub(super) const SCHEMA: &str = "fairmesh.place/1";

#[derive(Serialize)]
struct Answer<'a> {
    vo: &'a str,
    cpus: u64,
    engine: String,
    selector: String,
    seed: u64,
    /// Those that may have the job, the best first.
    sites: Vec<Taken<'a>>,
    refused: Vec<Refused<'a>>,
}

#[derive(Serialize)]
struct Taken<'a> {
    name: &'a str,
    verdict: &'static str,
    /// Whether it lies beyond the VO's share of the epoch.
    beyond: bool,
    free: u64,
    used: u64,
    total: u64,
    wait_s: Option<u64>,
    age_s: Option<u64>,
    reason: String,
}

#[derive(Serialize)]
struct Refused<'a> {
    name: &'a str,
    code: &'static str,
    age_s: Option<u64>,
    reason: String,
}

pub(super) fn write(
    placed: &Placed<'_>,
    args: &PlaceArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if args.ask.output.json {
        return write_json(out, SCHEMA, &answer(placed, args));
    }
    let (engine, selector) = (args.engine.to_string(), args.selector().to_string());
    let by = (&*engine, &*selector);
    let heading = heading(cpus(args), &clean(vo(args)), placed.taken.is_empty(), by);
    let mut table =
        Table::new("Site|Verdict|>Free|>Total|>Wait s|>Age s|Why").with_heading(heading);
    for (site, verdict) in placed.taken.iter().chain(&placed.refused) {
        table.row([
            clean(&site.name),
            verdict.word().to_owned(),
            site.idle().to_string(),
            site.total.to_string(),
            seconds(verdict.wait_s()),
            seconds(age(site)),
            verdict.reason(site, args.selector()),
        ]);
    }
    Ok(table.write(out, &args.ask.output)?)
}

fn answer<'a>(placed: &Placed<'a>, args: &'a PlaceArgs) -> Answer<'a> {
    let taken = |(site, verdict): &(&'a SiteView, Verdict)| Taken {
        name: &site.name,
        verdict: verdict.word(),
        beyond: *verdict == Verdict::Now { beyond: true },
        free: site.idle(),
        used: site.total.saturating_sub(site.idle()),
        total: site.total,
        wait_s: verdict.wait_s(),
        age_s: age(site),
        reason: verdict.reason(site, args.selector()),
    };
    let refused = |(site, verdict): &(&'a SiteView, Verdict)| Refused {
        name: &site.name,
        code: code(verdict),
        age_s: age(site),
        reason: verdict.reason(site, args.selector()),
    };
    Answer {
        vo: vo(args),
        cpus: cpus(args),
        engine: args.engine.to_string(),
        selector: args.selector().to_string(),
        seed: args.seed,
        sites: placed.taken.iter().map(taken).collect(),
        refused: placed.refused.iter().map(refused).collect(),
    }
}

fn vo(args: &PlaceArgs) -> &str {
    args.vo.as_deref().unwrap_or_default()
}

fn cpus(args: &PlaceArgs) -> u64 {
    args.cpus.unwrap_or_default().into()
}

fn code(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::No(refusal) => refusal.code(),
        _ => verdict.word(),
    }
}

fn age(site: &SiteView) -> Option<u64> {
    site.age.map(|age| age.0 / 1_000)
}

/// What stands above the sites; `by` are the engine and the selector.
pub(super) fn heading(cpus: u64, vo: &str, is_nowhere: bool, by: (&str, &str)) -> String {
    let (engine, selector) = by;
    match is_nowhere {
        true => format!("No site may have {cpus} CPUs for {vo} (engine {engine})"),
        false => format!(
            "{cpus} CPUs for {vo}, the best site first (engine {engine}, selector {selector})"
        ),
    }
}

pub(super) fn seconds(seconds: Option<u64>) -> String {
    seconds.map_or_else(|| "?".to_owned(), |seconds| seconds.to_string())
}
