//! GRUBER's experiments: a thousand jobs at once from one host, and from four.
//!
//! Invariant: every selector meets the same Grids, jobs and attempts that fail. Claims are computed from all runs.
//! Deliberately not here: the paper's absolute numbers as a goal; they stand beside ours ([`printed`]).
//! Source: GRUBER (Euro-Par 2005), section 4, tables 1 to 4 and figure 2.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use fairmesh_broker::Selector;
use fairmesh_model::Millis;

use super::hosts::{GROUP_CAP, Setup, VO_CAP, run};
use super::measure::{Measure, RunMeasures, deviation, mean};
use super::printed::{self, SELECTORS};
use super::report::{Claim, Table};
use super::site::Faults;
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
    /// Runs all of it with so many jobs a host.
    pub fn of(seeds: u64, jobs: usize) -> Self {
        let cells: Vec<Cell> = cells().collect();
        let of_cell = |cell: &Cell, seed: u64| Setup {
            jobs,
            ..Setup::new(seed, cell.faults, SELECTORS[cell.selector], cell.hosts)
        };
        let equal = |seed: u64| Setup {
            grid: 1,
            jobs,
            ..Setup::new(1_000 + seed, Faults::Harsh, Selector::Random, 1)
        };
        let seeds = 1..=seeds;
        let mut setups: Vec<Setup> = cells
            .iter()
            .flat_map(|cell| seeds.clone().map(move |seed| of_cell(cell, seed)))
            .collect();
        setups.extend(seeds.clone().map(equal));
        let mut measured = run_all(&setups).into_iter();
        let mut take = || {
            seeds
                .clone()
                .filter_map(|_| measured.next())
                .collect::<Vec<_>>()
        };
        let runs = cells.iter().map(|cell| (*cell, take())).collect();
        Self {
            runs,
            equal: take(),
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

    /// One line a cell and measure: mean and deviation, and what is printed.
    pub fn table(&self) -> Table {
        let mut table = Table::new([
            "hosts", "faults", "measure", "selector", "mean", "sd", "printed",
        ]);
        for (cell, (measure, name)) in self
            .runs
            .keys()
            .flat_map(|cell| Measure::ALL.map(|of| (cell, of)))
        {
            let values = self.values(*cell, measure);
            let selector = SELECTORS[cell.selector];
            let printed = printed::of(cell.hosts, selector, measure);
            table.row([
                cell.hosts.to_string(),
                word(cell.faults).to_owned(),
                name.to_owned(),
                selector.to_string(),
                format!("{:.2}", mean(&values)),
                format!("{:.2}", deviation(&values)),
                printed.map_or_else(String::new, |of| of.to_string()),
            ]);
        }
        table
    }

    /// Selectors side by side, for people: mean and deviation of each kind of Grid, above what is printed.
    pub fn compared(&self, hosts: usize) -> Table {
        let names = SELECTORS.iter().map(|of| of.to_string().to_uppercase());
        let mut table = Table::new(["".to_owned(), "".to_owned()].into_iter().chain(names));
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
        let mut table = Table::new(["RA, equal runs", "mean (sd)", "printed"]);
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
        Claim::required(
            format!(
                "no group ever has more than {GROUP_CAP} CPUs at sites, nor the VO more than {VO_CAP}"
            ),
            broken.is_none(),
            numbers,
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
        Claim::required(
            format!("S-RA is worst in {name}, {load}"),
            holds,
            format!("{} against {}", short(naive), short(next)),
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
        Claim::required(
            format!("OBS has the fewest re-plannings, {load}"),
            observant < next,
            format!("{} against {}", short(observant), short(next)),
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
        Claim::required(
            format!(
                "every selector that asks what is free takes {most:.2} h at most, 1x1K benign, at every seed"
            ),
            hours <= most,
            format!(
                "{hours:.2} h at worst ({})",
                selector.to_string().to_uppercase()
            ),
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
        Claim::watched(what, holds, format!("{own:.2} % against {next:.2} %"))
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

fn word(faults: Faults) -> &'static str {
    Faults::ALL
        .iter()
        .find(|(of, _)| *of == faults)
        .expect("one of them")
        .1
}

/// With as many decimals as say something.
pub(super) fn short(number: f64) -> String {
    match number.abs() {
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Runs all, on all cores, in their order.
pub fn run_all(setups: &[Setup]) -> Vec<RunMeasures> {
    on_all_cores(setups, |setup| run(*setup))
}

/// What each task comes to, in their order.
pub(super) fn on_all_cores<T: Sync, R: Send>(tasks: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, R>> = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(task) = tasks.get(index) else { break };
                    let result = work(task);
                    done.lock()
                        .expect("no thread has panicked")
                        .insert(index, result);
                }
            });
        }
    });
    let done = done.into_inner().expect("no thread has panicked");
    done.into_values().collect()
}
