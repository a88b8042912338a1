//! From a record to what a node takes: which states are charged, for how long, and why not.
//!
//! Invariant: a record becomes a usage record or one [`Skip`] with its reason; nothing is dropped
//! in silence, and an instalment of a running job ends where its last record will reach or pass. No name that a
//! user chooses makes his job free. A record that a node refuses is a free job, too: so readers leave out what only the
//! job's user vouches for wherever an error of its rating, or of the site's capacity, could come from it.
//!
//! Deliberately not here: what a core-second costs, and whose account it is.

use std::collections::BTreeSet;

use fairmesh_model::record::{RecordError, fitting};
use fairmesh_model::{Millis, Placement, Terms, UsageRecord, WallTime};
use serde::{Deserialize, Serialize};

use crate::record::BatchRecord;
use crate::state::JobState;

/// How long a job is charged for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WallRule {
    /// For the time it held its resources ([`BatchRecord::held`]): Slurm's `Elapsed`, which leaves
    /// out suspension, and from start to end where a source has no such thing.
    #[default]
    Held,
    /// From start to end, whatever happened in between.
    Span,
    /// For the wall-clock time that the source states, from start to end where it states none.
    Stated,
}

/// Which jobs are charged, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChargeRule {
    /// The states that are charged.
    pub states: BTreeSet<JobState>,
    /// How the wall-clock time is determined.
    pub wall: WallRule,
    /// CPUs of a job whose record names none; without it such a job is not charged.
    pub cpus_unless_stated: Option<u32>,
    /// Queues and qualities of service whose jobs are preemptible, or fill gaps.
    pub preemptible: BTreeSet<String>,
    /// Queues and qualities of service whose jobs run on idle machines only.
    pub idle: BTreeSet<String>,
}

impl Default for ChargeRule {
    /// Whatever ran is charged, however it ended.
    fn default() -> Self {
        Self {
            states: JobState::all()
                .filter(|state| !matches!(state, JobState::Pending | JobState::Revoked))
                .collect(),
            wall: WallRule::Held,
            cpus_unless_stated: None,
            preemptible: BTreeSet::new(),
            idle: BTreeSet::new(),
        }
    }
}

/// Why a well-formed record is not charged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Skip {
    /// The job waits: nothing was used yet.
    #[error("it has not started")]
    NotStarted,
    /// It was cancelled while it waited.
    #[error("it was cancelled before it started")]
    CancelledBeforeStart,
    /// The rule leaves this state out.
    #[error("jobs in the state {} are not charged here", .0.name())]
    StateNotCharged(JobState),
    /// It ran, and the record does not say since when.
    #[error("the record has no start")]
    NoStart,
    /// It ended, and the record says neither when nor after how long.
    #[error("the record has neither an end nor a wall-clock time")]
    NoEnd,
    /// It ran, and the record names no CPUs.
    #[error("the record does not say how many CPUs it held")]
    NoCpus,
    /// It ran beside the machines that the batch system shares out, as HTCondor's DAGMan does.
    #[error("it held no CPU")]
    HeldNothing,
    /// No node would take it.
    #[error("{0}")]
    Invalid(#[from] RecordError),
}

impl Skip {
    /// A short name, for counting by reason.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotStarted => "not started",
            Self::CancelledBeforeStart => "cancelled before start",
            Self::StateNotCharged(_) => "state not charged",
            Self::NoStart => "no start",
            Self::NoEnd => "no end",
            Self::NoCpus => "no CPUs",
            Self::HeldNothing => "held nothing",
            Self::Invalid(_) => "not valid",
        }
    }
}

/// The instance of the part that a job goes on as which was resized: the second at which this one ended.
fn next_part(record: &BatchRecord) -> Option<u64> {
    let end = record.end.filter(|_| record.state == JobState::Resized);
    end.map(|end| end.0 / 1_000)
}

impl ChargeRule {
    /// What the node takes: the last word about a job that has ended, an instalment until `as_of`
    /// about one that has not.
    pub fn usage(&self, record: &BatchRecord, as_of: WallTime) -> Result<UsageRecord, Skip> {
        let running = !record.state.has_ended();
        let started = |start: &WallTime| !running || *start <= as_of;
        if record.state == JobState::Pending {
            return Err(Skip::NotStarted);
        }
        let start = record.start.filter(started);
        if self.never_started(record, start) {
            return Err(Skip::CancelledBeforeStart);
        }
        if !self.states.contains(&record.state) {
            return Err(Skip::StateNotCharged(record.state));
        }
        let start = start.ok_or(if running {
            Skip::NotStarted
        } else {
            Skip::NoStart
        })?;
        let held = if running {
            let stated = record.wall.filter(|_| self.wall != WallRule::Span);
            stated.unwrap_or(as_of.since(start))
        } else {
            self.length(record).ok_or(Skip::NoEnd)?
        };
        let cores = match record.cpus.or(self.cpus_unless_stated) {
            Some(0) if held > Millis(0) => return Err(Skip::HeldNothing),
            None if held > Millis(0) => return Err(Skip::NoCpus),
            cpus => cpus.unwrap_or(0),
        };
        // What was asked for is kept from others, whether it is used or not.
        let memory = record.memory_mib.or(record.requested_memory_mib);
        let usage = UsageRecord {
            key: record.key.clone(),
            origin: record.origin.clone().fitting(),
            start,
            end: start.after(held),
            cores,
            gpus: record.gpus.unwrap_or(0),
            mem_mib: memory.unwrap_or(0),
            placement: self.placement(record),
            running,
        };
        usage.validate()?;
        Ok(usage)
    }

