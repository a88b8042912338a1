//! E4: four fifths of all jobs are submitted at one site, and tomorrow at another, while rights are split by cores.
//!
//! Where one slice lasts for the whole time, a site's own rights outlast its turn; where each day has a slice of its
//! own, most of it has to come to the site that is asked. Beside each the same with sites that hear nobody, which
//! shows what moves.
//!
//! Invariant: all cases have the same load, but for who is asked. What is granted is 1.25 times what is asked for, so
//! nothing is refused because it is spent.

use fairmesh_cluster::Seed;
use fairmesh_model::{AllocationSlice, CoreMillis, Millis, QuotaMode};
use fairmesh_quota::slices::{Period, windows};

use super::Extent;
use super::field::{Asked, FieldSpec, run as run_field};
use super::load::Load;
use super::mesh::{Grant, Mesh};
use super::strictness::{CORES, SITES};
use crate::experiment::{Claim, Mean, Outcome, Table, each};
use crate::figures::{Bars, Summary};
use crate::vo::{DAY, HOUR, START};

/// Each site has its turn twice.
const DAYS: u64 = 12;

/// Projects, all with the same load.
const PROJECTS: usize = 6;

/// Jobs of all projects, as a part of what all sites can run, percent; a site of six that is asked for 80 % of the
/// first keeps up.
const QUIET: u64 = 18;
const BUSY: u64 = 80;

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    name: &'static str,
    /// Each day has a slice of its own.
    is_daily: bool,
    /// Another site each day.
    moves: bool,
    /// Percent of what can be run.
    load: u64,
    /// Nobody hears anybody.
    is_alone: bool,
}

const CASES: [Case; 6] = [
    case("one slice, one site", false, false, QUIET),
    case("one slice, another site each day", false, true, QUIET),
    case("daily slices, one site", true, false, QUIET),
    case("daily slices, another site each day", true, true, QUIET),
    case(
        "one slice, another site each day, busy Grid",
        false,
        true,
        BUSY,
    ),
    Case {
        is_alone: true,
        ..case(
            "daily slices, another site each day, no transfers",
            true,
            true,
            QUIET,
        )
    },
];

const fn case(name: &'static str, is_daily: bool, moves: bool, load: u64) -> Case {
    Case {
        name,
        is_daily,
        moves,
        load,
        is_alone: false,
    }
}

/// Four fifths at one site, the rest evenly at the others.
fn at_one(site: usize, sites: usize) -> Vec<u32> {
    let others = u32::try_from(sites - 1).expect("few");
    (0..sites)
        .map(|at| if at == site { 4 * others } else { 1 })
        .collect()
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
    fn at_once(&self) -> f64 {
        100.0 * self.asked.at_once as f64 / self.asked.all.max(1) as f64
    }
}

fn slices(is_daily: bool, amount: u64) -> Vec<AllocationSlice> {
    let period = Period {
        from: START,
        until: START.after(DAY.times(DAYS)),
        slices: if is_daily {
            u32::try_from(DAYS).expect("few")
        } else {
            1
        },
        grace: Millis(0),
    };
    windows(CoreMillis(amount), period)
}

fn run_case(case: &Case, extent: &Extent, seed: u64) -> Measures {
    let time = DAY.times(DAYS);
    let cores = CORES / extent.divisor;
    let hours = cores * SITES as u64 * 24 * DAYS * case.load / 100 / PROJECTS as u64;
    let amount = hours * HOUR.0 / 4 * 5;
    let grant = Grant {
        slices: slices(case.is_daily, amount),
        ..Grant::whole(amount, time, QuotaMode::Strict)
    };
    let load = Load {
        weights: match case.moves {
            true => |day, sites| at_one(usize::try_from(day).expect("few") % sites, sites),
            false => |_, sites| at_one(0, sites),
        },
        ..Load::even(hours, time)
    };
    let spec = FieldSpec {
        watched: Some((DAY, time, (0..SITES).collect())),
        cuts: match case.is_alone {
            true => vec![(Millis(0), (0..SITES).collect())],
            false => Vec::new(),
        },
        ..FieldSpec::new(
            SITES,
            u32::try_from(cores).expect("few"),
            vec![load; PROJECTS],
            time,
        )
    };
    let mut mesh = Mesh::new(&vec![grant; PROJECTS], &[CORES; SITES]);
    let measures = run_field(&spec, Seed(seed), &mut mesh);
    Measures {
        asked: measures.watched,
        transfers: mesh.transfers,
        requests: mesh.requests,
        bytes: mesh.bytes,
    }
}

