//! Kinds of faults, and how often each has happened.
//!
//! Invariant: what is counted has happened: a fault that found nothing to break is not counted. A
//! swarm of runs can thus show that it has tried everything.
//!
//! Deliberately not here: the faults themselves.

use std::collections::BTreeMap;

/// Something that went wrong, on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// A message was lost on a link.
    Loss,
    /// A push arrived twice.
    Duplication,
    /// A message was overtaken.
    Reordering,
    /// A message of an older session came again.
    Replay,
    /// A full queue dropped a message.
    Clogged,
    /// The network was cut into sides.
    Partition,
    /// Some sites were cut off from all others.
    Island,
    /// A cut of one direction.
    OneWayCut,
    /// A site that sees all sides of a cut.
    Bridge,
    /// A link was given another description.
    LinkChanged,
    /// A process ended without a word.
    Crash,
    /// A change was dropped because the process ended before it was on disk.
    LostWrite,
    /// A change was on disk, but the process ended before it knew.
    KeptWrite,
    /// A bit of a stored row was flipped.
    BitFlip,
    /// A damaged store was set aside.
    SetAside,
    /// A disk let no more be written, and the node stopped.
    DiskFull,
    /// A disk was wiped.
    Wipe,
    /// An old backup was put in the place of a store.
    BackupRestored,
    /// A wall clock jumped.
    ClockJump,
    /// A clock began to run at another pace.
    ClockDrift,
}

/// How often each kind has happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultCounts(BTreeMap<FaultKind, u64>);

impl FaultCounts {
    pub(crate) fn count(&mut self, kind: FaultKind) {
        *self.0.entry(kind).or_default() += 1;
    }

    /// How often `kind` has happened.
    pub fn of(&self, kind: FaultKind) -> u64 {
        self.0.get(&kind).copied().unwrap_or(0)
    }

    /// How often anything has.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Kinds that have happened, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (FaultKind, u64)> + '_ {
        self.0.iter().map(|(kind, count)| (*kind, *count))
    }
}
