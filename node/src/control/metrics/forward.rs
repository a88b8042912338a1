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
        [
            ("handed_in", stats.handed_in),
            ("taken", stats.taken),
            ("declined", stats.declined),
            ("submitted", stats.submitted),
            ("failed", stats.failed),
        ],
    );
    let help = "Jobs handed in here or sent by members, by what was done";
    registry.register("forward_jobs", help, jobs);
    let help =
        "Jobs that wait to be handed to the batch system here, or to be acknowledged by a member";
    gauge(registry, "forward_waiting", help, stats.waiting);
    let help = "Messages to members with a job, repeats too";
    counter(registry, "forward_sent", help, stats.sent);
}
