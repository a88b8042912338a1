//! What `squeue`, `sinfo` and `sprio` print of the queue, row by row, for `fairmesh explain --job`.
//!
//! The three print alike from Slurm 22.05 to 26.05; the tests hold what each of these printed.
//!
//! Invariant: a row that is not as expected is no row, and never a value. Deliberately not here: who stands before
//! whom (`place`).

use std::collections::BTreeMap;

use fairmesh_model::clean;

/// The columns of `squeue`, in the order of [`Standing::from_row`].
pub(super) const COLUMNS: [&str; 11] = [
    "JobID",
    "JobArrayID",
    "Partition",
    "State",
    "Reason",
    "PriorityLong",
    "EligibleTime",
    "Reservation",
    "Account",
    "GroupName",
    "UserName",
];

/// What `sinfo` prints of each partition on each node: partition, tier, state, node.
pub(super) const SINFO: [&str; 5] = ["-h", "-a", "-N", "-o", "%R|%p|%a|%N"];

/// What `sprio` prints of each job in each partition: job, partition, site factor, priority, normalised priority.
pub(super) const SPRIO: [&str; 3] = ["-h", "-o", "%i|%r|%S|%Y|%y"];

/// The reason of a job that Slurm has not tried since it was submitted or changed.
const UNTRIED: &str = "None";

/// Why a pending job has not started, where it only waits for nodes that others have or get first.
const IN_TURN: [&str; 5] = [
    UNTRIED,
    "Priority",
    "Resources",
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
    "ReqNodeNotAvail, May be reserved for other job",
];

/// Reasons that are of one partition: a job in several may start in another one.
const OF_A_PARTITION: [&str; 2] = ["PartitionDown", "PartitionInactive"];

/// Somebody's job, as far as it stands in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Slurm's number; `12_[3-9]` for tasks that wait.
    pub job: String,
    /// The local user name.
    pub user: String,
    /// The account; none where none was given.
    pub account: Option<String>,
    /// The user's group, as Slurm lists it.
    pub group: Option<String>,
    pub(super) id: u64,
    pub(super) partitions: Vec<String>,
    pub(super) state: String,
    pub(super) reason: String,
    pub(super) priority: u64,
    /// From when on it may start, in seconds since 1970; none while it waits for another job.
    pub(super) eligible_s: Option<u64>,
    pub(super) reservation: Option<String>,
}

impl Standing {
    /// A row of [`COLUMNS`].
    pub(super) fn from_row(columns: &[&str]) -> Option<Self> {
        let mut words = columns.iter().copied();
        let name = |word: &str| (!matches!(word, "" | "(null)" | "N/A")).then(|| word.to_owned());
        Some(Self {
            id: words.next()?.parse().ok()?,
            job: words.next()?.to_owned(),
            partitions: words.next()?.split(',').map(str::to_owned).collect(),
            state: words.next()?.to_owned(),
            reason: words.next()?.to_owned(),
            priority: words.next()?.parse().ok()?,
            eligible_s: words.next()?.parse().ok(),
            reservation: name(words.next()?),
            account: name(words.next()?),
            group: name(words.next()?),
            user: words.next()?.to_owned(),
        })
    }

    pub(super) fn is_called(&self, wanted: &str) -> bool {
        self.job == wanted || wanted.parse() == Ok(self.id)
    }

    /// Whether a task such as `12_5` may be one of those that wait together as `12_[3-9]`.
    pub(super) fn may_hold(&self, wanted: &str) -> bool {
        let array = |name: &str| name.split_once('_').map(|(array, _)| array.to_owned());
        self.is_pending()
            && self.job.contains('[')
            && array(wanted).is_some()
            && array(wanted) == array(&self.job)
    }

    pub(super) fn is_pending(&self) -> bool {
        self.state == "PENDING"
    }

    /// Whether its user or an administrator holds it.
    pub(super) fn is_held(&self) -> bool {
        self.is_pending() && (self.priority == 0 || self.reason.starts_with("JobHeld"))
    }

    /// Whether Slurm has not said yet from when on it may start, nor what it waits for.
    pub(super) fn is_untried(&self) -> bool {
        self.is_pending() && self.reason == UNTRIED && self.eligible_s.is_none()
    }

    /// Whether it waits for nodes and for nothing else, in a partition that may be closed.
    pub(super) fn is_in_turn(&self, now_s: u64) -> bool {
        let reason = self.reason.replace('_', " ");
        let is_turn = IN_TURN.contains(&&*reason) || OF_A_PARTITION.contains(&&*reason);
        let is_eligible = self.eligible_s.is_some_and(|at| at <= now_s);
        self.is_pending() && !self.is_held() && is_turn && is_eligible
    }

