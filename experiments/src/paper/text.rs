//! The summary and the checks as tables, CSV and JSON.
//!
//! Invariant: numbers have fixed decimals, so the same outcome gives the same bytes. Deliberately not
//! here: where it goes.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use super::check::Check;
use super::experiment::Experiment;
use super::measure::{RunMeasures, entries};
use super::outcome::{Outcome, Row};
use crate::figures::Spread;

/// Everything for programs.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    days: f64,
    sites: usize,
    seeds: &'a [u64],
    jobs: u64,
    summary: &'a [Row],
    checks: &'a [Check],
}

impl<'a> Report<'a> {
    /// Of an outcome.
    pub fn new(outcome: &'a Outcome, summary: &'a [Row], checks: &'a [Check]) -> Self {
        Self {
            days: outcome.extent.duration.0 as f64 / simnet::vo::DAY.0 as f64,
            sites: outcome.extent.sites,
            seeds: &outcome.seeds,
            jobs: outcome.jobs(),
            summary,
            checks,
        }
    }
}

/// Mean and, with several seeds, the greatest distance from it; a dash where no seed gave a number.
fn spelled(range: Option<Spread>, decimals: usize) -> String {
    let Some(Spread { mean, min, max }) = range else {
        return "-".to_owned();
    };
    let spread = (max - mean).max(mean - min);
    match min == max {
        true => format!("{mean:.decimals$}"),
        false => format!("{mean:.decimals$} ±{spread:.decimals$}"),
    }
}

/// One table for each experiment: means over the seeds, and how far the seeds are from them. Beside
/// errors (`pt` are percentage points) the mean of the all-knowing scheduler.
pub fn summary(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut rest = rows;
    while let Some(first) = rest.first() {
        let count = rest
            .iter()
            .take_while(|row| row.experiment == first.experiment)
            .count();
        let (rows_here, behind) = rest.split_at(count);
        rest = behind;
        text.push_str(&format!(
            "{}\n{}\n\n",
            first.experiment,
            table(rows_here, rows)
        ));
    }
    text
}

fn table(rows: &[Row], all: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "entry",
        "target",
        "±1 pt (h)",
        "±2 pt (h)",
        "RMS (pt)",
        "all-knowing",
        "largest",
        "at the end",
        "all-knowing",
        "last day (%)",
    ]);
    for row in rows {
        let central = row.experiment.central();
        let twin = all
            .iter()
            .find(|of| of.experiment == central && of.entry == row.entry);
        let mean = |of: fn(&Row) -> Option<Spread>| {
            let range = twin.and_then(of);
            range.map_or("-".to_owned(), |range| format!("{:.4}", range.mean))
        };
        table.add_row([
            row.entry.clone(),
            format!("{}", row.target),
            spelled(row.settled_1_h, 1),
            spelled(row.settled_2_h, 1),
            spelled(row.rms, 4),
            mean(|row| row.rms),
            spelled(row.largest, 3),
            spelled(row.at_end, 4),
            mean(|row| row.at_end),
            spelled(row.last_day, 2),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The checks as a table.
pub fn checks(checks: &[Check]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["", "check", "measured", "band"]);
    for check in checks {
        let word = if check.holds { "pass" } else { "FAIL" };
        table.add_row([word, &check.what, &check.measured, &check.band]);
    }
    table.to_string()
}

/// The summary as CSV: one line for each experiment and entry; nothing where no seed gave a number.
pub fn csv(rows: &[Row]) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let names = [
        "settled_1_h",
        "settled_2_h",
        "rms",
        "largest",
        "at_end",
        "last_day",
    ];
    let ends = ["mean", "min", "max"];
    let columns = names
        .iter()
        .flat_map(|name| ends.map(|end| format!("{name}_{end}")));
    let head = ["experiment", "entry", "target"].map(str::to_owned);
    writer.write_record(head.into_iter().chain(columns))?;
    for row in rows {
        let of = [
            row.settled_1_h,
            row.settled_2_h,
            row.rms,
            row.largest,
            row.at_end,
            row.last_day,
        ];
        let number = |value: f64| format!("{value:.6}");
        let numbers = of.into_iter().flat_map(|range| match range {
            Some(Spread { mean, min, max }) => [mean, min, max].map(number),
            None => [const { String::new() }; 3],
        });
        let head = [
            row.experiment.to_string(),
            row.entry.clone(),
            row.target.to_string(),
        ];
        writer.write_record(head.into_iter().chain(numbers))?;
    }
    text(writer)
}

/// One run as lines of CSV, one for each entry: what its columns are says [`RUN_COLUMNS`].
pub fn run(experiment: &Experiment, seed: u64, of: &RunMeasures) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (entry, measured) in entries().iter().zip(&of.entries) {
        let head = [experiment.to_string(), seed.to_string(), entry.name.clone()];
        let numbers = [
            measured.rms,
            measured.largest,
            measured.at_end,
            measured.last_day,
            of.mean_largest,
        ];
        writer.write_record(
            head.into_iter()
                .chain(numbers.map(|value| format!("{value:.6}"))),
        )?;
    }
    text(writer)
}

/// The columns of [`run`].
pub const RUN_COLUMNS: &str =
    "experiment,seed,entry,rms,largest,at_end,last_day,mean_largest_of_run\n";

fn text(writer: csv::Writer<Vec<u8>>) -> Result<String, csv::Error> {
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8(bytes).expect("names and numbers are text"))
}
