//! Tables of sums over jobs, for `report --dry-run` and `records`.

use fairmesh_api::{SummaryBody, TotalsBody};

use crate::output::Table;

/// The columns behind the names.
const COLUMNS: &str =
    "Jobs|CpuHours|WallHours|NodeHours|GpuHours|WaitHours|Started|SubmittedSameDay|EnergyKwh";

/// One row a group, below capitalised dimensions and the sums; where there are no dimensions, one row.
pub(super) fn table(summary: &SummaryBody) -> Table {
    let capital = |name: &String| {
        if name == "vo" {
            return "VO".to_owned();
        }
        let mut letters = name.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    let names = summary.by.iter().map(capital);
    let columns: Vec<String> = names.chain([COLUMNS.to_owned()]).collect();
    let mut table = Table::new(&columns.join("|")).cut();
    if summary.by.is_empty() {
        table.row(cells(&summary.totals));
        return table;
    }
    for group in &summary.groups {
        table.row([&group.names[..], &cells(&group.totals)].concat());
    }
    table
}

fn cells(totals: &TotalsBody) -> [String; 9] {
    [
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
