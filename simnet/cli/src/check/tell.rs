//! What many seeds have shown, as people read it.
//!
//! Invariant: one run of a range and its parts put together print the same, but for the time that it
//! took. Deliberately not here: adding up (`check::summary`, `campaign`).

use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use simnet::sayln;

use fairmesh_experiments::campaign::Shard;
use simnet::check::Failure;
use simnet::check::summary::{Summary, percentile};
use simnet::invariants::{LIVENESS, TABLE};

/// How long it took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    /// By the clock; of several parts, the sum.
    pub(crate) wall_ms: u64,
    /// Of all threads.
    pub(crate) cpu_ms: u64,
}

impl Time {
    /// Of a shard.
    pub(crate) fn of(shard: &Shard) -> Self {
        let (wall_ms, cpu_ms) = (shard.wall_ms, shard.cpu_ms);
        Self { wall_ms, cpu_ms }
    }
}

/// Prints the sums, the bound, and the rate.
pub(crate) fn print(summary: &Summary, time: Time) {
    sayln!(
        "{} seeds, {:.2} node-years, {} steps, {} failed.",
        summary.seeds,
        summary.node_years(),
        summary.steps,
        summary.failed.len()
    );
    let mut checks = table(["Invariant", "Checks"]);
    for name in TABLE.iter().map(|entry| entry.name).chain([LIVENESS]) {
        let count = summary.checks.get(name).copied().unwrap_or(0);
        checks.add_row([name.to_owned(), count.to_string()]);
    }
    sayln!("{checks}");
    let mut faults = table(["Fault", "Times"]);
    for (kind, count) in &summary.faults {
        faults.add_row([kind.clone(), count.to_string()]);
    }
    sayln!("{faults}");
    let of = |percent| percentile(&summary.healed_ms, percent).unwrap_or(0) as f64 / 1_000.0;
    sayln!(
        "One view after the heal: p50 {:.1} s, p95 {:.1} s, p99 {:.1} s, max {:.1} s.",
        of(50),
        of(95),
        of(99),
        of(100)
    );
    if let Some(count) = summary.one_in() {
        sayln!("Fewer than one seed in {count} fails, with 95 % confidence.");
    }
    let an_hour = |ms: u64| summary.seeds as f64 * 3_600_000.0 / ms.max(1) as f64;
    sayln!(
        "It took {:.1} s, and {:.1} s of CPU: {:.0} seeds an hour of a core.",
        time.wall_ms as f64 / 1_000.0,
        time.cpu_ms as f64 / 1_000.0,
        an_hour(time.cpu_ms)
    );
}

/// Prints one line for each failure.
pub(crate) fn print_failures(summary: &Summary) {
    for failed in &summary.failed {
        sayln!("{}", failure(failed.seed, &failed.failure));
    }
}

/// A failure in one line.
pub(super) fn failure(seed: u64, failure: &Failure) -> String {
    let (what, at) = (&failure.invariant, failure.at_ms / 1_000);
    format!("seed {seed}: {what} after {at} s: {}", failure.message)
}

fn table(header: [&str; 2]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(header);
    table
}
