//! Notices for the operator, as data: each is logged when it changes, not each time it is checked.
//!
//! Invariant: a condition (a wrong clock, an expired document, usage over a capacity) is listed while it holds. An
//! event (a document adopted, something refused, a fork, a damaged row) is listed for a day. Of notices that a peer
//! can repeat at will only the latest is listed, and one a minute is logged.

use std::collections::BTreeMap;
use std::fmt;

use fairmesh_model::{Incarnation, Millis, MonoTime, Severity, SiteId, VoId, WallTime};

/// A condition or an event that an operator may need to know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// A VO's first charter has come: the site takes part from now on.
    Founded {
        /// The VO that the site takes part in now.
        vo: VoId,
        /// The VO's name by its charter.
        name: String,
    },
    /// A document is in force from now on.
    Adopted {
        /// The VO of the document.
        vo: VoId,
        /// The kind, path and version of the document.
        what: String,
    },
    /// Something about a VO's documents is not as it should be.
    Policy {
        /// The VO of the documents.
        vo: VoId,
        /// The warning or alarm of the policies.
        what: String,
    },
    /// Nobody vouches that the documents in force are the newest, or some that the VO's snapshot names are not here.
    Snapshot {
        /// The VO of the documents.
        vo: VoId,
        /// The document that was refused, and why.
        what: String,
    },
    /// A document or a counter was refused.
    Refused {
        /// The VO that it came under.
        vo: VoId,
        /// The peer that sent it.
        from: SiteId,
        /// The reason of the refusal.
        why: String,
    },
    /// A site's clock is off by more than the tolerance.
    ClockOff {
        /// The site whose clock differs.
        site: SiteId,
        /// The difference, rounded to whole tolerances.
        by: Millis,
        /// Whether it is ahead of ours.
        ahead: bool,
    },
    /// Our own clock is further off than the tolerance from the members' that are connected, or stands
    /// before what this site signed last: it signs nothing until it is set right.
    OwnClockOff {
        /// What it is off from.
        what: String,
    },
    /// A site has signed two heads with one number. Its next head goes on for everybody.
    Forked {
        /// The VO of the two heads.
        vo: VoId,
        /// The site that signed both heads.
        site: SiteId,
    },
    /// Another machine signs heads with this site's key.
    Twice {
        /// Which start of its node.
        incarnation: Incarnation,
    },
    /// Peers held counters of this site that its store did not know: it was lost, or is an old backup.
    Recovered {
        /// The VO of this site's usage.
        vo: VoId,
    },
    /// A site publishes more usage than it can have run. Everybody counts it up to its capacity.
    OverCapacity {
        /// The VO of the member.
        vo: VoId,
        /// The member over its capacity.
        site: SiteId,
    },
    /// A site publishes less usage than before, beyond corrections.
    TookBack {
        /// The VO of the site's heads.
        vo: VoId,
        /// The site that took usage back.
        site: SiteId,
        /// By how much, in core-milliseconds: all that it has taken back while this is listed.
        charge: u64,
    },
    /// This site's own usage is more than one head may hold: the oldest is not published.
    OverBudget {
        /// The VO whose head is full.
        vo: VoId,
        /// What was used from then on is published.
        until: WallTime,
    },
    /// A row of the store could not be read and was left out.
    BadRow {
        /// The kind of row that was damaged.
        what: String,
    },
}

impl Notice {
    /// How much it matters.
    pub fn severity(&self) -> Severity {
        self.facts().1
    }

    /// The VO that it is about, if it is about one.
    pub fn vo(&self) -> Option<VoId> {
        self.facts().2
    }

