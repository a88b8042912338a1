//! The tree in force at one moment, in the order in which look-ups are answered from it.
//!
//! Invariant: all numbers of an answer are of one moment, and taking it does not hold up the driver.

use std::sync::Arc;

use fairmesh_api::{LevelBody, RestsOn};
use fairmesh_fairshare::explain::{LevelExplanation, levels};
use fairmesh_fairshare::{EntryId, Order, Snapshot};
use fairmesh_model::{AccountPath, Share};
use fairmesh_site::View;

use super::Shared;
use super::error::ApiError;
use super::rests_on::rests_on;
use crate::serve::Served;

/// The tree at one moment, in the order in which it is served.
pub(crate) struct Moment {
    pub(crate) order: Arc<Order>,
    pub(crate) view: Arc<View>,
    pub(crate) rests_on: RestsOn,
}

impl Moment {
    /// All that the node knew when it was asked; of a large tree that changes, the newest order there is.
    pub(super) async fn take(shared: &Shared) -> Result<Self, ApiError> {
        if let Some((served, rests_on)) = shared.options.serving.outdated() {
            return Ok(Self::of(&served, rests_on));
        }
        // What is said to be known is in the order, which is made behind it.
        let rests_on = shared.node().ask(rests_on).await?;
        let served = shared.options.serving.fresh().await?;
        Ok(Self::of(&served, rests_on))
    }

    /// What there is now: nobody is asked, and no order is made for it.
    pub(crate) fn of(served: &Served, rests_on: RestsOn) -> Self {
        Self {
            order: served.order.clone(),
            view: served.view.clone(),
            rests_on,
        }
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        self.order.snapshot()
    }

    /// The entry of exactly this path.
    pub(super) fn entry(&self, path: &AccountPath) -> Result<EntryId, ApiError> {
        self.snapshot().entry(path).ok_or_else(|| {
            ApiError::not_found(format!("the share tree has no entry `{path}`"))
                .hint("GET /v1/shares lists all entries")
        })
    }

    /// The levels of an entry, from the root down.
    pub(super) fn levels(&self, entry: EntryId) -> Vec<LevelBody> {
        let levels = levels(self.snapshot(), entry);
        self.level_bodies(levels)
    }

    /// Levels, for the wire.
    pub(crate) fn level_bodies(&self, levels: Vec<LevelExplanation>) -> Vec<LevelBody> {
        let levels = levels.into_iter();
        levels.map(|level| self.level_body(level)).collect()
    }

    pub(super) fn level_body(&self, level: LevelExplanation) -> LevelBody {
        let above = level.path.parent();
        let divided = above.and_then(|above| self.view.divided_by(&above).cloned());
        LevelBody {
            by_policy_of: divided.map(|divided| divided.name),
            path: level.path.to_string(),
            global: level.global,
            distance: level.distance.to_string(),
            target: level.target.to_string(),
            actual: level.actual.to_string(),
            at_most: level.at_most.map(|most| most.to_string()),
            over: level.over,
            last: level.last,
            among: level.among.map(|others| others.to_string()),
            since: level.since.map(|since| since.to_string()),
            deviation: level.deviation.to_string(),
            usage_core_ms: level.usage.to_string(),
            parent_usage_core_ms: level.parent_usage.to_string(),
        }
    }
}

/// A factor as a decimal fraction, to the last digit.
pub(crate) fn fraction(factor: Share) -> String {
    let (units, one) = (factor.units(), Share::ONE);
    format!("{}.{:09}", units / one, units % one)
}
