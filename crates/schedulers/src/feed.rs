//! `fairmesh slurm feed` and its like: what runs and what has run on the cluster, reported to the node.
//!
//! A round reads what has ended from where the cluster keeps it, and the queue; it reports the ended jobs as the batch
//! system recorded them, then the running ones as instalments with the end that their limits allow, and only then
//! moves its cursor. Invariants: one run of a job has one key whichever source names it, so the node logs and counts
//! it once; nothing is forgotten before the node has acknowledged it.
//!
//! Deliberately not here: reading sources ([`Scheduler`]), what a source lacks (`ended`, `parts`), the charge rule.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use fairmesh_api::client::{AskError, Control};
use fairmesh_api::loops::{FeedReport, LoopsReport, RoundsReport};
use fairmesh_api::record_log::{LogPlace, LogState};
use fairmesh_api::{AccountingBody, OccupancyAsk, Refusal, ReportBody, WaitingAsk};
use fairmesh_model::{Millis, Origin, RunningJob, UsageRecord};
use fairmesh_records::{BatchRecord, ChargeRule};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

pub use crate::cursor::{Cursor, Portion};
use crate::ended::{finished, note_suspended};
pub use crate::follow::BATCH_RECORDS;
use crate::job::{Job, State};
use crate::loops::{Rounds, SourceAway, complain};
use crate::parts;
use crate::past;
use crate::{About, LoopSettings, Scheduler, now, now_ms, state};

/// Accounts whose waiting jobs the node is told of, at most: as many as it takes.
const WAITING_MAX: usize = 10_000;

/// What a round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Finished jobs that were reported.
    pub finished: u64,
    /// Of these, what the node had not known.
    pub counted: u64,
    /// Of these, what it had.
    pub known: u64,
    /// Of these, what is not charged.
    pub skipped: u64,
    /// Running jobs that were reported.
    pub running: u64,
    /// Records that the node refused.
    pub refused: u64,
    /// Of these, what it refused for now only.
    pub for_now: u64,
    /// Logs that were gone before they were read to their end.
    pub lost: u64,
}

/// The state between two rounds.
#[derive(Debug)]
pub struct Feed<S> {
    scheduler: S,
    control: Control,
    settings: LoopSettings,
    cursor: Option<Cursor>,
    /// What the node has acknowledged and the source will give again: its hash, and when it ended.
    acknowledged: BTreeMap<[u8; 32], u64>,
    /// The state of the node's record log when it had all of that; none before the first round.
    log: Option<LogPlace>,
    /// What was done, for the node's metrics.
    told: FeedReport,
    /// What was said of the cluster's lack of a source, so that it is said once.
    lack: Option<String>,
    /// When the queue was last looked at, in seconds since 1970.
    looked_s: Option<u64>,
    /// Whether the node has been waited for, that it may hear of its own past.
    has_waited: bool,
}

impl<S: Scheduler> Feed<S> {
    /// From a batch system to the node.
    pub fn new(scheduler: S, settings: LoopSettings, control: Control) -> Self {
        Self {
            scheduler,
            control,
            settings,
            cursor: None,
            acknowledged: BTreeMap::new(),
            log: None,
            told: FeedReport::default(),
            lack: None,
            looked_s: None,
            has_waited: false,
        }
    }

    /// What a round would report: what has ended, and what runs.
    ///
    /// # Errors
    /// If the batch system is away.
    pub async fn look(&mut self) -> anyhow::Result<(Vec<BatchRecord>, Vec<RunningJob>)> {
        let about = self.about().await?;
        let mut cursor = self.cursor()?;
        let taken = self.take(&about, &cursor).await?;
        let (jobs, _) = self.scheduler.queue(true).await?;
        self.note(&mut cursor, &jobs, &about);
        let (name, without) = (&about.cluster, about.lack.is_some());
        let finished = finished(taken, &mut cursor, &jobs, name, without);
        let rule = &self.settings.charge_rule;
        Ok((finished, running(rule, &jobs, name, &cursor)))
    }

