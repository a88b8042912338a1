//! What the loops with a batch system have done, as they tell the node.

use serde::{Deserialize, Serialize};

/// The body of `POST /v1/slurm` and its like: either loop, or both. Counters begin with the loop's process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LoopsReport {
    /// Priorities into the batch system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncReport>,
    /// Usage out of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed: Option<FeedReport>,
    /// What `fairmesh report --follow` follows: it distinguishes several of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
}

impl LoopsReport {
    /// The loops that it is about, by name.
    pub fn rounds(&self) -> impl Iterator<Item = (&'static str, &RoundsReport)> {
        let sync = self.sync.iter().map(|sync| ("sync", &sync.rounds));
        sync.chain(self.feed.iter().map(|feed| ("feed", &feed.rounds)))
    }
}

/// How the rounds of a loop ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RoundsReport {
    /// Rounds that came to their end.
    pub done: u64,
    /// Rounds in which the batch system was away, or its files.
    #[serde(alias = "without_slurm")]
    pub without_scheduler: u64,
    /// Rounds in which the node was away.
    pub without_node: u64,
    /// The pause after a round, in milliseconds. The loop reports at least once in this time, also during a round, so
    /// that the node notices its silence; 0 for a loop of an earlier release, which promises nothing.
    #[serde(default)]
    pub interval_ms: u64,
    /// The duration of the newest good round, in milliseconds.
    #[serde(default)]
    pub took_ms: u64,
    /// Why the newest rounds failed; none after a good one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
    /// Whether the loop has ended because it was asked to: SIGTERM, or the end of its node.
    #[serde(default)]
    pub is_stopped: bool,
}

/// Rounds that failed one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Trouble {
    /// How many.
    pub rounds: u64,
    /// Whether the rounds lacked only the source of ended jobs: running jobs were reported.
    pub is_of_source: bool,
    /// The error of the newest round.
    pub why: String,
}

/// `fairmesh slurm sync` and its like.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SyncReport {
    /// Its rounds.
    pub rounds: RoundsReport,
    /// Priorities that were set.
    pub set: u64,
    /// Priorities that the batch system refused.
    pub refused: u64,
    /// Jobs that waited in the last round that came to its end.
    pub waiting: u64,
    /// Of these, held ones.
    pub held: u64,
    /// Of these, jobs of accounts that the node does not know.
    pub unknown: u64,
    /// Updates that were left to the next round.
    pub left: u64,
    /// When the priorities last were the node's, in milliseconds since the Unix epoch.
    pub good_ms: Option<u64>,
}

/// `fairmesh slurm feed` and its like.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FeedReport {
    /// Its rounds.
    pub rounds: RoundsReport,
    /// Finished jobs that the node had not known.
    pub counted: u64,
    /// Finished jobs that it had.
    pub known: u64,
    /// Records that it refused.
    pub refused: u64,
    /// Running jobs in the last round that came to its end.
    pub running: u64,
    /// Logs that were gone before they were read to their end.
    #[serde(default)]
    pub lost: u64,
    /// Whatever had ended by then is acknowledged, in milliseconds since the Unix epoch.
    pub until_ms: Option<u64>,
}

impl FeedReport {
    /// Adds what another feed has done.
    pub fn add(&mut self, other: &Self) {
        self.rounds.done += other.rounds.done;
        self.rounds.without_scheduler += other.rounds.without_scheduler;
        self.rounds.without_node += other.rounds.without_node;
        self.counted += other.counted;
        self.known += other.known;
        self.refused += other.refused;
        self.running += other.running;
        self.lost += other.lost;
        // What both have acknowledged.
        self.until_ms = self.until_ms.min(other.until_ms);
    }
}
