//! `fairmesh slurm sync` and its like: the node's factors become the numbers by which a batch system orders its queue.
//!
//! A round reads the queue, asks the node about everybody in it in one batch, and tells the batch system what has to
//! change. Invariant: whatever is away, nothing is set that does not rest on an answer of the node: without the node
//! the last good numbers stay, and without the batch system the next round catches up.
//! Deliberately not here: the decision (`plan`), and when the process ends (`loops`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fairmesh_client::{Client, ClientError, FACTOR_MAX, Names, ROWS_OF_ANY_NAMES, Who};
use fairmesh_model::record::fitting;

use crate::job::{Job, State};
use crate::loops::{Rounds, complain};
use crate::plan::{Update, Waiting, plan};
use crate::{LoopSettings, Scheduler, now_ms};
use fairmesh_api::client::Control;
use fairmesh_api::loops::{LoopsReport, RoundsReport, SyncReport};

/// How long the node may take over a batch.
const LOOKUP_MAX: Duration = Duration::from_secs(10);

/// After so many rounds, what the batch system holds is read again: somebody else may have changed it.
const ROUNDS_TO_CHECK: u32 = 20;

/// What a round did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    /// Number of waiting jobs.
    pub waiting: usize,
    /// Of these, jobs that are held: never touched.
    pub held: usize,
    /// Of these, jobs of accounts that the node does not know.
    pub unknown: usize,
    /// What was told, or would be, the most important first.
    pub updates: Vec<Update>,
    /// What is left for the next round.
    pub left: usize,
    /// What was refused, by job.
    pub refused: Vec<String>,
}

/// The words of a job by which the node knows who pays for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Person {
    /// The local user name.
    pub user: String,
    /// The account or project.
    pub account: Option<String>,
    /// The user's group, if known.
    pub group: Option<String>,
    /// The queue or partition.
    pub queue: Option<String>,
    /// The quality of service.
    pub qos: Option<String>,
}

/// The state between two rounds.
#[derive(Debug)]
pub struct Sync<S> {
    scheduler: S,
    lookup: PathBuf,
    control: Control,
    settings: LoopSettings,
    /// What was done, for the node's metrics.
    done: SyncReport,
    /// What the batch system is known to hold, by job.
    known: BTreeMap<u64, i64>,
    /// Rounds until that is read again; 0 for now.
    check_in: u32,
    last_good: Instant,
}

impl<S: Scheduler> Sync<S> {
    /// Between the node whose sockets are given and a batch system.
    pub fn new(scheduler: S, settings: LoopSettings, lookup: PathBuf, control: Control) -> Self {
        Self {
            scheduler,
            lookup,
            control,
            settings,
            done: SyncReport::default(),
            known: BTreeMap::new(),
            check_in: 0,
            last_good: Instant::now(),
        }
    }

