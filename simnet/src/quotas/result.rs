//! What an experiment comes to: a table, pictures, and what must hold.
//!
//! Invariant: whether something holds is worked out of the numbers that the table shows.
//! Deliberately not here: where it goes (`simnet quotas`).

use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, ContentArrangement, Table as Printed, presets};

use crate::figures::{Figure, FigureError, Spread, Summary};

/// Student's t for 90 % of both sides, by the seeds less one, from 1 on; 1.645 beyond the last.
const T_90: [f64; 14] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761,
];

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
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let square = |value: &f64| (value - mean) * (value - mean);
        let half = match values.len() {
            0 | 1 => 0.0,
            seeds => {
                let variance = values.iter().map(square).sum::<f64>() / (count - 1.0);
                let t = T_90.get(seeds - 2).copied().unwrap_or(1.645);
                t * (variance / count).sqrt()
            }
        };
        Self { mean, half }
    }

    /// With so many decimals: `75.2 ±0.1`.
    pub fn text(&self, decimals: usize) -> String {
        match self.half == 0.0 {
            true => format!("{:.decimals$}", self.mean),
            false => format!("{:.decimals$} ±{:.decimals$}", self.mean, self.half),
        }
    }

    /// For a bar.
    pub fn spread(&self) -> Spread {
        Spread {
            mean: self.mean,
            min: self.mean - self.half,
            max: self.mean + self.half,
        }
    }
}

/// Something that must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What.
    pub what: String,
    /// What was measured.
    pub measured: String,
    /// Whether it holds.
    pub holds: bool,
}

impl Claim {
    /// What, what was measured, and whether it holds.
    pub fn new(what: impl Into<String>, measured: impl Into<String>, holds: bool) -> Self {
        Self {
            what: what.into(),
            measured: measured.into(),
            holds,
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
    /// Bars.
    pub bars: Vec<Summary>,
    /// Lines.
    pub lines: Vec<Figure>,
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
    /// Whether all holds.
    pub fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
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
        for bars in &self.bars {
            bars.write(dir)?;
        }
        for lines in &self.lines {
            lines.write(dir)?;
        }
        Ok(())
    }

    /// What must hold, as a table.
    pub fn claims_table(&self, name: &str) -> Table {
        let row = |claim: &Claim| {
            let holds = if claim.holds {
                "holds"
            } else {
                "does not hold"
            };
            vec![claim.what.clone(), claim.measured.clone(), holds.to_owned()]
        };
        Table {
            name: format!("{name}-claims"),
            title: "What must hold".to_owned(),
            columns: ["what", "measured", ""].map(str::to_owned).into(),
            rows: self.claims.iter().map(row).collect(),
        }
    }
}

impl Table {
    /// For people.
    pub fn text(&self) -> String {
        let mut table = Printed::new();
        table.load_style(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(&self.columns);
        for row in &self.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{}\n{table}\n", self.title)
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
