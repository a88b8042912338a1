//! What Gardfjäll's thesis leaves open, as experiments on the paper's Grid: a table of cases, one
//! runner, one plotter.
//!
//! Invariant: cases of one experiment differ in what its groups and bars say and in nothing else; they
//! have the same seeds, and so the same load.
//!
//! Deliberately not here: what charging by other rules does, which is asked of a recorded log
//! ([`crate::charging`]); and what the text beside the pictures says (`docs/evaluation`).

use fairmesh_cluster::{Backfill, Broker, JobPriority, Seed, WorkloadError};
use fairmesh_model::{Millis, UsageMode};

use super::experiment::{HALF_LEAVES, MODE_NAMES, MODES};
use super::measure::{RunMeasures, entries, measure, rms_of_all};
use super::outcome::each;
use crate::central::Central;
use crate::experiment::each_with;
use crate::figures::{Bars, Figure, Spread, Texts};
use crate::grid::{Gossip, GridSpec, Served, UsageSeries, run};
use simnet::vo::DAY;

/// One question.
struct Experiment {
    name: &'static str,
    title: &'static str,
    says: &'static str,
    x_label: &'static str,
    groups: &'static [&'static str],
    bars: &'static [&'static str],
    /// The Grid of a group and a bar.
    grid: fn(usize, usize) -> GridSpec,
    /// Whether nodes gossip; else one table has the same feeds at the same moments.
    gossips: bool,
    metrics: &'static [Metric],
}

/// What is drawn of each run.
struct Metric {
    name: &'static str,
    y_label: &'static str,
    of: fn(&GridSpec, &UsageSeries, &RunMeasures) -> f64,
    reference: Option<f64>,
}

const RMS: Metric = Metric {
    name: "",
    y_label: "RMS error (percentage points)",
    of: |_, _, measures| rms_of_all(measures.entries.iter()),
    reference: None,
};

const USED: Metric = Metric {
    name: "-used",
    y_label: "cores in use (percent)",
    of: |spec, series, _| {
        let last = series.samples.last().expect("a run has samples");
        let there = spec.sites as f64 * f64::from(spec.cores) * last.at.0 as f64;
        last.used.iter().sum::<u64>() as f64 * 100.0 / there
    },
    reference: None,
};

/// P-A2's part of VO-A.
const P_A2: Metric = Metric {
    name: "",
    y_label: "P-A2 of VO-A, last day (percent)",
    of: |_, _, measures| {
        let of = entries()
            .iter()
            .position(|entry| entry.name == HALF_LEAVES[0]);
        measures.entries[of.expect("an entry of the policy")].last_day
    },
    reference: Some(30.0),
};

const AGES_S: [u64; 6] = [1, 10, 60, 300, 900, 3_600];

/// Weights of fairshare and age in a job's priority.
const WEIGHTS: [(u32, u32); 7] = [
    (0, 1),
    (1, 10),
    (1, 1),
    (10, 1),
    (100, 1),
    (1_000, 1),
    (1, 0),
];

const WIDTHS: [&[&[u32]]; 4] = [&[&[1]], &[&[4]], &[&[16]], &[&[64]]];

/// The first and fourth leaf are P-A1 and U-B11.
const MIXED: [&[&[u32]]; 4] = [
    &[&[1]],
    &[&[1, 2, 4, 8]],
    &[&[1, 2, 4, 8, 16, 32, 64]],
    &[&[32], &[1], &[1], &[32], &[1], &[1], &[1]],
];

const REACH: [usize; 4] = [1, 2, 3, 6];

const EXPERIMENTS: [Experiment; 5] = [
    Experiment {
        name: "freshness",
        title: "How fresh usage must be",
        says: "Usage is told once in so long, to all sites at the same moment.",
        x_label: "age that usage gets before it is told",
        groups: &["1 s", "10 s", "1 min", "5 min", "15 min", "1 h"],
        bars: &MODE_NAMES,
        grid: |group, bar| grid(MODES[bar], AGES_S[group]),
        gossips: false,
        metrics: &[RMS],
    },
    Experiment {
        name: "age",
        title: "Fairshare beside age in Slurm's priority",
        says: "Job priority = PriorityWeightAge x age / 7 days + range x factor, set each 30 s as by \
               fairmesh slurm sync; no size, partition or QOS. Active usage.",
        x_label: "range of the site factor : PriorityWeightAge",
        groups: &[
            "age only",
            "1:10",
            "1:1",
            "10:1",
            "100:1",
            "1000:1",
            "factor only",
        ],
        bars: &["by rank", "by bits"],
        grid: |group, bar| {
            let (fairshare_weight, age_weight) = WEIGHTS[group];
            GridSpec {
                served: [Served::Slurm, Served::Bits][bar],
                weights: JobPriority {
                    fairshare_weight,
                    age_weight,
                    age_max: DAY.times(7),
                },
                ..grid(UsageMode::Active, 60)
            }
        },
        gossips: true,
        metrics: &[RMS],
    },
    Experiment {
        name: "widths",
        title: "Jobs of several processors",
        says: "All jobs are of one width, sites have 100 cores, and nothing is backfilled.",
        x_label: "cores of each job",
        groups: &["1", "4", "16", "64"],
        bars: &MODE_NAMES,
        grid: |group, bar| GridSpec {
            widths: WIDTHS[group],
            ..grid(MODES[bar], 60)
        },
        gossips: false,
        metrics: &[RMS, USED],
    },
    Experiment {
        name: "backfill",
        title: "What backfill does to shares",
        says: "Each leaf's jobs take their widths in turn. EASY: a job starts early where the first that \
               does not fit is not delayed by what was asked for. Active usage.",
        x_label: "cores of jobs",
        groups: &["1", "1 to 8", "1 to 64", "P-A1, U-B11 32, others 1"],
        bars: &["none", "EASY"],
        grid: |group, bar| GridSpec {
            widths: MIXED[group],
            backfill: [Backfill::Off, Backfill::Easy][bar],
            ..grid(UsageMode::Active, 60)
        },
        gossips: false,
        metrics: &[RMS, USED],
    },
    Experiment {
        name: "spread",
        title: "Sites that spread work",
        says: "P-A2 and P-A3 submit to so many of six sites, P-A1 to all. Passing on: a site sends what it \
               gets to the site where the fewest wait. Dashes: P-A2's target. Active usage.",
        x_label: "sites that P-A2 and P-A3 submit to",
        groups: &["1", "2", "3", "6"],
        bars: &["own usage", "Grid-wide usage", "Grid-wide, passed on"],
        grid: |group, bar| {
            let mut spec = grid(UsageMode::Active, 60);
            spec.is_shared = bar > 0;
            spec.passes_on = bar > 1;
            for load in &mut spec.loads {
                let name = load.account.path.name();
                if name.is_some_and(|name| HALF_LEAVES.contains(&name)) {
                    load.broker = Broker::Restricted((0..REACH[group]).collect());
                }
            }
            spec
        },
        gossips: true,
        metrics: &[P_A2],
    },
];

