//! `fairmesh slurm feed` and its like: what runs and what has run on the cluster, reported to the node.
//!
//! A round reads what has ended from where the cluster keeps it, and the queue; it reports the ended jobs as the batch
//! system recorded them, then the running ones as instalments with the end that their limits allow, and only then
//! moves its cursor. Invariants: one run of a job has one key whichever source names it, so the node logs and counts
//! it once; nothing is forgotten before the node has acknowledged it.
//!
//! Deliberately not here: reading sources ([`Scheduler`]), what a source lacks (`ended`, `parts`), the charge rule.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use fairmesh_model::{Millis, Origin, RunningJob, UsageRecord};
use fairmesh_records::{BatchRecord, ChargeRule, Format, Options};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::control::{AskError, Control};
use crate::ended::{finished, note_suspended};
use crate::follow::{self, FilePosition, Reader};
use crate::job::{Job, State};
use crate::loops::{Rounds, complain};
use crate::parts::{self, Resized};
use crate::report::{FeedReport, LoopsReport, RoundsReport};
use crate::{About, LoopSettings, Scheduler, now, now_ms, state};

/// Records in one request to the node, and of one portion of a file.
pub const BATCH_RECORDS: usize = 5_000;

/// Accounts whose waiting jobs the node is told of, at most: as many as it takes.
const WAITING_MAX: usize = 10_000;

/// How long a feed that has just been started waits for the node to hear from another site of each VO: most of them
/// answer within a second, and where none does nothing can have come back from it.
const PAST_WAIT_MAX: Duration = Duration::from_secs(10);

/// Pause between two questions for it.
const PAST_PAUSE: Duration = Duration::from_millis(200);

/// How far the feed has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The newest end of the jobs of `sacct` that were seen, in seconds since 1970.
    pub sacct_until: Option<u64>,
    /// Up to when the days behind it have been asked for. Not kept: a feed that starts asks for them again.
    #[serde(skip)]
    pub sacct_asked: Option<u64>,
    /// Seconds of the past in one call, while days are left of which whole ones were too much.
    #[serde(skip)]
    pub sacct_step: Option<u64>,
    /// A file of records: which, and how far.
    pub file: Option<FilePosition>,
    /// The last file of a spool that this round has read: those that are refused for now stay, and hold no others up.
    #[serde(skip)]
    pub spooled: Option<PathBuf>,
    /// Seconds for which jobs were seen to be suspended, by number and submit time, until their end
    /// is known: job completion files do not say it.
    #[serde(default)]
    pub suspended: BTreeMap<String, u64>,
    /// When runs were last resized, by number and submit time.
    #[serde(default)]
    pub resized: BTreeMap<String, Resized>,
    /// Jobs of the queue whose records could not be read: the queue has the last word on them.
    #[serde(default)]
    pub unread: BTreeSet<u64>,
}

impl Cursor {
    /// The same, where its source is read up to another place.
    fn at(self, place: Self) -> Self {
        Self {
            sacct_until: place.sacct_until,
            sacct_asked: place.sacct_asked,
            sacct_step: place.sacct_step,
            file: place.file,
            spooled: place.spooled,
            ..self
        }
    }
}

/// What a source gave.
#[derive(Debug, Default)]
pub struct Portion {
    /// Jobs that have ended, and others.
    pub records: Vec<BatchRecord>,
    /// What made no sense, and why.
    pub bad: Vec<String>,
    /// The jobs that this may have been of.
    pub unread: Vec<u64>,
    /// Where the cursor is once the node has acknowledged.
    pub cursor: Cursor,
    /// In a file: where reading started.
    pub start: Option<FilePosition>,
    /// The files to remove then.
    pub files: Vec<PathBuf>,
    /// What ended later than this, in seconds since 1970, will be given again.
    pub again_from_s: Option<u64>,
    /// Whether there is more.
    pub more: bool,
    /// Whether a log was gone before it was known to be read to its end.
    pub is_lost: bool,
}

impl Portion {
    /// Reads on in a file that grows, behind the cursor.
    pub(crate) fn read(
        path: &Path,
        cursor: &Cursor,
        format: Format,
        mut options: Options,
    ) -> anyhow::Result<Self> {
        options.growing = true;
        let read = Reader::new(format, &options).read(path, cursor.file.as_ref());
        let read = read.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self::of_file(read, cursor))
    }

    /// What was read on in a file, behind the cursor.
    pub(crate) fn of_file(read: follow::Portion, cursor: &Cursor) -> Self {
        let log = read.start.name.as_ref().map(|name| format!(" ({name})"));
        let log = log.unwrap_or_default();
        let show = |bad: &follow::Bad| format!("line {}: {}{log}", bad.line, bad.why);
        Self {
            bad: read.bad.iter().map(show).collect(),
            start: Some(read.start),
            records: read.records,
            more: read.more,
            is_lost: read.lost.is_some(),
            cursor: Cursor {
                file: Some(read.next),
                ..cursor.clone()
            },
            ..Self::default()
        }
    }
}

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

/// What the node answers to records, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reported {
    read: u64,
    counted: u64,
    known: u64,
    refused: u64,
    for_now: u64,
    refusals: Vec<Refusal>,
    refused_again: BTreeSet<u64>,
    skipped: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    #[serde(default)]
    line: u64,
    reason: String,
}

/// What the node says of its VOs, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    vos: Vec<Past>,
}

#[derive(Debug, Deserialize)]
struct Past {
    /// A node of an earlier release does not say.
    #[serde(default = "yes")]
    past_known: bool,
}

