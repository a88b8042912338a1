//! GRUBER's experiments: a thousand jobs at once from one host, and from four.
//!
//! Invariant: every selector meets the same Grids, jobs and attempts that fail. Claims are computed from all runs.
//! Deliberately not here: the paper's absolute numbers as a goal; they stand beside ours ([`printed`]).
//! Source: GRUBER (Euro-Par 2005), section 4, tables 1 to 4 and figure 2.

use fairmesh_broker::Selector;
use fairmesh_model::Millis;

use super::Extent;
use super::hosts::{GROUP_CAP, Setup, VO_CAP, run};
use super::measure::{Measure, RunMeasures};
use super::printed::{self, SELECTORS};
use super::site::Faults;
use crate::experiment::{self, Claim, Row, Study, Table, deviation, each_with, mean};
use crate::figures::{Figure, Series, Texts};

/// Time of a thousand jobs of an hour on 150 CPUs, hours; a selector that knows what is free is to take
/// 1.6 times as long at most.
const BOUND_H: f64 = 1_000.0 / 150.0;
const BOUND_FACTOR: f64 = 1.6;

/// Hours that the figures show.
const HOURS_SHOWN: u64 = 16;

/// Submit hosts, how attempts fail, and who chooses sites.
type Case = (usize, Faults, Selector);

/// All runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    runs: Study<Case, RunMeasures>,
    /// Equal runs of RA on one Grid, harsh: only the draws of jobs and attempts differ.
    equal: Row<(), RunMeasures>,
}

impl Outcome {
    /// Runs all of it.
    pub fn of(extent: &Extent) -> Self {
        let grids = each_with(&[1, 4], &Faults::ALL.map(|(faults, _)| faults));
        let cases = each_with(&grids, &SELECTORS).into_iter();
        let cases: Vec<Case> = cases
            .map(|((hosts, faults), of)| (hosts, faults, of))
            .collect();
        let runs = extent.study(cases, |&(hosts, faults, selector), extent, seed| {
            run(Setup {
                jobs: extent.jobs,
                ..Setup::new(seed, faults, selector, hosts)
            })
        });
        let mut equal = extent.study([()], |(), extent, seed| {
            run(Setup {
                grid: 1,
                jobs: extent.jobs,
                ..Setup::new(1_000 + seed, Faults::Harsh, Selector::Random, 1)
            })
        });
        Self {
            runs,
            equal: equal.rows.remove(0),
        }
    }

    /// All runs of all cases.
    pub fn all(&self) -> impl Iterator<Item = &RunMeasures> {
        let runs = self.runs.rows.iter().flat_map(|row| &row.runs);
        runs.chain(&self.equal.runs)
    }

