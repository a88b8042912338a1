//! Whose clock is right.
//!
//! Nothing is ordered by clocks; but a head that is signed in the future waits at every peer, and what
//! is forgotten too early is lost. So a site signs only while its clock agrees with the median of the
//! members that it is connected to, and a clock that stands before the site's own last head is known to
//! be wrong while nobody can confirm it. A clock that has leapt while nobody could is not believed either,
//! where believing it would let something go.
//!
//! Invariant: nobody's clock moves anybody else's usage; a wrong clock of our own delays, and nothing
//! that it could lose is acknowledged.

use fairmesh_gossip::Shared as _;
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{Millis, MonoTime, Now, SiteId, WallTime, mutant};

use crate::notice::Notice;
use crate::site::Site;
use crate::vo::Vo;

/// Longest time between the last head that a site has signed and a start at which its clock is believed without a word
/// of others: a week is the least history that may be lost by that.
const OFF_MAX: Millis = Millis(7 * DAY_MS);

/// What is known of our own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It agrees with the members' that are connected.
    Right,
    /// Nobody is connected who could say.
    Unknown,
    /// Nor was anybody since it leapt.
    Leapt,
    /// It stands before what this site has signed last, and nobody can confirm it.
    BeforeOwnHead,
    /// It is off from the members' median by this much.
    Off {
        /// By how much.
        by: Millis,
        /// Whether it is ahead.
        ahead: bool,
    },
}

/// What our own clock says is worth, where the members' median is `median` and the site signed last at
/// `last_head`.
pub(crate) fn standing(
    own: WallTime,
    median: Option<WallTime>,
    last_head: WallTime,
    tolerance: Millis,
) -> Standing {
    let Some(median) = median else {
        let is_before = own.after(tolerance) < last_head;
        return if is_before {
            Standing::BeforeOwnHead
        } else {
            Standing::Unknown
        };
    };
    let by = own.since(median).max(median.since(own));
    if by <= tolerance {
        return Standing::Right;
    }
    let ahead = own > median;
    Standing::Off { by, ahead }
}

/// Whether the clock has moved otherwise than time has passed, by more than `tolerance`. (Slewed by NTP, both
/// move alike.)
pub(crate) fn has_leapt(before: Now, now: Now, tolerance: Millis) -> bool {
    let expected = before
        .wall
        .after(Millis(now.mono.0.saturating_sub(before.mono.0)));
    now.wall.since(expected).max(expected.since(now.wall)) > tolerance
}

impl Standing {
    fn is_off(self) -> bool {
        matches!(self, Self::Off { .. })
    }

    /// Whether heads may be signed: by a site that has nobody to ask, on its own word.
    pub(crate) fn may_sign(self, alone: bool) -> bool {
        self == Self::Right || (alone && matches!(self, Self::Unknown | Self::Leapt))
    }

    /// Whether what a wrong clock could lose may be acknowledged: that something is too old to count.
    pub(crate) fn may_forget(self) -> bool {
        matches!(self, Self::Right | Self::Unknown)
    }
}

/// The local clock, and what is known of it.
#[derive(Debug)]
pub(crate) struct Clock {
    /// When this start was.
    pub(crate) started: Now,
    /// Last reading of the local clock, unchecked.
    pub(crate) own: Now,
    /// Whether it has leapt since a member last agreed with it.
    pub(crate) has_leapt: bool,
    /// The median of the connected members' clocks.
    pub(crate) members: Option<WallTime>,
    pub(crate) standing: Standing,
    /// When this site signed last, in any incarnation that is known.
    pub(crate) last_head_at: WallTime,
    /// When a head of another machine with this site's key came last.
    pub(crate) twin_at: Option<MonoTime>,
    /// The day of the last garbage collection, since the epoch.
    pub(crate) last_gc_day: u64,
}

impl Clock {
    /// A clock that nobody has confirmed yet.
    pub(crate) fn new(now: Now) -> Self {
        Self {
            started: now,
            own: now,
            has_leapt: false,
            members: None,
            standing: Standing::Unknown,
            last_head_at: WallTime(0),
            twin_at: None,
            last_gc_day: 0,
        }
    }
}

