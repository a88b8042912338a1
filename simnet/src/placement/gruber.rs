//! GRUBER's experiments: a thousand jobs at once from one host, and from four.
//!
//! Invariant: every selector meets the same Grids, jobs and attempts that fail. Claims are computed from all runs.
//! Deliberately not here: the paper's absolute numbers as a goal; they stand beside ours ([`printed`]).
//! Source: GRUBER (Euro-Par 2005), section 4, tables 1 to 4 and figure 2.

use std::collections::BTreeMap;

use fairmesh_broker::Selector;
use fairmesh_model::Millis;

use super::Extent;
use super::hosts::{GROUP_CAP, Setup, VO_CAP, run};
use super::measure::{Measure, RunMeasures};
use super::printed::{self, SELECTORS};
use super::site::Faults;
use crate::experiment::{self, Claim, Table, deviation, each, mean};
use crate::figures::{Figure, Series};

/// Time of a thousand jobs of an hour on 150 CPUs, hours; a selector that knows what is free is to take
/// 1.6 times as long at most.
const BOUND_H: f64 = 1_000.0 / 150.0;
const BOUND_FACTOR: f64 = 1.6;

/// Hours that the figures show.
const HOURS_SHOWN: u64 = 16;

/// Which runs belong together: those of all seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Submit hosts.
    pub hosts: usize,
    /// How attempts fail.
    pub faults: Faults,
    /// In [`SELECTORS`].
    selector: usize,
}

/// All runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    runs: BTreeMap<Cell, Vec<RunMeasures>>,
    /// Equal runs of RA on one Grid, harsh: only the draws of jobs and attempts differ.
    equal: Vec<RunMeasures>,
}

impl Outcome {
    /// Runs all of it.
    pub fn of(extent: &Extent) -> Self {
        let jobs = extent.jobs;
        let of_cell = |cell: &Cell, seed| Setup {
            jobs,
            ..Setup::new(seed, cell.faults, SELECTORS[cell.selector], cell.hosts)
        };
        let equal = |seed: u64| Setup {
            grid: 1,
            jobs,
            ..Setup::new(1_000 + seed, Faults::Harsh, Selector::Random, 1)
        };
        let mut cells: Vec<Option<Cell>> = cells().map(Some).collect();
        cells.push(None);
        let mut runs = each(extent.threads, &extent.seeds, &cells, |cell, seed| {
            run(cell
                .as_ref()
                .map_or_else(|| equal(seed), |cell| of_cell(cell, seed)))
        });
        let equal = runs.pop().expect("the last of them");
        Self {
            runs: cells.into_iter().flatten().zip(runs).collect(),
            equal,
        }
    }

    /// All runs of all cells.
    pub fn all(&self) -> impl Iterator<Item = &RunMeasures> {
        self.runs.values().flatten().chain(&self.equal)
    }

    fn values(&self, cell: Cell, measure: Measure) -> Vec<f64> {
        self.runs[&cell].iter().map(|run| measure.of(run)).collect()
    }

    fn mean(&self, hosts: usize, faults: Faults, selector: Selector, measure: Measure) -> f64 {
        let selector = SELECTORS
            .iter()
            .position(|of| *of == selector)
            .expect("one of the paper's");
        mean(&self.values(
            Cell {
                hosts,
                faults,
                selector,
            },
            measure,
        ))
    }

    /// Selectors side by side, for people: mean and deviation of each kind of Grid, above what is printed.
    pub fn compared(&self, hosts: usize) -> Table {
        let names = SELECTORS.iter().map(|of| of.to_string().to_uppercase());
        let title = format!("{hosts}x1K, mean (sd) of all Grids");
        let columns = ["measure", "Grid"]
            .map(str::to_owned)
            .into_iter()
            .chain(names);
        let mut table = Table::new(&format!("gruber-{hosts}x1K"), title, columns);
        for (measure, name) in Measure::ALL {
            for (faults, word) in Faults::ALL {
                let cells = (0..SELECTORS.len()).map(|selector| {
                    let values = self.values(
                        Cell {
                            hosts,
                            faults,
                            selector,
                        },
                        measure,
                    );
                    format!("{} ({})", short(mean(&values)), short(deviation(&values)))
                });
                table.row([name.to_owned(), word.to_owned()].into_iter().chain(cells));
            }
            let printed = SELECTORS.iter().map(|selector| {
                let of = printed::of(hosts, *selector, measure);
                of.map_or_else(|| "-".to_owned(), |of| of.to_string())
            });
            table.row(
                [name.to_owned(), "printed".to_owned()]
                    .into_iter()
                    .chain(printed),
            );
        }
        table
    }

