//! What a queue writes down, one record a line of JSON.

use fairmesh_model::WallTime;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::QueuedJob;

/// A change of the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// A job was handed in.
    Added(QueuedJob),
    /// A site was chosen for an attempt, which may be submitted there from now on.
    Assigned {
        /// The job's key.
        job: String,
        /// Which attempt, from 1. Another one may follow.
        #[serde(deserialize_with = "attempt")]
        attempt: u32,
        /// The site of the attempt.
        site: String,
        /// When it was submitted.
        at: WallTime,
    },
    /// The site's batch system has it.
    Submitted {
        /// The job's key.
        job: String,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// The batch system's name for it.
        handle: Option<String>,
        /// When that was heard; 0 in records of earlier releases.
        #[serde(default = "unknown")]
        at: WallTime,
    },
    /// The attempt's job has started.
    Started {
        /// The job's key.
        job: String,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// When that was heard; 0 in records of earlier releases.
        #[serde(default = "unknown")]
        at: WallTime,
    },
    /// It is being taken back.
    Withdrawing {
        /// The job's key.
        job: String,
        /// Number of the attempt, from 1.
        attempt: u32,
    },
    /// The attempt is over, and the job waits again.
    Failed {
        /// The job's key.
        job: String,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// When it failed.
        at: WallTime,
        /// The reason, for the user.
        why: String,
    },
    /// The job has ended well.
    Ended {
        /// The job's key.
        job: String,
        /// Number of the attempt, from 1.
        attempt: u32,
    },
    /// The job has failed too often.
    GivenUp {
        /// The job's key.
        job: String,
        /// Why its last attempt failed.
        why: String,
    },
    /// A site says that less is held and waited for there than this queue has there.
    Doubted {
        /// The site that is avoided for a while.
        site: String,
        /// When that was found.
        at: WallTime,
        /// CPUs of this queue that ran or waited there when it said so.
        known: u64,
        /// CPUs held and waited for by everybody, by its own word.
        said: u64,
    },
}

fn unknown() -> WallTime {
    WallTime(0)
}

fn attempt<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let attempt = u32::deserialize(from)?;
    match attempt {
        u32::MAX => Err(D::Error::custom("no attempt can follow this one")),
        _ => Ok(attempt),
    }
}

impl Record {
    /// The key of the job that it is about, if it is about one.
    pub fn job(&self) -> Option<&str> {
        match self {
            Self::Doubted { .. } => None,
            Self::Added(job) => Some(&job.key),
            Self::Assigned { job, .. }
            | Self::Submitted { job, .. }
            | Self::Started { job, .. }
            | Self::Withdrawing { job, .. }
            | Self::Failed { job, .. }
            | Self::Ended { job, .. }
            | Self::GivenUp { job, .. } => Some(job),
        }
    }
}

/// The name under which an attempt is submitted: what the batch system is asked for after a start. An attempt
/// that failed and one that follows have different names.
pub fn attempt_name(job: &str, attempt: u32) -> String {
    format!("{job}.{attempt}")
}
