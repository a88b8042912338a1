//! In which state a record left its job.
//!
//! Invariant: a word that is no state of Slurm is refused and not taken for a failure, so that a
//! new state of a new version is seen. Formats without states say how a job ended by its exit
//! status, which [`JobState::of_exit`] reads.
//!
//! Source: `man squeue`, "JOB STATE CODES", of Slurm 22.05 and later.

use serde::{Deserialize, Serialize};

/// The state of a job, in the words of Slurm, which has the most of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Accepted, not started.
    Pending,
    /// Started, not ended.
    Running,
    /// Has started, and holds no cores at the moment.
    Suspended,
    /// Stopped by a signal, and holds its cores.
    Stopped,
    /// Its nodes are being prepared.
    Configuring,
    /// Its last processes are ending.
    Completing,
    /// Its files are being moved.
    StageOut,
    /// Its number of nodes is about to change.
    Resizing,
    /// Being signalled.
    Signaling,
    /// Ended with exit code 0.
    Completed,
    /// Ended with an error.
    Failed,
    /// Cancelled by its user or an administrator.
    Cancelled,
    /// Ended by its time limit.
    Timeout,
    /// Ended by the failure of a node.
    NodeFail,
    /// Ended for the sake of another job.
    Preempted,
    /// Ended by its memory limit.
    OutOfMemory,
    /// Ended by a failure to boot its nodes.
    BootFail,
    /// Ended by its deadline.
    Deadline,
    /// This run ended and the job waits again.
    Requeued,
    /// This part of it ended, and it went on with other resources.
    Resized,
    /// Its twin runs on another cluster of a federation.
    Revoked,
}

/// Each state by its long name and Slurm's compact one.
const NAMES: [(JobState, &str, &str); 21] = [
    (JobState::Pending, "PENDING", "PD"),
    (JobState::Running, "RUNNING", "R"),
    (JobState::Suspended, "SUSPENDED", "S"),
    (JobState::Stopped, "STOPPED", "ST"),
    (JobState::Configuring, "CONFIGURING", "CF"),
    (JobState::Completing, "COMPLETING", "CG"),
    (JobState::StageOut, "STAGE_OUT", "SO"),
    (JobState::Resizing, "RESIZING", "RS"),
    (JobState::Signaling, "SIGNALING", "SI"),
    (JobState::Completed, "COMPLETED", "CD"),
    (JobState::Failed, "FAILED", "F"),
    (JobState::Cancelled, "CANCELLED", "CA"),
    (JobState::Timeout, "TIMEOUT", "TO"),
    (JobState::NodeFail, "NODE_FAIL", "NF"),
    (JobState::Preempted, "PREEMPTED", "PR"),
    (JobState::OutOfMemory, "OUT_OF_MEMORY", "OOM"),
    (JobState::BootFail, "BOOT_FAIL", "BF"),
    (JobState::Deadline, "DEADLINE", "DL"),
    (JobState::Requeued, "REQUEUED", "RQ"),
    // Slurm calls it RESIZING even when it is over.
    (JobState::Resized, "RESIZED", "RZ"),
    (JobState::Revoked, "REVOKED", "RV"),
];

/// Words of Slurm for jobs that wait for a reason of their own, and older spellings.
const OTHER_NAMES: [(JobState, &str); 10] = [
    (JobState::Pending, "REQUEUE_FED"),
    (JobState::Pending, "REQUEUE_HOLD"),
    (JobState::Pending, "SPECIAL_EXIT"),
    (JobState::Pending, "RESV_DEL_HOLD"),
    // Of a job that is requeued with the highest priority (Slurm 25.11). Accounting and jobcomp drop this flag.
    (JobState::Pending, "EXPEDITING"),
    (JobState::Pending, "RF"),
    (JobState::Pending, "RH"),
    (JobState::Pending, "SE"),
    (JobState::Pending, "RD"),
    (JobState::Preempted, "PREEMPT"),
];

impl JobState {
    /// Every state, in the order of the enum.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|(state, _, _)| *state)
    }

    /// The state of a word or phrase of Slurm: `CANCELLED by 1000`, `OUT_OF_MEMORY`, `CD`. A name
    /// that a narrow column cut short (`CANCELLED+`) is known by what is left of it.
    pub fn parse(text: &str) -> Option<Self> {
        let word = text.split_whitespace().next()?;
        let (word, cut) = match word.strip_suffix('+') {
            Some(word) => (word, word.len() >= 4),
            None => (word, false),
        };
        let named = NAMES.iter().find(|(_, name, short)| {
            name.eq_ignore_ascii_case(word)
                || short.eq_ignore_ascii_case(word)
                || (cut && name.starts_with(word))
        });
        let other = || {
            OTHER_NAMES
                .iter()
                .find(|(_, name)| name.eq_ignore_ascii_case(word))
        };
        named
            .map(|(state, _, _)| *state)
            .or_else(|| other().map(|(state, _)| *state))
    }

    /// What an exit status alone says.
    pub fn of_exit(status: i64) -> Self {
        if status == 0 {
            Self::Completed
        } else {
            Self::Failed
        }
    }

    /// Slurm's long name of the state, in upper case.
    pub fn name(self) -> &'static str {
        let named = NAMES.iter().find(|(state, _, _)| *state == self);
        named.map_or("UNKNOWN", |(_, name, _)| name)
    }

    /// Whether this run of the job is over.
    pub fn has_ended(self) -> bool {
        self >= Self::Completed
    }

    /// Whether it has started and is not over.
    pub fn is_running(self) -> bool {
        self > Self::Pending && !self.has_ended()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_known_by_both_its_names() {
        for (state, name, short) in NAMES {
            assert_eq!(JobState::parse(name), Some(state));
            assert_eq!(JobState::parse(short), Some(state));
            assert_eq!(state.name(), name);
        }
    }

    #[test]
    fn phrases_cuts_and_strangers() {
        let parse = JobState::parse;
        assert_eq!(parse("CANCELLED by 330719"), Some(JobState::Cancelled));
        assert_eq!(parse("CANCELLED+"), Some(JobState::Cancelled));
        assert_eq!(parse("OUT_OF_ME+"), Some(JobState::OutOfMemory));
        assert_eq!(parse("completed"), Some(JobState::Completed));
        for stranger in ["FOO", "", "+", "C+", "COMPLETEDX"] {
            assert_eq!(parse(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn the_order_of_states_tells_ended_from_running() {
        assert!(!JobState::Pending.is_running() && !JobState::Pending.has_ended());
        assert!(JobState::Suspended.is_running() && !JobState::Signaling.has_ended());
        assert!(JobState::Completed.has_ended() && JobState::Revoked.has_ended());
    }
}