    /// How many jobs it is: each task of an array that waits is one.
    pub(super) fn tasks(&self) -> u64 {
        let list = self.job.split_once('[').map_or("", |(_, list)| list);
        let list = list.split(['%', ']']).next().unwrap_or_default();
        let range = |range: &str| {
            let (ends, step) = range.split_once(':').unwrap_or((range, "1"));
            let (first, last) = ends.split_once('-')?;
            let span = last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)?;
            Some(span.checked_div(step.parse().ok()?)?.saturating_add(1))
        };
        let counts = list.split(',').map(|part| range(part).unwrap_or(1));
        counts.fold(0, u64::saturating_add)
    }

    /// How many tasks of its array may run at once; none where that is not limited.
    pub(super) fn tasks_at_once(&self) -> Option<u64> {
        let (_, most) = self.job.split_once('%')?;
        most.trim_end_matches(']').parse().ok()
    }

    pub(super) fn named(&self) -> String {
        let account = self.account.as_deref();
        let account = account.map_or_else(String::new, |it| format!(" (account {})", clean(it)));
        format!("job {} of {}{account}", clean(&self.job), clean(&self.user))
    }
}

/// A partition on a node, of a row of [`SINFO`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartitionOnNode {
    pub(super) partition: String,
    pub(super) tier: u32,
    /// Whether jobs that wait in it may start.
    pub(super) starts_jobs: bool,
    pub(super) node: String,
}

/// The rows of [`SINFO`].
pub(super) fn partitions(text: &str) -> Vec<PartitionOnNode> {
    let row = |line: &str| {
        let mut words = line.split('|').map(str::trim);
        Some(PartitionOnNode {
            partition: words.next()?.to_owned(),
            tier: words.next()?.parse().ok()?,
            starts_jobs: matches!(words.next()?, "up" | "drain"),
            node: words.next()?.to_owned(),
        })
    };
    text.lines().filter_map(row).collect()
}

/// A job's priority in a partition, of a row of [`SPRIO`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Factors {
    pub(super) site: i64,
    pub(super) priority: u64,
    /// Whether an administrator has set the priority by hand. Slurm then prints the priority itself in the place of the
    /// normalised one, which is less than 1.
    pub(super) is_fixed: bool,
}

