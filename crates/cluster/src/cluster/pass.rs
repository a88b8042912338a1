//! One scheduling pass: which waiting jobs start now.
//!
//! Invariant: jobs are considered in order of (priority, higher first; submission, earlier first),
//! those of one account in order of submission; and without backfill none starts once one did not fit. With backfill, the first that did not fit
//! starts no later than it would have, as long as requests hold.
//!
//! Deliberately not here: reservations for any but the first blocked job (conservative backfill).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fairmesh_model::{Millis, WallTime};

use super::{Backfill, Cluster, JobPriority, Started, Waiting};
use crate::job::{AccountKey, Job};

/// Most jobs that backfill looks at in one pass: bounds a pass over a long queue. Slurm's
/// `bf_max_job_test` defaults to 500 for the same reason; beyond it, cores may stay idle that some
/// job far down could have used.
pub const BACKFILL_JOBS_MAX: usize = 1_000;

/// The next waiting job of an account. The greatest starts first; submit numbers are unique, so
/// accounts are never compared.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    priority: u128,
    number: Reverse<u64>,
    account: AccountKey,
}

/// What the first blocked job is promised.
struct Reservation {
    /// It can start then, by the requests of the running jobs.
    at: WallTime,
    /// Cores that it leaves over at that time.
    spare: u32,
}

impl Cluster {
    /// Starts jobs by the priorities of their accounts; higher is first, and an account that is not
    /// listed has 0. Equal accounts take turns in order of submission. Returns what was started, in
    /// that order.
    pub fn schedule(
        &mut self,
        now: WallTime,
        priorities: &BTreeMap<AccountKey, u64>,
    ) -> Vec<Started> {
        self.schedule_by(now, priorities, &JobPriority::FAIRSHARE_ONLY)
    }

    /// As [`Cluster::schedule`], by the fairshare factors of the accounts and the ages of the jobs
    /// that came by [`Cluster::submit_at`], weighed by `weights`. A pass still looks at the heads
    /// of the accounts alone: the head is the oldest of its account, so nobody behind it is ahead.
    pub fn schedule_by(
        &mut self,
        now: WallTime,
        factors: &BTreeMap<AccountKey, u64>,
        weights: &JobPriority,
    ) -> Vec<Started> {
        let mut started = Vec::new();
        if self.free() == 0 {
            return started;
        }
        let of_job = |account: &AccountKey, waiting: &Waiting| {
            let factor = factors.get(account).copied().unwrap_or(0);
            let age = waiting.since.map_or(Millis(0), |since| now.since(since));
            weights.of(factor, age)
        };
        let mut heap = self.heads(of_job);
        let mut reservation: Option<Reservation> = None;
        let mut looked_at = 0;
        while let Some(candidate) = heap.pop() {
            if self.free() == 0 || looked_at >= BACKFILL_JOBS_MAX {
                break;
            }
            let number = candidate.number.0;
            let queue = &self.queues[&candidate.account];
            let job = &queue[&number].job;
            let next = queue.range(number + 1..).next();
            let next = next.map(|(next, waiting)| (*next, of_job(&candidate.account, waiting)));
            let starts = match &mut reservation {
                None => job.cores <= self.free(),
                Some(reservation) => {
                    looked_at += 1;
                    job.cores <= self.free() && reservation.admits(now, job)
                }
            };
            if starts {
                started.push(self.start(now, &candidate.account, number));
            } else if reservation.is_none() {
                match self.backfill {
                    Backfill::Off => break,
                    Backfill::Easy => reservation = Some(self.reserve(now, job.cores)),
                }
            }
            if let Some((number, priority)) = next {
                heap.push(Candidate {
                    priority,
                    number: Reverse(number),
                    account: candidate.account,
                });
            }
        }
        started
    }

    fn free(&self) -> u32 {
        self.cores - self.cores_used
    }

    fn heads(&self, priority: impl Fn(&AccountKey, &Waiting) -> u128) -> BinaryHeap<Candidate> {
        let head = |(account, queue): (&AccountKey, &BTreeMap<u64, Waiting>)| {
            let (number, waiting) = queue
                .first_key_value()
                .expect("an account in the queue has jobs");
            Candidate {
                priority: priority(account, waiting),
                number: Reverse(*number),
                account: account.clone(),
            }
        };
        self.queues.iter().map(head).collect()
    }

    fn start(&mut self, now: WallTime, account: &AccountKey, number: u64) -> Started {
        let queue = self.queues.get_mut(account).expect("the account has jobs");
        let Waiting { job, .. } = queue.remove(&number).expect("the job waits");
        if queue.is_empty() {
            self.queues.remove(account);
        }
        self.queued -= 1;
        self.cores_used += job.cores;
        assert!(
            self.cores_used <= self.cores,
            "a job was started that does not fit"
        );
        self.promised
            .insert((now.after(job.requested), number), job.cores);
        let started = Started { job, start: now };
        self.running
            .insert((started.end(), number), started.clone());
        started
    }

    /// When `cores` will be free by the requests of the running jobs. One that has outrun its
    /// request is expected to end at any moment.
    fn reserve(&self, now: WallTime, cores: u32) -> Reservation {
        let mut free = self.free();
        let mut at = now;
        for ((end, _), released) in &self.promised {
            let end = (*end).max(now);
            if free >= cores && end > at {
                break;
            }
            at = end;
            free += released;
        }
        // A job is never wider than the cluster, so the end of the list frees enough.
        Reservation {
            at,
            spare: free - cores,
        }
    }
}

impl Reservation {
    /// Whether `job` can start at `now` without delaying the reserved start; takes its share of the
    /// spare cores if it can.
    fn admits(&mut self, now: WallTime, job: &Job) -> bool {
        if now.after(job.requested) <= self.at {
            return true;
        }
        let fits = job.cores <= self.spare;
        if fits {
            self.spare -= job.cores;
        }
        fits
    }
}
