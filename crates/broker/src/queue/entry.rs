//! One job of the queue, and how far it has come.

use std::collections::BTreeMap;

use fairmesh_model::WallTime;

use super::QueuedJob;

/// How far a job has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Phase {
    /// It waits in the queue.
    #[default]
    Queued,
    /// A site was chosen; whether its batch system has the job is not known.
    Assigned,
    /// Its batch system has it, under this name if that is known.
    Submitted(Option<String>),
    /// It has started at the site.
    Running,
    /// It is being taken back.
    Withdrawing,
    /// It has ended well.
    Ended,
    /// It has failed too often.
    GivenUp(String),
}

/// One job of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The job as it was added.
    pub job: QueuedJob,
    /// How far it has come.
    pub phase: Phase,
    /// Its last attempt, from 1; 0 before the first.
    pub attempt: u32,
    /// Where that is or was; empty before the first.
    pub site: String,
    /// When that was chosen.
    pub since: WallTime,
    /// Sites that have failed it, and when last.
    pub failed: BTreeMap<String, WallTime>,
}

impl Entry {
    pub(super) fn new(job: QueuedJob) -> Self {
        Self {
            job,
            phase: Phase::Queued,
            attempt: 0,
            site: String::new(),
            since: WallTime(0),
            failed: BTreeMap::new(),
        }
    }

    /// Whether some site has it, or may have it.
    pub fn is_in_flight(&self) -> bool {
        !matches!(self.phase, Phase::Queued | Phase::Ended | Phase::GivenUp(_))
    }

    /// Whether nothing will happen to it any more.
    pub fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Ended | Phase::GivenUp(_))
    }

    /// Its key, its attempt and its site.
    pub(super) fn place(&self) -> (String, u32, String) {
        (self.job.key.clone(), self.attempt, self.site.clone())
    }
}
