//! What experiments have in common: cases by seeds on all cores, and what they come to: tables, pictures, and
//! what must hold.
//!
//! Invariant: results are in the order of cases and seeds, whichever thread has run them; whether something holds
//! is worked out of the numbers that the tables show.
//! Deliberately not here: what is run ([`crate::quotas`], [`crate::placement`]), and where it goes.

mod study;

use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, ContentArrangement, Table as Printed, presets};

use crate::figures::{Figure, FigureError, Spread};
use simnet::check::pool;
use simnet::progress;

pub use study::{Columns, Row, Study, each_with, listed};

/// An experiment, by its name.
pub type Experiment = (&'static str, fn(&Extent) -> Outcome);

/// How much is run.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Whose draws.
    pub seeds: Vec<u64>,
    /// Of quotas: cores, grants and demand are divided by this; 1 is what the tables in `docs/quotas.md` say.
    pub divisor: u64,
    /// Of placement: jobs of each submit host.
    pub jobs: usize,
    /// Threads.
    pub threads: usize,
}

impl Extent {
    /// Runs each case with each seed.
    pub fn study<C: Sync, M: Send>(
        &self,
        cases: impl Into<Vec<C>>,
        run: impl Fn(&C, &Self, u64) -> M + Sync,
    ) -> Study<C, M> {
        let cases = cases.into();
        let runs = each(self.threads, &self.seeds, &cases, |case, seed| {
            run(case, self, seed)
        });
        let rows = cases.into_iter().zip(runs);
        let rows = rows.map(|(case, runs)| Row { case, runs });
        Study {
            rows: rows.collect(),
        }
    }
}

/// Runs `of` for each case and each seed, on several threads; the results by case, then by seed.
fn each<C: Sync, R: Send>(
    threads: usize,
    seeds: &[u64],
    cases: &[C],
    of: impl Fn(&C, u64) -> R + Sync,
) -> Vec<Vec<R>> {
    let count = seeds.len();
    let mut results: Vec<Vec<R>> = cases.iter().map(|_| Vec::with_capacity(count)).collect();
    if threads <= 1 {
        // A fault is planted in one thread, which is this one.
        for (case, results) in cases.iter().zip(&mut results) {
            results.extend(seeds.iter().map(|seed| of(case, *seed)));
        }
        return results;
    }
    let one = |at: usize| of(&cases[at / count], seeds[at % count]);
    let bar = progress::bar((cases.len() * count) as u64, "runs");
    pool::in_order(cases.len() * count, threads, one, |at, result| {
        bar.inc(1);
        results[at / count].push(result);
        true
    });
    bar.finish_and_clear();
    results
}

/// Student's t for 90 % of both sides, by the seeds less one, from 1 on; 1.645 beyond the last.
const T_90: [f64; 14] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761,
];

/// The mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The standard deviation of a sample; 0 where there is only one.
pub fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / values.len().saturating_sub(1).max(1) as f64).sqrt()
}

/// A mean, and between which numbers it is with a probability of 90 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half of the interval; 0 of one seed.
    pub half: f64,
}

impl Mean {
    /// Of what each seed gave; at least one.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let half = match values.len() {
            0 | 1 => 0.0,
            seeds => {
                let t = T_90.get(seeds - 2).copied().unwrap_or(1.645);
                t * deviation(&values) / (seeds as f64).sqrt()
            }
        };
        let mean = mean(&values);
        Self { mean, half }
    }

    /// With so many decimals: `75.2 ±0.1`.
    pub fn text(&self, decimals: usize) -> String {
        self.text_by(|number| format!("{number:.decimals$}"))
    }

    /// By numbers written so.
    pub fn text_by(&self, write: impl Fn(f64) -> String) -> String {
        match self.half == 0.0 {
            true => write(self.mean),
            false => format!("{} ±{}", write(self.mean), write(self.half)),
        }
    }
}

/// For a bar.
impl From<Mean> for Spread {
    fn from(Mean { mean, half }: Mean) -> Self {
        Self {
            mean,
            min: mean - half,
            max: mean + half,
        }
    }
}

