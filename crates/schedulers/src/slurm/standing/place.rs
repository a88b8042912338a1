//! Which jobs stand before one in Slurm's order: a pure function of the rows of one moment.
//!
//! Slurm tries jobs partition by partition: the highest `PriorityTier` first, then the highest priority, then the
//! lowest number. A job of several partitions is tried in each of them. So of two jobs that may get the same node the
//! one that is tried first there stands before the other one.
//!
//! Invariant: a job counts only if it waits for nodes alone, in a partition that starts jobs and shares a node with one
//! of the explained job's; each task of an array counts. Deliberately not here: preemption, what nodes a job asks for
//! within its partitions, and backfill, which may start a job early where that delays nobody before it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::rows::{Factors, PartitionOnNode, Standing};

/// The tier of a partition of which `sinfo` says nothing: Slurm's default.
const TIER_DEFAULT: u32 = 1;

/// Slurm's reason of a job whose partition is closed.
const CLOSED: &str = "PartitionDown";

/// Slurm's order, smallest first.
type Key = (Reverse<u32>, Reverse<u64>, u64);

/// All that the order is made of.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) jobs: Vec<Standing>,
    pub(super) nodes: Vec<PartitionOnNode>,
    pub(super) factors: BTreeMap<(u64, String), Factors>,
    pub(super) now_s: u64,
}

/// Where a job stands. All numbers are of jobs, and of tasks where a job is an array.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Whether it waits for its turn: nothing is before a job that does not.
    pub(super) in_turn: bool,
    /// Before it by a higher tier.
    pub(super) by_tier: u64,
    /// Before it by priority, or by number where that is equal.
    pub(super) by_priority: u64,
    /// In its turn on the same nodes, itself not included.
    pub(super) waiting: u64,
    /// The last of those before it that is of another user or account, and whether it is there by its tier.
    pub(super) last: Option<(Standing, bool)>,
    /// Arrays before it that run only so many tasks at once.
    pub(super) limited: Vec<Standing>,
    /// On the same nodes and not in turn, by reason.
    pub(super) kept: BTreeMap<String, u64>,
}

/// Partitions by name, and those that share a node with them.
struct Partitions<'a> {
    tiers: BTreeMap<&'a str, u32>,
    closed: BTreeSet<&'a str>,
    /// For each partition of the explained job those that share nodes with it, itself included.
    neighbours: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl Queue {
    /// The job that `wanted` names; `12_5` may be among `12_[3-9]`.
    pub(super) fn job(&self, wanted: &str) -> Option<&Standing> {
        let exact = self.jobs.iter().find(|job| job.is_called(wanted));
        exact.or_else(|| self.jobs.iter().find(|job| job.may_hold(wanted)))
    }

    /// What `sprio` says of a job: of the partition in which its priority is highest.
    pub(super) fn factors_of(&self, job: &Standing) -> Option<&Factors> {
        let rows = job.partitions.iter();
        let rows = rows.filter_map(|name| self.factors.get(&(job.id, name.clone())));
        rows.max_by_key(|row| row.priority)
    }

    pub(super) fn place(&self, job: &Standing) -> Place {
        let partitions = Partitions::around(job, &self.nodes);
        let in_turn = job.is_in_turn(self.now_s) && partitions.any_open(job);
        let mut place = Place {
            in_turn,
            ..Place::default()
        };
        let mut last: Option<(Key, &Standing, bool)> = None;
        let others = self.jobs.iter().filter(|other| other.id != job.id);
        for other in others.filter(|other| other.is_pending()) {
            if other.reservation != job.reservation || !partitions.meet(job, other) {
                continue;
            }
            let tasks = other.tasks();
            let keys = partitions.keys(job, other, |it, name| self.priority(it, name));
            let (mine, theirs) = match (keys, other.is_in_turn(self.now_s)) {
                (Some(keys), true) => keys,
                (open, in_turn) => {
                    // Slurm gives a new reason only when it next tries the job.
                    let is_closed =
                        open.is_none() && in_turn && !other.reason.starts_with("Partition");
                    let reason = if is_closed { CLOSED } else { &other.reason };
                    *place.kept.entry(reason.to_owned()).or_default() += tasks;
                    continue;
                }
            };
            place.waiting = place.waiting.saturating_add(tasks);
            if theirs > mine || !in_turn {
                continue;
            }
            let by_tier = theirs.0 < mine.0;
            let count = match by_tier {
                true => &mut place.by_tier,
                false => &mut place.by_priority,
            };
            *count = count.saturating_add(tasks);
            place
                .limited
                .extend(is_limited(other).then(|| other.clone()));
            let is_of_another = (&other.user, &other.account) != (&job.user, &job.account);
            if is_of_another && last.as_ref().is_none_or(|(key, ..)| *key < theirs) {
                last = Some((theirs, other, by_tier));
            }
        }
        place.last = last.map(|(_, other, by_tier)| (other.clone(), by_tier));
        place
    }

    /// A job's priority in one of its partitions. Of a job of one partition `squeue` has the number that the scheduler
    /// goes by; of several partitions it has one for all.
    fn priority(&self, job: &Standing, partition: &str) -> u64 {
        let row = self.factors.get(&(job.id, partition.to_owned()));
        let row = row.filter(|_| job.partitions.len() > 1);
        row.map_or(job.priority, |row| row.priority)
    }
}

