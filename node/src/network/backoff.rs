//! How long to wait before the next attempt: exponential, with jitter, bounded.
//!
//! Invariant: the wait before attempt `n` lies between half and the whole of
//! `min(first × 2^n, longest)`. Randomness is passed in, so that it can be tested and so that nodes
//! that lost a peer at the same moment do not come back at the same moment.

use std::time::Duration;

/// Attempts after which the wait no longer doubles: 2^20 times the first wait is beyond any cap.
const DOUBLINGS_MAX: u32 = 20;

/// The state of one sequence of attempts.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits from `first` to `longest`.
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest: longest.max(first),
            failures: 0,
        }
    }

    /// How long to wait after one more failure. `random` is uniform over all of `u64`.
    pub(crate) fn fail(&mut self, random: u64) -> Duration {
        let whole = self
            .first
            .saturating_mul(1 << self.failures.min(DOUBLINGS_MAX))
            .min(self.longest);
        self.failures = self.failures.saturating_add(1);
        let half = whole / 2;
        let spread = u64::try_from((whole - half).as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(random % spread.max(1))
    }

    /// Failures since the last success.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Begins again with the first wait.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(1);

    #[test]
    fn doubles_up_to_the_longest_within_the_jitter() {
        for random in [0, 1, u64::MAX / 3, u64::MAX] {
            let mut backoff = Backoff::new(FIRST, LONGEST);
            for whole in [100, 200, 400, 800, 1000, 1000].map(Duration::from_millis) {
                let wait = backoff.fail(random);
                assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
            }
        }
    }

    #[test]
    fn never_overflows_and_resets() {
        let mut backoff = Backoff::new(FIRST, Duration::MAX);
        for _ in 0..1000 {
            backoff.fail(u64::MAX);
        }
        backoff.reset();
        assert_eq!(backoff.failures(), 0);
        assert!(backoff.fail(0) <= FIRST);
    }

    #[test]
    fn different_randomness_spreads_the_attempts() {
        let wait = |random| Backoff::new(FIRST, LONGEST).fail(random);
        assert_ne!(wait(1), wait(20_000_000));
    }
}
