//! A space-shared cluster: N cores, a queue, and a scheduler that never preempts.
//!
//! Invariant: the cores in use never exceed N; a job that was submitted starts exactly once, holds
//! its cores for its run time without a break, and is reported as finished exactly once.
//!
//! The queue is a FIFO per account, because the jobs of one account have one priority; a pass looks
//! at the heads of the accounts through a heap and so costs O(accounts + started × log accounts),
//! whatever the length of the queue. Backfill looks at a bounded number of jobs more.
//!
//! Deliberately not here: fairshare (a pass is given it, per account), preemption, node shapes,
//! and killing jobs that outrun their request. Section 5 of the FSGrid paper; backfill is EASY
//! (Lifka 1995).

mod pass;
mod priority;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{Millis, WallTime};

pub use pass::BACKFILL_JOBS_MAX;
pub use priority::JobPriority;

use crate::job::{AccountKey, Job, JobId};

/// Most jobs in a queue: bounds memory to about 200 MB. Schedulers stop far earlier (Slurm's
/// `MaxJobCount` is 10,000 unless raised).
pub const QUEUE_JOBS_MAX: usize = 1_000_000;

/// What happens behind a job that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backfill {
    /// Everybody waits for the first in the queue.
    #[default]
    Off,
    /// Jobs further down start if, by their requested times, they do not delay the first.
    Easy,
}

/// The cluster and its queue.
#[derive(Debug, Clone)]
pub struct Cluster {
    cores: u32,
    cores_used: u32,
    backfill: Backfill,
    submitted: u64,
    /// Waiting jobs by account and submit number; an account without jobs is not in it.
    queues: BTreeMap<AccountKey, BTreeMap<u64, Waiting>>,
    queued: usize,
    /// Running jobs by end and submit number.
    running: BTreeMap<(WallTime, u64), Started>,
    /// Cores of the running jobs by the end that their requests promise, and submit number.
    promised: BTreeMap<(WallTime, u64), u32>,
    /// Numbers of the jobs that wait or run.
    live: BTreeSet<JobId>,
}

/// A job in the queue.
#[derive(Debug, Clone)]
struct Waiting {
    job: Job,
    /// When it was submitted; `None` if its age does not count.
    since: Option<WallTime>,
}

/// A job that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The job.
    pub job: Job,
    /// When.
    pub start: WallTime,
}

/// A job that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The job.
    pub job: Job,
    /// When it started.
    pub start: WallTime,
    /// When it ended: start plus run time, even if it was asked for later.
    pub end: WallTime,
}

/// Why a job was refused. The cluster is unchanged; the job is at fault, but for `QueueFull`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// It asks for no core.
    #[error("job {0} asks for no core")]
    NoCores(JobId),
    /// It asks for more cores than there are, and would block the queue for ever.
    #[error("job {job} asks for {wanted} cores of {cores}")]
    TooWide {
        /// The job.
        job: JobId,
        /// Cores it asks for.
        wanted: u32,
        /// Cores of the cluster.
        cores: u32,
    },
    /// A job of this number waits or runs.
    #[error("job {0} is already queued or running")]
    Repeated(JobId),
    /// [`QUEUE_JOBS_MAX`] jobs wait.
    #[error("the queue is full: {QUEUE_JOBS_MAX} jobs")]
    QueueFull,
}

impl Cluster {
    /// An idle cluster of `cores`.
    pub fn new(cores: u32, backfill: Backfill) -> Self {
        Self {
            cores,
            cores_used: 0,
            backfill,
            submitted: 0,
            queues: BTreeMap::new(),
            queued: 0,
            running: BTreeMap::new(),
            promised: BTreeMap::new(),
            live: BTreeSet::new(),
        }
    }

    /// Puts a job behind its account's others. It starts in a later call of
    /// [`Cluster::schedule`]. In [`Cluster::schedule_by`] it never ages.
    pub fn submit(&mut self, job: Job) -> Result<(), SubmitError> {
        self.enqueue(Waiting { job, since: None })
    }

    /// As [`Cluster::submit`], and lets the job age from `now` on. Times of later calls should not
    /// be earlier: jobs of one account start in order of submission, whatever their ages.
    pub fn submit_at(&mut self, now: WallTime, job: Job) -> Result<(), SubmitError> {
        let since = Some(now);
        self.enqueue(Waiting { job, since })
    }

    fn enqueue(&mut self, waiting: Waiting) -> Result<(), SubmitError> {
        let job = &waiting.job;
        if job.cores == 0 {
            return Err(SubmitError::NoCores(job.id));
        }
        if job.cores > self.cores {
            let (wanted, cores) = (job.cores, self.cores);
            return Err(SubmitError::TooWide {
                job: job.id,
                wanted,
                cores,
            });
        }
        if self.queued >= QUEUE_JOBS_MAX {
            return Err(SubmitError::QueueFull);
        }
        if !self.live.insert(job.id) {
            return Err(SubmitError::Repeated(job.id));
        }
        self.queues
            .entry(job.account.clone())
            .or_default()
            .insert(self.submitted, waiting);
        self.submitted += 1;
        self.queued += 1;
        Ok(())
    }

    /// The jobs that have ended by `now`, in order of end (ties: of submission). Call it before
    /// [`Cluster::schedule`]: until then they hold their cores.
    pub fn finish(&mut self, now: WallTime) -> Vec<Finished> {
        let mut finished = Vec::new();
        while let Some(entry) = self.running.first_entry() {
            let (end, number) = *entry.key();
            if end > now {
                break;
            }
            let Started { job, start } = entry.remove();
            self.promised.remove(&(start.after(job.requested), number));
            self.cores_used -= job.cores;
            self.live.remove(&job.id);
            finished.push(Finished { job, start, end });
        }
        finished
    }

    /// When the next running job ends; `None` if none runs.
    pub fn next_event(&self) -> Option<WallTime> {
        self.running.first_key_value().map(|((end, _), _)| *end)
    }

    /// The accounts that have jobs waiting, in order: whose priorities to ask for before a pass.
    pub fn pending_accounts(&self) -> impl Iterator<Item = &AccountKey> {
        self.queues.keys()
    }

    /// The waiting jobs, by account and then in order of submission.
    pub fn pending(&self) -> impl Iterator<Item = &Job> {
        let waiting = self.queues.values().flat_map(BTreeMap::values);
        waiting.map(|waiting| &waiting.job)
    }

    /// The running jobs, in order of their true ends.
    pub fn running(&self) -> impl Iterator<Item = &Started> {
        self.running.values()
    }

    /// Cores there are.
    pub fn cores(&self) -> u32 {
        self.cores
    }

    /// Cores that running jobs hold.
    pub fn cores_used(&self) -> u32 {
        self.cores_used
    }

    /// How many jobs wait.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// How many jobs run.
    pub fn running_count(&self) -> usize {
        self.running.len()
    }
}

impl Started {
    /// When it will end, if it is left alone.
    pub fn end(&self) -> WallTime {
        self.start.after(self.job.run)
    }

    /// How long it has run by `now`: never longer than it will.
    pub fn elapsed(&self, now: WallTime) -> Millis {
        now.since(self.start).min(self.job.run)
    }
}