    /// Reports everything that is new.
    ///
    /// # Errors
    /// If the batch system or the node is away.
    pub async fn once(&mut self) -> anyhow::Result<Done> {
        let about = self.about().await?;
        self.prepare().await?;
        let (mut cursor, mut done) = (self.cursor()?, Done::default());
        let mut queue = None;
        let trouble = loop {
            let taken = self.take(&about, &cursor).await;
            let mut before = cursor.clone();
            // The queue is read behind the source, so that what has just finished is still in it.
            if queue.is_none() {
                let (jobs, bad) = self.scheduler.queue(true).await?;
                complain(&self.name(), "cannot parse a row of the queue", &bad);
                self.note(&mut cursor, &jobs, &about);
                queue = Some(jobs);
            }
            let mut taken = match taken {
                Ok(taken) => taken,
                // Running jobs do not wait for the source of ended ones.
                Err(error) => {
                    self.keep(&before, &cursor, &[])?;
                    break Some(SourceAway(format!("{error:#}")).into());
                }
            };
            self.keep_start(&mut cursor, &mut taken)?;
            let jobs = queue.as_deref().unwrap_or_default();
            complain(&self.name(), "cannot parse a record", &taken.bad);
            let files = std::mem::take(&mut taken.files);
            let (more, again_from_s) = (taken.more, taken.again_from_s);
            done.lost += u64::from(taken.is_lost);
            let place = std::mem::take(&mut taken.cursor);
            let mut next = cursor.clone();
            let without = about.lack.is_some();
            let records = finished(taken, &mut next, jobs, &about.cluster, without);
            let refused = done.for_now;
            let reported = self.report(records, again_from_s, &mut next, &mut done);
            if let Some(error) = reported.await? {
                break Some(error.into());
            }
            // What is refused for now is told again, with all that lies behind it in the source; of a spool, with its portion.
            let (is_of_spool, is_taken) = (place.spooled.is_some(), done.for_now == refused);
            if is_taken || !is_of_spool {
                cursor = next;
            }
            cursor = cursor.at(place);
            (before.sacct_asked, before.sacct_step) = (cursor.sacct_asked, cursor.sacct_step);
            before.spooled.clone_from(&cursor.spooled);
            if done.for_now == 0 || (is_of_spool && is_taken) {
                self.keep(&before, &cursor, &files)?;
            }
            if !more {
                break None;
            }
        };
        let jobs = queue.unwrap_or_default();
        let running = running(&self.settings.charge_rule, &jobs, &about.cluster, &cursor);
        self.report_running(&running, &mut done).await?;
        self.tell_waiting(&jobs).await?;
        let tend = self.scheduler.tend(&jobs, &about.cluster, &self.control);
        tend.await?;
        if let Some(error) = trouble {
            return Err(error);
        }
        let (refused, name) = (done.for_now, self.name());
        anyhow::ensure!(
            refused == 0,
            "{name}: the node refuses records for now ({refused}); the feed reports them again"
        );
        self.cursor = Some(cursor);
        Ok(done)
    }

    /// Stores which log is read first. If it is rotated before the node accepts a record, it is found again.
    fn keep_start(&self, cursor: &mut Cursor, taken: &mut Portion) -> anyhow::Result<()> {
        if cursor.file.is_none() && taken.start.is_some() {
            cursor.file = taken.start.take();
            state::store(&self.settings.state_file, cursor)?;
        }
        Ok(())
    }

    /// Keeps how far the source was reported, then removes what was spooled of it.
    fn keep(&mut self, before: &Cursor, now: &Cursor, files: &[PathBuf]) -> anyhow::Result<()> {
        if now != before {
            state::store(&self.settings.state_file, now)?;
        }
        self.cursor = Some(now.clone());
        for file in files {
            let cannot = || format!("cannot remove {}", file.display());
            std::fs::remove_file(file).with_context(cannot)?;
        }
        Ok(())
    }

    async fn about(&mut self) -> anyhow::Result<About> {
        let about = self.scheduler.about().await?;
        if about.lack.is_some() && self.lack != about.lack {
            let lack = about.lack.as_deref().unwrap_or_default();
            let (name, setup) = (self.name(), S::NAME);
            tracing::warn!("{name}: {lack}; `fairmesh {setup} setup` says what to do");
        }
        self.lack.clone_from(&about.lack);
        Ok(about)
    }

    fn cursor(&mut self) -> anyhow::Result<Cursor> {
        let file = &self.settings.state_file;
        let known = match self.cursor.take() {
            Some(cursor) => {
                let spooled = None;
                return Ok(Cursor { spooled, ..cursor });
            }
            None => state::load(file),
        };
        let known = known.with_context(|| format!("cannot read {}", file.display()))?;
        Ok(known.unwrap_or_default())
    }