const fn yes() -> bool {
    true
}

/// What waits: the body of `POST /v1/occupancy`.
#[derive(Debug, Serialize)]
struct Occupancy {
    waiting: Vec<Waiting>,
}

/// The CPUs that waiting jobs of one account ask for.
#[derive(Debug, Serialize)]
struct Waiting {
    #[serde(flatten)]
    origin: Origin,
    cpus: u64,
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
        if !self.has_waited {
            self.await_past().await?;
            self.has_waited = true;
        }
        let (mut cursor, mut done) = (self.cursor()?, Done::default());
        let mut queue = None;
        let unlogged = loop {
            let mut taken = self.take(&about, &cursor).await?;
            self.keep_start(&mut cursor, &mut taken)?;
            let mut before = cursor.clone();
            // The queue is read behind the source, so that what has just finished is still in it.
            if queue.is_none() {
                let (jobs, bad) = self.scheduler.queue(true).await?;
                complain(&self.name(), "a row of the queue makes no sense", &bad);
                self.note(&mut cursor, &jobs, &about);
                queue = Some(jobs);
            }
            let jobs = queue.as_deref().unwrap_or_default();
            complain(&self.name(), "a record makes no sense", &taken.bad);
            let files = std::mem::take(&mut taken.files);
            let (more, again_from_s) = (taken.more, taken.again_from_s);
            done.lost += u64::from(taken.is_lost);
            let place = std::mem::take(&mut taken.cursor);
            let mut next = cursor.clone();
            let without = about.lack.is_some();
            let records = finished(taken, &mut next, jobs, &about.cluster, without);
            let refused = done.for_now;
            let unlogged = self.report(records, again_from_s, &mut done).await?;
            if unlogged.is_some() {
                break unlogged;
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
        let answer: Reported = self.control.post("/v1/running", lines(&running)?).await?;
        done.running = answer.read;
        done.refused += answer.refused;
        self.complain_of(&answer);
        self.tell_waiting(&jobs).await?;
        let tend = self.scheduler.tend(&jobs, &about.cluster, &self.control);
        tend.await?;
        if let Some(error) = unlogged {
            return Err(error.into());
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

    /// Waits until the node has heard what the other sites hold of it: if it has lost its data folder, it knows then which
    /// jobs its counters have.
    async fn await_past(&self) -> Result<(), AskError> {
        let until = tokio::time::Instant::now() + PAST_WAIT_MAX;
        loop {
            let (status, _): (Status, _) = self.control.get("/v1/status", &[]).await?;
            if status.vos.iter().all(|vo| vo.past_known) {
                return Ok(());
            }
            if tokio::time::Instant::now() > until {
                tracing::warn!(
                    "{}: not every connected site has said what it holds of this one; if the data folder was \
                     lost, what is reported before counts twice where one holds more",
                    self.name()
                );
                return Ok(());
            }
            tokio::time::sleep(PAST_PAUSE).await;
        }
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
        let mut unlogged = None;
        for batch in fresh.chunks(BATCH_RECORDS) {
            let records: Vec<&BatchRecord> = batch.iter().map(|(record, _)| record).collect();
            let answered = self.control.post("/v1/accounting", lines(&records)?);
            let answer: Reported = match answered.await {
                Ok(answer) => answer,
                Err(error @ AskError::Refused { status: 503, .. }) => {
                    unlogged = Some(error);
                    self.report_usage(&records).await?
                }
                Err(error) => return Err(error.into()),
            };
            // Which of them is refused for now need not be in the answer, and what has counted is known the next time.
            if unlogged.is_none() && answer.for_now == 0 {
                let ended =
                    |(record, hash): &(BatchRecord, _)| Some((*hash, record.end?.0 / 1_000));
                self.acknowledged.extend(batch.iter().filter_map(ended));
            }
            done.finished += answer.read;
            done.counted += answer.counted;
            done.known += answer.known;
            done.skipped += answer.skipped.values().sum::<u64>();
            done.refused += answer.refused;
            done.for_now += answer.for_now;
            self.complain_of(&answer);
            let odd = answer.skipped.iter();
            let odd = odd.filter(|(why, _)| INCOMPLETE.contains(&why.as_str()));
            let odd: Vec<String> = odd.map(|(why, jobs)| format!("{why}: {jobs}")).collect();
            complain(&self.name(), "finished jobs are not charged", &odd);
        }
        self.acknowledged.retain(|_, end_s| *end_s >= from);
        Ok(unlogged)
    }

    async fn report_usage(&self, records: &[&BatchRecord]) -> anyhow::Result<Reported> {
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
    fn complain_of(&self, report: &Reported) {
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
            feed: Some(self.told),
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
fn waiting(jobs: &[Job]) -> Occupancy {
    let mut sums: BTreeMap<Origin, u64> = BTreeMap::new();
    let waits = |job: &&Job| job.state == State::Pending && !job.held;
    for job in jobs.iter().filter(waits) {
        let sum = sums.entry(job.origin()).or_default();
        *sum = sum.saturating_add(job.cpus.into());
    }
    let waiting = sums.into_iter();
    let waiting = waiting.map(|(origin, cpus)| Waiting { origin, cpus });
    let mut waiting: Vec<Waiting> = waiting.collect();
    waiting.sort_by_key(|of| std::cmp::Reverse(of.cpus));
    waiting.truncate(WAITING_MAX);
    Occupancy { waiting }
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
