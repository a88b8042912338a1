//! `fairmesh report --follow` as a loop: what the node hears of its rounds, as of those of a feed.
//!
//! Invariant: the node hears a running follower at least once in [`INTERVAL`], and hears of its end if a service
//! manager ends it. A follower that a person ends, or that never completed a round, is withdrawn: the node expects
//! nothing of it. Deliberately not here: reading, and the cursor (`follow`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fairmesh_api::loops::{FeedReport, LoopsReport, RoundsReport};
use fairmesh_api::record_log::LogState;
use fairmesh_model::clean;
use fairmesh_node::driver::wall_now;
use fairmesh_schedulers::{loops, past};

use super::Reporting;
use super::follow::Followed;

/// The path of reports.
const FOLLOW: &str = "/v1/follow";

/// What the node is promised: some rounds, so that a node that is busy for one does not report silence.
const INTERVAL: Duration = Duration::from_secs(10);

/// How long the end waits for a node that hangs.
const END_MAX: Duration = Duration::from_secs(2);

/// What was done, and what the node reported of its record log.
#[derive(Debug, Default)]
pub(super) struct Follower {
    files: String,
    rounds: RoundsReport,
    until_ms: Option<u64>,
    /// Logs that were gone before they were read to their end.
    pub(super) lost: u64,
    /// Whether the node has lost records and may not know its own past yet.
    waits_for_past: bool,
    log: LogState,
}

impl Follower {
    pub(super) fn new(files: &[PathBuf]) -> Self {
        let absolute = |file: &PathBuf| std::path::absolute(file).unwrap_or_else(|_| file.clone());
        let first = files.first().map(absolute).unwrap_or_default();
        let more = match files.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Self {
            files: clean(&first.display().to_string()) + &more,
            rounds: RoundsReport {
                interval_ms: u64::try_from(INTERVAL.as_millis()).unwrap_or(u64::MAX),
                ..RoundsReport::default()
            },
            ..Self::default()
        }
    }
}

impl Reporting {
    /// A round over all files, during which the node hears that the follower is alive.
    pub(super) async fn round(&mut self, files: &mut [Followed]) -> anyhow::Result<()> {
        let (began, began_ms, report) = (Instant::now(), wall_now().0, self.loop_report());
        let control = self.way.control.clone();
        let round = async {
            for file in files.iter_mut() {
                if file.compare(&self.follower.log)? {
                    self.follower.waits_for_past = true;
                }
            }
            if let Some(control) = control.as_ref().filter(|_| self.follower.waits_for_past) {
                past::wait(control, "report --follow").await?;
                self.follower.waits_for_past = false;
            }
            for file in files {
                file.round(self).await?;
            }
            anyhow::Ok(())
        };
        let done = match &control {
            Some(control) => loops::alive((control, FOLLOW, &report), INTERVAL, round).await,
            None => round.await,
        };
        loops::note(&mut self.follower.rounds, &done, began.elapsed());
        if done.is_ok() {
            self.follower.until_ms = Some(began_ms);
        }
        done
    }

    /// Reports what was done.
    pub(super) async fn tell(&mut self) {
        let report = self.loop_report();
        if let Some(control) = &self.way.control {
            self.follower.log = loops::send(control, FOLLOW, &report).await;
        }
    }

    pub(super) async fn end(&mut self, is_by_hand: bool) {
        let rounds = &mut self.follower.rounds;
        rounds.is_stopped = true;
        if is_by_hand || rounds.done == 0 {
            rounds.interval_ms = 0;
        }
        // A node that hangs does not hold up the end.
        let _ = tokio::time::timeout(END_MAX, self.tell()).await;
    }

    /// How far the node's record log has come.
    pub(super) async fn log_state(&self) -> anyhow::Result<LogState> {
        let body = serde_json::to_vec(&self.loop_report())?;
        match &self.way.control {
            Some(control) => Ok(control.post(FOLLOW, body).await?),
            None => Ok(LogState::default()),
        }
    }

    fn loop_report(&self) -> LoopsReport {
        let (follower, sums) = (&self.follower, &self.tally.report);
        let feed = FeedReport {
            rounds: follower.rounds.clone(),
            counted: sums.counted,
            known: sums.known,
            refused: sums.refused,
            running: 0,
            lost: follower.lost,
            until_ms: follower.until_ms,
        };
        LoopsReport {
            sync: None,
            feed: Some(feed),
            files: Some(follower.files.clone()),
        }
    }
}
