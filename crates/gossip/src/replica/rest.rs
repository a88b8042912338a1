//! Sites of which no head is looked at for a while, because their last one has just been.
//!
//! Invariant: a head of a few bytes makes a node go through all rows of its site again, so those that follow it
//! wait for as long as that may have taken, several times over: the site gets a small part of the node's time. It is a delay
//! only: who offered a head meanwhile is asked when it is over.

use fairmesh_model::{Millis, MonoTime, SiteId};

use super::{Absorbed, Replica};
use crate::content::Content;

/// For how long a site's heads wait for each row that it publishes, in nanoseconds. Going through a row twice, before and
/// after, takes a fifth of it; so the fullest head is followed by another one after two seconds.
const REST_OF_ROW_NS: u64 = 4_000;

/// Until when no head of a site is looked at, and who has offered one since.
pub(super) type Rest = (MonoTime, Option<SiteId>);

impl Replica {
    /// A head of `site` has come into force, if it was `taken`: those behind it wait.
    pub(super) fn rest_after(&mut self, site: SiteId, taken: &Absorbed, now: MonoTime) {
        if !matches!(taken, Absorbed::Changed(_)) || site == self.own {
            return;
        }
        let contents = self.sites.get(&site).into_iter();
        let contents = contents.flat_map(|held| held.contents.values());
        let rows: u64 = contents.map(Content::rows).sum();
        let rest = Millis(rows * REST_OF_ROW_NS / 1_000_000);
        let (until, _) = self.resting.entry(site).or_default();
        *until = now.after(rest);
    }

    /// Whether a head of `site` that `from` offers is to wait.
    pub(super) fn is_resting(&mut self, site: SiteId, from: SiteId, now: MonoTime) -> bool {
        match self.resting.get_mut(&site) {
            Some((until, offered_by)) if *until > now => {
                *offered_by = Some(from);
                true
            }
            _ => false,
        }
    }

    /// Peers that have offered heads which can be looked at by now.
    pub(crate) fn rested(&mut self, now: MonoTime) -> Vec<SiteId> {
        let mut peers = Vec::new();
        self.resting.retain(|_, (until, offered_by)| {
            let goes_on = *until > now;
            if !goes_on {
                peers.extend(*offered_by);
            }
            goes_on
        });
        peers
    }
}
