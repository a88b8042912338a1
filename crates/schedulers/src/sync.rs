//! `fairmesh slurm sync`: the node's factors become Slurm's site factors, round by round.
//!
//! A round reads the queue, asks the node about everybody in it in one batch, and tells Slurm what
//! has changed. Invariant: whatever is away, nothing is set that does not rest on an answer of the
//! node: without the node the last good factors stay, and without Slurm the next round catches up.
//! What is wrong is said once, and so is that it is right again.
//! Deliberately not here: the decision (`plan`), and when the process ends (`mod`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fairmesh_client::{Client, ClientError, FACTOR_MAX, LOOKUP_BATCH_MAX, Names, Who};

use super::plan::{Update, Waiting, plan};
use super::queue::{self, Job, State};
use super::runner::{Runner, SlurmError};
use super::settings::SlurmSettings;
use super::stop::Stop;
use super::tell::{now_ms, tell};
use crate::ask::Control;
use crate::control::answer::{SlurmReport, SyncReport};

/// How long the node may take over a batch.
const LOOKUP_MAX: Duration = Duration::from_secs(10);

/// After so many rounds, what Slurm holds is read again: somebody else may have changed it.
const ROUNDS_TO_CHECK: u32 = 20;

/// After so long, the age of the factors is said once more.
const REMIND: Duration = Duration::from_secs(600);

/// Complaints that are said one by one in a round.
const COMPLAINTS_MAX: usize = 10;

/// What a round did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Jobs that wait.
    pub(super) waiting: usize,
    /// Of these, jobs that are held: never touched.
    pub(super) held: usize,
    /// Of these, jobs of accounts that the node does not know.
    pub(super) unknown: usize,
    /// What was told, or would be, the most important first.
    pub(super) updates: Vec<Update>,
    /// What is left for the next round.
    pub(super) left: usize,
    /// What `scontrol` refused, by job.
    pub(super) refused: Vec<String>,
}

/// Why a round came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    /// Slurm is away.
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    /// The node is away.
    #[error("the node: {0}")]
    Node(#[from] ClientError),
}

/// The state between two rounds.
#[derive(Debug)]
pub(super) struct Sync {
    runner: Runner,
    lookup: PathBuf,
    control: Control,
    settings: SlurmSettings,
    /// What was done, for the node's metrics.
    done: SyncReport,
    /// What Slurm is known to hold, by job.
    known: BTreeMap<u64, i64>,
    /// Rounds until that is read again; 0 for now.
    check_in: u32,
    last_good: Instant,
}

impl Sync {
    /// Between the node whose sockets are given and the cluster of the settings.
    pub(super) fn new(settings: SlurmSettings, lookup: PathBuf, control: Control) -> Self {
        Self {
            runner: Runner::new(&settings),
            lookup,
            control,
            settings,
            done: SyncReport::default(),
            known: BTreeMap::new(),
            check_in: 0,
            last_good: Instant::now(),
        }
    }

    /// Rounds until told to stop.
    pub(super) fn run(&mut self, stop: &Stop) {
        self.runner.until(stop);
        let interval = Duration::from_millis(self.settings.interval.0);
        let mut trouble: Option<(Instant, bool)> = None;
        while !stop.is_told() {
            match self.round(false, stop) {
                Ok(round) => {
                    if let Some((since, _)) = trouble.take() {
                        let away = since.elapsed().as_secs();
                        tracing::info!(away_s = away, "slurm sync: all is well again");
                    }
                    report(&round);
                    self.count(&round);
                }
                Err(error) => {
                    let at_node = matches!(error, SyncError::Node(_));
                    let rounds = &mut self.done.rounds;
                    rounds.without_node += u64::from(at_node);
                    rounds.without_slurm += u64::from(!at_node);
                    let news = trouble.is_none_or(|(since, was_node)| {
                        was_node != at_node || since.elapsed() > REMIND
                    });
                    if news {
                        self.complain(&error);
                        trouble = Some((Instant::now(), at_node));
                    }
                    // A slurmctld that was away may have lost or changed anything.
                    self.check_in = 0;
                }
            }
            let report = SlurmReport {
                sync: Some(self.done),
                feed: None,
            };
            tell(&self.control, &report);
            if stop.wait(interval) {
                return;
            }
        }
    }

