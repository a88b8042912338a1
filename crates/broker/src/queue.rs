//! The queue on a submit host: releases jobs to sites within the limits of a VO and its groups, and sends
//! those that fail to other sites.
//!
//! What happens comes in, effects come out by value and are carried out in order. A [`Effect::Write`] is
//! durable before what follows it, and the records written so far make the same manager again.
//!
//! Invariants: a job is submitted only behind the durable record of where, under a name ([`attempt_name`]) that
//! never means another attempt; after a start the batch system is asked for that name before anything is
//! submitted again; an attempt is given up only when it is known to have ended or to be nowhere. So a kill
//! between any two effects neither loses a job nor runs it twice. What is in flight never passes a limit.
//! Deliberately not here: commands, files, clocks; nor preemption: what has started runs to its end.
//! Source: GRUBER (Euro-Par 2005), section 2.3, the queue manager.

mod entry;
mod limits;
mod plan;
mod record;

use std::collections::BTreeMap;

use fairmesh_model::{Millis, WallTime, mutated};

pub use entry::{Entry, Phase};
pub use limits::Limits;
pub use plan::Planning;
pub use record::{Record, attempt_name};

use crate::selector::{Chooser, Selector};

/// Attempts that may fail before one more failure gives a job up.
pub const RETRIES_MAX: u32 = 4;

/// How long a site that failed a job is not tried again for it.
pub const SHUNNED: Millis = Millis::from_secs(600);

/// How long a submitted job may wait for its start before it is withdrawn and sent elsewhere.
pub const START_WITHIN: Millis = Millis::from_secs(1_800);

/// How long a site whose word was contradicted by jobs that are there gets no more than one job that has not started.
/// Longer than most jobs run, or it would be believed again as soon as those have ended which speak against it.
pub const DOUBTED: Millis = Millis::from_secs(6 * 3_600);

/// Most jobs in one queue: bounds the memory of the manager, about half a KiB each.
pub const JOBS_MAX: usize = 1_000_000;

/// A job to be run once, somewhere.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QueuedJob {
    /// Its name, which never means another job of this queue.
    pub key: String,
    /// Its group: who pays, below the VO.
    pub account: fairmesh_model::AccountPath,
    /// CPUs that it asks for.
    pub cpus: u64,
    /// Wall-clock time that it asks for; 0: not known.
    #[serde(rename = "wall_ms", default)]
    pub wall: Millis,
    /// MiB of its input, output and scratch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disk_mib: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands in a reference"
)]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// What a batch system says of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// It has never had it, or has lost it, and will not run it.
    Nowhere,
    /// It waits. The batch system's own name for it, if that is told.
    Waiting(Option<String>),
    /// It has started at the site.
    Running,
    /// It has ended well.
    Ended,
    /// It has ended otherwise, or was refused.
    Failed(String),
}

/// What the driver must do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Make this record durable before the effects after it.
    Write(Record),
    /// Submit an attempt to a site, under its [`attempt_name`].
    Submit {
        /// The job to submit.
        job: QueuedJob,
        /// Which attempt, from 1.
        attempt: u32,
        /// The site to submit it to.
        site: String,
    },
    /// Ask a site's batch system what it knows of an attempt.
    Ask {
        /// The job's key.
        job: String,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// The site of the attempt.
        site: String,
    },
    /// Take an attempt back from a site's batch system, and tell its status when it is surely not running.
    Withdraw {
        /// The job's key.
        job: String,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// The site of the attempt.
        site: String,
    },
}

/// Why a job was not taken. State is unchanged; whoever handed it in is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// A key that another job has.
    #[error("job `{0}` is in the queue already, and asks for something else")]
    OtherJob(String),
    /// No key, or no CPUs.
    #[error("a job has a key, and asks for at least one CPU")]
    Nothing,
    /// More CPUs than a limit.
    #[error("job `{job}` asks for {cpus} CPUs, and `{account}` may never hold more than {limit}")]
    AboveLimit {
        /// The key that is in use.
        job: String,
        /// CPUs that it asks for.
        cpus: u64,
        /// The account whose limit it is.
        account: fairmesh_model::AccountPath,
        /// The limit in CPUs.
        limit: u64,
    },
    /// The queue is full.
    #[error("a queue holds {JOBS_MAX} jobs at most")]
    Full,
}

