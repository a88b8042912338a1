//! Where one job stands in Slurm's queue, and who is next before it: `fairmesh explain --job`.
//!
//! Invariant: the order is Slurm's own, by what it holds now. Deliberately not here: why its account
//! stands there, which only the node knows.

use std::io::{self, Write};

use fairmesh_model::clean;

use super::{Slurm, frame};

/// The columns, in the order of [`row`].
const COLUMNS: [&str; 9] = [
    "JobID",
    "JobArrayID",
    "Partition",
    "State",
    "Reason",
    "PriorityLong",
    "Account",
    "GroupName",
    "UserName",
];

/// Somebody's job, as far as it stands in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Slurm's number; `12_[3-9]` for tasks that wait.
    pub job: String,
    /// The user.
    pub user: String,
    /// The account; none where none was given.
    pub account: Option<String>,
    /// The user's group.
    pub group: Option<String>,
    id: u64,
    partitions: Vec<String>,
    state: String,
    reason: String,
    priority: u64,
}

/// A job, and the queue before it.
#[derive(Debug)]
pub struct InQueue {
    /// The job.
    pub job: Standing,
    /// The last of those before it that is of another user or account.
    pub before: Option<Standing>,
    site_factor: Option<String>,
    ahead: usize,
    waiting: usize,
}

/// Finds a job; none if there is no such job.
///
/// # Errors
/// If Slurm is away.
pub async fn of(slurm: &Slurm, job: &str) -> anyhow::Result<Option<InQueue>> {
    let mut jobs: Vec<Standing> = Vec::new();
    let all = ["-t", "all"];
    let asked = frame::squeue(&slurm.commands, &all, &COLUMNS, |columns| {
        jobs.extend(row(columns));
    });
    asked.await?;
    let Some(mut found) = find(&jobs, job) else {
        return Ok(None);
    };
    if found.job.is_pending() {
        let id = found.job.id.to_string();
        let asked = ["-h", "-j", &id, "-o", "%S"];
        let factor = slurm.commands.ask("sprio", &asked).await?;
        let factor = factor.lines().next().map(|word| word.trim().to_owned());
        found.site_factor = factor.filter(|word| !word.is_empty());
    }
    Ok(Some(found))
}

fn row(columns: &[&str]) -> Option<Standing> {
    let mut words = columns.iter().copied();
    let name = |word: &str| (!matches!(word, "" | "(null)" | "N/A")).then(|| word.to_owned());
    Some(Standing {
        id: words.next()?.parse().ok()?,
        job: words.next()?.to_owned(),
        partitions: words.next()?.split(',').map(str::to_owned).collect(),
        state: words.next()?.to_owned(),
        reason: words.next()?.to_owned(),
        priority: words.next()?.parse().ok()?,
        account: name(words.next()?),
        group: name(words.next()?),
        user: words.next()?.to_owned(),
    })
}

fn find(jobs: &[Standing], wanted: &str) -> Option<InQueue> {
    let exact = jobs.iter().find(|job| job.is_called(wanted));
    let job = exact.or_else(|| jobs.iter().find(|job| job.may_hold(wanted)))?;
    let rival = |other: &&Standing| {
        let shared = other
            .partitions
            .iter()
            .any(|it| job.partitions.contains(it));
        other.is_pending() && other.priority > 0 && shared
    };
    // Before a job that does not wait for its turn, nobody stands.
    let in_turn = job.is_pending() && job.priority > 0;
    let rivals = jobs.iter().filter(rival).filter(|_| in_turn);
    let ahead = |other: &&Standing| other.key() < job.key();
    let others = |other: &&Standing| (&other.user, &other.account) != (&job.user, &job.account);
    Some(InQueue {
        job: job.clone(),
        before: rivals
            .clone()
            .filter(ahead)
            .filter(others)
            .max_by_key(|other| other.key())
            .cloned(),
        site_factor: None,
        ahead: rivals.clone().filter(ahead).count(),
        waiting: rivals.count(),
    })
}

