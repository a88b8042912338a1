//! `fairmesh slurm feed`: what runs and what has run on the cluster, reported to the node.
//!
//! A round reads what has finished from where the cluster keeps it, and the queue; it reports the
//! finished jobs as Slurm recorded them, then the running ones as instalments with the end that their
//! limits allow, and only then moves its cursor. Invariants: one run of a job has one key whichever
//! source names it, so the node logs and counts it once; nothing is forgotten before the node has
//! acknowledged it.
//!
//! Deliberately not here: reading the sources (`sacct`, `follow`, `hook`, `queue`), what a source lacks
//! (`ended`), and which jobs are charged, which is the node's rule.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fairmesh_model::{JobKey, Millis, Origin, Placement, RunningJob, UsageRecord, WallTime};
use fairmesh_records::{BatchRecord, ChargeRule, Options, Zone};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;

use super::cluster::{Cluster, Finished};
use super::cursor::Cursor;
use super::ended::{finished, note_suspended};
use super::queue::{self, Job, State};
use super::runner::Runner;
use super::settings::SlurmSettings;
use super::stop::Stop;
use super::tell::{now_ms, tell};
use super::{follow, hook, quota, sacct};
use crate::ask::{AskError, Control};
use crate::control::answer::{
    AccountingBody, Answer, FeedReport, OccupancyAsk, OccupancyBody, ReportBody, SlurmReport,
    WaitingAsk,
};
use crate::output::Exit;

/// Records in one request to the node.
const BATCH_RECORDS: usize = 5_000;

/// After so long, that something is away is said once more.
const REMIND: Duration = Duration::from_secs(600);

/// Lines that are said one by one in a round.
const LINES_MAX: usize = 10;

/// What a round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Finished jobs that were reported.
    pub(super) finished: u64,
    /// Of these, what the node had not known.
    pub(super) counted: u64,
    /// Of these, what it had.
    pub(super) known: u64,
    /// Of these, what is not charged.
    pub(super) skipped: u64,
    /// Running jobs that were reported.
    pub(super) running: u64,
    /// Records that the node refused.
    pub(super) refused: u64,
}

/// The state between two rounds.
#[derive(Debug)]
pub(super) struct Feed {
    runner: Runner,
    control: Control,
    settings: SlurmSettings,
    cursor: Option<Cursor>,
    /// What was done, for the node's metrics.
    told: FeedReport,
    /// What was said of the cluster's lack of a source, so that it is said once.
    lacks: Option<String>,
}

/// Where to be in the source once the node has acknowledged.
struct Taken {
    records: Vec<BatchRecord>,
    bad: Vec<String>,
    cursor: Cursor,
    files: Vec<PathBuf>,
    more: bool,
}

impl Feed {
    /// From the cluster of the settings to the node.
    pub(super) fn new(settings: SlurmSettings, control: Control) -> Self {
        Self {
            runner: Runner::new(&settings),
            control,
            settings,
            cursor: None,
            told: FeedReport::default(),
            lacks: None,
        }
    }

    /// Rounds until told to stop.
    pub(super) fn run(&mut self, stop: &Stop) {
        self.runner.until(stop);
        let interval = Duration::from_millis(self.settings.feed_interval.0);
        let mut trouble: Option<(Instant, String)> = None;
        while !stop.is_told() {
            let began = now_ms();
            match self.round(stop) {
                Ok(done) => {
                    self.count(&done, (!stop.is_told()).then_some(began));
                    if trouble.take().is_some() {
                        tracing::info!("slurm feed: all is well again");
                    }
                    if done.counted > 0 || done.refused > 0 {
                        tracing::info!(
                            finished = done.finished,
                            counted = done.counted,
                            running = done.running,
                            refused = done.refused,
                            "slurm feed"
                        );
                    }
                }
                Err(error) => {
                    let at_node = error.is::<AskError>();
                    let rounds = &mut self.told.rounds;
                    rounds.without_node += u64::from(at_node);
                    rounds.without_slurm += u64::from(!at_node);
                    let said = format!("{error:#}");
                    let news = trouble
                        .as_ref()
                        .is_none_or(|(at, was)| *was != said || at.elapsed() > REMIND);
                    if news {
                        tracing::warn!(
                            "slurm feed: {said}; what is not reported now will be later"
                        );
                        trouble = Some((Instant::now(), said));
                    }
                }
            }
            let report = SlurmReport {
                sync: None,
                feed: Some(self.told),
            };
            tell(&self.control, &report);
            if stop.wait(interval) {
                return;
            }
        }
    }

