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
use fairmesh_model::{Millis, MonoTime, Now};

use crate::notice::Notice;
use crate::site::Site;

/// Longest time between two heads of a site that has another machine.
const SIGN_EVERY: Millis = Millis::from_secs(10);

/// For so long after its last head another machine is reported: four of these heads, and two turns at a peer.
const REPORTED: Millis = Millis::from_secs(45);

impl Site {
    /// A head of this site came into force.
    pub(crate) fn watch_twin(&mut self, now: Now, head: &Head) {
        let incarnation = head.incarnation;
        if incarnation != self.own.incarnation() && head.at > self.cx.clock.started.wall {
            self.cx.clock.twin_at = Some(now.mono);
            let is_same = |of: &Notice| !matches!(of, Notice::Twice { incarnation: of } if *of != incarnation);
            self.cx.notices.clear(is_same);
            self.cx.notice(now.mono, Notice::Twice { incarnation });
        }
    }

    /// Another machine may have gone.
    pub(crate) fn forget_twin(&mut self, now: MonoTime) {
        if self
            .cx
            .clock
            .twin_at
            .is_some_and(|at| now >= at.after(REPORTED))
        {
            self.cx.clock.twin_at = None;
            self.cx
                .notices
                .clear(|notice| !matches!(notice, Notice::Twice { .. }));
        }
    }

    /// When the next head is due at the latest, for another machine to learn of this one.
    pub(crate) fn twin_due(&self, last: Option<MonoTime>) -> Option<MonoTime> {
        last.filter(|_| self.cx.clock.twin_at.is_some())
            .map(|last| last.after(SIGN_EVERY))
    }
}
