//! Jobs that members pass on to each other, towards the machines that are worth most to them.
//!
//! The rules are `fairmesh_broker::forward`'s; here its state machine meets members, the store and time. What is
//! remembered of a job is made durable with the event that changed it, in front of whatever it lets out; so a job is
//! acknowledged only when it would survive a kill, and its sender keeps it until then. Whoever has passed a job on
//! asks the next site what became of it, which asks on: so its user learns the end where he handed it in.
//!
//! Nothing is taken that the owner has not agreed to: by VO, and so many of a member at a time and in a minute. What
//! is taken waits here until somebody beside the node hands it to the batch system (`fairmesh forward run`).
//!
//! Invariant: a message that cannot be judged for good, or not be remembered, is answered by `Told::Later`: its
//! sender keeps the job. Nothing of a job is forgotten before nobody takes it any more, for a day. Deliberately not
//! here: batch systems, and who may hand in jobs. Source: Vasques, algorithm 2; the specification's section 8.3.

pub(crate) mod calls;
mod errands;
pub(crate) mod handler;
pub(crate) mod offer;
mod places;
pub(crate) mod rows;
pub(crate) mod table;
mod timers;
pub(crate) mod wire;
mod withdraw;

use std::collections::BTreeSet;

use fairmesh_model::VoId;

/// What an owner agrees to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardRules {
    /// VOs whose jobs are taken from other members, and handed to the batch system here.
    pub accept: BTreeSet<VoId>,
    /// Jobs of one member that may wait here to be handed on, at most.
    pub per_member: usize,
    /// Jobs that one member may hand over in a minute.
    pub per_minute: u32,
    /// CPUs of the largest job that is taken from others; any, where it is not said.
    pub cpus_max: Option<u32>,
}

impl Default for ForwardRules {
    fn default() -> Self {
        Self {
            accept: BTreeSet::new(),
            per_member: 100,
            per_minute: 30,
            cpus_max: None,
        }
    }
}

/// Counters for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwardStats {
    /// Jobs that were handed in here.
    pub handed_in: u64,
    /// Jobs of other members that were taken.
    pub taken: u64,
    /// Jobs of other members that were declined.
    pub declined: u64,
    /// Messages with a job, repeats too.
    pub sent: u64,
    /// Jobs that the batch system here has taken.
    pub submitted: u64,
    /// Jobs that were given up here.
    pub failed: u64,
    /// Jobs that wait here now: to be handed to the batch system, or acknowledged by a member.
    pub waiting: u64,
}
