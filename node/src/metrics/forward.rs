//! Jobs that members pass on to each other.
//!
//! Invariant: a node that never saw one says nothing of them.

use fairmesh_site::ForwardStats;
use prometheus_client::registry::Registry;

use super::Sample;
use super::registry::{counter, counters, gauge};

pub(super) fn register(registry: &mut Registry, sample: &Sample) {
    let stats = &sample.forward;
    if *stats == ForwardStats::default() {
        return;
    }
    let jobs = counters(
        "outcome",
        &[
            ("handed_in", stats.handed_in),
            ("taken", stats.taken),
            ("declined", stats.declined),
            ("submitted", stats.submitted),
            ("failed", stats.failed),
        ],
    );
    registry.register(
        "forward_jobs",
        "Jobs handed in here or sent by members, by what was done",
        jobs,
    );
    gauge(
        registry,
        "forward_waiting",
        "Jobs that wait to be handed to the batch system here, or to be acknowledged by a member",
        stats.waiting,
    );
    counter(
        registry,
        "forward_sent",
        "Messages to members with a job, repeats too",
        stats.sent,
    );
}
