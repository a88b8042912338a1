//! Targets and what was used, of VOs and of the largest entries below them.
//!
//! Invariant: an entry without others below it may be a person, and has no series, but where a VO is mounted.

use fairmesh_fairshare::{EntryId, Snapshot};
use fairmesh_model::Share;
use prometheus_client::registry::Registry;

use super::Sample;
use super::registry::float_gauges;
use crate::serve::Served;

/// Entries that have series, those with the largest targets of the upper level first.
const ENTRIES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct ShareSample {
    path: String,
    target: f64,
    actual: f64,
}

/// The largest of the two upper levels.
pub(super) fn largest(served: &Served) -> Vec<ShareSample> {
    let snapshot = served.order.snapshot();
    let mounts = served.view.mounts();
    let is_group = |entry: &EntryId| {
        !snapshot.is_leaf(*entry) || mounts.values().any(|at| at == snapshot.path(*entry))
    };
    let upper = by_target(snapshot, snapshot.children(EntryId::ROOT).filter(is_group));
    let lower = upper.iter().flat_map(|entry| snapshot.children(*entry));
    let lower = by_target(snapshot, lower.filter(is_group));
    let largest = upper.iter().chain(&lower).take(ENTRIES_MAX);
    largest.map(|entry| sample(snapshot, *entry)).collect()
}

fn by_target(snapshot: &Snapshot, entries: impl Iterator<Item = EntryId>) -> Vec<EntryId> {
    let mut entries: Vec<EntryId> = entries.collect();
    entries.sort_by_cached_key(|entry| std::cmp::Reverse(snapshot.level(*entry).target.rounded()));
    entries.truncate(ENTRIES_MAX);
    entries
}

#[expect(clippy::cast_precision_loss, reason = "ratios, for people")]
fn sample(snapshot: &Snapshot, entry: EntryId) -> ShareSample {
    let level = snapshot.level(entry);
    ShareSample {
        path: snapshot.path(entry).to_string(),
        target: f64::from(level.target.rounded().units()) / f64::from(Share::ONE),
        actual: level.usage as f64 / (level.parent_usage as f64).max(1.0),
    }
}

pub(super) fn register(registry: &mut Registry, sample: &Sample) {
    let of = |value: fn(&ShareSample) -> f64| {
        let entries = sample.shares.iter();
        float_gauges("entry", entries.map(|entry| (&entry.path, value(entry))))
    };
    let help = "What an entry should have of its parent's usage";
    registry.register("share_target_ratio", help, of(|entry| entry.target));
    registry.register("share_used_ratio", "What it has", of(|entry| entry.actual));
}