/// Something that must hold, or is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What.
    pub what: String,
    /// What was measured.
    pub measured: String,
    /// Whether it holds.
    pub holds: bool,
    /// Whether it must; else it is only watched.
    pub required: bool,
}

impl Claim {
    /// What must hold, what was measured, and whether it does.
    pub fn new(what: impl Into<String>, measured: impl Into<String>, holds: bool) -> Self {
        Self {
            what: what.into(),
            measured: measured.into(),
            holds,
            required: true,
        }
    }

    /// One that is only watched.
    pub fn watched(what: impl Into<String>, measured: impl Into<String>, holds: bool) -> Self {
        Self {
            required: false,
            ..Self::new(what, measured, holds)
        }
    }
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Stem of its file.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

/// What an experiment comes to.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Tables.
    pub tables: Vec<Table>,
    /// Pictures.
    pub figures: Vec<Figure>,
    /// What must hold.
    pub claims: Vec<Claim>,
}

/// A file that was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A picture.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// A table.
    #[error("{path}: {error}")]
    Table {
        /// The file.
        path: PathBuf,
        /// Why.
        error: csv::Error,
    },
}

impl Outcome {
    /// Whether all holds that must.
    pub fn holds(&self) -> bool {
        let mut claims = self.claims.iter();
        claims.all(|claim| claim.holds || !claim.required)
    }

    /// Writes tables, claims and pictures into a folder that is there.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, name: &str, dir: &Path) -> Result<(), WriteError> {
        let claims = self.claims_table(name);
        for table in self.tables.iter().chain([&claims]) {
            let path = dir.join(format!("{}.csv", table.name));
            table
                .write(&path)
                .map_err(|error| WriteError::Table { path, error })?;
        }
        for figure in &self.figures {
            figure.write(dir)?;
        }
        Ok(())
    }

    /// What must hold, as a table.
    pub fn claims_table(&self, name: &str) -> Table {
        let row = |claim: &Claim| {
            let verdict = match (claim.holds, claim.required) {
                (true, true) => "holds",
                (false, true) => "does not hold",
                (true, false) => "holds (not required)",
                (false, false) => "does not hold (not required)",
            };
            let cells = [claim.what.as_str(), claim.measured.as_str(), verdict];
            cells.map(str::to_owned).into()
        };
        let columns = ["what", "measured", ""];
        let mut table = Table::new(&format!("{name}-claims"), "What must hold", columns);
        table.rows = self.claims.iter().map(row).collect();
        table
    }
}

impl Table {
    /// A table of that name (of its file), title and columns.
    pub fn new<T: Into<String>>(
        name: &str,
        title: impl Into<String>,
        columns: impl IntoIterator<Item = T>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            title: title.into(),
            columns: columns.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// For people, and for a page: Markdown.
    pub fn text(&self) -> String {
        let mut table = Printed::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(&self.columns);
        for row in &self.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{}\n\n{table}\n", self.title)
    }

    fn write(&self, path: &Path) -> Result<(), csv::Error> {
        let mut writer = csv::Writer::from_path(path)?;
        writer.write_record(&self.columns)?;
        for row in &self.rows {
            writer.write_record(row)?;
        }
        Ok(writer.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_an_interval_of_its_seeds() {
        assert_eq!(
            Mean::of([3.0]),
            Mean {
                mean: 3.0,
                half: 0.0
            }
        );
        let two = Mean::of([1.0, 3.0]);
        assert!((two.mean - 2.0).abs() < 1e-9 && (two.half - 6.314).abs() < 1e-9);
        assert_eq!(two.text(1), "2.0 ±6.3");
    }

    #[test]
    fn one_claim_that_does_not_hold_is_enough() {
        let mut outcome = Outcome::default();
        outcome.claims.push(Claim::new("a", "1", true));
        assert!(outcome.holds());
        outcome.claims.push(Claim::new("b", "2", false));
        assert!(!outcome.holds());
        assert_eq!(outcome.claims_table("x").rows[1][2], "does not hold");
    }
}
