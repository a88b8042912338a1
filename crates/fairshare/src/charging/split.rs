//! How an amount is spread over the windows in which a job ran.
//!
//! Invariant: the parts of a split add up to the whole, to the unit, and depend only on the job's
//! times and the window length. Deliberately not here: what the amount is.

use fairmesh_model::{Counters, WallTime, Window, WindowLength};

use super::saturate;

/// Spreads `amount` over the windows from `start` to `end` (excluded) by overlap. What had been
/// used by the end of each window is rounded down, and the last one gets the rest; parts of zero are
/// yielded too. A job without duration falls in the window of its start.
pub fn split_amount(
    amount: u64,
    start: WallTime,
    end: WallTime,
    length: WindowLength,
) -> impl Iterator<Item = (Window, u64)> {
    let duration = end.since(start).0;
    let last = length.window_at(WallTime(end.0.saturating_sub(1).max(start.0)));
    let mut before = 0;
    (length.window_at(start).0..=last.0).map(move |index| {
        let window = Window(index);
        let elapsed = length.end_of(window).since(start).0.min(duration);
        let until = if window == last {
            amount
        } else {
            saturate(u128::from(amount) * u128::from(elapsed) / u128::from(duration.max(1)))
        };
        let part = until - before;
        before = until;
        (window, part)
    })
}

/// Spreads every column of `counters` as [`split_amount`] does, except `jobs`: a job is counted in
/// the window in which it ended.
pub fn split_counters(
    counters: Counters,
    start: WallTime,
    end: WallTime,
    length: WindowLength,
) -> impl Iterator<Item = (Window, Counters)> {
    let [charge, cpu, gpu, mem, _, refunds] = counters.to_columns();
    let last = length.window_at(WallTime(end.0.saturating_sub(1).max(start.0)));
    let column = move |amount| split_amount(amount, start, end, length).map(|(_, part)| part);
    split_amount(charge, start, end, length)
        .zip(column(cpu).zip(column(gpu)))
        .zip(column(mem).zip(column(refunds)))
        .map(move |(((window, charge), (cpu, gpu)), (mem, refunds))| {
            let jobs = if window == last { counters.jobs } else { 0 };
            (
                window,
                Counters::from_columns([charge, cpu, gpu, mem, jobs, refunds]),
            )
        })
}