    /// A stable name for logs and alerts.
    pub fn code(&self) -> &'static str {
        self.facts().0
    }

    /// What comes and goes at the pace of peers: its name, of which peer if it is about one, and in which VO.
    fn paced(&self) -> Option<Paced> {
        match self {
            Self::Refused { from: peer, .. } | Self::ClockOff { site: peer, .. } => {
                Some((self.code(), Some(*peer), None))
            }
            Self::OwnClockOff { .. } | Self::Twice { .. } => Some((self.code(), None, None)),
            Self::TookBack { vo, site, .. } | Self::OverCapacity { vo, site } => {
                Some((self.code(), Some(*site), Some(*vo)))
            }
            _ => None,
        }
    }

    /// Takes in what the one before it of its kind and peer said, where that adds up.
    fn add_up(&mut self, before: &Self) {
        if let (Self::TookBack { charge, .. }, Self::TookBack { charge: more, .. }) = (self, before)
        {
            *charge = charge.saturating_add(*more);
        }
    }

    /// Its name, how much it matters, the VO that it is about, and what it is of the two.
    fn facts(&self) -> (&'static str, Severity, Option<VoId>, Sort) {
        use Severity::{Error, Info, Warning};
        use Sort::{Condition, Event};
        match self {
            Self::Founded { vo, .. } => ("vo-founded", Info, Some(*vo), Event),
            Self::Adopted { vo, .. } => ("document-adopted", Info, Some(*vo), Event),
            Self::Policy { vo, .. } => ("policy-warning", Warning, Some(*vo), Condition),
            Self::Snapshot { vo, .. } => ("policy-snapshot", Warning, Some(*vo), Condition),
            Self::Refused { vo, .. } => ("refused", Warning, Some(*vo), Event),
            Self::ClockOff { .. } => ("clock-off", Warning, None, Condition),
            Self::OwnClockOff { .. } => ("own-clock-off", Error, None, Condition),
            Self::Forked { vo, .. } => ("site-forked", Error, Some(*vo), Event),
            Self::Twice { .. } => ("site-twice", Error, None, Condition),
            Self::Recovered { vo } => ("counters-recovered", Info, Some(*vo), Event),
            Self::OverCapacity { vo, .. } => ("over-capacity", Warning, Some(*vo), Condition),
            Self::TookBack { vo, .. } => ("usage-taken-back", Warning, Some(*vo), Event),
            Self::OverBudget { vo, .. } => ("over-budget", Error, Some(*vo), Condition),
            Self::BadRow { .. } => ("bad-row", Error, None, Event),
        }
    }
}

/// Of which notices the last is listed, and one a minute is logged.
type Paced = (&'static str, Option<SiteId>, Option<VoId>);

/// For how long a notice is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// Listed while it holds.
    Condition,
    /// Listed for a day.
    Event,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_founded = matches!(self, Self::Founded { .. });
        if let Some(vo) = self.vo().filter(|_| !is_founded) {
            write!(f, "VO {}: ", vo.short())?;
        }
        match self {
            Self::Founded { vo, name } => write!(f, "takes part in VO {name} ({})", vo.short()),
            Self::Adopted { what, .. } => write!(f, "{what} is in force"),
            Self::Policy { what, .. } | Self::Snapshot { what, .. } => write!(f, "{what}"),
            Self::Refused { from, why, .. } => write!(f, "refused from {}: {why}", from.short()),
            Self::ClockOff { site, by, ahead } => {
                let side = if *ahead { "ahead of" } else { "behind" };
                let (site, by) = (site.short(), by.0 / 1_000);
                write!(f, "the clock of site {site} is {by} s {side} ours")
            }
            Self::OwnClockOff { what } => write!(
                f,
                "this machine's clock is off from {what}: nothing is signed until it is set right"
            ),
            Self::Forked { site, .. } => write!(
                f,
                "site {} signed two different heads with one number: do two machines run with its key?",
                site.short()
            ),
            Self::Twice { incarnation } => write!(
                f,
                "another machine runs with this site's key: a head that its start {:x} signed came after this node had \
                 started",
                incarnation.0
            ),
            Self::Recovered { .. } => write!(
                f,
                "peers held counters of this site that its store did not know; they are joined in"
            ),
            Self::OverCapacity { site, .. } => write!(
                f,
                "site {} publishes more usage than it can have run; it counts up to its capacity: is that right in the charter, or do factors of its queues above 1 charge more?",
                site.short()
            ),
            Self::TookBack { site, charge, .. } => {
                let (site, hours) = (site.short(), charge / 3_600_000);
                write!(
                    f,
                    "site {site} publishes {hours} core-hours less than before"
                )
            }
            Self::OverBudget { until, .. } => write!(
                f,
                "this site's usage is more than one head may hold; not all of that before {until} is published"
            ),
            Self::BadRow { what } => {
                write!(f, "a row of the store is damaged and was left out: {what}")
            }
        }
    }
}

