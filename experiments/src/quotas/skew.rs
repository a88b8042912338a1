//! E4: four fifths of all jobs are submitted at one site, and tomorrow at another, while rights are split by cores.
//!
//! Where one slice lasts for the whole time, a site's own rights outlast its turn; where each day has a slice of its
//! own, most of it has to come to the site that is asked. Beside each the same with sites that hear nobody, which
//! shows what moves.
//!
//! Invariant: all cases have the same load, but for who is asked. What is granted is 1.25 times what is asked for, so
//! nothing is refused because it is spent.

use fairmesh_cluster::Seed;
use fairmesh_model::{CoreMillis, Millis, QuotaMode};
use fairmesh_quota::slices::{Period, windows};

use super::Extent;
use super::field::{Asked, FieldSpec, run as run_field};
use super::load::Load;
use super::mesh::{Grant, Mesh};
use super::strictness::{CORES, SITES};
use crate::experiment::{Claim, Outcome, Row};
use crate::figures::Texts;
use simnet::vo::{DAY, HOUR, START};

/// Each site has its turn twice.
const DAYS: u64 = 12;

/// Projects, all with the same load.
const PROJECTS: usize = 6;

/// Jobs of all projects, as a part of what all sites can run, percent; a site of six that is asked for 80 % of the
/// first keeps up.
const QUIET: u64 = 18;
const BUSY: u64 = 80;

/// One run.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    slices: u32,
    /// Where jobs are submitted.
    weights: fn(day: u64, sites: usize) -> Vec<u32>,
    /// Percent of what can be run.
    load: u64,
    /// Whether sites hear each other.
    hears: bool,
}

/// Slices: one for the whole time, or one a day.
const ONE: u32 = 1;
const DAILY: u32 = DAYS as u32;

#[rustfmt::skip]
const CASES: [Case; 6] = [
    case("one slice, one site", ONE, at_first, QUIET, true),
    case("one slice, another site each day", ONE, at_next, QUIET, true),
    case("daily slices, one site", DAILY, at_first, QUIET, true),
    case("daily slices, another site each day", DAILY, at_next, QUIET, true),
    case("one slice, another site each day, busy Grid", ONE, at_next, BUSY, true),
    case("daily slices, another site each day, no transfers", DAILY, at_next, QUIET, false),
];

const fn case(
    name: &'static str,
    slices: u32,
    weights: fn(u64, usize) -> Vec<u32>,
    load: u64,
    hears: bool,
) -> Case {
    Case {
        name,
        slices,
        weights,
        load,
        hears,
    }
}

fn at_first(_: u64, sites: usize) -> Vec<u32> {
    at_one(0, sites)
}

fn at_next(day: u64, sites: usize) -> Vec<u32> {
    at_one(usize::try_from(day).expect("few") % sites, sites)
}

/// Four fifths at one site, the rest evenly at the others.
fn at_one(site: usize, sites: usize) -> Vec<u32> {
    let others = u32::try_from(sites - 1).expect("few");
    let weight = |at| if at == site { 4 * others } else { 1 };
    (0..sites).map(weight).collect()
}

/// What a run gave.
struct Measures {
    /// After the first day.
    asked: Asked,
    transfers: u64,
    requests: u64,
    bytes: u64,
}

impl Measures {
    fn percent(&self, count: u64) -> f64 {
        100.0 * count as f64 / self.asked.all.max(1) as f64
    }

    fn at_once(&self) -> f64 {
        self.percent(self.asked.at_once)
    }

    fn later(&self) -> f64 {
        self.percent(self.asked.later)
    }
}

fn per_hour(count: u64) -> f64 {
    count as f64 / (24 * DAYS) as f64
}

fn run_case(case: &Case, extent: &Extent, seed: u64) -> Measures {
    let time = DAY.times(DAYS);
    let cores = CORES / extent.divisor;
    let hours = cores * SITES as u64 * 24 * DAYS * case.load / 100 / PROJECTS as u64;
    let amount = hours * HOUR.0 / 4 * 5;
    let period = Period {
        from: START,
        until: START.after(time),
        slices: case.slices,
        grace: Millis(0),
    };
    let grant = Grant {
        slices: windows(CoreMillis(amount), period),
        ..Grant::whole(amount, time, QuotaMode::Strict)
    };
    let load = Load {
        weights: case.weights,
        ..Load::even(hours, time)
    };
    let all: Vec<usize> = (0..SITES).collect();
    let cores = u32::try_from(cores).expect("few");
    let mut spec = FieldSpec {
        watched: Some((DAY, time, all.clone())),
        ..FieldSpec::new(SITES, cores, vec![load; PROJECTS], time)
    };
    if !case.hears {
        spec.cuts.push((Millis(0), all));
    }
    let mut mesh = Mesh::new(&vec![grant; PROJECTS], &[CORES; SITES]);
    let measures = run_field(&spec, Seed(seed), &mut mesh);
    Measures {
        asked: measures.watched,
        transfers: mesh.transfers,
        requests: mesh.requests,
        bytes: mesh.bytes,
    }
}

/// Runs it.
pub fn run(extent: &Extent) -> Outcome {
    let study = extent.study(CASES, run_case);
    #[rustfmt::skip]
    let table = study.table("skew", "E4: four fifths of all jobs at one site")
        .case("case", |case| case.name)
        .mean("at once (% of jobs)", 2, Measures::at_once)
        .mean("later (%)", 2, Measures::later)
        .mean("refused (%)", 2, |of| of.percent(of.asked.refused))
        .mean("transfers per hour", 1, |of| per_hour(of.transfers))
        .mean("requests per hour", 1, |of| per_hour(of.requests))
        .mean("kB per hour, all sites", 1, |of| per_hour(of.bytes) / 1_000.0)
        .done();
    let texts = Texts {
        name: "skew-granted",
        title: "E4: four fifths of all jobs at one site, rights split by cores",
        caption: "Six sites and six projects, twelve days, from the second on. \
                  Whiskers: 90 % of the mean over the seeds.",
        x_label: "slices, and where most jobs are submitted",
        y_label: "of all jobs (percent)",
    };
    let bars = [
        study.bars("granted at once", Measures::at_once),
        study.bars("granted when rights had come", Measures::later),
    ];
    let picture = texts.bars(CASES.map(|case| case.name), bars);
    let (alone, hearing) = study.rows.split_last().expect("it was run");
    let mut claims: Vec<Claim> = hearing.iter().map(granted_at_once).collect();
    let part = alone.mean(Measures::at_once);
    claims.push(Claim::new(
        "daily slices, another site each day: without transfers less than half of that is granted",
        format!("{} %", part.text(1)),
        part.mean < 49.5,
    ));
    Outcome {
        tables: vec![table],
        figures: vec![picture.within(0.0, 105.0).against(99.0)],
        claims,
    }
}

fn granted_at_once(row: &Row<Case, Measures>) -> Claim {
    let (name, least) = (row.case.name, row.least(Measures::at_once));
    Claim::new(
        format!("{name}: at least 99 % of jobs are granted at once, with any seed"),
        format!("{least:.2} % at least"),
        least >= 99.0,
    )
}