    /// `until_ms`: whatever had ended by then is acknowledged, if the round was not cut short.
    fn count(&mut self, done: &Done, until_ms: Option<u64>) {
        let told = &mut self.told;
        told.rounds.done += 1;
        told.counted += done.counted;
        told.known += done.known;
        told.refused += done.refused;
        told.running = done.running;
        told.until_ms = until_ms.or(told.until_ms);
    }

    /// One round, or what it would report.
    ///
    /// # Errors
    /// If Slurm or the node is away.
    pub(super) fn once(&mut self, dry: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
        if dry {
            let (finished, running) = self.look()?;
            out.write_all(&lines(&finished)?)?;
            out.write_all(&lines(&running)?)?;
            return Ok(Exit::Success);
        }
        let done = self.round(&Stop::default())?;
        writeln!(
            out,
            "{} finished jobs reported, {} of them news, {} not charged; {} running; {} refused",
            done.finished, done.counted, done.skipped, done.running, done.refused
        )?;
        Ok(match done.refused {
            0 => Exit::Success,
            _ => Exit::Failure,
        })
    }

    fn look(&mut self) -> anyhow::Result<(Vec<BatchRecord>, Vec<RunningJob>)> {
        let cluster = Cluster::ask(&self.runner)?;
        let name = cluster.name(&self.settings);
        let cursor = Cursor::load(&self.settings.state_file)?;
        let source = self.source(&cluster);
        let taken = self.take(source.as_ref(), &name, &cursor)?;
        let (jobs, _) = queue::read(&self.runner, true)?;
        let finished = finished(&taken.records, &cursor, &jobs, &name, source.is_none());
        Ok((finished, running(&self.settings.charge_rule, &jobs, &name)))
    }