    /// One round; a dry one tells the batch system nothing.
    ///
    /// # Errors
    /// If the batch system or the node is away.
    pub async fn once(&mut self, dry: bool) -> anyhow::Result<Round> {
        let (jobs, bad) = self.scheduler.queue(false).await?;
        let name = self.name();
        complain(&name, "cannot parse a row of the queue", &bad);
        if self.check_in == 0 {
            self.known = self.scheduler.numbers().await?;
            self.check_in = ROUNDS_TO_CHECK;
        }
        self.check_in -= 1;
        // Running jobs, too, as they may be requeued soon.
        let people: BTreeSet<Person> = jobs.iter().map(person).collect();
        let asked = factors(&self.lookup, people.into_iter().collect()).await;
        let (factors, step) = asked.context("the node")?;
        self.last_good = Instant::now();
        let pending = |job: &&Job| job.state == State::Pending;
        let pending: Vec<&Job> = jobs.iter().filter(pending).collect();
        let waiting = self.waiting(&pending, &factors);
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
            false => self.tell(&updates, false).await?,
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

    /// Sets all numbers back to 0, of running jobs too: they may come back into the queue.
    ///
    /// # Errors
    /// If the batch system is away.
    pub async fn reset(&mut self, dry: bool) -> anyhow::Result<Round> {
        let (jobs, _) = self.scheduler.queue(false).await?;
        self.known = self.scheduler.numbers().await?;
        // Some that wait are not listed with a number, and may have one all the same.
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
            false => self.tell(&updates, true).await?,
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

    /// Gives what was refused, but for jobs that have left the queue.
    async fn tell(&mut self, updates: &[Update], reset: bool) -> anyhow::Result<Vec<String>> {
        if updates.is_empty() {
            return Ok(Vec::new());
        }
        // Until it has answered, who was told what is not sure.
        let checked = std::mem::replace(&mut self.check_in, 0);
        let refusals = match reset {
            true => self.scheduler.reset(updates).await?,
            false => self.scheduler.set(updates).await?,
        };
        if refusals.iter().all(|refusal| refusal.job.is_some()) {
            self.check_in = checked;
        }
        let refused: BTreeSet<u64> = refusals.iter().filter_map(|it| it.job).collect();
        let told = updates.iter().filter(|it| !refused.contains(&it.id));
        self.known.extend(told.map(|update| (update.id, update.to)));
        let worth = refusals.into_iter().filter(|refusal| !refusal.is_gone);
        Ok(worth.map(|refusal| refusal.words).collect())
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
            // With updates left, some numbers are still older.
            good_ms: match round.left {
                0 => Some(now_ms()),
                _ => self.done.good_ms,
            },
            ..self.done.clone()
        };
    }
}

impl<S: Scheduler> Rounds for Sync<S> {
    fn name(&self) -> String {
        format!("{} sync", S::NAME)
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(self.settings.interval.0)
    }

    async fn round(&mut self) -> anyhow::Result<()> {
        let round = self.once(false).await.inspect_err(|_| {
            // A batch system that was away may have lost or changed anything.
            self.check_in = 0;
        })?;
        let name = self.name();
        complain(&name, "refused", &round.refused);
        if !round.updates.is_empty() {
            let (waiting, updated, left) = (round.waiting, round.updates.len(), round.left);
            tracing::info!(waiting, updated, left, "{name}");
        }
        self.count(&round);
        Ok(())
    }

    fn rounds(&mut self) -> &mut RoundsReport {
        &mut self.done.rounds
    }

    fn told(&self) -> (&Control, String, LoopsReport) {
        let report = LoopsReport {
            sync: Some(self.done.clone()),
            feed: None,
            files: None,
        };
        (&self.control, format!("/v1/{}", S::NAME), report)
    }

    fn comfort(&self, is_node_away: bool) -> String {
        if !is_node_away {
            return "waiting for it".to_owned();
        }
        let (number, age) = (S::NUMBER, self.last_good.elapsed().as_secs());
        format!("the last {number}s, of {age} s ago, stay as they are")
    }
}

/// None of those whom the node does not know.
type Factors = BTreeMap<Person, Option<u32>>;

pub(crate) fn person(job: &Job) -> Person {
    let of = job.origin();
    Person {
        user: of.user.unwrap_or_default(),
        account: of.account,
        group: of.group,
        queue: job.partition.clone().map(fitting),
        qos: job.qos.clone().map(fitting),
    }
}

/// The factor of each of these whom the node knows, and how far apart different ones are at the least.
///
/// # Errors
/// If the node is away.
pub async fn factors(
    lookup: &std::path::Path,
    people: Vec<Person>,
) -> Result<(Factors, u32), ClientError> {
    let lookup = lookup.to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        let mut client = Client::connect(&lookup, LOOKUP_MAX)?;
        let (mut factors, mut step) = (BTreeMap::new(), FACTOR_MAX);
        for batch in people.chunks(ROWS_OF_ANY_NAMES) {
            let who: Vec<Who<'_>> = batch.iter().map(who).collect();
            let answer = client.lookup(&who)?;
            step = step.min(answer.view.step);
            factors.extend(batch.iter().cloned().zip(answer.factors()));
        }
        Ok((factors, step))
    });
    asked.await.expect("a look-up does not panic")
}

pub(crate) fn who(person: &Person) -> Who<'_> {
    Who::Names(Names {
        user: Some(&person.user),
        account: person.account.as_deref(),
        group: person.group.as_deref(),
        subject: None,
        queue: person.queue.as_deref(),
        qos: person.qos.as_deref(),
    })
}
