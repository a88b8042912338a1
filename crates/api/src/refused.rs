//! Answers about what was refused for good and waits for somebody.

use serde::{Deserialize, Serialize};

/// `fairmesh.refused/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RefusedJobsBody {
    /// All jobs together; none where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<WaitingBody>,
    /// The first of them, the oldest first.
    pub jobs: Vec<RefusedJobBody>,
    /// Files with lines that `fairmesh report` could not read.
    pub rejects: Vec<RejectsBody>,
}

/// A job that the node does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RefusedJobBody {
    /// The batch system's name of its cluster.
    pub cluster: String,
    /// Its id.
    pub job: String,
    /// What distinguishes two jobs of one id, as in reports.
    pub instance: u64,
    /// The user; none where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The batch account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The reason.
    pub reason: String,
    /// When the node refused it first.
    pub since_ms: u64,
}

/// What was refused and waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WaitingBody {
    /// Jobs, or lines.
    pub count: u64,
    /// Since when the oldest of them waits.
    pub since_ms: u64,
    /// Why most of them were refused.
    pub reason: String,
}

/// `fairmesh.rejects/1`, and the body of `POST /v1/rejects`: lines of a file that `fairmesh report` could not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RejectsBody {
    /// The file that has them, with its whole path.
    pub file: String,
    /// How many, since when, and why; a count of 0 takes the file out of the list.
    #[serde(flatten)]
    pub lines: WaitingBody,
}