/// The paper's Grid; [`pictures`] says for how long.
fn grid(mode: UsageMode, age_s: u64) -> GridSpec {
    GridSpec::paper(mode, Millis::from_secs(age_s), DAY)
}

/// Runs all experiments and draws what they gave: so many days, with each seed.
pub fn pictures(days: u64, seeds: &[u64], threads: usize) -> Result<Vec<Figure>, WorkloadError> {
    let mut pictures = Vec::new();
    for of in &EXPERIMENTS {
        pictures.extend(of.pictures(days, seeds, threads)?);
    }
    Ok(pictures)
}

impl Experiment {
    fn pictures(
        &self,
        days: u64,
        seeds: &[u64],
        threads: usize,
    ) -> Result<Vec<Figure>, WorkloadError> {
        let bars: Vec<usize> = (0..self.bars.len()).collect();
        let groups: Vec<usize> = (0..self.groups.len()).collect();
        let runs = each_with(&each_with(&bars, &groups), seeds);
        let values = each(&runs, threads, |((bar, group), seed)| {
            self.run(days, (*group, *bar), Seed(*seed))
        });
        let values: Vec<Vec<f64>> = values.into_iter().collect::<Result<_, _>>()?;
        let cells: Vec<&[Vec<f64>]> = values.chunks(seeds.len()).collect();
        let drawn = (0..self.metrics.len()).map(|metric| self.picture(metric, days, &cells));
        Ok(drawn.collect())
    }

    /// The metrics of one run.
    fn run(
        &self,
        days: u64,
        (group, bar): (usize, usize),
        seed: Seed,
    ) -> Result<Vec<f64>, WorkloadError> {
        let spec = GridSpec {
            duration: DAY.times(days),
            ..(self.grid)(group, bar)
        };
        let series = match self.gossips {
            true => run(&spec, seed, &mut Gossip::new(&spec, seed), &|| {})?,
            false => {
                let mut central = Central::new(spec.usage_mode, true);
                run(&spec, seed, &mut central, &|| {})?
            }
        };
        let measures = measure(&series);
        let value = |metric: &Metric| (metric.of)(&spec, &series, &measures);
        Ok(self.metrics.iter().map(value).collect())
    }

    /// `cells` are bar by bar, group by group, with the metrics of each seed.
    fn picture(&self, metric: usize, days: u64, cells: &[&[Vec<f64>]]) -> Figure {
        let spread = |cell: &&[Vec<f64>]| {
            let of_seeds: Vec<f64> = cell.iter().map(|of| of[metric]).collect();
            Spread::of(&of_seeds)
        };
        let bars = self.bars.iter().zip(cells.chunks(self.groups.len()));
        let bars = bars.map(|(name, cells)| Bars {
            name: (*name).to_owned(),
            spreads: cells.iter().map(spread).collect(),
        });
        let knows = match self.gossips {
            true => "Nodes gossip.",
            false => "One table for all sites, fed as the nodes are.",
        };
        let (of, seeds) = (&self.metrics[metric], cells[0].len());
        let texts = Texts {
            name: &format!("open-{}{}", self.name, of.name),
            title: self.title,
            caption: &format!(
                "{} {knows} The paper's Grid for {days} days; RMS errors are of cumulative shares after \
                 day one. Means and extremes of {seeds} {}.",
                self.says,
                if seeds == 1 { "seed" } else { "seeds" },
            ),
            x_label: self.x_label,
            y_label: of.y_label,
        };
        let figure = texts.bars(self.groups, bars);
        match of.reference {
            Some(y) => figure.against(y),
            None => figure,
        }
    }
}
