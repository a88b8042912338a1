//! Tables of sums over jobs, for `report --dry-run` and `records`.

use std::io::Write;

use fairmesh_api::{SummaryBody, TotalsBody};

use super::columns::{self, Column};
use crate::output::OutputArgs;

/// The columns behind the names.
const COLUMNS: [&str; 9] = [
    "Jobs",
    "CpuHours",
    "WallHours",
    "NodeHours",
    "GpuHours",
    "WaitHours",
    "Started",
    "SubmittedSameDay",
    "EnergyKwh",
];

/// The table's header: capitalised dimensions, then the sums.
pub(super) fn header(summary: &SummaryBody) -> Vec<String> {
    let capital = |name: &String| {
        if name == "vo" {
            return "VO".to_owned();
        }
        let mut letters = name.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    let names = summary.by.iter().map(capital);
    names.chain(COLUMNS.map(str::to_owned)).collect()
}

/// One row a group; where there are no dimensions, one row.
pub(super) fn rows(summary: &SummaryBody) -> Vec<Vec<String>> {
    if summary.by.is_empty() {
        return vec![cells(&summary.totals)];
    }
    let row = |names: &[String], totals: &TotalsBody| {
        let mut row = names.to_vec();
        row.extend(cells(totals));
        row
    };
    let groups = summary.groups.iter();
    groups
        .map(|group| row(&group.names, &group.totals))
        .collect()
}

fn cells(totals: &TotalsBody) -> Vec<String> {
    vec![
        totals.jobs.to_string(),
        totals.cpu_hours.clone(),
        totals.wall_hours.clone(),
        totals.node_hours.clone(),
        totals.gpu_hours.clone(),
        totals.wait_hours.clone(),
        totals.started.to_string(),
        totals.submitted_same_day.to_string(),
        totals.energy_kwh.clone(),
    ]
}

pub(super) fn write(
    out: &mut dyn Write,
    format: &OutputArgs,
    summary: &SummaryBody,
) -> std::io::Result<()> {
    let header = header(summary);
    write_columns(out, format, &header, &rows(summary))
}

/// Writes rows of these columns.
pub(super) fn write_columns(
    out: &mut dyn Write,
    format: &OutputArgs,
    header: &[String],
    rows: &[Vec<String>],
) -> std::io::Result<()> {
    let names: Vec<&str> = header.iter().map(String::as_str).collect();
    let all: Vec<Column> = (0..names.len()).map(Column::of).collect();
    columns::write(out, format, &names, &all, rows)
}