    /// Equal runs: what a difference between two selectors has to be held against.
    pub fn equal_runs(&self) -> Table {
        let title = "RA, equal runs on one Grid";
        let mut table = Table::new("gruber-equal", title, ["measure", "mean (sd)", "printed"]);
        for (measure, name) in Measure::ALL {
            let values: Vec<f64> = self.equal.iter().map(|run| measure.of(run)).collect();
            let printed = printed::ten_runs(measure);
            table.row([
                name.to_owned(),
                format!("{} ({})", short(mean(&values)), short(deviation(&values))),
                format!("{} ({})", printed.0, printed.1),
            ]);
        }
        table
    }

    /// Percent of jobs that had ended well, over time: one picture a kind of Grid, one host.
    pub fn figures(&self) -> Vec<Figure> {
        let series = |faults: Faults| {
            move |(selector, of): (usize, &Selector)| {
                let runs = &self.runs[&Cell {
                    hosts: 1,
                    faults,
                    selector,
                }];
                let point = |quarter: u64| {
                    let at = Millis::from_secs(quarter * 900);
                    let completed: Vec<f64> = runs.iter().map(|run| run.completed(at)).collect();
                    (quarter as f64 / 4.0, mean(&completed))
                };
                Series {
                    name: of.to_string().to_uppercase(),
                    points: (0..=HOURS_SHOWN * 4).map(point).collect(),
                    target: None,
                    colour_group: selector,
                }
            }
        };
        Faults::ALL.into_iter().map(|(faults, word)| Figure {
            name: format!("completion-{word}"),
            title: format!("1x1K, {word}: jobs that have ended well"),
            caption: "A thousand jobs of an hour from one host whose group may hold 150 CPUs; the mean of all seeds.".to_owned(),
            x_label: "hours since the first submission".to_owned(),
            y_label: "% of all jobs".to_owned(),
            y_range: Some((0.0, 100.0)),
            series: SELECTORS.iter().enumerate().map(series(faults)).collect(),
        }).collect()
    }

    /// What the specification of the experiment claims.
    pub fn claims(&self) -> Vec<Claim> {
        let mut claims = vec![self.limits()];
        for hosts in [1, 4] {
            for (faults, word) in Faults::ALL {
                let load = format!("{hosts}x1K {word}");
                claims.push(self.extreme(hosts, faults, Measure::Util, false, &load));
                claims.push(self.extreme(hosts, faults, Measure::Delay, true, &load));
                if hosts == 1 {
                    claims.push(self.extreme(hosts, faults, Measure::Time, true, &load));
                    claims.push(self.fewest_replannings(faults, &load));
                }
                if hosts == 4 && faults == Faults::Harsh {
                    claims.push(self.extreme(hosts, faults, Measure::Comp, false, &load));
                }
            }
        }
        claims.push(self.bound());
        for (faults, word) in Faults::ALL {
            claims.push(self.watched(
                faults,
                Selector::LeastRecentlyUsed,
                false,
                &format!("LRU has the least Comp of those that ask, 1x1K {word}"),
            ));
            claims.push(self.watched(
                faults,
                Selector::LeastUsed,
                true,
                &format!("LU has the most Comp, 1x1K {word}"),
            ));
        }
        claims
    }

    fn limits(&self) -> Claim {
        let broken = self.all().find_map(|run| run.broken.clone());
        let group = self
            .all()
            .map(|run| run.group_max)
            .max()
            .unwrap_or_default();
        let vo = self.all().map(|run| run.vo_max).max().unwrap_or_default();
        let numbers = format!(
            "{} runs: {group} and {vo} at most{}",
            self.all().count(),
            broken
                .as_ref()
                .map_or_else(String::new, |what| format!("; {what}"))
        );
        Claim::new(
            format!(
                "no group ever has more than {GROUP_CAP} CPUs at sites, nor the VO more than {VO_CAP}"
            ),
            numbers,
            broken.is_none(),
        )
    }

