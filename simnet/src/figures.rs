//! Figures as files: one CSV with all numbers, one SVG to look at.
//!
//! Invariant: the same figure gives the same bytes, on any machine: numbers have fixed decimals,
//! nothing measures a font, and no file names a time or a program version.
//!
//! [`Figure`] is a line chart as the FSGrid paper's figures 5 to 14 are (Elmroth & Gardfjäll 2005,
//! section 5): shares against simulated time, each with its target. [`Summary`] is grouped bars with
//! the spread over several seeds.
//!
//! A colour means a group, a marker means a series, and dashes mean a target, so that a figure can
//! be read without colours too.
//!
//! Deliberately not here: which figures there are and what is in them; fonts (text stays text).

mod bars;
mod lines;
mod page;
mod style;
mod table;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

/// Most characters of a figure's name, which becomes a file name: well below any file system's 255.
pub const NAME_CHARS_MAX: usize = 100;

/// A line chart.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figure {
    /// Stem of the file names: lower-case letters, digits, `-` and `_`, such as `figure-05`.
    pub name: String,
    /// One line above the chart, such as `Figure 5: convergence`.
    pub title: String,
    /// Some sentences below the chart; wrapped.
    pub caption: String,
    /// What x is, with its unit.
    pub x_label: String,
    /// What y is, with its unit.
    pub y_label: String,
    /// The least and the greatest y; what lies outside is drawn on the edge. `None` fits the data.
    pub y_range: Option<(f64, f64)>,
    /// The lines, in the order of the legend.
    pub series: Vec<Series>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// x and y, in order of x. A y that is not a number is a gap in the line.
    pub points: Vec<(f64, f64)>,
    /// Where the line should be: a dashed line of the same colour.
    pub target: Option<f64>,
    /// Series of one group have one colour.
    pub colour_group: usize,
}

/// Grouped bars.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Summary {
    /// As [`Figure::name`].
    pub name: String,
    /// As [`Figure::title`].
    pub title: String,
    /// As [`Figure::caption`].
    pub caption: String,
    /// What the groups are.
    pub x_label: String,
    /// What y is, with its unit.
    pub y_label: String,
    /// As [`Figure::y_range`].
    pub y_range: Option<(f64, f64)>,
    /// The groups' names, from left to right.
    pub groups: Vec<String>,
    /// The bars of each group.
    pub bars: Vec<Bars>,
    /// A value that all bars are to be compared with: a dashed line.
    pub reference: Option<f64>,
}

/// The bars of one colour.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bars {
    /// Its name in the legend.
    pub name: String,
    /// By group; `None`, or a group beyond the last, has no bar.
    pub spreads: Vec<Option<Spread>>,
}

/// What several seeds gave.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

/// Why a figure was not written. Files may be left half written.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The name is no good file name. The caller is at fault.
    #[error("{0:?} is no name of a figure: lower-case letters, digits, `-` and `_`")]
    Name(String),
    /// A file could not be written. The machine is at fault.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The chart could not be drawn: a bug, for it is drawn into memory.
    #[error("a chart could not be drawn: {0}")]
    Draw(String),
    /// The table could not be made: a bug, for it is made in memory.
    #[error("a table could not be made: {0}")]
    Table(#[from] csv::Error),
}

impl Figure {
    /// Writes `<name>.csv` and `<name>.svg` into `dir`, which is there, over what was there. The CSV
    /// has the columns `series,x,y,target` and all points.
    pub fn write(&self, dir: &Path) -> Result<[PathBuf; 2], FigureError> {
        write_both(dir, &self.name, &self.to_csv()?, &self.to_svg()?)
    }

    /// The CSV.
    pub fn to_csv(&self) -> Result<String, FigureError> {
        table::of_lines(self)
    }

    /// The SVG.
    pub fn to_svg(&self) -> Result<String, FigureError> {
        lines::draw(self)
    }
}

impl Summary {
    /// As [`Figure::write`]; the CSV has the columns `series,group,mean,min,max`.
    pub fn write(&self, dir: &Path) -> Result<[PathBuf; 2], FigureError> {
        write_both(dir, &self.name, &self.to_csv()?, &self.to_svg()?)
    }

    /// The CSV.
    pub fn to_csv(&self) -> Result<String, FigureError> {
        table::of_bars(self)
    }

    /// The SVG.
    pub fn to_svg(&self) -> Result<String, FigureError> {
        bars::draw(self)
    }
}

impl Spread {
    /// Mean and extremes of the numbers among `values`; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let numbers: Vec<f64> = values.iter().copied().filter(|y| y.is_finite()).collect();
        if numbers.is_empty() {
            return None;
        }
        Some(Self {
            mean: numbers.iter().sum::<f64>() / numbers.len() as f64,
            min: numbers.iter().copied().fold(f64::INFINITY, f64::min),
            max: numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

fn write_both(dir: &Path, name: &str, csv: &str, svg: &str) -> Result<[PathBuf; 2], FigureError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(is_plain) {
        return Err(FigureError::Name(name.to_owned()));
    }
    let paths = ["csv", "svg"].map(|suffix| dir.join(format!("{name}.{suffix}")));
    for (path, text) in paths.iter().zip([csv, svg]) {
        std::fs::write(path, text).map_err(|error| FigureError::File {
            path: path.clone(),
            error,
        })?;
    }
    Ok(paths)
}
