//! Offers of rights that other members are asked to witness.

use std::collections::BTreeMap;

use fairmesh_model::{MonoTime, SiteId};
use fairmesh_quota::{Offer, SliceId};

/// What is asked about at present.
pub(super) type Rounds = BTreeMap<(SiteId, SliceId), Round>;

/// One offer, and who has not witnessed it yet.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) offer: Offer,
    /// Until when members are waited for; none before all have been asked.
    pub(super) until: Option<MonoTime>,
    pub(super) ask_at: MonoTime,
    /// How many rounds of the sender there were when it began, and when: those of fewer come first.
    pub(super) turn: (usize, MonoTime),
    pub(super) open: BTreeMap<SiteId, Question>,
}

/// Whether a member was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// Not asked yet.
    Never,
    /// With this number; it has not answered.
    As(u64),
    /// It has not witnessed, and is asked again.
    Before,
}

impl Round {
    /// When there is something to do.
    pub(super) fn wakeup(&self) -> MonoTime {
        if self.open.is_empty() {
            return MonoTime(0);
        }
        let next = self.next();
        let is_idle = self.open.values().any(|asked| *asked == next);
        let ask_at = is_idle.then_some(self.ask_at);
        let due = ask_at.into_iter().chain(self.until).min();
        due.unwrap_or(self.ask_at)
    }

    /// Who is asked next: all once, before anybody is asked again.
    pub(super) fn next(&self) -> Question {
        match self.until {
            None => Question::Never,
            Some(_) => Question::Before,
        }
    }
}
