//! What the log says about the network: changes of state, once, and never at a peer's pace.
//!
//! Invariant: nothing that a peer does makes more than one line per `LOG_INTERVAL` and kind.

use std::time::{Duration, Instant};

use fairmesh_model::SiteId;

use crate::network::config::LOG_INTERVAL;

/// Something about a peer's reachability that the operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// The peer has been gone for a while.
    Unreachable {
        site: SiteId,
        for_time: Duration,
        attempts: u32,
        error: String,
    },
    /// A peer that was reported unreachable is back.
    Back { site: SiteId, after: Duration },
}

impl Report {
    /// Writes it to the log.
    pub(crate) fn log(&self) {
        match self {
            Self::Unreachable {
                site,
                for_time,
                attempts,
                error,
            } => tracing::warn!(
                peer = %site.short(),
                attempts,
                "peer unreachable since {} s ago, last error: {error}",
                for_time.as_secs()
            ),
            Self::Back { site, after } => tracing::info!(
                peer = %site.short(),
                "peer back after {} s",
                after.as_secs()
            ),
        }
    }
}

/// Lets one line through per `LOG_INTERVAL`, and counts the rest.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    last: Option<Instant>,
    held_back: u64,
}

impl Throttle {
    /// `Some(n)` where a line may be written now, after `n` that were not.
    pub(crate) fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now < last + LOG_INTERVAL) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_interval_and_the_rest_counted() {
        let start = Instant::now();
        let mut throttle = Throttle::default();
        assert_eq!(throttle.pass(start), Some(0));
        assert_eq!(throttle.pass(start), None);
        assert_eq!(throttle.pass(start + LOG_INTERVAL / 2), None);
        assert_eq!(throttle.pass(start + LOG_INTERVAL), Some(2));
    }
}