/// The rows of [`SPRIO`], by job and partition.
pub(super) fn factors(text: &str) -> BTreeMap<(u64, String), Factors> {
    let row = |line: &str| {
        let mut words = line.split('|').map(str::trim);
        let job = words.next()?.parse().ok()?;
        let partition = words.next()?.to_owned();
        let site = words.next()?.parse().ok()?;
        let priority = words.next()?;
        let (whole, _) = words.next()?.split_once('.')?;
        let of_job = Factors {
            site,
            is_fixed: whole == priority && priority != "0",
            priority: priority.parse().ok()?,
        };
        Some(((job, partition), of_job))
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What `squeue` of 24.11.5 printed; of 22.05.8 and 26.05.5 the same, but for the reason of job 14.
    pub(in super::super) const SQUEUE: &str = "\
2|2|high|PENDING|Resources|1|1795901184|(null)|(null)|root|root
3|3|low|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions|1|1795901184|(null)|(null)|root|root
4|4|low,high|PENDING|Priority|1|1795901184|(null)|(null)|root|root
9|9|main|PENDING|Resources|4242|1795901184|(null)|(null)|root|root
10|10|main|PENDING|Priority|777|1795901184|(null)|(null)|root|root
7|7_[1-500%10]|main|PENDING|Priority|1|1795901185|(null)|(null)|root|root
12|12+0|main|PENDING|Resources|1|1795901184|(null)|(null)|root|root
13|12+1|main|PENDING|Resources|1|1795901184|(null)|(null)|root|root
6|6|main|PENDING|Dependency|1|N/A|(null)|(null)|root|root
8|8|main|PENDING|JobHeldUser|0|N/A|(null)|(null)|root|root
1|1|main|RUNNING|None|1|1795901182|(null)|(null)|root|root
11|11_[0,5,10,15,20,33]|other|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions|1|1795901185|(null)|(null)|root|root
14|14_[3]|other|PENDING|Resources|1|1795901185|(null)|(null)|root|root
5|5|other|PENDING|BeginTime|1|1795937184|(null)|(null)|root|root";

    /// Some seconds after that.
    pub(in super::super) const NOW_S: u64 = 1_795_901_190;

    /// Of 22.05.8, 24.11.5 and 26.05.5.
    pub(in super::super) const SPRIO_ROWS: &str = "\
2|high|0|1|0.00000000023283
3|low|0|1|0.00000000023283
4|high|0|1|0.00000000023283
4|low|0|1|0.00000000023283
7|main|0|1|0.00000000023283
9|main|0|4242|4242.00000000000000
10|main|777|777|0.00000018090941
11|other|0|1|0.00000000023283
12|main|0|1|0.00000000023283
13|main|0|1|0.00000000023283
14|other|0|1|0.00000000023283";

    /// Of all three, while all partitions were up.
    pub(in super::super) const SINFO_ROWS: &str = "\
main|1|up|n1
high|10|up|n1
low|1|up|n1
main|1|up|n2
low|1|up|n2
main|1|up|n3
other|1|up|n3";

    pub(in super::super) fn queue(text: &str) -> Vec<Standing> {
        let row = |line: &str| Standing::from_row(&line.trim().split('|').collect::<Vec<_>>());
        text.lines().map(|line| row(line).expect(line)).collect()
    }

    #[test]
    fn only_jobs_that_wait_for_nodes_alone_are_in_turn() {
        let jobs = queue(SQUEUE);
        let in_turn = jobs.iter().filter(|job| job.is_in_turn(NOW_S));
        let in_turn: Vec<u64> = in_turn.map(|job| job.id).collect();
        assert_eq!(in_turn, [2, 3, 4, 9, 10, 7, 12, 13, 11, 14]);
        assert!(jobs.iter().any(|job| job.id == 8 && job.is_held()));
        let limited = |reason: &str| {
            let mut job = jobs[0].clone();
            reason.clone_into(&mut job.reason);
            job.is_in_turn(NOW_S)
        };
        for reason in [
            "JobArrayTaskLimit",
            "QOSMaxJobsPerUserLimit",
            "AssocGrpCpuLimit",
            "Licenses",
            "Reservation",
            "ReqNodeNotAvail, UnavailableNodes:n1",
            "ReqNodeNotAvail, Reserved for maintenance",
            "a reason of a later release",
        ] {
            assert!(!limited(reason), "{reason}");
        }
        assert!(limited("ReqNodeNotAvail,_May_be_reserved_for_other_job"));
        assert!(limited("PartitionInactive"), "where the partition is open");
    }

    #[test]
    fn tasks_of_arrays_are_counted() {
        for (job, tasks, at_once) in [
            ("12", 1, None),
            ("12_3", 1, None),
            ("12_[3]", 1, None),
            ("12_[1-500%10]", 500, Some(10)),
            ("12_[0,5,10,15,20,33]", 6, None),
            ("12_[0-20:5,33]", 6, None),
            ("12_[1-3,7,9-10%1]", 6, Some(1)),
            ("12+0", 1, None),
            ("12_[5-3]", 1, None),
            ("12_[0-20:0]", 1, None),
        ] {
            let mut standing = queue(SQUEUE).remove(0);
            job.clone_into(&mut standing.job);
            assert_eq!(
                (standing.tasks(), standing.tasks_at_once()),
                (tasks, at_once),
                "{job}"
            );
        }
    }

    #[test]
    fn rows_of_sprio_are_numbers_or_no_rows() {
        let rows = factors(SPRIO_ROWS);
        assert_eq!(rows.len(), 11);
        let of = |job, partition: &str| rows[&(job, partition.to_owned())].clone();
        assert_eq!(of(10, "main").site, 777);
        assert!(of(9, "main").is_fixed && of(9, "main").priority == 4_242);
        assert_eq!(rows.values().filter(|row| row.is_fixed).count(), 1);
        // 22.05 prints this on its standard output, and ends well.
        let none = "Unable to find jobs matching user/id(s) specified\n";
        assert!(factors(none).is_empty());
    }

    #[test]
    fn rows_of_sinfo_are_partitions_on_nodes() {
        assert_eq!(partitions(SINFO_ROWS).len(), 7);
        let closed =
            "main|1|up|n1\nhigh|10|drain|n1\nlow|1|inactive|n1\nother|1|down|n3\nsinfo: error\n";
        let rows = partitions(closed);
        let open = rows.iter().map(|row| (row.tier, row.starts_jobs));
        let expected = [(1, true), (10, true), (1, false), (1, false)];
        assert!(open.eq(expected), "{rows:?}");
    }
}