    /// Reports everything that is new.
    pub(super) fn round(&mut self, stop: &Stop) -> anyhow::Result<Done> {
        let cluster = Cluster::ask(&self.runner)?;
        let name = cluster.name(&self.settings);
        let source = self.source(&cluster);
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => Cursor::load(&self.settings.state_file)
                .with_context(|| format!("cannot read {}", self.settings.state_file.display()))?,
        };
        let (mut done, mut queue) = (Done::default(), None);
        let unlogged = loop {
            let before = cursor.clone();
            let taken = self.take(source.as_ref(), &name, &cursor)?;
            // The queue is read behind the source, so that what has just finished is still in it.
            if queue.is_none() {
                let (jobs, bad) = queue::read(&self.runner, true)?;
                complain("a row of squeue makes no sense", &bad);
                note_suspended(&mut cursor, &jobs);
                queue = Some(jobs);
            }
            let jobs = queue.as_deref().unwrap_or_default();
            complain("a record makes no sense", &taken.bad);
            let records = finished(&taken.records, &cursor, jobs, &name, source.is_none());
            let unlogged = self.report(&records, &mut done)?;
            if unlogged.is_some() {
                break unlogged;
            }
            cursor = Cursor {
                suspended: cursor.suspended,
                ..taken.cursor
            };
            if cursor != before {
                cursor.store(&self.settings.state_file)?;
            }
            for file in &taken.files {
                std::fs::remove_file(file)
                    .with_context(|| format!("cannot remove {}", file.display()))?;
            }
            if !taken.more || stop.is_told() {
                break None;
            }
        };
        let jobs = queue.as_deref().unwrap_or_default();
        let running = running(&self.settings.charge_rule, jobs, &name);
        let answer: Answer<ReportBody> = self.post("/v1/running", lines(&running)?)?;
        done.running = answer.body.read;
        done.refused += answer.body.refused;
        complain_of(&answer.body);
        self.tell_waiting(jobs)?;
        if self.settings.quota {
            self.release(jobs, &name)?;
        }
        if let Some(error) = unlogged {
            return Err(error.into());
        }
        self.cursor = Some(cursor);
        Ok(done)
    }

    /// Lets jobs go whose quota covers them again.
    fn release(&self, jobs: &[Job], cluster: &str) -> anyhow::Result<()> {
        let check = |call| {
            let answer = self.post("/v1/quota/check", serde_json::to_vec(&call)?);
            Ok(answer?.body)
        };
        let released = quota::release(&self.runner, &self.settings, jobs, cluster, check)?;
        if released > 0 {
            tracing::info!(released, "slurm feed: jobs that had no credit go again");
        }
        Ok(())
    }

    fn source(&mut self, cluster: &Cluster) -> Option<Finished> {
        match cluster.finished(&self.settings) {
            Ok(source) => Some(source),
            Err(lack) => {
                if self.lacks.as_ref() != Some(&lack) {
                    tracing::warn!("slurm feed: {lack}; `fairmesh slurm setup` says what to do");
                    self.lacks = Some(lack);
                }
                None
            }
        }
    }

    /// What has finished since the cursor.
    fn take(
        &self,
        source: Option<&Finished>,
        cluster: &str,
        cursor: &Cursor,
    ) -> anyhow::Result<Taken> {
        let options = Options {
            cluster: cluster.to_owned(),
            // slurmctld writes local times, and runs where its file can be read.
            zone: Zone::new(jiff::tz::TimeZone::system()),
            growing: matches!(source, Some(Finished::File(_))),
            ..Options::default()
        };
        let mut taken = Taken {
            records: Vec::new(),
            bad: Vec::new(),
            cursor: cursor.clone(),
            files: Vec::new(),
            more: false,
        };
        match source {
            None => {}
            Some(Finished::Sacct) => {
                let (runner, overlap) = (&self.runner, self.settings.overlap.0 / 1_000);
                let from = cursor.sacct_until;
                let read = sacct::read(runner, from, overlap, now().0 / 1_000, &options)?;
                taken.cursor.sacct_until = Some(read.until);
                (taken.records, taken.bad, taken.more) = (read.records, read.bad, read.more);
            }
            Some(Finished::File(path)) => {
                let read = follow::read(path, cursor.file.as_ref(), &options, BATCH_RECORDS);
                let read = read.with_context(|| format!("cannot read {}", path.display()))?;
                taken.cursor.file = Some(read.next);
                (taken.records, taken.bad, taken.more) = (read.records, read.bad, read.more);
            }
            Some(Finished::Spool(path)) => {
                let read = hook::read(path, BATCH_RECORDS)
                    .with_context(|| format!("cannot read the spool {}", path.display()))?;
                (taken.records, taken.bad, taken.more) = (read.records, read.bad, read.more);
                taken.files = read.files;
            }
        }
        Ok(taken)
    }

    /// Reports the records. Where the node cannot log them their usage is reported alone, for priorities
    /// do not wait for the books, and why is given back: the cursor has to stay.
    fn report(&self, records: &[BatchRecord], done: &mut Done) -> anyhow::Result<Option<AskError>> {
        let mut unlogged = None;
        for batch in records.chunks(BATCH_RECORDS) {
            let path = "/v1/accounting";
            let body = match self.try_post::<AccountingBody>(path, lines(batch)?) {
                Ok(answer) => answer.body,
                Err(error @ AskError::Refused { status: 503, .. }) => {
                    unlogged = Some(error);
                    AccountingBody {
                        report: self.report_usage(batch)?,
                        ..AccountingBody::default()
                    }
                }
                Err(error) => return Err(error.into()),
            };
            done.finished += body.report.read;
            done.counted += body.report.counted;
            done.known += body.report.known;
            done.skipped += body.skipped.values().sum::<u64>();
            done.refused += body.report.refused;
            complain_of(&body.report);
            let odd = body.skipped.iter();
            let odd = odd.filter(|(why, _)| INCOMPLETE.contains(&why.as_str()));
            let odd: Vec<String> = odd.map(|(why, jobs)| format!("{why}: {jobs}")).collect();
            complain("finished jobs are not charged", &odd);
        }
        Ok(unlogged)
    }

    fn report_usage(&self, records: &[BatchRecord]) -> anyhow::Result<ReportBody> {
        let rule = &self.settings.charge_rule;
        let usage = records.iter().map(|record| rule.usage(record, now()));
        let usage: Vec<UsageRecord> = usage.flatten().collect();
        Ok(self.post("/v1/records", lines(&usage)?)?.body)
    }

    /// Tells what waits. A node of an earlier release has no such path, and nothing depends on it.
    fn tell_waiting(&self, jobs: &[Job]) -> anyhow::Result<()> {
        let waits = serde_json::to_vec(&waiting(jobs))?;
        if let Err(error) = self.try_post::<OccupancyBody>("/v1/occupancy", waits) {
            tracing::debug!(%error, "slurm feed: the node was not told what waits");
        }
        Ok(())
    }

    fn try_post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Answer<T>, AskError> {
        Handle::current().block_on(self.control.post(path, body))
    }

    fn post<T: DeserializeOwned>(&self, path: &str, body: Vec<u8>) -> anyhow::Result<Answer<T>> {
        Ok(self.try_post(path, body)?)
    }
}

