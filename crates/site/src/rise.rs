//! From changes of cells to what really rose.
//!
//! When a day is merged, its windows fall and the day rises by as much and perhaps more. Only that
//! more is new usage.
//!
//! Invariant: over a stream, an account and a day, the rises add up to what the cells after the
//! change hold more than the cells before it.

use std::collections::BTreeMap;

use fairmesh_fairshare::OLD_DAYS;
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{AccountPath, Counters, Span, StreamId, WallTime, WindowLength, mutated};
use fairmesh_usage::CellChange;

/// New usage in a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rise {
    pub(crate) stream: StreamId,
    pub(crate) span: Span,
    pub(crate) path: AccountPath,
    pub(crate) amount: Counters,
}

/// What rose; falls that no day took over are left out (nothing falls but what is forgotten, or
/// after a fork, when everything is summed up anew).
pub(crate) fn rises(changes: &[CellChange], length: WindowLength) -> Vec<Rise> {
    let mut fallen: BTreeMap<(StreamId, u32, &AccountPath), Counters> = BTreeMap::new();
    for change in changes {
        let fall = change.before.minus(change.after);
        if !fall.is_zero() {
            let day = change.span.day(length);
            let sum = fallen
                .entry((change.stream, day, &change.path))
                .or_default();
            *sum = sum.plus(fall);
        }
    }
    let mut rises = Vec::with_capacity(changes.len());
    for change in changes {
        let mut amount = change.after.minus(change.before);
        if let Span::Day(day) = change.span
            && !mutated!(MergedDayRisesWhole)
            && let Some(fall) = fallen.get_mut(&(change.stream, day, &change.path))
        {
            let rest = fall.minus(amount);
            (amount, *fall) = (amount.minus(*fall), rest);
        }
        if !amount.is_zero() {
            rises.push(Rise {
                stream: change.stream,
                span: change.span,
                path: change.path.clone(),
                amount,
            });
        }
    }
    rises
}

/// Whether windows of the day weigh what the day itself does, at `now`. They do on the day on which
/// they are merged, unless the clock of whoever merged them was ahead.
pub(crate) fn weighs_as_one(day: u32, now: WallTime) -> bool {
    (now.0 / DAY_MS).saturating_sub(u64::from(day)) >= u64::from(OLD_DAYS)
}

/// Whether windows gave way to a day that does not weigh what they did: sums of weighted usage
/// cannot follow by what rose alone.
pub(crate) fn merges_young(changes: &[CellChange], length: WindowLength, now: WallTime) -> bool {
    changes.iter().any(|change| {
        matches!(change.span, Span::Window(_))
            && change.after.charge < change.before.charge
            && !weighs_as_one(change.span.day(length), now)
    })
}
