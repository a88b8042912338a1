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

use fairmesh_model::{Millis, MonoTime, Now, WallTime};

/// No garbage collection for so long after a start: time to learn from peers what time it is, and what they hold of
/// this site's earlier incarnations.
pub(crate) const GC_GRACE: Millis = Millis::from_secs(3_600);

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
        /// The difference from the members' median.
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
    pub(crate) fn is_off(self) -> bool {
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

    /// Why nothing may be acknowledged now: the local clock is known to be wrong.
    pub(crate) fn refuses_all(&self) -> Option<String> {
        (self.standing == Standing::BeforeOwnHead).then(|| {
            "this machine's clock stands before what this site has signed last: report again when it is set right"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
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