    fn count(&mut self, round: &Round) {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let told = round.updates.len().saturating_sub(round.refused.len());
        self.done = SyncReport {
            set: self.done.set + count(told),
            refused: self.done.refused + count(round.refused.len()),
            waiting: count(round.waiting),
            held: count(round.held),
            unknown: count(round.unknown),
            left: count(round.left),
            // With updates left, some site factors are still older.
            good_ms: match round.left {
                0 => Some(now_ms()),
                _ => self.done.good_ms,
            },
            ..self.done
        };
        self.done.rounds.done += 1;
    }

    fn complain(&self, error: &SyncError) {
        let age = self.last_good.elapsed().as_secs();
        match error {
            SyncError::Node(_) => tracing::warn!(
                age_s = age,
                "slurm sync: {error}; the last site factors stay as they are"
            ),
            SyncError::Slurm(_) => {
                tracing::warn!("slurm sync: {error}; waiting for Slurm");
            }
        }
    }

    /// One round; a dry one tells Slurm nothing.
    pub(super) fn round(&mut self, dry: bool, stop: &Stop) -> Result<Round, SyncError> {
        let (jobs, bad) = queue::read(&self.runner, false)?;
        for row in bad.iter().take(COMPLAINTS_MAX) {
            tracing::warn!(row, "slurm sync: a row of squeue makes no sense");
        }
        if self.check_in == 0 {
            self.known = site_factors(&self.runner)?;
            self.check_in = ROUNDS_TO_CHECK;
        }
        self.check_in -= 1;
        let pending: Vec<&Job> = jobs
            .iter()
            .filter(|job| job.state == State::Pending)
            .collect();
        let (factors, step) = self.factors(&jobs)?;
        let waiting = self.waiting(&pending, &factors);
        self.last_good = Instant::now();
        let present: BTreeSet<u64> = pending.iter().map(|job| job.id).collect();
        self.known.retain(|id, _| present.contains(id));
        let (scale, granularity) = (&self.settings.scale, self.settings.granularity);
        let mut updates = plan(&waiting, scale, step, granularity);
        let most = self.budget();
        let left = updates.len().saturating_sub(most);
        if !dry {
            updates.truncate(most);
        }
        let refused = match dry {
            true => Vec::new(),
            false => self.tell(&updates, stop)?,
        };
        Ok(Round {
            waiting: waiting.len(),
            held: waiting.iter().filter(|job| job.held).count(),
            unknown: waiting.iter().filter(|job| job.factor.is_none()).count(),
            updates,
            left,
            refused,
        })
    }

    /// Sets all site factors back to 0, of running jobs too: they may come back into the queue.
    pub(super) fn reset(&mut self, dry: bool, stop: &Stop) -> Result<Round, SyncError> {
        let (jobs, _) = queue::read(&self.runner, false)?;
        self.known = site_factors(&self.runner)?;
        // Some that wait are not listed with a site factor, and may have one all the same.
        let touched = |job: &&Job| !job.held && self.known.get(&job.id) != Some(&0);
        let updates: Vec<Update> = jobs
            .iter()
            .filter(touched)
            .map(|job| Update {
                id: job.id,
                target: job.target.clone(),
                from: self.known.get(&job.id).copied(),
                to: 0,
            })
            .collect();
        let refused = match dry {
            true => Vec::new(),
            false => self.tell(&updates, stop)?,
        };
        let pending = |job: &&Job| job.state == State::Pending;
        Ok(Round {
            waiting: jobs.iter().filter(pending).count(),
            held: jobs.iter().filter(|job| job.held).count(),
            updates,
            refused,
            ..Round::default()
        })
    }

    /// Most updates of one round, so that the next one sees news before the old is worked off.
    fn budget(&self) -> usize {
        let most = u64::from(self.settings.rate) * self.settings.interval.0 / 1_000;
        usize::try_from(most).unwrap_or(usize::MAX).max(1)
    }

    /// The factors of everybody in the queue, running jobs too, as theirs may be requeued soon; and how
    /// far apart different ones are at the least.
    fn factors(&self, jobs: &[Job]) -> Result<(Factors, u32), ClientError> {
        let people: BTreeSet<Person> = jobs.iter().map(person).collect();
        let people: Vec<Person> = people.into_iter().collect();
        let mut client = Client::connect(&self.lookup, LOOKUP_MAX)?;
        let (mut factors, mut step) = (BTreeMap::new(), FACTOR_MAX);
        for batch in people.chunks(LOOKUP_BATCH_MAX) {
            let who: Vec<Who<'_>> = batch.iter().map(who).collect();
            let answer = client.lookup(&who)?;
            step = step.min(answer.view.step);
            factors.extend(batch.iter().cloned().zip(answer.factors()));
        }
        Ok((factors, step))
    }