/// Reasons not to charge a job that say more of its record than of the job.
const INCOMPLETE: [&str; 3] = ["no start", "no end", "no CPUs"];

/// The running jobs, each with the end that its limit allows.
fn running(rule: &ChargeRule, jobs: &[Job], cluster: &str) -> Vec<RunningJob> {
    let running = jobs.iter().filter(|job| job.state == State::Running);
    running
        .filter_map(|job| {
            let record = instalment(rule, job, cluster)?;
            // Without a limit nothing is known, so nothing more is expected.
            let left = job.limit.unwrap_or(0).max(job.used);
            let expected_end = record.start.after(Millis::from_secs(left)).max(record.end);
            Some(RunningJob {
                record,
                expected_end,
            })
        })
        .collect()
}

/// The CPUs that waiting jobs ask for, by whose they are; of those who ask for most, where there are too many.
fn waiting(jobs: &[Job]) -> OccupancyAsk {
    let mut sums: BTreeMap<Origin, u64> = BTreeMap::new();
    for job in jobs
        .iter()
        .filter(|job| job.state == State::Pending && !job.held)
    {
        let sum = sums.entry(origin(job)).or_default();
        *sum = sum.saturating_add(job.cpus.into());
    }
    let waiting = sums
        .into_iter()
        .map(|(origin, cpus)| WaitingAsk { origin, cpus });
    let mut waiting: Vec<WaitingAsk> = waiting.collect();
    waiting.sort_by_key(|of| std::cmp::Reverse(of.cpus));
    waiting.truncate(fairmesh_site::WAITING_MAX);
    OccupancyAsk {
        waiting,
        ..OccupancyAsk::default()
    }
}

fn origin(job: &Job) -> Origin {
    Origin {
        user: Some(job.user.clone()),
        account: job.account.clone(),
        group: job.group.clone(),
        subject: None,
    }
}