    /// Selectors side by side, for people: mean and deviation of each kind of Grid, above what is printed.
    pub fn compared(&self, hosts: usize) -> Table {
        let columns = ["measure", "Grid"].map(str::to_owned).into_iter();
        let columns = columns.chain(SELECTORS.iter().map(upper));
        let title = format!("{hosts}x1K, mean (sd) of all Grids");
        let mut table = Table::new(&format!("gruber-{hosts}x1K"), title, columns);
        for (measure, name) in Measure::ALL {
            let mut row = |word: &str, cells: [String; 6]| {
                table.row([name.to_owned(), word.to_owned()].into_iter().chain(cells));
            };
            for (faults, word) in Faults::ALL {
                let ours = |of| with_deviation(self.runs.at((hosts, faults, of)), measure);
                row(word, SELECTORS.map(ours));
            }
            let printed = |selector| printed::of(hosts, selector, measure);
            let shown =
                |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |of| of.to_string());
            row("printed", SELECTORS.map(printed).map(shown));
        }
        table
    }

    /// Equal runs: what a difference between two selectors has to be held against.
    pub fn equal_runs(&self) -> Table {
        let title = "RA, equal runs on one Grid";
        let mut table = Table::new("gruber-equal", title, ["measure", "mean (sd)", "printed"]);
        for (measure, name) in Measure::ALL {
            let (mean, deviation) = printed::ten_runs(measure);
            let ours = with_deviation(&self.equal, measure);
            table.row([name.to_owned(), ours, format!("{mean} ({deviation})")]);
        }
        table
    }

    /// Percent of jobs that had ended well, over time: one picture a kind of Grid, one host.
    pub fn figures(&self) -> Vec<Figure> {
        let figure = |(faults, word): (Faults, &str)| {
            let line = |(at, selector): (usize, &Selector)| {
                let row = self.runs.at((1, faults, *selector));
                let point = |quarter: u64| {
                    let at = Millis::from_secs(quarter * 900);
                    (quarter as f64 / 4.0, row.average(|run| run.completed(at)))
                };
                Series::new(upper(selector), at, (0..=HOURS_SHOWN * 4).map(point))
            };
            let texts = Texts {
                name: &format!("completion-{word}"),
                title: &format!("1x1K, {word}: jobs that have ended well"),
                caption: "A thousand jobs of an hour from one host whose group may hold 150 CPUs; the mean of all seeds.",
                x_label: "hours since the first submission",
                y_label: "% of all jobs",
            };
            let lines = SELECTORS.iter().enumerate().map(line);
            texts.lines(lines).within(0.0, 100.0)
        };
        Faults::ALL.map(figure).into()
    }

    /// What the specification of the experiment claims.
    pub fn claims(&self) -> Vec<Claim> {
        let mut claims = vec![self.limits()];
        for hosts in [1, 4] {
            for (faults, word) in Faults::ALL {
                let load = format!("{hosts}x1K {word}");
                let mut must = |what: &str, (own, next, holds): (f64, f64, bool)| {
                    let measured = format!("{} against {}", short(own), short(next));
                    claims.push(Claim::new(format!("{what}, {load}"), measured, holds));
                };
                let naive = |measure, end| {
                    self.compare((hosts, faults, measure), Selector::Naive, end, is_aware)
                };
                must("S-RA is worst in Util %", naive(Measure::Util, Least));
                must("S-RA is worst in Delay s", naive(Measure::Delay, Greatest));
                if hosts == 1 {
                    must("S-RA is worst in Time h", naive(Measure::Time, Greatest));
                    let replannings = (hosts, faults, Measure::Replan);
                    let observant = self.compare(replannings, Selector::Observant, Least, |_| true);
                    must("OBS has the fewest re-plannings", observant);
                } else if faults == Faults::Harsh {
                    must("S-RA is worst in Comp %", naive(Measure::Comp, Least));
                }
            }
        }
        claims.push(self.bound());
        for (faults, word) in Faults::ALL {
            let least = format!("LRU has the least Comp of those that ask, 1x1K {word}");
            claims.push(self.watched(faults, Selector::LeastRecentlyUsed, Least, least));
            let most = format!("LU has the most Comp, 1x1K {word}");
            claims.push(self.watched(faults, Selector::LeastUsed, Greatest, most));
        }
        claims
    }

    fn limits(&self) -> Claim {
        let broken = self.all().find_map(|run| run.broken.as_ref());
        let most = |of: fn(&RunMeasures) -> u64| self.all().map(of).max().unwrap_or_default();
        let (group, vo) = (most(|run| run.group_max), most(|run| run.vo_max));
        let what = broken.map_or_else(String::new, |what| format!("; {what}"));
        Claim::new(
            format!(
                "no group ever has more than {GROUP_CAP} CPUs at sites, nor the VO more than {VO_CAP}"
            ),
            format!(
                "{} runs: {group} and {vo} at most{what}",
                self.all().count()
            ),
            broken.is_none(),
        )
    }

    /// A selector's mean, the nearest mean of others, and whether its own is beyond all of theirs.
    fn compare(
        &self,
        (hosts, faults, measure): (usize, Faults, Measure),
        selector: Selector,
        end: End,
        others: impl Fn(Selector) -> bool,
    ) -> (f64, f64, bool) {
        let mean = |of| {
            self.runs
                .at((hosts, faults, of))
                .average(|run| measure.of(run))
        };
        let others = SELECTORS
            .into_iter()
            .filter(|of| *of != selector && others(*of))
            .map(mean);
        let own = mean(selector);
        match end {
            Greatest => {
                let next = others.fold(f64::MIN, f64::max);
                (own, next, own > next)
            }
            Least => {
                let next = others.fold(f64::MAX, f64::min);
                (own, next, own < next)
            }
        }
    }

    fn bound(&self) -> Claim {
        let worst = SELECTORS.iter().filter(|of| is_aware(**of)).map(|of| {
            let row = self.runs.at((1, Faults::Benign, *of));
            (row.greatest(|run| Measure::Time.of(run)), of)
        });
        let (hours, selector) = worst.max_by(|a, b| a.0.total_cmp(&b.0)).expect("some");
        let most = BOUND_H * BOUND_FACTOR;
        Claim::new(
            format!(
                "every selector that asks what is free takes {most:.2} h at most, 1x1K benign, at every seed"
            ),
            format!("{hours:.2} h at worst ({})", upper(selector)),
            hours <= most,
        )
    }

    fn watched(&self, faults: Faults, selector: Selector, end: End, what: String) -> Claim {
        let cell = (1, faults, Measure::Comp);
        let (own, next, holds) = self.compare(cell, selector, end, is_aware);
        Claim::watched(what, format!("{own:.2} % against {next:.2} %"), holds)
    }
}

/// Which end of all means one has to be.
#[derive(Debug, Clone, Copy)]
enum End {
    Least,
    Greatest,
}

use End::{Greatest, Least};

/// Runs it.
pub(super) fn experiment(extent: &Extent) -> experiment::Outcome {
    let outcome = Outcome::of(extent);
    experiment::Outcome {
        tables: vec![
            outcome.compared(1),
            outcome.compared(4),
            outcome.equal_runs(),
        ],
        figures: outcome.figures(),
        claims: outcome.claims(),
    }
}

/// Whether a selector asks what is free.
fn is_aware(selector: Selector) -> bool {
    selector != Selector::Naive
}

/// The name that the papers use.
pub(super) fn upper(selector: &Selector) -> String {
    selector.to_string().to_uppercase()
}

fn with_deviation<C>(row: &Row<C, RunMeasures>, measure: Measure) -> String {
    let values = row.values(|run| measure.of(run));
    format!("{} ({})", short(mean(&values)), short(deviation(&values)))
}

/// With as many decimals as say something.
pub(super) fn short(number: f64) -> String {
    match number.abs() {
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}
