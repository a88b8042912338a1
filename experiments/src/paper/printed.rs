//! Figures 5 to 14 as the paper has them: its entries, its usage modes, cumulative axes.
//!
//! What the paper prints is known from its section 5; what it does not print is assumed, and captions
//! say so. Where it does not say in which usage mode a figure is, there is one picture for each.
//!
//! Invariant: a point is core time used since the beginning, of an entry against its parent's (a VO's
//! against the whole Grid's), and nothing is smoothed.
//!
//! Deliberately not here: what the text beside the pictures says (`docs/evaluation`).

use fairmesh_model::UsageMode;

use super::experiment::{AGES_S, Case, Experiment, IDLE_LEAF, Knowledge, MODES, SERVED};
use super::measure::{Entry, entries, rms_of_all};
use super::outcome::{Outcome, Run};
use crate::figures::{Bars, Figure, Series, Spread, Texts};
use crate::grid::{Sample, UsageSeries};
use simnet::vo::{DAY, HOUR};

/// Pictures have a point for so much simulated time.
const STEP: u64 = HOUR.0;

/// What Figure 4 and the text leave open.
const ASSUMED: &str = "Assumed, for the paper does not print it: 60/40 and 50/20 among the targets, how many days, \
     no decay, views 60 s old.";

/// A figure of the paper.
struct Plan {
    number: u32,
    case: Case,
    knowledge: Knowledge,
    /// `None` where the paper does not say.
    mode: Option<UsageMode>,
    /// Whose children are shown; the VOs if it is `None`.
    parent: Option<&'static str>,
    title: &'static str,
}

const GOSSIP: Knowledge = Knowledge::Gossip(AGES_S[0]);
const OWN: Knowledge = Knowledge::OwnSite(AGES_S[0]);
const HISTORICAL: Option<UsageMode> = Some(UsageMode::Historical);
const VO_A: Option<&str> = Some("VO-A");
const VO_B: Option<&str> = Some("VO-B");
const P_B1: Option<&str> = Some("P-B1");

#[rustfmt::skip]
const PLANS: [Plan; 10] = [
    plan(5, Case::Steady, GOSSIP, HISTORICAL, None, "VO-A and VO-B of the total capacity"),
    plan(6, Case::Steady, GOSSIP, HISTORICAL, VO_A, "VO-A's projects"),
    plan(7, Case::Steady, GOSSIP, HISTORICAL, VO_B, "VO-B's projects"),
    plan(8, Case::Steady, GOSSIP, HISTORICAL, P_B1, "P-B1's users"),
    plan(9, Case::Steady, GOSSIP, Some(UsageMode::Active), P_B1, "P-B1's users"),
    plan(10, Case::Steady, GOSSIP, Some(UsageMode::Predictive), P_B1, "P-B1's users"),
    plan(11, Case::Half, OWN, None, VO_A, "P-A2, P-A3 on 3 of 6 sites, local usage"),
    plan(12, Case::Half, GOSSIP, None, VO_A, "P-A2, P-A3 on 3 of 6 sites, global usage"),
    plan(13, Case::IdleEarly, GOSSIP, None, P_B1, "U-B12 runs out of work, P-B1's users"),
    plan(14, Case::IdleEarly, GOSSIP, None, VO_B, "U-B12 runs out of work, VO-B's projects"),
];

const fn plan(
    number: u32,
    case: Case,
    knowledge: Knowledge,
    mode: Option<UsageMode>,
    parent: Option<&'static str>,
    title: &'static str,
) -> Plan {
    Plan {
        number,
        case,
        knowledge,
        mode,
        parent,
        title,
    }
}

impl Plan {
    fn experiments(&self) -> impl Iterator<Item = Experiment> {
        let modes = MODES.into_iter();
        let modes = modes.filter(|mode| self.mode.is_none_or(|of| of == *mode));
        modes.map(|mode| Experiment::new(self.case, mode, self.knowledge))
    }

    fn draw(&self, outcome: &Outcome, experiment: Experiment, series: &UsageSeries) -> Figure {
        let mode = experiment.mode_name();
        let texts = Texts {
            name: &format!("printed-{:02}-{mode}", self.number),
            title: &format!("Figure {}: {} ({mode} usage)", self.number, self.title),
            caption: &format!(
                "Core time since the beginning in percent of {}; dashes are targets. {} sites of 100 \
                 CPUs, seed {}, by the exact rank. {ASSUMED}",
                self.parent.map_or("the Grid's", |_| "the parent's"),
                outcome.extent.sites,
                outcome.seeds.first().copied().unwrap_or(0),
            ),
            x_label: "simulated time (days)",
            y_label: "cumulative share (percent)",
        };
        let shown = self.entries().into_iter().zip(0..);
        let lines = shown.map(|(entry, group)| self.line(&entry, group, series));
        texts.lines(lines).within(0.0, 100.0)
    }

    fn entries(&self) -> Vec<Entry> {
        let mut shown = entries();
        shown.retain(|entry| entry.is_child_of(self.parent));
        shown
    }

