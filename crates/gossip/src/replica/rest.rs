//! Sites of which no head is looked at for a while, because their last one has just been.
//!
//! Invariant: a head of a few bytes makes a node go through all rows of its site again, so those that follow it
//! wait for several times as long as that may have taken, once it is over: the site gets a small part of the node's time. It
//! is a delay only: who offered a head meanwhile is asked when it is over.

use fairmesh_model::{Millis, MonoTime, SiteId};

use super::{Absorbed, Held, Replica};
use crate::content::Content;

/// For how long a site's heads wait for each row that it had published before the last one, and for each that it has since,
/// in nanoseconds. Going through a row takes a tenth of it, and more where it comes or goes; so the fullest head is followed
/// by another one after four seconds.
const REST_OF_ROW_NS: u64 = 4_000;

/// How long no head of a site is looked at.
#[derive(Debug, Default)]
pub(super) struct Rest {
    length: Millis,
    /// When the head came.
    came: MonoTime,
    /// Set at the first moment after that one: time stands still here while a head is gone through, so only then is it known
    /// when that was over. Where nobody has looked for longer than it can have taken, it was over before.
    until: Option<MonoTime>,
    /// Who has offered a head since.
    offered_by: Option<SiteId>,
}

impl Rest {
    fn goes_on(&mut self, now: MonoTime) -> bool {
        if self.until.is_none() && now > self.came {
            let over = now.min(self.came.after(self.length));
            self.until = Some(over.after(self.length));
        }
        self.until.is_none_or(|until| until > now)
    }
}

impl Held {
    /// Rows of all its heads.
    pub(super) fn rows(&self) -> u64 {
        self.contents.values().map(Content::rows).sum()
    }
}

impl Replica {
    /// A head of `site` has come into force, if it was `taken`: those behind it wait.
    pub(super) fn rest_after(&mut self, site: SiteId, taken: &Absorbed, now: MonoTime) {
        if !matches!(taken, Absorbed::Changed(_)) || site == self.own {
            return;
        }
        let rows = self.sites.get(&site).map_or(0, |held| held.gone_through);
        let rest = self.resting.entry(site).or_default();
        rest.length = Millis(rows * REST_OF_ROW_NS / 1_000_000);
        rest.came = now;
        rest.until = (rest.length == Millis(0)).then_some(now);
    }

    /// Whether a head of `site` that `from` offers is to wait.
    pub(super) fn is_resting(&mut self, site: SiteId, from: SiteId, now: MonoTime) -> bool {
        let Some(rest) = self.resting.get_mut(&site) else {
            return false;
        };
        let goes_on = rest.goes_on(now);
        if goes_on {
            rest.offered_by = Some(from);
        }
        goes_on
    }

    /// When to look again whether a head that was offered meanwhile can be looked at.
    pub fn rests_until(&self) -> Option<MonoTime> {
        let awaited = self
            .resting
            .values()
            .filter(|rest| rest.offered_by.is_some());
        awaited
            .map(|rest| rest.until.unwrap_or(rest.came.after(Millis(1))))
            .min()
    }

    /// Peers that have offered heads which can be looked at by now.
    pub(crate) fn rested(&mut self, now: MonoTime) -> Vec<SiteId> {
        let mut peers = Vec::new();
        self.resting.retain(|_, rest| {
            let goes_on = rest.goes_on(now);
            if !goes_on {
                peers.extend(rest.offered_by);
            }
            goes_on
        });
        peers
    }
}