impl Standing {
    fn is_called(&self, wanted: &str) -> bool {
        self.job == wanted || wanted.parse() == Ok(self.id)
    }

    /// Whether a task such as `12_5` may be one of those that wait together as `12_[3-9]`.
    fn may_hold(&self, wanted: &str) -> bool {
        let array = |name: &str| name.split_once('_').map(|(array, _)| array.to_owned());
        self.is_pending()
            && self.job.contains('[')
            && array(wanted).is_some()
            && array(wanted) == array(&self.job)
    }

    fn is_pending(&self) -> bool {
        self.state == "PENDING"
    }

    /// Slurm's order: the highest priority first, and of equals the oldest.
    fn key(&self) -> (std::cmp::Reverse<u64>, u64) {
        (std::cmp::Reverse(self.priority), self.id)
    }

    fn named(&self) -> String {
        let account = self.account.as_deref();
        let account = account.map_or_else(String::new, |it| format!(" (account {})", clean(it)));
        format!("job {} of {}{account}", clean(&self.job), clean(&self.user))
    }
}

impl InQueue {
    /// Says it in words.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn words(&self, out: &mut dyn Write) -> io::Result<()> {
        let job = &self.job;
        let (name, reason) = (job.named(), clean(&job.reason));
        if !job.is_pending() {
            let state = clean(&job.state);
            return writeln!(
                out,
                "In Slurm, {name} is {state}: no priority matters to it now."
            );
        }
        if job.priority == 0 {
            return writeln!(
                out,
                "In Slurm, {name} is held ({reason}), whatever its account used."
            );
        }
        let partition = clean(&job.partitions.join(","));
        writeln!(
            out,
            "In Slurm, {name} waits in {partition}; the reason given is {reason}."
        )?;
        let site = self.site_factor.as_deref().unwrap_or("unknown");
        writeln!(
            out,
            "Its priority is {}; its site factor is {}.",
            job.priority,
            clean(site)
        )?;
        let (ahead, waiting) = (self.ahead, self.waiting);
        writeln!(
            out,
            "{ahead} of {waiting} jobs that wait there stand before it."
        )?;
        match &self.before {
            Some(before) => writeln!(out, "Of those of others, {} is the last.", before.named()),
            None if self.ahead > 0 => writeln!(out, "All of them are of the same account."),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: &str = "\
        11|11|main|PENDING|Resources|900|yvonne|users|ann\n\
        12|12|main|PENDING|Priority|700|xavier|users|bob\n\
        13|13_[3-9]|main,big|PENDING|Priority|700|xavier|users|bob\n\
        14|14|big|PENDING|Priority|900|yvonne|users|ann\n\
        15|15|main|PENDING|JobHeldUser|0|yvonne|users|ann\n\
        16|13_1|main|RUNNING|None|800|xavier|users|bob\n";

    fn words(job: &str) -> String {
        let columns = |line: &'static str| line.trim().split('|').collect::<Vec<_>>();
        let rows = QUEUE.lines().map(columns);
        let jobs: Vec<Standing> = rows.filter_map(|columns| row(&columns)).collect();
        assert_eq!(jobs.len(), 6);
        let mut out = Vec::new();
        let found = find(&jobs, job).expect("the job");
        found.words(&mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_queue_before_a_job_is_that_of_its_partitions() {
        assert!(words("12").contains("1 of 3 jobs that wait there stand before it."));
        assert!(words("12").contains("job 11 of ann (account yvonne) is the last."));
        for name in ["13", "13_5", "13_[3-9]"] {
            assert!(words(name).contains("3 of 4 jobs"), "{}", words(name));
            assert!(words(name).contains("job 14 of ann"), "{}", words(name));
        }
        assert!(words("11").contains("0 of 3 jobs"));
    }

    #[test]
    fn jobs_that_do_not_wait_for_their_turn_are_told_apart() {
        assert!(words("15").contains("is held (JobHeldUser)"));
        assert!(words("13_1").contains("is RUNNING"));
        assert!(!words("15").contains("before"));
    }
}
