//! When usage is old enough to be forgotten.
//!
//! Nodes with the same batches must hold the same cells, so they must forget the same ones; and a
//! clock that is wrong must not make a node forget what still weighs. So a VO's usage is forgotten by
//! what its sites have signed, not by our own clock: a day is past when *two* sites have signed
//! something on a later one. A single clock that runs ahead, our own or a liar's, moves nothing.
//!
//! Invariant: the horizon of a VO is a function of the streams held and the charter in force, but for
//! what an earlier charter or a fork has moved on already: it only rises.

use std::collections::BTreeMap;

use fairmesh_fairshare::WeightTable;
use fairmesh_gossip::Replica;
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{Millis, Now, SiteId, VoId, WallTime, WindowLength};

use crate::event::Effect;
use crate::site::Site;

/// Time after its start in which a site forgets nothing by its own clock, which may not be set yet:
/// local usage, and that of a VO that has no other site.
const TRUST_OWN_CLOCK_AFTER: Millis = Millis::from_secs(3_600);

impl Site {
    /// The moment before which usage of the site's own accounts weighs nothing.
    pub(crate) fn local_horizon(&self, now: WallTime) -> WallTime {
        let weighed = self.shares.local_horizon_windows;
        horizon(weighed, self.config.local_window, now)
    }

    /// Forgets what is past, where something that was signed at `at` may have made it so.
    pub(crate) fn move_horizon(&mut self, now: Now, vo: VoId, at: WallTime) {
        let seen = self.days_signed.get(&vo).copied().unwrap_or_default();
        if day_of(at) <= seen {
            return;
        }
        let Some(replica) = self.replicas.get(&vo) else {
            return;
        };
        let is_trusted = now.mono >= self.started.mono.after(TRUST_OWN_CLOCK_AFTER);
        let Some(signed) = second_latest(replica, is_trusted).filter(|at| day_of(*at) > seen)
        else {
            return;
        };
        self.days_signed.insert(vo, day_of(signed));
        let Some(charter) = replica.charter() else {
            return;
        };
        let weighed = WeightTable::new(charter.history, charter.window).horizon_windows();
        let still_weighs = horizon(weighed, charter.window, now.wall);
        let horizon = horizon(weighed, charter.window, signed);
        let usage = self.replicas.get_mut(&vo).and_then(Replica::usage_mut);
        let Some(usage) = usage else { return };
        let forgotten = usage.forget_ended_before(horizon);
        let window = usage.window_length();
        let writes = self
            .ledger
            .forget(Some(vo), |span| span.end(window) <= horizon);
        if !writes.is_empty() {
            self.effects.push(Effect::Persist(writes));
        }
        if horizon > still_weighs && !forgotten.is_empty() {
            // By our own clock it would count for some time yet.
            self.tree_is_stale = true;
        }
    }

    /// Forgets local usage by our own clock: nobody else can tell.
    pub(crate) fn forget_local(&mut self, now: WallTime) {
        let (horizon, window) = (self.local_horizon(now), self.config.local_window);
        let writes = self.ledger.forget(None, |span| span.end(window) <= horizon);
        if !writes.is_empty() {
            self.effects.push(Effect::Persist(writes));
        }
    }
}

/// The end of what weighs nothing any more `at` a moment, by whole days: all sites forget the same
/// spans on the same day.
fn horizon(weighed_windows: u64, window: WindowLength, at: WallTime) -> WallTime {
    // A day beyond: windows of an old day are weighed from the day's middle.
    let kept = weighed_windows.saturating_add(window.per_day());
    WallTime(at.before(window.millis().times(kept)).0 / DAY_MS * DAY_MS)
}

/// When the site that has signed second latest did so; the only one, where there is no other member
/// and its clock is to be trusted.
fn second_latest(replica: &Replica, is_own_clock_trusted: bool) -> Option<WallTime> {
    let mut latest: BTreeMap<SiteId, WallTime> = BTreeMap::new();
    for held in replica.usage()?.streams() {
        let known = latest.entry(held.stream.site).or_default();
        *known = (*known).max(held.newest_at.unwrap_or_default());
    }
    let mut times: Vec<WallTime> = latest.into_values().collect();
    times.sort_unstable();
    let last = times.pop()?;
    let is_alone = replica.charter()?.sites.len() < 2 && is_own_clock_trusted;
    times.pop().or(is_alone.then_some(last))
}

fn day_of(at: WallTime) -> u64 {
    at.0 / DAY_MS
}