fn table(of: &[Vec<Measures>]) -> Table {
    let columns = [
        "case",
        "at once (% of jobs)",
        "later (%)",
        "refused (%)",
        "transfers per hour",
        "requests per hour",
        "kB per hour, all sites",
    ];
    let mut table = Table::new("skew", "E4: four fifths of all jobs at one site", columns);
    let hours = (24 * DAYS) as f64;
    for (case, of) in CASES.iter().zip(of) {
        let mean = |value: &dyn Fn(&Measures) -> f64| Mean::of(of.iter().map(value));
        let part = |count: fn(&Asked) -> u64| {
            mean(&|of| 100.0 * count(&of.asked) as f64 / of.asked.all.max(1) as f64)
        };
        table.row([
            case.name.to_owned(),
            mean(&Measures::at_once).text(2),
            part(|asked| asked.later).text(2),
            part(|asked| asked.refused).text(2),
            mean(&|of| of.transfers as f64 / hours).text(1),
            mean(&|of| of.requests as f64 / hours).text(1),
            mean(&|of| of.bytes as f64 / hours / 1_000.0).text(1),
        ]);
    }
    table
}

fn picture(of: &[Vec<Measures>]) -> Summary {
    let bars = |name: &str, value: fn(&Measures) -> f64| Bars {
        name: name.to_owned(),
        spreads: of
            .iter()
            .map(|of| Some(Mean::of(of.iter().map(value)).spread()))
            .collect(),
    };
    Summary {
        name: "skew-granted".to_owned(),
        title: "E4: four fifths of all jobs at one site, rights split by cores".to_owned(),
        caption: "Six sites and six projects, twelve days, from the second on. Whiskers: 90 % of the mean over the seeds."
            .to_owned(),
        x_label: "slices, and where most jobs are submitted".to_owned(),
        y_label: "of all jobs (percent)".to_owned(),
        y_range: Some((0.0, 105.0)),
        groups: CASES.iter().map(|case| case.name.to_owned()).collect(),
        bars: vec![
            bars("granted at once", Measures::at_once),
            bars("granted when rights had come", |of| {
                100.0 * of.asked.later as f64 / of.asked.all.max(1) as f64
            }),
        ],
        reference: Some(99.0),
    }
}

/// Runs it.
pub fn run(extent: &Extent) -> Outcome {
    let of = each(extent.threads, &extent.seeds, &CASES, |case, seed| {
        run_case(case, extent, seed)
    });
    let least = |of: &[Measures]| {
        of.iter()
            .map(Measures::at_once)
            .fold(f64::INFINITY, f64::min)
    };
    let both = CASES.iter().zip(&of);
    let mut claims: Vec<Claim> = both
        .filter(|(case, _)| !case.is_alone)
        .map(|(case, of)| {
            Claim::new(
                format!(
                    "{}: at least 99 % of jobs are granted at once, with any seed",
                    case.name
                ),
                format!("{:.2} % at least", least(of)),
                least(of) >= 99.0,
            )
        })
        .collect();
    let alone = Mean::of(of[CASES.len() - 1].iter().map(Measures::at_once));
    claims.push(Claim::new(
        "daily slices, another site each day: without transfers less than half of that is granted",
        format!("{} %", alone.text(1)),
        alone.mean < 49.5,
    ));
    Outcome {
        tables: vec![table(&of)],
        bars: vec![picture(&of)],
        claims,
        ..Outcome::default()
    }
}
