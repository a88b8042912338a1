//! How much a site is asked for, so that it asks others before it has nothing left.
//!
//! Invariant: whole numbers and the minutes of the wall clock only; what is forgotten at a restart costs a
//! transfer, never a right.

use fairmesh_model::WallTime;

/// Minutes of demand that a site wants to have in hand.
const MINUTES_AHEAD: u64 = 30;

/// Minutes after which nothing of the mean is left.
const MEMORY_MINUTES: u64 = 256;

/// What is asked of one account at this site.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Demand {
    minute: u64,
    /// Holds that were granted in that minute.
    asked: u64,
    /// By the minute: a fifth of the last one and four fifths of what it was before.
    mean: u64,
    /// The largest hold of this half hour and of the one before.
    largest: [u64; 2],
}

impl Demand {
    /// Notes a hold that was granted. A refused job is a claim instead: counted here it would keep rights from others
    /// that it does not use.
    pub(super) fn note(&mut self, now: WallTime, amount: u64) {
        self.advance(now);
        self.asked = self.asked.saturating_add(amount);
        self.largest[0] = self.largest[0].max(amount);
    }

    /// What the site wants to have in hand.
    pub(super) fn target(&mut self, now: WallTime) -> u64 {
        self.advance(now);
        let ahead = self.mean.saturating_mul(MINUTES_AHEAD);
        ahead.saturating_add(self.largest[0].max(self.largest[1]))
    }

    fn advance(&mut self, now: WallTime) {
        let minute = now.0 / 60_000;
        // The clock was ahead.
        self.minute = self.minute.min(minute);
        let passed = minute.saturating_sub(self.minute);
        match (minute / MINUTES_AHEAD).saturating_sub(self.minute / MINUTES_AHEAD) {
            0 => {}
            1 => self.largest = [0, self.largest[0]],
            _ => self.largest = [0, 0],
        }
        for _ in 0..passed.min(MEMORY_MINUTES) {
            self.mean = self.mean / 5 * 4 + self.mean % 5 * 4 / 5 + self.asked / 5;
            self.asked = 0;
        }
        self.minute = minute;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_a_mean_that_fades_and_the_largest_hold_of_half_an_hour() {
        let at = |minute: u64| WallTime(minute * 60_000);
        let mut demand = Demand::default();
        demand.note(at(0), 300);
        demand.note(at(0), 700);
        assert_eq!(demand.target(at(0)), 700);
        assert_eq!(demand.target(at(1)), 30 * 200 + 700);
        assert_eq!(demand.target(at(2)), 30 * 160 + 700);
        assert_eq!(demand.target(at(59)), 700);
        assert_eq!(demand.target(at(60)), 0);
    }

    #[test]
    fn a_clock_that_was_ahead_keeps_nothing_in_hand_until_then() {
        let at = |minute: u64| WallTime(minute * 60_000);
        let mut demand = Demand::default();
        demand.note(at(500_000), 700);
        assert_eq!(demand.target(at(10)), 700);
        assert_eq!(demand.target(at(100)), 0);
    }
}
