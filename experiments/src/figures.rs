//! Figures as files: one CSV with all numbers, one SVG to look at.
//!
//! Invariant: the same figure gives the same bytes, on any machine: numbers have fixed decimals,
//! nothing measures a font, and no file names a time or a program version.
//!
//! Lines are drawn as in the FSGrid paper's figures 5 to 14 (Elmroth & Gardfjäll 2005, section 5): shares
//! against simulated time, each with its target. Grouped bars show the spread over several seeds.
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

use serde::Serialize;

/// Most characters of a figure's name, which becomes a file name: well below any file system's 255.
pub const NAME_CHARS_MAX: usize = 100;

/// A chart, and the texts around it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figure {
    /// Stem of the file names: lower-case letters, digits, `-` and `_`, such as `figure-05`.
    pub name: String,
    /// One line above the chart, such as `Figure 5: convergence`.
    pub title: String,
    /// Some sentences below the chart; wrapped.
    pub caption: String,
    /// What x is, with its unit; or what the groups are.
    pub x_label: String,
    /// What y is, with its unit.
    pub y_label: String,
    /// The least and the greatest y; what lies outside is drawn on the edge. `None` fits the data.
    pub y_range: Option<(f64, f64)>,
    /// What is drawn.
    pub chart: Chart,
}

/// What is drawn.
#[derive(Debug, Clone, PartialEq)]
pub enum Chart {
    /// Lines, in the order of the legend.
    Lines(Vec<Series>),
    /// Grouped bars.
    Bars(Groups),
}

impl Default for Chart {
    fn default() -> Self {
        Self::Lines(Vec::new())
    }
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
pub struct Groups {
    /// The groups' names, from left to right.
    pub names: Vec<String>,
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
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
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

/// The texts around a chart.
#[derive(Debug, Clone, Copy)]
pub struct Texts<'a> {
    /// As [`Figure::name`].
    pub name: &'a str,
    /// As [`Figure::title`].
    pub title: &'a str,
    /// As [`Figure::caption`].
    pub caption: &'a str,
    /// What x is, or what the groups are.
    pub x_label: &'a str,
    /// What y is, with its unit.
    pub y_label: &'a str,
}

impl Texts<'_> {
    /// A line chart that fits the data.
    pub fn lines(self, series: impl IntoIterator<Item = Series>) -> Figure {
        self.around(Chart::Lines(series.into_iter().collect()))
    }

    /// Grouped bars that fit the data.
    pub fn bars<T: ToString>(
        self,
        names: impl IntoIterator<Item = T>,
        bars: impl IntoIterator<Item = Bars>,
    ) -> Figure {
        self.around(Chart::Bars(Groups {
            names: names.into_iter().map(|name| name.to_string()).collect(),
            bars: bars.into_iter().collect(),
            reference: None,
        }))
    }

    fn around(self, chart: Chart) -> Figure {
        Figure {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            caption: self.caption.to_owned(),
            x_label: self.x_label.to_owned(),
            y_label: self.y_label.to_owned(),
            y_range: None,
            chart,
        }
    }
}

impl Series {
    /// A line without a target.
    pub fn new(
        name: impl Into<String>,
        colour_group: usize,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().collect(),
            target: None,
            colour_group,
        }
    }
}

impl Bars {
    /// One bar in each group.
    pub fn new<S: Into<Spread>>(name: &str, spreads: impl IntoIterator<Item = S>) -> Self {
        let spreads = spreads.into_iter().map(|spread| Some(spread.into()));
        Self {
            name: name.to_owned(),
            spreads: spreads.collect(),
        }
    }
}

impl Figure {
    /// Between these y.
    pub fn within(self, least: f64, greatest: f64) -> Self {
        Self {
            y_range: Some((least, greatest)),
            ..self
        }
    }

    /// Bars with a dashed line at this y.
    pub fn against(mut self, y: f64) -> Self {
        if let Chart::Bars(groups) = &mut self.chart {
            groups.reference = Some(y);
        }
        self
    }

    /// Writes `<name>.csv` and `<name>.svg` into `dir`, which is there, over what was there. The CSV
    /// has all points, in the columns `series,x,y,target`, or all bars, in `series,group,mean,min,max`.
    pub fn write(&self, dir: &Path) -> Result<[PathBuf; 2], FigureError> {
        let name = &self.name;
        let is_plain = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_');
        if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(is_plain) {
            return Err(FigureError::Name(name.clone()));
        }
        let paths = ["csv", "svg"].map(|suffix| dir.join(format!("{name}.{suffix}")));
        for (path, text) in paths.iter().zip([self.to_csv()?, self.to_svg()?]) {
            std::fs::write(path, text).map_err(|error| FigureError::File {
                path: path.clone(),
                error,
            })?;
        }
        Ok(paths)
    }

    /// The CSV.
    pub fn to_csv(&self) -> Result<String, FigureError> {
        match &self.chart {
            Chart::Lines(series) => table::of_lines(series),
            Chart::Bars(groups) => table::of_bars(groups),
        }
    }

    /// The SVG.
    pub fn to_svg(&self) -> Result<String, FigureError> {
        match &self.chart {
            Chart::Lines(series) => lines::draw(self, series),
            Chart::Bars(groups) => bars::draw(self, groups),
        }
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