    /// Waits until the node knows what it has lost.
    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.compare_log().await?;
        if !self.has_waited {
            past::wait(&self.control, &self.name()).await?;
            self.has_waited = true;
        }
        Ok(())
    }

    /// If the node has lost records that it had acknowledged, reads the source from its beginning: the data folder was
    /// lost or restored from a backup, or the log was set aside. What the node still knows counts once.
    async fn compare_log(&mut self) -> anyhow::Result<()> {
        // If the node is away, the next request reports it.
        let now = self.log_state().await.unwrap_or_default();
        let mut cursor = self.cursor()?;
        // Records of a portion that was not taken to its end are acknowledged, too.
        let (kept, before) = (cursor.log, self.log.unwrap_or(cursor.log));
        cursor.log = before.refreshed(&now);
        if let Some(loss) = before.loss(&now) {
            let name = self.name();
            tracing::warn!("{name}: {loss}: the feed reports all that its source has again");
            cursor = cursor.at(Cursor::default());
            cursor.log = before.at(&now);
            self.acknowledged.clear();
            self.has_waited = false;
        }
        if cursor.log != kept {
            state::store(&self.settings.state_file, &cursor)?;
        }
        self.log = Some(cursor.log);
        self.cursor = Some(cursor);
        Ok(())
    }

    async fn log_state(&self) -> anyhow::Result<LogState> {
        let (control, path, report) = self.told();
        Ok(control.post(&path, serde_json::to_vec(&report)?).await?)
    }

    /// Notes how far the log has come with the records of this round. It may have been restored since the round began.
    async fn note_log(&mut self, cursor: &mut Cursor) -> anyhow::Result<()> {
        let now = self.log_state().await?;
        if let Some(loss) = cursor.log.loss(&now) {
            return Err(loss.into());
        }
        cursor.log = cursor.log.at(&now);
        self.log = Some(cursor.log);
        Ok(())
    }

    async fn take(&self, about: &About, cursor: &Cursor) -> anyhow::Result<Portion> {
        match about.lack {
            None => self.scheduler.ended(cursor).await,
            Some(_) => Ok(Portion {
                cursor: cursor.clone(),
                ..Portion::default()
            }),
        }
    }

    /// Notes in the cursor what only the queue shows.
    fn note(&mut self, cursor: &mut Cursor, jobs: &[Job], about: &About) {
        let now_s = now_ms() / 1_000;
        note_suspended(cursor, jobs, now_s);
        if about.lack.is_some() {
            parts::note_resized(cursor, jobs, self.looked_s);
        }
        self.looked_s = Some(now_s);
    }

    /// Reports the records that the node has not acknowledged yet. Where the node cannot log them their usage is
    /// reported alone, for priorities do not wait for the books, and why is given back: the cursor has to stay.
    async fn report(
        &mut self,
        records: Vec<BatchRecord>,
        again_from_s: Option<u64>,
        cursor: &mut Cursor,
        done: &mut Done,
    ) -> anyhow::Result<Option<AskError>> {
        let from = again_from_s.unwrap_or(u64::MAX);
        let mut fresh = Vec::new();
        for record in records {
            let hash: [u8; 32] = Sha256::digest(serde_json::to_vec(&record)?).into();
            if !self.acknowledged.contains_key(&hash) {
                fresh.push((record, hash));
            }
        }
        let (mut unlogged, mut acknowledged) = (None, Vec::new());
        for batch in fresh.chunks(BATCH_RECORDS) {
            let records: Vec<&BatchRecord> = batch.iter().map(|(record, _)| record).collect();
            let answered = self.control.post("/v1/accounting", lines(&records)?);
            let AccountingBody {
                report, skipped, ..
            } = match answered.await {
                Ok(answer) => answer,
                Err(error @ AskError::Refused { status: 503, .. }) => {
                    unlogged = Some(error);
                    self.report_usage(&records).await?
                }
                Err(error) => return Err(error.into()),
            };
            // Which of them is refused for now need not be in the answer, and what has counted is known the next time.
            if unlogged.is_none() && report.for_now == 0 {
                let ended =
                    |(record, hash): &(BatchRecord, _)| Some((*hash, record.end?.0 / 1_000));
                acknowledged.extend(batch.iter().filter_map(ended));
            }
            done.finished += report.read;
            done.counted += report.counted;
            done.known += report.known;
            done.skipped += skipped.values().sum::<u64>();
            done.refused += report.refused;
            done.for_now += report.for_now;
            self.complain_of(&report);
            let odd = skipped.iter();
            let odd = odd.filter(|(why, _)| INCOMPLETE.contains(&why.as_str()));
            let odd: Vec<String> = odd.map(|(why, jobs)| format!("{why}: {jobs}")).collect();
            complain(&self.name(), "finished jobs are not charged", &odd);
        }
        if !fresh.is_empty() {
            self.note_log(cursor).await?;
        }
        self.acknowledged.extend(acknowledged);
        self.acknowledged.retain(|_, end_s| *end_s >= from);
        Ok(unlogged)
    }

    async fn report_running(&self, jobs: &[RunningJob], done: &mut Done) -> anyhow::Result<()> {
        let answer: ReportBody = self.control.post("/v1/running", lines(jobs)?).await?;
        done.running = answer.read;
        done.refused += answer.refused;
        self.complain_of(&answer);
        Ok(())
    }

    async fn report_usage(&self, records: &[&BatchRecord]) -> anyhow::Result<AccountingBody> {
        let rule = &self.settings.charge_rule;
        let usage = records.iter().map(|record| rule.usage(record, now()));
        let usage: Vec<UsageRecord> = usage.flatten().collect();
        Ok(self.control.post("/v1/records", lines(&usage)?).await?)
    }

    /// Tells what waits. A node of an earlier release has no such path, and nothing depends on it.
    async fn tell_waiting(&self, jobs: &[Job]) -> anyhow::Result<()> {
        let waits = serde_json::to_vec(&waiting(jobs))?;
        let told = self
            .control
            .post::<serde::de::IgnoredAny>("/v1/occupancy", waits);
        if let Err(error) = told.await {
            tracing::debug!(%error, "the node was not told what waits");
        }
        Ok(())
    }

    /// Warns of each refused job once: the node keeps a list of them.
    fn complain_of(&self, report: &ReportBody) {
        let is_fresh = |refusal: &&Refusal| !report.refused_again.contains(&refusal.line);
        let fresh = report.refusals.iter().filter(is_fresh);
        let reasons = fresh.map(|refusal| refusal.reason.clone());
        complain(
            &self.name(),
            "the node refused",
            &reasons.collect::<Vec<_>>(),
        );
    }
}