impl Site {
    /// What our own clock is worth, by the members that are connected. Named while it is off.
    pub(crate) fn watch_own_clock(&mut self, now: Now) {
        let tolerance = self.cx.config.timing.clock_tolerance;
        let before = std::mem::replace(&mut self.cx.clock.own, now);
        self.cx.clock.has_leapt |= has_leapt(before, now, tolerance);
        let median = self.median_clock(now);
        self.cx.clock.members = median;
        let now_stands = match standing(now.wall, median, self.cx.clock.last_head_at, tolerance) {
            Standing::Unknown if self.cx.clock.has_leapt => Standing::Leapt,
            Standing::Right => {
                self.cx.clock.has_leapt = false;
                Standing::Right
            }
            other => other,
        };
        let stood = std::mem::replace(&mut self.cx.clock.standing, now_stands);
        if stood == now_stands {
            return;
        }
        if stood.is_off() != now_stands.is_off() {
            self.peers.gossip.show_clock();
        }
        self.cx
            .notices
            .clear(|notice| !matches!(notice, Notice::OwnClockOff { .. }));
        let what = match now_stands {
            Standing::Right => return self.cut_reaches(now.wall.after(tolerance)),
            Standing::Unknown | Standing::Leapt => return,
            Standing::BeforeOwnHead => {
                "what this site has signed last: it stands before it".to_owned()
            }
            Standing::Off { by, ahead } => {
                let side = if ahead { "ahead" } else { "behind" };
                format!("the other sites', by {} s ({side})", by.0 / 1_000)
            }
        };
        self.cx.notice(now.mono, Notice::OwnClockOff { what });
    }

    fn median_clock(&self, now: Now) -> Option<WallTime> {
        let counts = |peer| {
            self.vos
                .values()
                .any(|vo| vo.replica.is_member(peer) || !vo.is_founded())
        };
        let median = self.peers.gossip.median_clock(now, counts);
        mutant!(OwnClockBelieved, median, Some(now.wall))
    }

    /// The same moment by the members' clock if the own one is off, by which all that others have signed would be old.
    pub fn by_members(&self, now: Now) -> Now {
        let median = self.median_clock(now);
        let tolerance = self.cx.config.timing.clock_tolerance;
        match standing(now.wall, median, self.cx.clock.last_head_at, tolerance) {
            Standing::Off { .. } => Now {
                wall: median.unwrap_or(now.wall),
                ..now
            },
            _ => now,
        }
    }

    /// A start long after this site has signed last: it was off, or its clock has leapt since, and no other member has said
    /// which yet. Where there is none nobody ever would.
    pub(crate) fn doubt_clock(&mut self, now: WallTime) {
        let last = self.cx.clock.last_head_at;
        let has_others = |vo: &Vo| vo.members().iter().any(|member| *member != self.cx.id);
        let may_hear = self.vos.values().any(has_others);
        self.cx.clock.has_leapt = may_hear && last > WallTime(0) && now.since(last) > OFF_MAX;
    }

    /// Names a peer whose clock is off from ours, while it is.
    pub(crate) fn watch_peer(&mut self, now: Now, site: SiteId) {
        let Some(theirs) = self.peers.gossip.clock_of(site, now.mono) else {
            return;
        };
        let by = theirs.since(now.wall).max(now.wall.since(theirs));
        if by > self.cx.config.timing.clock_tolerance {
            self.name_clock(now, site, by, theirs > now.wall);
        } else {
            self.clear_clock(site);
        }
    }

    /// Names a site whose clock is off.
    pub(crate) fn name_clock(&mut self, now: Now, site: SiteId, by: Millis, ahead: bool) {
        // In whole tolerances, so that it is not news whenever it has moved a little.
        let tolerance = self.cx.config.timing.clock_tolerance.0;
        let by = Millis(by.0 / tolerance.max(1) * tolerance);
        self.cx
            .notice(now.mono, Notice::ClockOff { site, by, ahead });
    }

    /// A site's clock is not known to be off.
    pub(crate) fn clear_clock(&mut self, of: SiteId) {
        self.cx
            .notices
            .clear(|notice| !matches!(notice, Notice::ClockOff { site, .. } if *site == of));
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_model::MonoTime;

    use super::*;

    #[test]
    fn a_clock_is_right_where_the_members_agree_whatever_was_signed_before() {
        let of = |own, median: Option<u64>, last| {
            standing(
                WallTime(own),
                median.map(WallTime),
                WallTime(last),
                Millis(10),
            )
        };
        assert_eq!(of(100, Some(105), 0), Standing::Right);
        assert_eq!(of(100, Some(105), 500), Standing::Right);
        assert_eq!(of(100, None, 500), Standing::BeforeOwnHead);
        assert_eq!(of(100, None, 110), Standing::Unknown);
        let off = Standing::Off {
            by: Millis(11),
            ahead: false,
        };
        assert_eq!(of(100, Some(111), 0), off);
        assert!(!off.may_sign(true) && !off.may_forget());
        assert!(Standing::Unknown.may_sign(true) && !Standing::Unknown.may_sign(false));
    }

    #[test]
    fn a_clock_that_leaps_either_way_is_seen_to() {
        let at = |mono, wall| Now {
            mono: MonoTime(mono),
            wall: WallTime(wall),
        };
        let leapt = |now| has_leapt(at(5, 100), now, Millis(10));
        assert!(!leapt(at(1_005, 1_100)) && !leapt(at(1_005, 1_110)) && !leapt(at(6, 91)));
        assert!(leapt(at(1_005, 1_111)) && leapt(at(6, 90)));
    }
}
