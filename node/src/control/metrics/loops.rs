//! What the loops with batch systems have done, as far as they have told the node.
//!
//! Invariant: ages go on growing when a loop is silent, as they are counted from its last good round;
//! what was never heard is not there. Deliberately not here: the loops (`fairmesh-schedulers`).

use fairmesh_api::loops::{FeedReport, LoopsReport, SyncReport};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};

use super::Sample;
use super::registry::{FloatGauge, Labels, counters, gauge, gauges};

/// Adds what was heard, each batch system under its own name.
pub(super) fn register(registry: &mut Registry, sample: &Sample) {
    for (system, heard) in &sample.loops {
        of_a_system(
            registry.sub_registry_with_prefix(system),
            system,
            heard,
            sample.now_ms,
        );
    }
}

fn of_a_system(registry: &mut Registry, system: &str, heard: &LoopsReport, now_ms: u64) {
    rounds(registry, system, heard);
    if let Some(sync) = &heard.sync {
        of_the_sync(registry, sync, now_ms);
    }
    if let Some(feed) = &heard.feed {
        of_the_feed(registry, feed, now_ms);
    }
}

fn rounds(registry: &mut Registry, system: &str, heard: &LoopsReport) {
    let done = Family::<Labels, Counter>::default();
    let failed = Family::<Labels, Counter>::default();
    for (name, rounds) in heard.rounds() {
        let label = ("loop", name.to_owned());
        let labels = vec![label.clone()];
        done.get_or_create(&labels).inc_by(rounds.done);
        for (away, count) in [
            (system, rounds.without_scheduler),
            ("node", rounds.without_node),
        ] {
            let labels = vec![label.clone(), ("away", away.to_owned())];
            failed.get_or_create(&labels).inc_by(count);
        }
    }
    registry.register("rounds", "Rounds that came to their end", done);
    let help = "Rounds that came to nothing, by what was away";
    registry.register("rounds_failed", help, failed);
}

fn of_the_sync(registry: &mut Registry, sync: &SyncReport, now_ms: u64) {
    let updates = counters("outcome", [("set", sync.set), ("refused", sync.refused)]);
    let help = "Priorities of jobs sent to the batch system, by outcome";
    registry.register("updates", help, updates);
    let states = [
        ("waiting", sync.waiting),
        ("held", sync.held),
        ("unknown", sync.unknown),
        ("left", sync.left),
    ];
    let help =
        "Jobs of the last round: waiting; of these held, of unknown accounts, left to the next";
    registry.register("jobs", help, gauges("state", states));
    let help = "Time since the batch system's priorities were last the node's";
    age(registry, "factors_age", help, sync.good_ms, now_ms);
}

fn of_the_feed(registry: &mut Registry, feed: &FeedReport, now_ms: u64) {
    let outcomes = [
        ("counted", feed.counted),
        ("known", feed.known),
        ("refused", feed.refused),
    ];
    let records = counters("outcome", outcomes);
    let help = "Jobs reported, by what became of them: ended ones counted or known; refused";
    registry.register("records", help, records);
    let lost = Counter::<u64>::default();
    lost.inc_by(feed.lost);
    let help = "Logs that were gone before they were read to their end";
    registry.register("lost_logs", help, lost);
    let help = "Running jobs in the last report";
    gauge(registry, "running_jobs", help, feed.running);
    let help = "Time for which ended jobs may not have been reported yet";
    age(registry, "cursor_lag", help, feed.until_ms, now_ms);
}

/// Seconds since a moment, if it ever was.
fn age(registry: &mut Registry, name: &str, help: &str, since_ms: Option<u64>, now_ms: u64) {
    if let Some(since) = since_ms {
        let gauge = FloatGauge::default();
        gauge.set(now_ms.saturating_sub(since) as f64 / 1_000.0);
        registry.register_with_unit(name, help, Unit::Seconds, gauge);
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_api::loops::RoundsReport;

    use super::super::render;
    use super::*;

    #[test]
    fn what_was_heard_is_shown_and_ages_are_counted_from_now() {
        let mut sample = Sample {
            now_ms: 10_500,
            ..Sample::default()
        };
        assert!(!render(&sample).expect("renders").contains("slurm"));
        let slurm = LoopsReport {
            sync: Some(SyncReport {
                rounds: RoundsReport {
                    done: 3,
                    without_node: 2,
                    ..RoundsReport::default()
                },
                set: 40,
                good_ms: Some(3_000),
                ..SyncReport::default()
            }),
            feed: None,
            files: None,
        };
        sample.loops.insert("slurm", slurm);
        let text = render(&sample).expect("renders");
        for line in [
            "fairmesh_slurm_rounds_total{loop=\"sync\"} 3",
            "fairmesh_slurm_rounds_failed_total{loop=\"sync\",away=\"node\"} 2",
            "fairmesh_slurm_updates_total{outcome=\"set\"} 40",
            "fairmesh_slurm_factors_age_seconds 7.5",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(
            !text.contains("cursor_lag") && !text.contains("feed"),
            "{text}"
        );
    }
}