impl<S: Scheduler> Rounds for Feed<S> {
    fn name(&self) -> String {
        format!("{} feed", S::NAME)
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(self.settings.feed_interval.0)
    }

    async fn round(&mut self) -> anyhow::Result<()> {
        let began = now_ms();
        let done = self.once().await?;
        let told = &mut self.told;
        told.counted += done.counted;
        told.known += done.known;
        told.refused += done.refused;
        told.running = done.running;
        told.lost += done.lost;
        // Whatever had ended by then is acknowledged.
        told.until_ms = Some(began);
        if done.counted > 0 || done.refused > 0 {
            let (finished, counted) = (done.finished, done.counted);
            let (running, refused) = (done.running, done.refused);
            tracing::info!(finished, counted, running, refused, "{} feed", S::NAME);
        }
        Ok(())
    }

    fn rounds(&mut self) -> &mut RoundsReport {
        &mut self.told.rounds
    }

    fn told(&self) -> (&Control, String, LoopsReport) {
        let report = LoopsReport {
            sync: None,
            feed: Some(self.told.clone()),
            files: None,
        };
        (&self.control, format!("/v1/{}", S::NAME), report)
    }

    fn comfort(&self, _is_node_away: bool) -> String {
        "what is not reported now will be later".to_owned()
    }
}

/// Reasons not to charge a job that say more of its record than of the job.
const INCOMPLETE: [&str; 3] = ["no start", "no end", "no CPUs"];

/// The running jobs, each with the end that its limit allows.
fn running(rule: &ChargeRule, jobs: &[Job], cluster: &str, cursor: &Cursor) -> Vec<RunningJob> {
    let running = jobs.iter().filter(|job| job.state == State::Running);
    running
        .filter_map(|job| {
            let record = job.instalment(rule, cluster)?;
            // Without a limit nothing is known, so nothing more is expected.
            let left = job.limit.unwrap_or(0).max(job.used);
            let limit = record.start.after(Millis::from_secs(left));
            let record = parts::instalment(record, job, cursor)?;
            Some(RunningJob {
                expected_end: limit.max(record.end),
                record,
            })
        })
        .collect()
}

/// The CPUs that waiting jobs ask for, by whose they are; of those who ask for most, where there are too many.
fn waiting(jobs: &[Job]) -> OccupancyAsk {
    let mut sums: BTreeMap<Origin, u64> = BTreeMap::new();
    let waits = |job: &&Job| job.state == State::Pending && !job.held;
    for job in jobs.iter().filter(waits) {
        let sum = sums.entry(job.origin()).or_default();
        *sum = sum.saturating_add(job.cpus.into());
    }
    let waiting = sums.into_iter();
    let waiting = waiting.map(|(origin, cpus)| WaitingAsk { origin, cpus });
    let mut waiting: Vec<WaitingAsk> = waiting.collect();
    waiting.sort_by_key(|of| std::cmp::Reverse(of.cpus));
    waiting.truncate(WAITING_MAX);
    OccupancyAsk {
        waiting,
        ..OccupancyAsk::default()
    }
}

fn lines(items: &[impl Serialize]) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    for item in items {
        serde_json::to_writer(&mut body, item)?;
        body.push(b'\n');
    }
    Ok(body)
}

#[cfg(test)]
mod tests;
