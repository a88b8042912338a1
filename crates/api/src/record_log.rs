//! How far the node's record log had come when a cursor last moved.
//!
//! The log counts its batches for each start of the node, and an answer to a loop lists the newest starts with their
//! counts. A cursor has the newest entry that a log had when it held all records that the cursor has passed.
//!
//! Invariant: a log that lacks a cursor's entry may lack records that the cursor has passed. A log that was lost has
//! another id; one restored from a backup lacks the start or some of its batches. A batch is durable before its entry
//! is sent, so a node that was killed still has it.
//! Deliberately not here: the requests, and where a loop begins again.

use serde::{Deserialize, Serialize};

/// Batches that the log took during one start of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LogStart {
    /// Random: it distinguishes the start from one on a copy of the data folder.
    pub start: i64,
    /// How many.
    pub batches: u64,
}

/// What the node answers to a report of a loop: the state of its record log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LogState {
    /// The id of the node's record log. A feed that finds another one than before reports all that its source has
    /// again: the log was lost, and mostly the data folder with it. None where the node keeps no log, or cannot open it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<i64>,
    /// The newest starts of the node that wrote to the log, and their batches, oldest first. If the last one that a
    /// feed knows is not there with as many, the data folder was restored from a backup: the feed reports all again.
    pub starts: Vec<LogStart>,
}

/// The state of the record log that a cursor belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPlace {
    /// The log's id; none where the node keeps no log, or does not report it.
    #[serde(default)]
    pub log: Option<i64>,
    /// How far the log had come; none before its first batch, or if the node does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<LogStart>,
}

/// Why the log may lack records that it has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LogLoss {
    /// The data folder was wiped, or the log set aside.
    #[error("the node has a new record log")]
    New,
    /// The data folder is older than the cursor.
    #[error("the node's data folder was restored from a backup")]
    Restored,
}

impl LogPlace {
    /// Compares with what the node reports now.
    pub fn loss(&self, now: &LogState) -> Option<LogLoss> {
        let (log, current) = self.log.zip(now.log)?;
        let has = |reach: LogStart| {
            let mut starts = now.starts.iter();
            starts.any(|of| of.start == reach.start && of.batches >= reach.batches)
        };
        match self.reach {
            _ if log != current => Some(LogLoss::New),
            Some(reach) if !has(reach) => Some(LogLoss::Restored),
            _ => None,
        }
    }

    /// The place of a cursor whose records the log has now. Unchanged if the node does not report its log.
    #[must_use]
    pub fn at(self, now: &LogState) -> Self {
        now.log.map_or(self, |log| Self {
            log: Some(log),
            reach: now.starts.last().copied(),
        })
    }

    /// The same between rounds: it is not written for each batch of another feed, but before the log forgets the start.
    #[must_use]
    pub fn refreshed(self, now: &LogState) -> Self {
        let fresh = self.at(now);
        let start = |place: &Self| place.reach.map(|reach| reach.start);
        let is_same = fresh.log == self.log && start(&fresh) == start(&self);
        if is_same { self } else { fresh }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(log: i64, starts: &[(i64, u64)]) -> LogState {
        let starts = starts.iter();
        let starts = starts.map(|&(start, batches)| LogStart { start, batches });
        LogState {
            log: Some(log),
            starts: starts.collect(),
        }
    }

    #[test]
    fn a_log_that_lacks_what_it_had_was_lost_or_restored() {
        let place = LogPlace::default().at(&state(7, &[(1, 9), (2, 4)]));
        for (now, expected) in [
            (state(7, &[(1, 9), (2, 4)]), None),
            (state(7, &[(1, 9), (2, 5), (3, 1)]), None),
            (state(7, &[(2, 4), (3, 1)]), None),
            (state(7, &[(1, 9), (2, 3)]), Some(LogLoss::Restored)),
            (state(7, &[(1, 9), (2, 3), (3, 8)]), Some(LogLoss::Restored)),
            (state(7, &[(1, 9)]), Some(LogLoss::Restored)),
            (state(7, &[]), Some(LogLoss::Restored)),
            (state(8, &[]), Some(LogLoss::New)),
            (LogState::default(), None),
        ] {
            assert_eq!(place.loss(&now), expected, "{now:?}");
        }
        assert_eq!(LogPlace::default().loss(&state(7, &[(1, 9)])), None);
    }

    #[test]
    fn a_place_is_refreshed_once_for_each_start_and_only_if_there_is_a_log() {
        let place = LogPlace::default().refreshed(&state(7, &[(1, 1)]));
        assert_eq!(place, LogPlace::default().at(&state(7, &[(1, 1)])));
        assert_eq!(place.refreshed(&state(7, &[(1, 5)])), place);
        assert_eq!(place.refreshed(&LogState::default()), place);
        let later = state(7, &[(1, 5), (2, 1)]);
        assert_eq!(place.refreshed(&later), place.at(&later));
    }
}