    /// S-RA is worst.
    fn extreme(
        &self,
        hosts: usize,
        faults: Faults,
        measure: Measure,
        greatest: bool,
        load: &str,
    ) -> Claim {
        let of = |selector: Selector| self.mean(hosts, faults, selector, measure);
        let naive = of(Selector::Naive);
        let others: Vec<f64> = aware().map(of).collect();
        let next = others.iter().copied().fold(
            if greatest { f64::MIN } else { f64::MAX },
            if greatest { f64::max } else { f64::min },
        );
        let holds = if greatest { naive > next } else { naive < next };
        let name = Measure::ALL
            .iter()
            .find(|(of, _)| *of == measure)
            .expect("one of them")
            .1;
        Claim::new(
            format!("S-RA is worst in {name}, {load}"),
            format!("{} against {}", short(naive), short(next)),
            holds,
        )
    }

    fn fewest_replannings(&self, faults: Faults, load: &str) -> Claim {
        let of = |selector: Selector| self.mean(1, faults, selector, Measure::Replan);
        let observant = of(Selector::Observant);
        let others = SELECTORS
            .into_iter()
            .filter(|of| *of != Selector::Observant)
            .map(of);
        let next = others.fold(f64::MAX, f64::min);
        Claim::new(
            format!("OBS has the fewest re-plannings, {load}"),
            format!("{} against {}", short(observant), short(next)),
            observant < next,
        )
    }

    fn bound(&self) -> Claim {
        let (hosts, faults) = (1, Faults::Benign);
        let cells = SELECTORS
            .iter()
            .enumerate()
            .filter(|(_, of)| **of != Selector::Naive);
        let worst = cells.map(|(selector, of)| {
            let values = self.values(
                Cell {
                    hosts,
                    faults,
                    selector,
                },
                Measure::Time,
            );
            (values.into_iter().fold(0.0, f64::max), of)
        });
        let (hours, selector) = worst.max_by(|a, b| a.0.total_cmp(&b.0)).expect("some");
        let most = BOUND_H * BOUND_FACTOR;
        Claim::new(
            format!(
                "every selector that asks what is free takes {most:.2} h at most, 1x1K benign, at every seed"
            ),
            format!(
                "{hours:.2} h at worst ({})",
                selector.to_string().to_uppercase()
            ),
            hours <= most,
        )
    }

    fn watched(&self, faults: Faults, selector: Selector, greatest: bool, what: &str) -> Claim {
        let comp = |of: Selector| self.mean(1, faults, of, Measure::Comp);
        let others = aware().filter(|of| *of != selector).map(comp);
        let (own, holds, next) = match greatest {
            true => {
                let next = others.fold(f64::MIN, f64::max);
                (comp(selector), comp(selector) > next, next)
            }
            false => {
                let next = others.fold(f64::MAX, f64::min);
                (comp(selector), comp(selector) < next, next)
            }
        };
        Claim::watched(what, format!("{own:.2} % against {next:.2} %"), holds)
    }
}

/// Runs it.
pub(super) fn experiment(extent: &Extent) -> experiment::Outcome {
    let outcome = Outcome::of(extent);
    experiment::Outcome {
        tables: vec![
            outcome.compared(1),
            outcome.compared(4),
            outcome.equal_runs(),
        ],
        lines: outcome.figures(),
        claims: outcome.claims(),
        ..experiment::Outcome::default()
    }
}

/// Selectors that ask what is free.
fn aware() -> impl Iterator<Item = Selector> {
    SELECTORS.into_iter().filter(|of| *of != Selector::Naive)
}

fn cells() -> impl Iterator<Item = Cell> {
    let loads = [1, 4]
        .into_iter()
        .flat_map(|hosts| Faults::ALL.map(|(faults, _)| (hosts, faults)));
    loads.flat_map(|(hosts, faults)| {
        (0..SELECTORS.len()).map(move |selector| Cell {
            hosts,
            faults,
            selector,
        })
    })
}

/// With as many decimals as say something.
pub(super) fn short(number: f64) -> String {
    match number.abs() {
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}
