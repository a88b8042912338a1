//! Another machine that runs with this site's key.
//!
//! A head of this site that another incarnation signed after this node had started is the proof: a start that has
//! ended signs nothing more, and what a restored backup has forgotten was signed before. While there is one, this
//! node signs a head every [`SIGN_EVERY`], so that the other machine learns of it, too, though nothing is counted
//! here.
//!
//! Invariant: the notice goes when no such head has come for [`REPORTED`].
//! Deliberately not here: what the other machine's heads count (`own`), and which of the two a peer lets in.

use fairmesh_gossip::Head;
use fairmesh_model::{Incarnation, Millis, MonoTime, Now};

use crate::cx::Cx;
use crate::notice::Notice;

/// Longest time between two heads of a site that has another machine.
const SIGN_EVERY: Millis = Millis::from_secs(10);

/// For so long after its last head another machine is reported: four of these heads, and two turns at a peer.
const REPORTED: Millis = Millis::from_secs(45);

impl Cx {
    /// A head of this site came into force.
    pub(crate) fn watch_twin(&mut self, now: Now, own: Incarnation, head: &Head) {
        let incarnation = head.incarnation;
        if incarnation != own && head.at > self.clock.started.wall {
            self.clock.twin_at = Some(now.mono);
            let is_same = |of: &Notice| !matches!(of, Notice::Twice { incarnation: of } if *of != incarnation);
            self.notices.clear(is_same);
            self.notice(now.mono, Notice::Twice { incarnation });
        }
    }

    /// Another machine may have gone.
    pub(crate) fn forget_twin(&mut self, now: MonoTime) {
        if self
            .clock
            .twin_at
            .is_some_and(|at| now >= at.after(REPORTED))
        {
            self.clock.twin_at = None;
            self.notices
                .clear(|notice| !matches!(notice, Notice::Twice { .. }));
        }
    }

    /// When the next head is due at the latest, for another machine to learn of this one.
    pub(crate) fn twin_due(&self, last: Option<MonoTime>) -> Option<MonoTime> {
        last.filter(|_| self.clock.twin_at.is_some())
            .map(|last| last.after(SIGN_EVERY))
    }
}