/// A queue and what is in flight of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manager {
    limits: Limits,
    entries: BTreeMap<String, Entry>,
    /// Keys in the order in which they came.
    order: Vec<String>,
    /// Sites that say that less is held and waited for than this queue has there, and when that was found.
    doubted: BTreeMap<String, WallTime>,
    chooser: Chooser,
}

impl Manager {
    /// A queue without jobs.
    pub fn new(limits: Limits, selector: Selector) -> Self {
        Self {
            limits,
            chooser: Chooser::new(selector),
            ..Self::default()
        }
    }

    /// The queue that has written these records, and what it must do first: nothing is known of what was
    /// under way, so every site that has or may have an attempt is asked for it.
    pub fn restore(
        limits: Limits,
        selector: Selector,
        records: impl IntoIterator<Item = Record>,
    ) -> (Self, Vec<Effect>) {
        let mut manager = Self::new(limits, selector);
        for record in records {
            manager.apply(&record);
        }
        let effects = manager.asks();
        (manager, effects)
    }

    /// Takes a job. The same job again is nothing new.
    ///
    /// # Errors
    /// That it cannot be in this queue.
    pub fn add(&mut self, job: QueuedJob) -> Result<Vec<Effect>, AddError> {
        if let Some(entry) = self.entries.get(&job.key) {
            return match entry.job == job {
                true => Ok(Vec::new()),
                false => Err(AddError::OtherJob(job.key)),
            };
        }
        if job.key.is_empty() || job.cpus == 0 {
            return Err(AddError::Nothing);
        }
        if self.entries.len() >= JOBS_MAX {
            return Err(AddError::Full);
        }
        if let Some((account, limit)) = self.limits.below(&job.account, job.cpus) {
            let (job, cpus) = (job.key, job.cpus);
            return Err(AddError::AboveLimit {
                job,
                cpus,
                account,
                limit,
            });
        }
        let mut out = Vec::new();
        self.write(Record::Added(job), &mut out);
        Ok(out)
    }

    /// What a batch system says of an attempt. What is said of any but a job's last attempt is late, and ignored.
    pub fn told(&mut self, now: WallTime, job: &str, attempt: u32, status: Status) -> Vec<Effect> {
        let mut out = Vec::new();
        let entry = self.entries.get(job);
        let Some(entry) = entry.filter(|entry| entry.attempt == attempt) else {
            return out;
        };
        let (phase, at) = (entry.phase.clone(), now);
        let (key, job) = (job, job.to_owned());
        let came = match (phase, status) {
            (Phase::Assigned, Status::Nowhere) => {
                self.submit(key, &mut out);
                return out;
            }
            (Phase::Queued | Phase::Ended | Phase::GivenUp(_), _) => return out,
            (Phase::Assigned, Status::Waiting(handle)) => Ok(Record::Submitted {
                job,
                attempt,
                handle,
                at,
            }),
            (Phase::Assigned | Phase::Submitted(_), Status::Running) => {
                Ok(Record::Started { job, attempt, at })
            }
            (_, Status::Waiting(_) | Status::Running) => return out,
            (_, Status::Ended) => Ok(Record::Ended { job, attempt }),
            (_, Status::Failed(why)) => Err(why),
            (Phase::Withdrawing, Status::Nowhere) => Err("it did not start in time".to_owned()),
            (_, Status::Nowhere) => Err("the batch system has lost it".to_owned()),
        };
        match came {
            Ok(record) => self.write(record, &mut out),
            Err(why) => self.fail(now, key.to_owned(), attempt, why, &mut out),
        }
        out
    }

    /// What is overdue: attempts that wait too long for their start are withdrawn. They stay in flight until their
    /// batch system says that they are nowhere, or a job could run twice.
    pub fn tick(&mut self, now: WallTime) -> Vec<Effect> {
        let late = |entry: &&Entry| {
            let waits = matches!(entry.phase, Phase::Assigned | Phase::Submitted(_));
            waits && now.since(entry.since) >= START_WITHIN
        };
        let late: Vec<(String, u32, String)> = self
            .entries
            .values()
            .filter(late)
            .map(Entry::place)
            .collect();
        let mut out = Vec::new();
        for (job, attempt, site) in late {
            self.write(
                Record::Withdrawing {
                    job: job.clone(),
                    attempt,
                },
                &mut out,
            );
            out.push(Effect::Withdraw {
                job: job.clone(),
                attempt,
                site,
            });
            if mutated!(LateIsGone) {
                self.fail(now, job, attempt, String::new(), &mut out);
            }
        }
        out
    }