    /// A report that was made by hand, with the terms of its queue and quality of service.
    #[must_use]
    pub fn reported(&self, usage: UsageRecord) -> UsageRecord {
        UsageRecord {
            placement: self.placed(usage.placement),
            ..usage
        }
    }

    /// Where and on which terms it ran.
    fn placement(&self, record: &BatchRecord) -> Placement {
        let host = || record.hosts.as_deref().and_then(first_host);
        let name =
            |name: &Option<String>| name.clone().filter(|name| !name.is_empty()).map(fitting);
        self.placed(Placement {
            nodes: record.nodes.unwrap_or(0),
            disk_mib: record.disk_mib.unwrap_or(0),
            energy_j: record.energy_j.unwrap_or(0),
            queue: name(&record.queue),
            qos: name(&record.qos),
            machine: name(&record.machine.clone().or_else(host)),
            terms: record.terms,
            properties: record.properties.clone(),
            chunks: record.chunks.clone(),
            next_instance: next_part(record),
        })
    }

    /// A placement with its terms. If the report states none, the queue and the quality of service decide. Whatever the
    /// source of a report is, its placement passes through here before the job is charged.
    #[must_use]
    pub fn placed(&self, placement: Placement) -> Placement {
        let terms = match placement.terms {
            Terms::Regular => self.terms(placement.queue.as_deref(), placement.qos.as_deref()),
            stated => stated,
        };
        Placement { terms, ..placement }
    }

    /// On which terms jobs of a queue and a quality of service run.
    fn terms(&self, queue: Option<&str>, qos: Option<&str>) -> Terms {
        let listed = |names: &BTreeSet<String>| {
            let words = [queue, qos].into_iter().flatten();
            words.into_iter().any(|word| names.contains(word))
        };
        if listed(&self.idle) {
            Terms::Idle
        } else if listed(&self.preemptible) {
            Terms::Preemptible
        } else {
            Terms::Regular
        }
    }

    /// How long an ended job is charged for.
    fn length(&self, record: &BatchRecord) -> Option<Millis> {
        match self.wall {
            WallRule::Held => record.held().or(record.wall),
            WallRule::Span => record.span().or(record.wall),
            WallRule::Stated => record.wall.or_else(|| record.span()),
        }
    }

    /// Batch systems write an end, and some a start, for jobs that were cancelled in the queue.
    fn never_started(&self, record: &BatchRecord, start: Option<WallTime>) -> bool {
        let nothing = start.is_none() || self.length(record) == Some(Millis(0));
        let stopped = matches!(
            record.state,
            JobState::Cancelled | JobState::Deadline | JobState::Revoked
        );
        stopped && nothing
    }
}

/// The first of the hosts that a source lists: `n[3-7],m1` (Slurm), `n3/0*8+n4/0` (PBS), `16*n3`
/// (LSF), `slot1@n3.example` (HTCondor).
fn first_host(hosts: &str) -> Option<String> {
    let first = match hosts.split_once('[') {
        Some((prefix, ranges)) if !prefix.contains([',', '+', ' ']) => {
            let number = ranges.split(['-', ',', ']']).next().unwrap_or_default();
            format!("{prefix}{number}")
        }
        _ => {
            let item = hosts.split([',', '+', ' ', ':']).next().unwrap_or_default();
            let name = item.split('/').next().unwrap_or_default();
            let name = name.rsplit(['@', '*']).next().unwrap_or_default();
            name.to_owned()
        }
    };
    (!first.is_empty()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_hosts() {
        for (hosts, first) in [
            ("n1", "n1"),
            ("n[03-07,9],m1", "n03"),
            ("rack1n[3,5-7]", "rack1n3"),
            ("m1,n[3-7]", "m1"),
            ("n3/0*8+n4/0", "n3"),
            ("16*n3", "n3"),
            ("slot1_2@n3.example", "n3.example"),
        ] {
            assert_eq!(first_host(hosts).as_deref(), Some(first), "{hosts}");
        }
        assert_eq!(first_host(""), None);
    }
}