fn is_limited(job: &Standing) -> bool {
    job.tasks_at_once().is_some_and(|most| most < job.tasks())
}

impl<'a> Partitions<'a> {
    /// Those of `job` and their neighbours.
    fn around(job: &'a Standing, nodes: &'a [PartitionOnNode]) -> Self {
        let mut by_node: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for row in nodes {
            by_node.entry(&row.node).or_default().push(&row.partition);
        }
        let own = job.partitions.iter().map(String::as_str);
        let mut neighbours: BTreeMap<&str, BTreeSet<&str>> =
            own.map(|name| (name, BTreeSet::from([name]))).collect();
        for of_node in by_node.values() {
            for name in of_node {
                if let Some(sharing) = neighbours.get_mut(name) {
                    sharing.extend(of_node);
                }
            }
        }
        let rows = nodes.iter();
        Self {
            tiers: rows
                .clone()
                .map(|row| (&*row.partition, row.tier))
                .collect(),
            closed: rows
                .filter(|row| !row.starts_jobs)
                .map(|row| &*row.partition)
                .collect(),
            neighbours,
        }
    }

    fn is_open(&self, name: &str) -> bool {
        !self.closed.contains(name)
    }

    /// Whether a job may start in any of its partitions.
    fn any_open(&self, job: &Standing) -> bool {
        job.partitions.iter().any(|name| self.is_open(name))
    }

    fn share(&self, own: &str, other: &str) -> bool {
        let sharing = self.neighbours.get(own);
        sharing.is_some_and(|sharing| sharing.contains(other))
    }

    /// Whether two jobs may get the same node, in partitions that are open or not.
    fn meet(&self, job: &Standing, other: &Standing) -> bool {
        let own = job.partitions.iter();
        own.flat_map(|own| other.partitions.iter().map(move |its| (own, its)))
            .any(|(own, its)| self.share(own, its))
    }