    /// Asks for every attempt in flight, and again for withdrawals: at a start, and to poll.
    pub fn asks(&self) -> Vec<Effect> {
        let in_flight = self.entries.values().filter(|entry| entry.is_in_flight());
        in_flight
            .map(|entry| {
                let (job, attempt, site) = entry.place();
                match entry.phase {
                    Phase::Withdrawing => Effect::Withdraw { job, attempt, site },
                    Phase::Assigned if mutated!(AskSkipped) => {
                        let job = entry.job.clone();
                        Effect::Submit { job, attempt, site }
                    }
                    _ => Effect::Ask { job, attempt, site },
                }
            })
            .collect()
    }

    /// Jobs in the order in which they came.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.order.iter().map(|key| &self.entries[key])
    }

    /// A job by its key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Whether every job has ended or was given up.
    pub fn is_done(&self) -> bool {
        self.entries.values().all(|entry| entry.is_settled())
    }

    fn submit(&self, job: &str, out: &mut Vec<Effect>) {
        let entry = &self.entries[job];
        let (_, attempt, site) = entry.place();
        let job = entry.job.clone();
        out.push(Effect::Submit { job, attempt, site });
    }

    fn fail(
        &mut self,
        at: WallTime,
        job: String,
        attempt: u32,
        why: String,
        out: &mut Vec<Effect>,
    ) {
        let is_last = attempt > RETRIES_MAX && !mutated!(RetriedForEver);
        let failed = Record::Failed {
            job: job.clone(),
            attempt,
            at,
            why: why.clone(),
        };
        self.write(failed, out);
        if is_last {
            self.write(Record::GivenUp { job, why }, out);
        }
    }

    fn write(&mut self, record: Record, out: &mut Vec<Effect>) {
        self.apply(&record);
        out.push(Effect::Write(record));
    }

    /// The only place where anything changes, so that records make the same state again. A record that does
    /// not fit what is there is one of another queue, and changes nothing.
    fn apply(&mut self, record: &Record) {
        if let Record::Added(job) = record {
            if self
                .entries
                .insert(job.key.clone(), Entry::new(job.clone()))
                .is_none()
            {
                self.order.push(job.key.clone());
            }
            return;
        }
        if let Record::Doubted { site, at, .. } = record {
            self.doubted.insert(site.clone(), *at);
            return;
        }
        let entry = record.job().and_then(|job| self.entries.get_mut(job));
        let Some(entry) = entry else {
            return;
        };
        let (key, cpus) = (entry.job.key.clone(), entry.job.cpus);
        let site = entry.site.clone();
        match record {
            Record::Added(_) | Record::Doubted { .. } => unreachable!("it was taken above"),
            Record::Assigned {
                attempt, site, at, ..
            } => {
                entry.phase = Phase::Assigned;
                (entry.attempt, entry.since) = (*attempt, *at);
                entry.site.clone_from(site);
                self.chooser.note_sent(site, &key, cpus, *at);
            }
            Record::Submitted { handle, at, .. } => {
                entry.phase = Phase::Submitted(handle.clone());
                self.chooser.note_arrived(&site, &key, *at);
            }
            Record::Started { at, .. } => {
                entry.phase = Phase::Running;
                self.chooser.note_started(&site, &key, *at);
            }
            Record::Withdrawing { .. } => entry.phase = Phase::Withdrawing,
            Record::Failed { at, .. } => {
                entry.phase = Phase::Queued;
                entry.failed.insert(site.clone(), *at);
                self.chooser.note_ended(&site, &key);
            }
            Record::Ended { .. } => {
                entry.phase = Phase::Ended;
                self.chooser.note_ended(&site, &key);
            }
            Record::GivenUp { why, .. } => entry.phase = Phase::GivenUp(why.clone()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