pub(super) fn instalment(rule: &ChargeRule, job: &Job, cluster: &str) -> Option<UsageRecord> {
    let start = WallTime::from_unix_secs(job.start?);
    Some(UsageRecord {
        key: JobKey {
            cluster: cluster.to_owned(),
            job: job.id.to_string(),
            instance: job.submit,
        },
        origin: origin(job),
        start,
        end: start.after(Millis::from_secs(job.used)),
        cores: job.cpus,
        gpus: job.gpus,
        mem_mib: job.mem_mib,
        placement: Placement {
            nodes: job.nodes,
            disk_mib: 0,
            queue: job.partition.clone(),
            machine: job.host.clone(),
            terms: rule.terms(job.partition.as_deref(), job.qos.as_deref()),
            ..Placement::default()
        },
        running: true,
    })
}

fn lines(items: &[impl Serialize]) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    for item in items {
        serde_json::to_writer(&mut body, item)?;
        body.push(b'\n');
    }
    Ok(body)
}

fn complain(what: &str, lines: &[String]) {
    for line in lines.iter().take(LINES_MAX) {
        tracing::warn!("slurm feed: {what}: {line}");
    }
    if lines.len() > LINES_MAX {
        tracing::warn!(more = lines.len() - LINES_MAX, "slurm feed: {what}");
    }
}

fn complain_of(report: &ReportBody) {
    let reasons = report.refusals.iter().map(|refusal| refusal.reason.clone());
    complain("the node refused", &reasons.collect::<Vec<_>>());
}

fn now() -> WallTime {
    WallTime(now_ms())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::response::IntoResponse as _;
    use fairmesh_records::{Format, JobState};

    use super::*;
    use crate::control::answer::RestsOn;

    fn job() -> BatchRecord {
        let key = JobKey {
            cluster: "alpha".to_owned(),
            job: "1".to_owned(),
            instance: 1_795_238_180,
        };
        let mut record = BatchRecord::new(Format::SlurmJobcomp, key, JobState::Completed);
        record.origin.user = Some("ann".to_owned());
        record.start = Some(WallTime::from_unix_secs(1_795_238_184));
        record.end = Some(WallTime::from_unix_secs(1_795_238_190));
        (record.cpus, record.wall) = (Some(2), Some(Millis::from_secs(4)));
        record
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn where_the_log_fails_usage_is_reported_all_the_same_and_the_cursor_stays()
    -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("control.sock");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let node = Router::new().fallback(async move |uri: axum::http::Uri, body: String| {
            let path = uri.path().to_owned();
            hears.lock().expect("whole").push((path.clone(), body));
            if path == "/v1/accounting" {
                let why = r#"{"error":"the record log failed: no room"}"#;
                return (axum::http::StatusCode::SERVICE_UNAVAILABLE, why).into_response();
            }
            let body = ReportBody {
                counted: 1,
                ..ReportBody::default()
            };
            let (schema, rests_on) = ("fairmesh.report/1".to_owned(), RestsOn::default());
            axum::Json(Answer {
                schema,
                rests_on,
                body,
            })
            .into_response()
        });
        let listener = tokio::net::UnixListener::bind(&socket)?;
        tokio::spawn(async move { axum::serve(listener, node).await });
        let feed = Feed::new(SlurmSettings::defaults(folder.path()), Control::new(socket));
        let reported = tokio::task::spawn_blocking(move || {
            let mut done = Done::default();
            feed.report(&[job()], &mut done).map(|why| (why, done))
        });
        let (unlogged, done) = reported.await??;
        let why = unlogged.context("why it was not logged")?.to_string();
        assert!(why.contains("no room"), "{why}");
        assert_eq!(done.counted, 1);
        let heard = heard.lock().expect("whole");
        let paths: Vec<&str> = heard.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["/v1/accounting", "/v1/records"]);
        let usage: UsageRecord = serde_json::from_str(&heard[1].1)?;
        assert_eq!(usage.end.since(usage.start), Millis::from_secs(4));
        Ok(())
    }
}
