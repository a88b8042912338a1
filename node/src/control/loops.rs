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
use fairmesh_api::loops::LoopsReport;
use fairmesh_api::record_log::LogState;
use fairmesh_model::{Millis, clean};

use super::State;
use super::error::ApiError;
use super::extract::whole;
use super::loop_states::LoopFacts;
use super::text::not_a_record;

/// Largest report: some dozen numbers.
const REPORT_BYTES_MAX: usize = 16 << 10;

/// Batch systems and followers of files of which something is remembered. A site has a few; without a limit, a script
/// that starts a follower for each of a million files would fill the memory.
const SOURCES_MAX: usize = 64;

/// Characters that a notice has of what a follower follows.
const FILES_CHARS_MAX: usize = 200;

/// What was heard of the loops since the node was started, by batch system.
#[derive(Debug, Default)]
pub(crate) struct Loops(Mutex<BTreeMap<Source, Heard>>);

/// The batch system, and the files of a follower: a system has one feed, and each follower is a loop of its own.
type Source = (&'static str, Option<String>);

#[derive(Debug, Default)]
struct Heard {
    report: LoopsReport,
    /// By loop.
    times: BTreeMap<&'static str, Times>,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    report: Instant,
    /// Of the newest good round; of the first report where there was none.
    good: Instant,
}

impl Loops {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Source, Heard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a loop's report.
    fn hear(&self, system: &'static str, new: LoopsReport, now: Instant) {
        let files = new.files.as_deref().map(shown);
        let mut all = self.lock();
        let source = (system, files);
        if !all.contains_key(&source) && all.len() >= SOURCES_MAX {
            forget_one(&mut all);
        }
        let Heard {
            report: known,
            times,
        } = all.entry(source).or_default();
        let done = |of: &LoopsReport, name| {
            let mut rounds = of.rounds();
            let rounds = rounds.find(|(which, _)| *which == name);
            rounds.map_or(0, |(_, rounds)| rounds.done)
        };
        for (name, rounds) in new.rounds() {
            let good = now;
            let of_loop = times.entry(name).or_insert(Times { report: now, good });
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

    /// The newest reports, by batch system; of followers their sum.
    pub(crate) fn heard(&self) -> BTreeMap<&'static str, LoopsReport> {
        let mut systems: BTreeMap<&'static str, LoopsReport> = BTreeMap::new();
        for ((system, _), Heard { report, .. }) in &*self.lock() {
            let sum = systems.entry(system).or_default();
            sum.sync = sum.sync.take().or_else(|| report.sync.clone());
            match (&mut sum.feed, &report.feed) {
                (Some(sum), Some(feed)) => sum.add(feed),
                (sum, feed) => *sum = sum.take().or_else(|| feed.clone()),
            }
        }
        systems
    }

    /// Each loop with the ages of its reports.
    pub(super) fn facts(&self, now: Instant) -> Vec<LoopFacts> {
        let age = |since: Instant| {
            let age = now.saturating_duration_since(since).as_millis();
            Millis(u64::try_from(age).unwrap_or(u64::MAX))
        };
        let all = self.lock();
        let rounds = all.iter().flat_map(|((system, files), of)| {
            let rounds = of.report.rounds();
            rounds.filter_map(move |(name, rounds)| {
                let Times { report, good } = of.times.get(name)?;
                let followed = files.as_ref();
                Some(LoopFacts {
                    name: followed.map_or_else(
                        || format!("{system} {name}"),
                        |files| format!("`fairmesh report --follow {files}`"),
                    ),
                    rounds: rounds.clone(),
                    heard_age: age(*report),
                    good_age: age(*good),
                })
            })
        });
        rounds.collect()
    }
}

/// Makes room: forgets the source that was silent for longest.
fn forget_one(all: &mut BTreeMap<Source, Heard>) {
    let newest = |of: &Heard| of.times.values().map(|times| times.report).max();
    let silent = all.iter().min_by_key(|(_, of)| newest(of));
    if let Some(source) = silent.map(|(source, _)| source.clone()) {
        all.remove(&source);
    }
}

/// The files of a follower as a notice names them.
fn shown(files: &str) -> String {
    clean(files).chars().take(FILES_CHARS_MAX).collect()
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
    let log = shared.options.records.as_ref();
    let state = log.map_or_else(LogState::default, |log| log.state());
    shared.answer(system, state).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairmesh_api::loops::{FeedReport, RoundsReport};

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
                files: None,
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

    #[test]
    fn each_follower_is_a_loop_and_metrics_have_their_sum() {
        let (loops, began) = (Loops::default(), Instant::now());
        let hear = |files: String, counted, s| {
            let feed = FeedReport {
                counted,
                ..FeedReport::default()
            };
            let report = LoopsReport {
                sync: None,
                feed: Some(feed),
                files: Some(files),
            };
            loops.hear("follow", report, began + Duration::from_secs(s));
        };
        hear("/a".to_owned(), 3, 0);
        hear("/b".to_owned(), 4, 9);
        let sum = loops.heard()["follow"]
            .feed
            .clone()
            .map(|feed| feed.counted);
        assert_eq!(sum, Some(7));
        let facts = loops.facts(began + Duration::from_secs(9));
        let ages = facts.iter().map(|of| (&*of.name, of.heard_age.0));
        let name = |file: &str| format!("`fairmesh report --follow {file}`");
        let (a, b) = (name("/a"), name("/b"));
        assert!(ages.eq([(&*a, 9_000), (&*b, 0)]));
        (0..SOURCES_MAX as u64).for_each(|at| hear(format!("/c{at}"), 1, 10 + at));
        let facts = loops.facts(began);
        assert_eq!(facts.len(), SOURCES_MAX);
        assert!(
            facts.iter().all(|of| of.name != a),
            "the oldest is forgotten"
        );
    }
}