/// Time for which an event is listed.
const LISTED_FOR: Millis = Millis::from_secs(86_400);

/// Most notices listed: bounds memory under peers that send nonsense.
const NOTICES_MAX: usize = 256;

/// Least time between two notices of one kind that a peer makes new: a log has a line of each.
const SAY_AGAIN: Millis = Millis::from_secs(60);

/// What is listed now.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    listed: BTreeMap<Notice, MonoTime>,
    /// Of each kind and peer, what was said last.
    said: BTreeMap<Paced, Said>,
}

/// When something was said, how many were held back before that, and how many since.
#[derive(Debug)]
struct Said {
    at: MonoTime,
    before: u64,
    since: u64,
}

impl Notices {
    /// Lists a notice, in the place of the one before of that kind and peer; returns what is to be said, if anything
    /// is.
    pub(crate) fn add(&mut self, now: MonoTime, mut notice: Notice) -> Option<Notice> {
        let paced = notice.paced();
        if paced.is_some() {
            let before = self.listed.keys().filter(|of| of.paced() == paced);
            before.for_each(|before| notice.add_up(before));
            self.listed
                .retain(|of, _| *of == notice || of.paced() != paced);
        }
        let is_news = self.listed.insert(notice.clone(), now).is_none();
        if self.listed.len() > NOTICES_MAX {
            let oldest = self.listed.iter().min_by_key(|(_, at)| **at);
            let oldest = oldest.map(|(notice, _)| notice.clone());
            oldest.and_then(|oldest| self.listed.remove(&oldest));
        }
        let is_said = is_news && paced.is_none_or(|paced| self.is_time_for(now, paced));
        is_said.then_some(notice)
    }

    fn is_time_for(&mut self, now: MonoTime, paced: Paced) -> bool {
        let mut before = 0;
        if let Some(said) = self.said.get_mut(&paced) {
            if now < said.at.after(SAY_AGAIN) {
                said.since += 1;
                return false;
            }
            before = said.since;
        }
        let (at, since) = (now, 0);
        self.said.insert(paced, Said { at, before, since });
        true
    }

    /// Conditions of a kind hold no more, but for those that `stays`.
    pub(crate) fn clear(&mut self, stays: impl Fn(&Notice) -> bool) {
        self.listed.retain(|notice, _| stays(notice));
    }

    /// Events of long ago are listed no more.
    pub(crate) fn expire(&mut self, now: MonoTime) {
        let is_event = |notice: &Notice| notice.facts().3 == Sort::Event;
        self.listed
            .retain(|notice, at| !is_event(notice) || now.since(*at) < LISTED_FOR);
        self.said.retain(|_, said| now.since(said.at) < LISTED_FOR);
    }

    /// How many of its kind a peer has made new since the one that was said before this one.
    pub(crate) fn held_back(&self, notice: &Notice) -> u64 {
        let said = notice.paced().and_then(|of| self.said.get(&of));
        said.map_or(0, |said| said.before)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Notice> {
        self.listed.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_events_without_end_the_last_are_listed() {
        let mut notices = Notices::default();
        let row = |number: usize| Notice::BadRow {
            what: number.to_string(),
        };
        for (number, at) in (0..NOTICES_MAX + 44).zip(1..) {
            assert_eq!(notices.add(MonoTime(at), row(number)), Some(row(number)));
        }
        assert_eq!(notices.iter().count(), NOTICES_MAX);
        let listed = |number| notices.iter().any(|listed| *listed == row(number));
        assert!(!listed(43) && listed(44) && listed(NOTICES_MAX + 43));
    }

    #[test]
    fn of_a_clock_that_is_right_and_wrong_by_turns_one_line_a_minute_is_logged() {
        let mut notices = Notices::default();
        let off = |by: u64| Notice::OwnClockOff {
            what: by.to_string(),
        };
        let logged = (0..120).filter(|second| {
            notices.clear(|_| false);
            notices
                .add(MonoTime(second * 1_000), off(second % 2))
                .is_some()
        });
        assert_eq!(logged.collect::<Vec<u64>>(), [0, 60]);
        assert_eq!(notices.iter().count(), 1);
    }
}