    fn line(&self, entry: &Entry, colour_group: usize, series: &UsageSeries) -> Series {
        let first = &series.samples[0];
        let points = series
            .samples
            .iter()
            .filter(|sample| sample.at.0 % STEP == 0);
        let point = |sample: &Sample| {
            let day = sample.at.0 as f64 / DAY.0 as f64;
            (day, entry.share(&series.leaves, first, sample))
        };
        let is_idle = self.case == Case::IdleEarly && entry.name == IDLE_LEAF;
        Series {
            target: (!is_idle).then(|| self.target(entry)),
            ..Series::new(&entry.name, colour_group, points.map(point))
        }
    }

    /// Shares at the end of each mode's runs, under each thing that schedulers are given.
    fn ends(&self, outcome: &Outcome) -> Figure {
        let shares: Vec<_> = (entries().into_iter().enumerate())
            .filter(|(_, entry)| entry.is_child_of(self.parent))
            .map(|(at, entry)| {
                (entry.name, move |run: &Run| {
                    entry.target + run.measures.entries[at].at_end
                })
            })
            .collect();
        let of_mode = |experiment: Experiment| {
            shares.iter().map(move |(name, share)| {
                let name = format!("{name}, {}", experiment.mode_name());
                (name, experiment, share as OfRun)
            })
        };
        let groups: Vec<_> = self.experiments().flat_map(of_mode).collect();
        let texts = Texts {
            name: &format!("printed-served-{}", self.number),
            title: &format!(
                "What schedulers are given: figure {} at its end",
                self.number
            ),
            caption: "Core time since the beginning in percent of the parent's.",
            x_label: "entry and usage mode",
            y_label: "cumulative share (percent)",
        };
        comparison(outcome, texts, &groups)
    }

    /// What an idle sibling leaves goes to the others in equal parts.
    fn target(&self, entry: &Entry) -> f64 {
        let is_sibling = self.case == Case::IdleEarly && self.parent == P_B1;
        entry.target + if is_sibling { 15.0 } else { 0.0 }
    }
}

/// The figures that the outcome has runs for.
pub fn figures(outcome: &Outcome) -> Vec<Figure> {
    let mut figures = Vec::new();
    for plan in &PLANS {
        for experiment in plan.experiments() {
            let run = outcome.runs.get(&experiment).and_then(|runs| runs.first());
            figures.extend(run.map(|run| plan.draw(outcome, experiment, &run.series)));
        }
    }
    figures
}

/// What schedulers are given, against each other: errors at the VOs and below with steady work, and the
/// shares of figures 11 to 14 at the end.
pub fn comparisons(outcome: &Outcome) -> Vec<Figure> {
    let errors = |name: &str, whose: &str, is_shown: fn(&Entry) -> bool| {
        let of_run = |run: &Run| {
            let entries = entries();
            let shown = entries.iter().zip(&run.measures.entries);
            rms_of_all(shown.filter(|(entry, _)| is_shown(entry)).map(|(_, of)| of))
        };
        let of_mode = |mode| {
            let experiment = Experiment::new(Case::Steady, mode, GOSSIP);
            (
                experiment.mode_name().to_owned(),
                experiment,
                &of_run as OfRun,
            )
        };
        let texts = Texts {
            name: &format!("printed-served-{name}"),
            title: &format!("What schedulers are given: errors of {whose}"),
            caption: "RMS of cumulative share less target after day one, everybody has work.",
            x_label: "usage mode",
            y_label: "RMS error (percentage points)",
        };
        comparison(outcome, texts, &MODES.map(of_mode))
    };
    let mut all = vec![
        errors("vos", "the VOs", |entry| entry.level == 0),
        errors("below", "projects and users", |entry| entry.level > 0),
    ];
    let unprinted = PLANS.iter().filter(|plan| plan.mode.is_none());
    all.extend(unprinted.map(|plan| plan.ends(outcome)));
    all
}

/// What a bar shows of a run.
type OfRun<'a> = &'a dyn Fn(&Run) -> f64;

/// One group of bars for each of `groups`, a bar for each thing that schedulers are given; the caption goes on.
fn comparison(
    outcome: &Outcome,
    texts: Texts<'_>,
    groups: &[(String, Experiment, OfRun)],
) -> Figure {
    let bars = SERVED.map(|(served, name)| {
        let spread = |(_, experiment, of_run): &(String, Experiment, OfRun)| {
            let runs = outcome.runs.get(&experiment.as_served(served))?;
            Spread::of(&runs.iter().map(of_run).collect::<Vec<_>>())
        };
        Bars {
            name: name.to_owned(),
            spreads: groups.iter().map(spread).collect(),
        }
    });
    let (seeds, days) = (outcome.seeds.len(), outcome.extent.duration.0 / DAY.0);
    let caption = format!(
        "{} Exact rank: at each pass. Slurm: factors as fairmesh slurm sync sets them each 30 s. \
         {seeds} {}, {days} days: mean and extremes. {ASSUMED}",
        texts.caption,
        if seeds == 1 { "seed" } else { "seeds" },
    );
    let texts = Texts {
        caption: &caption,
        ..texts
    };
    texts.bars(groups.iter().map(|(name, ..)| name), bars)
}
