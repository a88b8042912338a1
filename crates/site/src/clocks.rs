//! Checking the local clock against those of connected members, and reporting members with wrong clocks.

use fairmesh_gossip::{Gossip, Shared as _};
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{Millis, Now, SiteId, WallTime, mutant};

use crate::notice::Notice;
use crate::parts::{Cx, Own, Vos};
use crate::time::{Standing, has_leapt, standing};
use crate::vo::Vo;

/// Longest time between a site's last head and its start for which its clock is trusted without confirmation by
/// members. A clock that is ahead makes the site forget history; a week is the shortest history that a VO may have.
const OFF_MAX: Millis = Millis(7 * DAY_MS);

/// Updates the standing of the own clock by the clocks of connected members, and its notice.
pub(crate) fn watch_own_clock(
    cx: &mut Cx,
    own: &mut Own,
    vos: &Vos,
    gossip: &mut Gossip,
    now: Now,
) {
    let tolerance = cx.config.timing.clock_tolerance;
    let before = std::mem::replace(&mut cx.clock.own, now);
    // Remembered until a member confirms the clock: after a leap both the old and the new time may be the wrong one.
    cx.clock.has_leapt |= has_leapt(before, now, tolerance);
    let median = median_clock(vos, gossip, now);
    cx.clock.members = median;
    let now_stands = match standing(now.wall, median, cx.clock.last_head_at, tolerance) {
        Standing::Unknown if cx.clock.has_leapt => Standing::Leapt,
        Standing::Right => {
            cx.clock.has_leapt = false;
            Standing::Right
        }
        other => other,
    };
    let stood = std::mem::replace(&mut cx.clock.standing, now_stands);
    if stood == now_stands {
        return;
    }
    // Members list the site while its clock is off, so they should see at once that it has been set.
    if stood.is_off() != now_stands.is_off() {
        gossip.show_clock();
    }
    cx.notices
        .clear(|notice| !matches!(notice, Notice::OwnClockOff { .. }));
    let what = match now_stands {
        Standing::Right => return cx.persist(own.cut_reaches(now.wall.after(tolerance))),
        Standing::Unknown | Standing::Leapt => return,
        Standing::BeforeOwnHead => "what this site has signed last: it stands before it".to_owned(),
        Standing::Off { by, ahead } => {
            let side = if ahead { "ahead" } else { "behind" };
            format!("the other sites', by {} s ({side})", by.0 / 1_000)
        }
    };
    cx.notice(now.mono, Notice::OwnClockOff { what });
}

pub(crate) fn median_clock(vos: &Vos, gossip: &Gossip, now: Now) -> Option<WallTime> {
    let counts = |peer| {
        vos.values()
            .any(|vo| vo.replica.is_member(peer) || !vo.is_founded())
    };
    let median = gossip.median_clock(now, counts);
    mutant!(OwnClockBelieved, median, Some(now.wall))
}

/// Doubts the clock at a start long after the site's last head: the site was off, or its clock has leapt, and only
/// another member can tell which. A site without other members trusts its clock, because nobody would ever confirm
/// it.
pub(crate) fn doubt_clock(cx: &mut Cx, vos: &Vos, now: WallTime) {
    let last = cx.clock.last_head_at;
    let has_others = |vo: &Vo| vo.members().iter().any(|member| *member != cx.id);
    let may_hear = vos.values().any(has_others);
    cx.clock.has_leapt = may_hear && last > WallTime(0) && now.since(last) > OFF_MAX;
}

impl Cx {
    /// Sets or clears the notice about a peer whose clock differs from ours by more than the tolerance.
    pub(crate) fn watch_peer(&mut self, gossip: &Gossip, now: Now, site: SiteId) {
        let Some(theirs) = gossip.clock_of(site, now.mono) else {
            return;
        };
        let by = theirs.since(now.wall).max(now.wall.since(theirs));
        if by > self.config.timing.clock_tolerance {
            self.notice_clock(now, site, by, theirs > now.wall);
        } else {
            self.clear_clock(site);
        }
    }

    /// Sets the notice about a site's clock.
    pub(crate) fn notice_clock(&mut self, now: Now, site: SiteId, by: Millis, ahead: bool) {
        // Rounded to whole tolerances, so that a drifting clock does not make a new notice with every probe.
        let tolerance = self.config.timing.clock_tolerance.0;
        let by = Millis(by.0 / tolerance.max(1) * tolerance);
        self.notice(now.mono, Notice::ClockOff { site, by, ahead });
    }

    /// Clears the notice about a site's clock.
    pub(crate) fn clear_clock(&mut self, peer: SiteId) {
        self.notices
            .clear(|notice| !matches!(notice, Notice::ClockOff { site, .. } if *site == peer));
    }
}
