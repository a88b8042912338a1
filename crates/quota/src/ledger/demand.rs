//! The demand for an account at this site, so that the site requests rights before it has none left.
//!
//! Invariant: whole numbers and whole minutes of the wall clock only. Demand that is forgotten at a restart costs a
//! transfer, never a right.

use fairmesh_model::WallTime;

/// Minutes of demand for which a site wants to have rights, so that requests have time to be answered.
const MINUTES_AHEAD: u64 = 30;

/// Minutes after which nothing is left of the mean: bounds the loop after a long pause.
const MEMORY_MINUTES: u64 = 256;

/// Minutes of a day, by which the largest hold is kept.
const DAY_MINUTES: u64 = 1_440;

/// The demand for one account, in core-milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Demand {
    minute: u64,
    /// Holds that were granted in that minute.
    asked: u64,
    /// A mean for each minute: a fifth of the last minute and four fifths of the mean before.
    mean: u64,
    /// The largest hold of this day and of the day before: a job like it finds rights at once.
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

    /// The rights that the site wants to have.
    pub(super) fn target(&mut self, now: WallTime) -> u64 {
        self.advance(now);
        let ahead = self.mean.saturating_mul(MINUTES_AHEAD);
        ahead.saturating_add(self.largest[0].max(self.largest[1]))
    }

    fn advance(&mut self, now: WallTime) {
        let minute = now.0 / 60_000;
        // The clock may have been ahead and set back: demand noted then counts as of now.
        self.minute = self.minute.min(minute);
        let passed = minute.saturating_sub(self.minute);
        match (minute / DAY_MINUTES).saturating_sub(self.minute / DAY_MINUTES) {
            0 => {}
            1 => self.largest = [0, self.largest[0]],
            _ => self.largest = [0, 0],
        }
        for _ in 0..passed.min(MEMORY_MINUTES) {
            // Divided before multiplied, so that nothing overflows.
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
    fn demand_is_a_mean_that_fades_and_the_largest_hold_of_a_day() {
        let at = |minute: u64| WallTime(minute * 60_000);
        let mut demand = Demand::default();
        demand.note(at(0), 300);
        demand.note(at(0), 700);
        assert_eq!(demand.target(at(0)), 700);
        assert_eq!(demand.target(at(1)), 30 * 200 + 700);
        assert_eq!(demand.target(at(2)), 30 * 160 + 700);
        assert_eq!(demand.target(at(1_440 + 5)), 700);
        assert_eq!(demand.target(at(2 * 1_440)), 0);
    }

    #[test]
    fn a_clock_that_was_ahead_keeps_nothing_in_hand_until_then() {
        let at = |minute: u64| WallTime(minute * 60_000);
        let mut demand = Demand::default();
        demand.note(at(500_000), 700);
        assert_eq!(demand.target(at(10)), 700);
        assert_eq!(demand.target(at(10 + 3 * 1_440)), 0);
    }
}
