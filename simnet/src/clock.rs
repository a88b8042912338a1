//! The clock of one site: how it reads while true time passes.
//!
//! Invariant: as long as a process lives its monotonic time never runs backwards, whatever the
//! clock drifts by; wall time may jump to anywhere. True time is the simulator's own and is never
//! shown to a site.
//!
//! Deliberately not here: what a site does about a wrong clock.

use fairmesh_model::{Millis, MonoTime, Now, WallTime};

/// Parts in a million: the unit of drift.
const MILLION: i128 = 1_000_000;

/// Fastest and slowest that a clock may run: half again as fast, or half as fast.
pub const DRIFT_PPM_MAX: i64 = 500_000;

/// The clock of one site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteClock {
    /// What the wall clock of a perfect site shows at true time 0.
    start: WallTime,
    /// By how much the wall clock was ahead at `since`.
    offset_ms: i64,
    /// By how much it has run too fast since then.
    drift_ppm: i64,
    /// True time at which the fields were set.
    since: MonoTime,
    /// Monotonic time at `since`.
    mono_ms: u64,
}

impl SiteClock {
    /// A perfect clock.
    pub fn new(start: WallTime) -> Self {
        Self {
            start,
            offset_ms: 0,
            drift_ppm: 0,
            since: MonoTime(0),
            mono_ms: 0,
        }
    }

    /// What the site believes at the true time `now`.
    pub fn now(&self, now: MonoTime) -> Now {
        Now {
            mono: self.mono(now),
            wall: self.wall(now),
        }
    }

    /// What the wall clock shows.
    pub fn wall(&self, now: MonoTime) -> WallTime {
        let base = i128::from(self.start.0) + i128::from(now.0) + i128::from(self.offset_ms);
        let wall = base + self.drifted(now);
        WallTime(u64::try_from(wall.max(0)).unwrap_or(u64::MAX))
    }

    /// What the monotonic clock shows.
    pub fn mono(&self, now: MonoTime) -> MonoTime {
        let passed = i128::from(now.since(self.since).0) + self.drifted(now);
        MonoTime(self.mono_ms + u64::try_from(passed.max(0)).unwrap_or(0))
    }

    /// The first true time at which the monotonic clock shows `mono` or more.
    pub fn true_time_of(&self, mono: MonoTime) -> MonoTime {
        let ahead = i128::from(mono.0.saturating_sub(self.mono_ms));
        let pace = MILLION + i128::from(self.drift_ppm);
        // Rounded up: a timer that fires early would have to be set again.
        let passed = (ahead * MILLION + pace - 1) / pace;
        self.since
            .after(Millis(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    /// By how much the wall clock is ahead of the true time (behind, where negative).
    pub fn ahead_ms(&self, now: MonoTime) -> i64 {
        self.offset_ms + i64::try_from(self.drifted(now)).unwrap_or(0)
    }

    /// Sets the wall clock on (or back) by `by_ms`.
    pub fn jump(&mut self, by_ms: i64) {
        self.offset_ms = self.offset_ms.saturating_add(by_ms);
    }

    /// From now on the clock runs too fast by `ppm` (too slow, where negative).
    pub fn drift(&mut self, now: MonoTime, ppm: i64) {
        self.settle(now);
        self.drift_ppm = ppm.clamp(-DRIFT_PPM_MAX, DRIFT_PPM_MAX);
    }

    /// Somebody sets the clock right: no offset, no drift.
    pub fn correct(&mut self, now: MonoTime) {
        self.settle(now);
        self.offset_ms = 0;
        self.drift_ppm = 0;
    }

    /// The process starts again, and with it the monotonic clock.
    pub fn restart(&mut self, now: MonoTime) {
        self.settle(now);
        self.mono_ms = 0;
    }

    fn settle(&mut self, now: MonoTime) {
        self.mono_ms = self.mono(now).0;
        self.offset_ms = self.ahead_ms(now);
        self.since = now;
    }

    fn drifted(&self, now: MonoTime) -> i128 {
        let passed = i128::from(now.since(self.since).0);
        (passed * i128::from(self.drift_ppm)).div_euclid(MILLION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_never_runs_backwards() {
        let mut clock = SiteClock::new(WallTime(1_000_000));
        let mut last = clock.mono(MonoTime(0));
        for step in 1..2_000_u64 {
            let now = MonoTime(step * 7);
            if step % 100 == 0 {
                clock.drift(now, [-300_000, 120_000, 0][(step / 100 % 3) as usize]);
                clock.jump(-5_000);
            }
            assert!(clock.mono(now) >= last);
            last = clock.mono(now);
        }
    }

    #[test]
    fn a_timer_fires_when_the_clock_shows_its_time_and_not_before() {
        let mut clock = SiteClock::new(WallTime(0));
        for ppm in [-400_000, -13, 0, 17, 250_000] {
            clock.drift(MonoTime(12_345), ppm);
            for ahead in [1, 10, 999, 100_000] {
                let wanted = clock.mono(MonoTime(12_345)).after(Millis(ahead));
                let at = clock.true_time_of(wanted);
                assert!(clock.mono(at) >= wanted);
                assert!(clock.mono(MonoTime(at.0 - 1)) < wanted, "{ppm} {ahead}");
            }
        }
    }

    #[test]
    fn a_jump_moves_the_wall_alone() {
        let mut clock = SiteClock::new(WallTime(1_000_000));
        let before = clock.now(MonoTime(500));
        clock.jump(-400);
        assert_eq!(clock.now(MonoTime(500)).mono, before.mono);
        assert_eq!(clock.wall(MonoTime(500)).0 + 400, before.wall.0);
        clock.correct(MonoTime(500));
        assert_eq!(clock.now(MonoTime(500)), before);
    }
}
