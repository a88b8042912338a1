//! `POST /v1/slurm` and its like: what the loops with a batch system have done, for `/v1/metrics` and `/v1/status`.
//!
//! They may be processes of their own, and have no port to be scraped at. Invariant: what one loop
//! says replaces what it said before, and leaves the other's word alone.
//! Deliberately not here: what the reports show (`loop_states`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::body::Body;
use axum::response::IntoResponse;
use fairmesh_model::Millis;
use fairmesh_schedulers::report::LoopsReport;

use super::State;
use super::answer::LoopsHeard;
use super::error::ApiError;
use super::extract::whole;
use super::loop_states::LoopFacts;
use super::text::not_a_record;

/// Largest report: some dozen numbers.
const REPORT_BYTES_MAX: usize = 16 << 10;

/// What was heard of the loops since the node was started, by batch system.
#[derive(Debug, Default)]
pub(crate) struct Loops(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    reports: BTreeMap<&'static str, LoopsReport>,
    /// By batch system and loop.
    times: BTreeMap<(&'static str, &'static str), Times>,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    report: Instant,
    /// Of the newest good round; of the first report where there was none.
    good: Instant,
}

impl Loops {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a loop's report.
    fn hear(&self, system: &'static str, new: LoopsReport, now: Instant) {
        let Heard { reports, times } = &mut *self.lock();
        let known = reports.entry(system).or_default();
        let done = |of: &LoopsReport, name| {
            let mut rounds = of.rounds();
            let rounds = rounds.find(|(which, _)| *which == name);
            rounds.map_or(0, |(_, rounds)| rounds.done)
        };
        for (name, rounds) in new.rounds() {
            let good = now;
            let of_loop = times
                .entry((system, name))
                .or_insert(Times { report: now, good });
            of_loop.report = now;
            // A loop that was started again counts from zero.
            if rounds.done > 0 && rounds.done != done(known, name) {
                of_loop.good = now;
            }
        }
        let lost = known.feed.as_ref().map_or(0, |feed| feed.lost);
        known.sync = new.sync.or(known.sync.take());
        known.feed = new.feed.or(known.feed.take());
        // Also when the loop was started again since.
        if let Some(feed) = &mut known.feed {
            feed.lost = feed.lost.max(lost);
        }
    }

    /// The newest report of each.
    pub(crate) fn heard(&self) -> BTreeMap<&'static str, LoopsReport> {
        self.lock().reports.clone()
    }

    /// Each loop with the ages of its reports.
    pub(super) fn facts(&self, now: Instant) -> Vec<LoopFacts> {
        let age = |since: Instant| {
            let age = now.saturating_duration_since(since).as_millis();
            Millis(u64::try_from(age).unwrap_or(u64::MAX))
        };
        let Heard { reports, times } = &*self.lock();
        let rounds = reports.iter().flat_map(|(system, report)| {
            let of_system = report.rounds();
            of_system.filter_map(move |(name, rounds)| {
                let Times { report, good } = times.get(&(*system, name))?;
                Some(LoopFacts {
                    name: format!("{system} {name}"),
                    rounds: rounds.clone(),
                    heard_age: age(*report),
                    good_age: age(*good),
                })
            })
        });
        rounds.collect()
    }
}

pub(super) async fn post(
    system: &'static str,
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let idle_max = shared.options.limits.body_idle_max;
    let body = whole(body, REPORT_BYTES_MAX, idle_max).await?;
    let report = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_request(not_a_record(&error)))?;
    shared.loops.hear(system, report, Instant::now());
    let log = shared.options.records.as_ref().map(|log| log.stats().id);
    let log = log.filter(|id| *id != 0);
    shared.answer(system, LoopsHeard { log }).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairmesh_schedulers::report::{FeedReport, RoundsReport};

    use super::*;

    #[test]
    fn a_report_without_a_new_good_round_leaves_the_age_of_the_last_one() {
        let loops = Loops::default();
        let report = |done, lost| {
            let rounds = RoundsReport {
                done,
                ..RoundsReport::default()
            };
            let feed = FeedReport {
                rounds,
                lost,
                ..FeedReport::default()
            };
            LoopsReport {
                sync: None,
                feed: Some(feed),
            }
        };
        let began = Instant::now();
        let after = |s| began + Duration::from_secs(s);
        let ages = |now| {
            let facts = loops.facts(after(now)).remove(0);
            assert_eq!(facts.name, "slurm feed");
            [facts.heard_age, facts.good_age].map(|age| age.0 / 1_000)
        };
        loops.hear("slurm", report(3, 1), after(0));
        loops.hear("slurm", report(3, 0), after(30));
        assert_eq!(ages(60), [30, 60]);
        loops.hear("slurm", report(1, 0), after(60));
        assert_eq!(ages(70), [10, 10], "started again");
        assert_eq!(
            loops.heard()["slurm"],
            report(1, 1),
            "a lost log stays lost"
        );
    }
}
