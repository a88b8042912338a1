//! What a start is doing, and how far it is: written by the task that starts a node, read by `status` and systemd.
//!
//! Invariant: telling takes a lock that nobody holds for longer than a copy. Of what cannot be counted only its name is told.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The way to it. Cheap to share.
#[derive(Debug, Clone, Default)]
pub struct Starting(Arc<Mutex<Step>>);

/// One step of a start.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    what: &'static str,
    done: usize,
    of: usize,
    /// How often anything was told.
    told: u64,
}

impl Starting {
    /// So many are done of those that there are; `of` is 0 where they are not counted.
    pub fn tell(&self, what: &'static str, done: usize, of: usize) {
        let mut step = self.step();
        let told = step.told + 1;
        *step = Step {
            what,
            done,
            of,
            told,
        };
    }

    /// How often anything was told: it stays while the start does not get on, or does what cannot be counted.
    pub fn told(&self) -> u64 {
        self.step().told
    }

    fn step(&self) -> MutexGuard<'_, Step> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Starting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { what, done, of, .. } = *self.step();
        match (what, of) {
            ("", _) => f.write_str("opens its store"),
            (what, 0) => f.write_str(what),
            (what, of) => write!(f, "{what}: {done} of {of}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_told_with_how_far_it_is() {
        let starting = Starting::default();
        let watched = starting.clone();
        assert_eq!(watched.to_string(), "opens its store");
        starting.tell("reads records", 1_200, 340_000);
        assert_eq!(watched.to_string(), "reads records: 1200 of 340000");
        starting.tell("listens", 0, 0);
        assert_eq!(watched.to_string(), "listens");
        assert_eq!(watched.told(), 2);
    }
}
