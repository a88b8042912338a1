//! Figures 5 to 14.
//!
//! Invariant: a caption says which load, which usage mode, which views, how many sites and days, and
//! which seed its lines are of. Each figure has a twin of the same load and axes under the
//! all-knowing scheduler.
//!
//! Deliberately not here: drawing ([`crate::figures`]).

use fairmesh_model::{Millis, UsageMode};

use super::experiment::{AGES_S, Case, Experiment, IDLE_LEAF, Knowledge, MODE_NAMES, MODES};
use super::measure::{Entry, EntryMeasures, entries, rms_of_all};
use super::outcome::{Outcome, Run};
use crate::figures::{Bars, Figure, Series, Spread, Texts};
use crate::grid::{Sample, UsageSeries};
use simnet::vo::DAY;

/// Numbers of the figures.
pub const NUMBERS: std::ops::RangeInclusive<u32> = 5..=14;

/// The figure that compares all modes.
pub const COMPARISON: u32 = 14;

/// Shares are shown over so long a time where it matters what happens now.
const RECENT: Millis = Millis::from_secs(12 * 3_600);

/// What a line chart shows.
struct Plan {
    number: u32,
    experiment: Experiment,
    title: &'static str,
    says: &'static str,
    /// What its twin shows, where that is something else.
    twin_says: Option<&'static str>,
    /// Below this entry only; all if it is `None`.
    below: Option<&'static str>,
    /// Shares of the last [`RECENT`] instead of all time.
    is_recent: bool,
}

/// What figure `number` is made from; nothing if there is no such figure.
pub fn experiments_of(number: u32) -> Vec<Experiment> {
    if number == COMPARISON {
        let mut all = Experiment::all();
        all.retain(|experiment| experiment.case == Case::Steady);
        return all;
    }
    let plans = plans();
    let plan = plans.iter().find(|plan| plan.number == number);
    plan.map_or(Vec::new(), |plan| {
        vec![plan.experiment, plan.experiment.central()]
    })
}

/// The line charts of figure `number` that the outcome has runs for.
pub fn figures(outcome: &Outcome, number: u32) -> Vec<Figure> {
    let plans = plans();
    let Some(plan) = plans.iter().find(|plan| plan.number == number) else {
        return Vec::new();
    };
    let twins = [plan.experiment, plan.experiment.central()];
    let draw = |experiment: Experiment| {
        let run = outcome.runs.get(&experiment)?.first()?;
        Some(plan.draw(outcome, experiment, &run.series))
    };
    twins.into_iter().filter_map(draw).collect()
}

/// The comparison of all modes, if the outcome has runs for it.
pub fn comparison(outcome: &Outcome) -> Option<Figure> {
    let [short, long] = AGES_S;
    let all = [
        (Knowledge::Gossip(short), format!("gossip, {short} s")),
        (Knowledge::Gossip(long), format!("gossip, {long} s")),
        (Knowledge::Table(short), format!("all-knowing, {short} s")),
        (Knowledge::Central, "all-knowing, 0 s".to_owned()),
    ];
    let mut bars = Vec::new();
    for (knowledge, name) in all {
        let rms = |mode| {
            let runs = outcome
                .runs
                .get(&Experiment::new(Case::Steady, mode, knowledge))?;
            let of_run = |run: &Run| (rms_of_all(run.measures.entries.iter()) * LOG_SCALE).log10();
            let values: Vec<f64> = runs.iter().map(of_run).collect();
            Spread::of(&values)
        };
        let spreads: Vec<Option<Spread>> = MODES.into_iter().map(rms).collect();
        if spreads.iter().any(Option::is_some) {
            bars.push(Bars { name, spreads });
        }
    }
    let texts = Texts {
        name: &format!("figure-{COMPARISON:02}"),
        title: &format!("Figure {COMPARISON}: what gossip costs, by usage mode"),
        caption: &comparison_caption(outcome),
        x_label: "usage mode",
        y_label: "RMS error (log10 of 1/1000 points)",
    };
    (!bars.is_empty()).then(|| texts.bars(MODE_NAMES, bars).within(0.0, 4.0))
}

/// Bars on a logarithmic axis stand on a thousandth of a percentage point.
const LOG_SCALE: f64 = 1_000.0;

/// RMS error of the entries of one level.
pub fn rms_at(measures: &[EntryMeasures], level: usize) -> f64 {
    let entries = entries();
    let of_level = entries.iter().zip(measures);
    let of_level = of_level.filter(|(entry, _)| entry.level == level);
    rms_of_all(of_level.map(|(_, of)| of))
}

fn comparison_caption(outcome: &Outcome) -> String {
    format!(
        "Figure {COMPARISON}. RMS error of all entries' cumulative shares after day one, on a \
         logarithmic axis: 1 is a hundredth of a percentage point, 2 a tenth, 3 a whole one. \
         Seconds are the age that usage gets before schedulers see what came after it. The \
         all-knowing scheduler has one table for all sites: at {} s it is told what the nodes are \
         told, at the same moments; at 0 s it sees everything at once. {} Bars are means over {}; \
         thin lines span the seeds.",
        AGES_S[0],
        setting(outcome),
        seeds(outcome),
    )
}

fn seeds(outcome: &Outcome) -> String {
    match outcome.seeds.len() {
        1 => "one seed".to_owned(),
        count => format!("{count} seeds"),
    }
}

fn setting(outcome: &Outcome) -> String {
    format!(
        "{} sites of 100 CPUs, VO-A 30 and VO-B 70 percent of each site; every leaf submits a \
         single-CPU job of one hour ± 40 % each 15 s to a random one of \
         its sites.",
        outcome.extent.sites,
    )
}

fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut number = *NUMBERS.start();
    let convergence = [
        (
            "only finished jobs count",
            "Each account overshoots while its jobs run unseen.",
        ),
        (
            "running jobs count for what they have used",
            "Swings are smaller: a job is seen while it runs.",
        ),
        (
            "running jobs count for what they will use",
            "A job is seen when it starts, by its requested time (20 to 40 % too long).",
        ),
    ];
    for (mode, (title, says)) in MODES.into_iter().zip(convergence) {
        for age in AGES_S {
            plans.push(Plan {
                number,
                experiment: Experiment::new(Case::Steady, mode, Knowledge::Gossip(age)),
                title,
                says,
                twin_says: None,
                below: None,
                is_recent: false,
            });
            number += 1;
        }
    }
    plans.extend(special_plans());
    plans
}

const TWIN_OF_HALF: &str = "P-A2 and P-A3 submit to sites 0 to 2 only. Usage of all sites counts at \
     once, so they get their shares of the whole Grid.";

fn special_plans() -> [Plan; 3] {
    let age = AGES_S[0];
    let of = |case, knowledge| Experiment::new(case, UsageMode::Predictive, knowledge);
    [
        Plan {
            number: 11,
            experiment: of(Case::Half, Knowledge::OwnSite(age)),
            title: "P-A2 and P-A3 on half of the sites",
            says: "P-A2 and P-A3 submit to sites 0 to 2 only. Each site goes by its own usage, so \
                   they get their shares of half of the Grid, and P-A1 all of VO-A elsewhere.",
            twin_says: Some(TWIN_OF_HALF),
            below: Some("VO-A"),
            is_recent: true,
        },
        Plan {
            number: 12,
            experiment: of(Case::Half, Knowledge::Gossip(age)),
            title: "P-A2 and P-A3 on half of the sites",
            says: "P-A2 and P-A3 submit to sites 0 to 2 only. Usage of all sites counts, so they get \
                   all of VO-A there, and their shares of the whole Grid.",
            twin_says: Some(TWIN_OF_HALF),
            below: Some("VO-A"),
            is_recent: true,
        },
        Plan {
            number: 13,
            experiment: of(Case::Idle, Knowledge::Gossip(age)),
            title: "U-B12 runs out of work on day three",
            says: "U-B12 submits its last job after 22.7 hours and has run out of work on the third \
                   day. Its siblings get 15 points each (dashed: 65 and 35), though their targets \
                   differ, and P-B1 keeps its 60.",
            twin_says: None,
            below: Some("VO-B"),
            is_recent: true,
        },
    ]
}

impl Plan {
    fn draw(&self, outcome: &Outcome, experiment: Experiment, series: &UsageSeries) -> Figure {
        let twin = match experiment.knowledge {
            Knowledge::Central => "-all-knowing",
            _ => "",
        };
        let texts = Texts {
            name: &format!("figure-{:02}{twin}", self.number),
            title: &format!(
                "Figure {}: {} ({})",
                self.number,
                self.title,
                experiment.steady()
            ),
            caption: &self.caption(outcome, experiment),
            x_label: "simulated time (days)",
            y_label: match self.is_recent {
                true => "share of the parent, last 12 hours (percent)",
                false => "cumulative share of the parent (percent)",
            },
        };
        let shown = entries().into_iter().filter(|entry| self.shows(entry));
        let lines = shown.map(|entry| self.line(&entry, series));
        texts.lines(lines).within(0.0, 100.0)
    }

    fn caption(&self, outcome: &Outcome, experiment: Experiment) -> String {
        let knows = match experiment.knowledge {
            Knowledge::Gossip(age) => format!("Schedulers see usage that is up to {age} s old."),
            Knowledge::OwnSite(age) => {
                format!("Schedulers see their own site's usage alone, up to {age} s old.")
            }
            Knowledge::Table(_) | Knowledge::Central => {
                "The all-knowing scheduler on the same load: all usage, no delay.".to_owned()
            }
        };
        let is_twin = experiment.knowledge == Knowledge::Central;
        let says = self.twin_says.filter(|_| is_twin).unwrap_or(self.says);
        let shares = match self.is_recent {
            true => "Shares of core time in the last 12 hours",
            false => "Shares of core time since the beginning",
        };
        format!(
            "Figure {}. {shares}, each in percent of the entry above; dashes are targets. {} {} {} \
             Usage mode: {}. Lines of seed {}.",
            self.number,
            says,
            knows,
            setting(outcome),
            experiment.mode_name(),
            outcome.seeds.first().copied().unwrap_or(0),
        )
    }

    fn shows(&self, entry: &Entry) -> bool {
        match self.below {
            None => true,
            Some(vo) => entry.is_of(vo),
        }
    }

    fn line(&self, entry: &Entry, series: &UsageSeries) -> Series {
        let first = &series.samples[0];
        let from = |sample: &Sample| {
            let since = sample.at.0.saturating_sub(RECENT.0);
            let recent = series.samples.iter().find(|first| first.at.0 >= since);
            recent.filter(|_| self.is_recent).unwrap_or(first).clone()
        };
        let point = |sample: &Sample| {
            let day = sample.at.0 as f64 / DAY.0 as f64;
            (day, entry.share(&series.leaves, &from(sample), sample))
        };
        let points = series.samples.iter().map(point);
        Series {
            target: self.target(entry),
            ..Series::new(&entry.name, entry.group(), points)
        }
    }

    /// Where the line should go: the policy's target, unless a sibling is idle.
    fn target(&self, entry: &Entry) -> Option<f64> {
        if self.experiment.case != Case::Idle || entry.level < 2 {
            return Some(entry.target);
        }
        (entry.name != IDLE_LEAF).then_some(entry.target + 15.0)
    }
}