    fn waiting(&self, pending: &[&Job], factors: &Factors) -> Vec<Waiting> {
        pending
            .iter()
            .map(|job| Waiting {
                id: job.id,
                target: job.target.clone(),
                current: self.known.get(&job.id).copied(),
                factor: factors.get(&person(job)).copied().flatten(),
                own: job.own,
                held: job.held,
            })
            .collect()
    }

    fn tell(&mut self, updates: &[Update], stop: &Stop) -> Result<Vec<String>, SlurmError> {
        if updates.is_empty() {
            return Ok(Vec::new());
        }
        let lines: Vec<String> = updates
            .iter()
            .map(|update| format!("update JobId={} SiteFactor={}", update.target, update.to))
            .collect();
        let told = self.runner.scontrol(&lines, self.settings.rate, stop);
        let complaints = told.inspect_err(|_| self.check_in = 0)?;
        let refused: BTreeMap<&str, &str> =
            complaints.iter().filter_map(|line| blamed(line)).collect();
        for update in updates {
            if !refused.contains_key(update.target.as_str()) {
                self.known.insert(update.id, update.to);
            }
        }
        if stop.is_told() || refused.len() < complaints.len() {
            // Who was told what is not sure: see what Slurm holds.
            self.check_in = 0;
        }
        let gone =
            |why: &str| why.starts_with("Invalid job id") || why.contains("already finished");
        let worth = complaints
            .iter()
            .filter(|line| !gone(blamed(line).map_or(line.as_str(), |(_, why)| why)));
        Ok(worth.cloned().collect())
    }
}

/// User, account and group.
type Person = (String, Option<String>, Option<String>);

/// None of those whom the node does not know.
type Factors = BTreeMap<Person, Option<u32>>;

fn person(job: &Job) -> Person {
    (job.user.clone(), job.account.clone(), job.group.clone())
}

fn who((user, account, group): &Person) -> Who<'_> {
    Who::Names(Names {
        user: Some(user),
        account: account.as_deref(),
        group: group.as_deref(),
        subject: None,
    })
}

/// The job and the reason of a complaint: `Invalid job id specified for job 12`, or
/// `12_1-5: Job has already finished`.
fn blamed(line: &str) -> Option<(&str, &str)> {
    if let Some((why, job)) = line.rsplit_once(" for job ") {
        return Some((job.trim(), why));
    }
    let (job, why) = line.split_once(": ")?;
    let is_job = job.starts_with(|c: char| c.is_ascii_digit());
    is_job.then_some((job, why.trim()))
}

/// The site factors of waiting jobs.
fn site_factors(runner: &Runner) -> Result<BTreeMap<u64, i64>, SlurmError> {
    let text = runner.ask("sprio", &["-h", "-o", "%i|%S"])?;
    let rows = text.lines().filter_map(|line| line.split_once('|'));
    let rows = rows
        .filter_map(|(id, factor)| Some((id.trim().parse().ok()?, factor.trim().parse().ok()?)));
    Ok(rows.collect())
}

/// Says what a round did, if it did anything.
fn report(round: &Round) {
    for refused in round.refused.iter().take(COMPLAINTS_MAX) {
        tracing::warn!("slurm sync: scontrol: {refused}");
    }
    if round.refused.len() > COMPLAINTS_MAX {
        let more = round.refused.len() - COMPLAINTS_MAX;
        tracing::warn!(more, "slurm sync: scontrol refused more jobs");
    }
    if !round.updates.is_empty() {
        tracing::info!(
            waiting = round.waiting,
            updated = round.updates.len(),
            left = round.left,
            "slurm sync"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_name_their_job() {
        for (line, job, why) in [
            (
                "Invalid job id specified for job 99999",
                "99999",
                "Invalid job id specified",
            ),
            (
                "Access/permission denied for job 4_[1-5]",
                "4_[1-5]",
                "Access/permission denied",
            ),
            (
                "4_1-5: Job has already finished",
                "4_1-5",
                "Job has already finished",
            ),
        ] {
            assert_eq!(blamed(line), Some((job, why)), "{line}");
        }
        assert_eq!(blamed("Unable to contact slurm controller"), None);
    }
}