    /// When each of two jobs is first tried in a partition where it meets the other one.
    fn keys(
        &self,
        job: &Standing,
        other: &Standing,
        priority: impl Fn(&Standing, &str) -> u64,
    ) -> Option<(Key, Key)> {
        let key = |it: &Standing, name: &str| {
            let tier = self.tiers.get(name).copied().unwrap_or(TIER_DEFAULT);
            (Reverse(tier), Reverse(priority(it, name)), it.id)
        };
        let own = job.partitions.iter();
        let pairs = own.flat_map(|own| other.partitions.iter().map(move |its| (own, its)));
        // A closed partition of the explained job counts: whoever asks wants to know who goes first once it opens.
        let pairs = pairs.filter(|(own, its)| self.share(own, its) && self.is_open(its));
        let keys = pairs.map(|(own, its)| (key(job, own), key(other, its)));
        keys.reduce(|first, next| (first.0.min(next.0), first.1.min(next.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::{NOW_S, SINFO_ROWS, SPRIO_ROWS, SQUEUE, queue};
    use super::super::rows::{factors, partitions};
    use super::*;

    fn of(squeue: &str, sinfo: &str) -> Queue {
        Queue {
            jobs: queue(squeue),
            nodes: partitions(sinfo),
            factors: factors(SPRIO_ROWS),
            now_s: NOW_S,
        }
    }

    /// Before it by tier, by priority, and all that are in turn on its nodes.
    fn before(queue: &Queue, job: &str) -> [u64; 3] {
        let place = queue.place(queue.job(job).expect(job));
        [place.by_tier, place.by_priority, place.waiting]
    }

    #[test]
    fn the_tier_decides_then_the_priority_then_the_number() {
        let queue = of(SQUEUE, SINFO_ROWS);
        for (job, expected) in [
            // On n1 all of main, low and high wait: 2, 3, 4, 9, 10, 500 of 7, 12, 13.
            ("2", [0, 0, 506]),
            ("4", [0, 1, 506]),
            // 2 and 4 by the tier of high, then 9 and 10 by priority.
            ("3", [2, 2, 506]),
            // On n3 those of other, too.
            ("9", [2, 0, 513]),
            ("10", [2, 1, 513]),
            ("7", [2, 3, 14]),
            ("7_[1-500%10]", [2, 3, 14]),
            ("7_44", [2, 3, 14]),
            ("12", [2, 509, 513]),
            // High shares no node with other: neither 2 nor 4 is before these.
            ("11", [0, 502, 505]),
            ("14", [0, 510, 510]),
        ] {
            assert_eq!(before(&queue, job), expected, "{job}");
        }
    }

    #[test]
    fn jobs_that_cannot_start_are_counted_by_reason() {
        let queue = of(SQUEUE, SINFO_ROWS);
        let place = queue.place(queue.job("10").expect("a job"));
        let kept = place.kept.iter().map(|(reason, count)| (&**reason, *count));
        assert!(kept.eq([("BeginTime", 1), ("Dependency", 1), ("JobHeldUser", 1)]));
        for job in ["5", "6", "8", "1"] {
            let place = queue.place(queue.job(job).expect(job));
            assert!(!place.in_turn, "{job}");
            assert_eq!((place.by_tier, place.by_priority), (0, 0), "{job}");
        }
    }

    #[test]
    fn closed_partitions_start_nothing_and_a_job_of_two_is_in_turn_by_the_open_one() {
        // As all three releases printed it when these were closed.
        let sinfo = "main|1|up|n1\nhigh|10|drain|n1\nlow|1|inactive|n1\nmain|1|up|n2\n\
                     low|1|inactive|n2\nmain|1|up|n3\nother|1|down|n3";
        let squeue = SQUEUE
            .replace(
                "3|3|low|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
                "3|3|low|PENDING|PartitionInactive",
            )
            .replace("4|4|low,high|PENDING|Priority", "4|4|low,high|PENDING|PartitionInactive");
        let queue = of(&squeue, sinfo);
        assert_eq!(before(&queue, "9"), [2, 0, 505], "2 and 4, by high");
        let place = |job| queue.place(queue.job(job).expect("a job"));
        assert!(place("4").in_turn);
        assert!(!place("3").in_turn && !place("14").in_turn);
        assert_eq!(place("9").kept["PartitionInactive"], 1, "job 3");
        assert_eq!(place("4").kept["PartitionInactive"], 1);
    }

    #[test]
    fn jobs_of_different_reservations_never_meet() {
        let squeue = SQUEUE.replace(
            "9|9|main|PENDING|Resources|4242|1795901184|(null)",
            "9|9|main|PENDING|Resources|4242|1795901184|r1",
        );
        let queue = of(&squeue, SINFO_ROWS);
        assert_eq!(before(&queue, "9"), [0, 0, 0]);
        assert_eq!(before(&queue, "10"), [2, 0, 512]);
    }

    #[test]
    fn the_last_of_others_before_a_job_and_arrays_that_are_limited() {
        let squeue = "\
            1|1|main|PENDING|Resources|900|1|(null)|yvonne|users|ann\n\
            2|2_[1-8%2]|main|PENDING|Priority|800|1|(null)|yvonne|users|ann\n\
            3|3|high|PENDING|Resources|5|1|(null)|yvonne|users|cleo\n\
            4|4|main|PENDING|Priority|700|1|(null)|xavier|users|bob\n\
            5|5|main|PENDING|Priority|600|1|(null)|xavier|users|bob\n\
            6|6|other|PENDING|Priority|500|1|(null)|xavier|users|bob";
        let queue = of(squeue, SINFO_ROWS);
        let last = |job| {
            let place = queue.place(queue.job(job).expect("a job"));
            let last = place.last.map(|(last, by_tier)| (last.id, by_tier));
            (last, place.limited.len())
        };
        assert_eq!(last("5"), (Some((2, false)), 1));
        assert_eq!(last("1"), (Some((3, true)), 0));
        assert_eq!(last("3"), (None, 0));
        assert_eq!(last("6"), (Some((2, false)), 1));
        assert_eq!(before(&queue, "6"), [0, 11, 11]);
        assert_eq!(before(&queue, "5"), [1, 10, 12]);
    }
}
