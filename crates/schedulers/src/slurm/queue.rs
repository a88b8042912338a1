//! What `squeue` says, row by row.
//!
//! One call gives the whole queue: waiting, running, and what ended within `MinJobAge`, with the time
//! that each job really ran (a suspended job's clock stands still). Invariant: a row that is not as
//! expected is an error of that row alone. Deliberately not here: what is done with the rows.

use fairmesh_client::Own;
use fairmesh_model::clean;
use fairmesh_model::record::fitting;
use fairmesh_records::JobState;

use super::frame;
use crate::command::{CommandError, Commands};
use crate::job::{Job, State};

/// The columns, in the order of [`row`].
const COLUMNS: [&str; 22] = [
    "JobID",
    "JobArrayID",
    "State",
    "Reason",
    "PriorityLong",
    "NumCPUs",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "TimeUsed",
    "TimeLimit",
    "tres-alloc",
    "NumNodes",
    "Partition",
    "QOS",
    "BatchHost",
    "Account",
    "GroupName",
    "UserName",
    "Nice",
    "ResizeTime",
    "Comment",
];

/// Reads the queue; `all` with what has ended lately. Also gives the rows that made no sense.
pub(super) async fn read(
    commands: &Commands,
    all: bool,
) -> Result<(Vec<Job>, Vec<String>), CommandError> {
    let states = if all {
        "all"
    } else {
        "PENDING,RUNNING,SUSPENDED"
    };
    let (mut jobs, mut bad) = (Vec::new(), Vec::new());
    let which = ["-t", states];
    let take = |columns: &[&str]| match row(columns) {
        Some(job) => jobs.push(job),
        None => bad.push(clean(&columns.join("|"))),
    };
    frame::squeue(commands, &which, &COLUMNS, take).await?;
    Ok((jobs, bad))
}

/// The job of this number, which Slurm calls `target` (`12`, or `12_7` of an array).
pub(super) async fn one(
    commands: &Commands,
    id: u64,
    target: &str,
) -> Result<Option<Job>, CommandError> {
    let mut found = None;
    let which = ["-t", "all", "-j", target];
    let asked = frame::squeue(commands, &which, &COLUMNS, |columns| {
        let job = row(columns).filter(|job| job.id == id);
        found = found.take().or(job);
    });
    asked.await?;
    Ok(found)
}

fn row(columns: &[&str]) -> Option<Job> {
    let mut words = columns.iter().copied();
    let id = words.next()?.parse().ok()?;
    let target = words.next()?;
    let word = words.next()?;
    let state = match word {
        "PENDING" => State::Pending,
        "RUNNING" | "SUSPENDED" | "CONFIGURING" | "RESIZING" | "SIGNALING" | "STOPPED" => {
            State::Running
        }
        "COMPLETED" | "CANCELLED" | "FAILED" | "TIMEOUT" | "NODE_FAIL" | "PREEMPTED"
        | "BOOT_FAIL" | "DEADLINE" | "OUT_OF_MEMORY" => State::Ended,
        _ => State::Leaving,
    };
    let reason = words.next()?;
    let priority = words.next()?;
    let cpus = words.next()?.parse().ok()?;
    let submit = words.next()?.parse().ok()?;
    let start = words.next()?.parse().ok();
    let end = words.next()?.parse().ok();
    let used = seconds(words.next()?).unwrap_or(0);
    let limit = seconds(words.next()?);
    let (gpus, mem_mib) = resources(words.next()?);
    // What waits may have a range of nodes.
    let nodes = words.next()?.parse().unwrap_or(0);
    // Of a job that may start in several it is the first, until it starts.
    let partition = words.next()?.split(',').next().unwrap_or_default();
    let qos = words.next()?;
    let host = words.next()?;
    let account = words.next()?;
    let group = words.next()?;
    let user = words.next()?;
    let nice = words.next()?.parse().unwrap_or(0);
    // How long ago it was is more than Slurm can print there.
    let is_resized = name(words.next()?).is_some_and(|ago| seconds(&ago) != Some(0));
    let comment = words.next()?;
    let own = Own::of(nice, comment);
    Some(Job {
        id,
        target: waiting_part(target),
        label: None,
        state,
        word: JobState::parse(word),
        held: reason.starts_with("JobHeld") || (state == State::Pending && priority == "0"),
        cpus,
        gpus,
        mem_mib,
        submit,
        start,
        is_resized,
        end,
        used,
        limit,
        nodes,
        partition: name(partition),
        qos: name(qos),
        host: name(host),
        account: name(account),
        group: name(group),
        user: user.to_owned(),
        own,
        comment: match comment {
            "(null)" => String::new(),
            comment => clean(comment),
        },
    })
}

/// Without a database users may write what they like for an account: the queue names it as its records will.
fn name(text: &str) -> Option<String> {
    (!matches!(text, "" | "(null)" | "N/A" | "n/a")).then(|| fitting(text))
}

/// `12_[3-9%2]` says that two may run at once, which `scontrol` does not take.
fn waiting_part(target: &str) -> String {
    match target.split_once('%') {
        Some((tasks, _)) => format!("{tasks}]"),
        None => target.to_owned(),
    }
}

/// `1-02:03:04`, `02:03`; nothing for UNLIMITED and the like.
fn seconds(text: &str) -> Option<u64> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (days.parse::<u64>().ok()?, rest),
        None => (0, text),
    };
    let mut sum: u64 = 0;
    let mut parts = 0;
    for part in rest.split(':') {
        sum = sum.checked_mul(60)?.checked_add(part.parse().ok()?)?;
        parts += 1;
    }
    (2..=3)
        .contains(&parts)
        .then(|| sum.checked_add(days.checked_mul(86_400)?))?
}

/// GPUs and MiB of `cpu=4,mem=100000M,node=1,gres/gpu=2`.
fn resources(tres: &str) -> (u32, u64) {
    let (mut gpus, mut mem_mib) = (0, 0);
    for part in tres.split(',') {
        match part.split_once('=') {
            // `gres/gpu:a100=2` repeats what `gres/gpu` has counted.
            Some(("gres/gpu", count)) => gpus = count.parse().unwrap_or(0),
            Some(("mem", size)) => mem_mib = mebibytes(size).unwrap_or(0),
            _ => {}
        }
    }
    (gpus, mem_mib)
}

/// `1500M`, `2G`, `1.50G`; Slurm rounds to two decimals.
fn mebibytes(size: &str) -> Option<u64> {
    let at = size.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = size.split_at(at.unwrap_or(size.len()));
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let decimals: String = format!("{decimals:0<2}").chars().take(2).collect();
    let hundredths = whole.parse::<u64>().ok()? * 100 + decimals.parse::<u64>().ok()?;
    let kib = match unit.chars().next().unwrap_or('M') {
        'K' => 1,
        'M' => 1 << 10,
        'G' => 1 << 20,
        'T' => 1 << 30,
        'P' => 1 << 40,
        _ => return None,
    };
    Some(hundredths.checked_mul(kib)? / 100 / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of the columns between `|`.
    fn of(line: &str) -> Option<Job> {
        let columns: Vec<&str> = line.split('|').collect();
        row(&columns)
    }

    const ROW: &str = "17|13_1|RUNNING|None|9|2|1795238180|1795238184|1795238484|1-00:00:03|5:00|cpu=2,mem=1.50G,gres/gpu=1|2|long|normal|n7|vo1|users|ann|0|N/A|";

    /// A job's records have it so, and `vo 1` may be somebody else's.
    #[test]
    fn a_tab_in_an_account_makes_it_no_other() {
        let job = of(&ROW.replace("vo1", "vo\t1")).expect("a job");
        assert_eq!(job.origin().account.as_deref(), Some("vo\u{fffd}091"));
        let long = "a".repeat(512);
        let job = of(&ROW.replace("vo1", &long)).expect("a job");
        assert_eq!(job.origin().account, Some(long));
    }

    #[test]
    fn a_job_of_several_partitions_stands_where_the_first_is_charged() {
        let job = of(&ROW.replace("|long|", "|long,short|")).expect("a job");
        assert_eq!(job.partition.as_deref(), Some("long"));
    }

    #[test]
    fn a_row_is_a_job() {
        let job = of(ROW).expect("a job");
        assert_eq!((job.id, job.target.as_str()), (17, "13_1"));
        assert_eq!(job.state, State::Running);
        assert_eq!(
            (job.start, job.end),
            (Some(1_795_238_184), Some(1_795_238_484))
        );
        assert_eq!(job.word, Some(JobState::Running));
        assert_eq!((job.used, job.limit), (86_403, Some(300)));
        assert_eq!((job.cpus, job.gpus, job.mem_mib), (2, 1, 1_536));
        assert_eq!(
            (job.account.as_deref(), job.user.as_str()),
            (Some("vo1"), "ann")
        );
        assert_eq!(
            (job.nodes, job.partition.as_deref(), job.host.as_deref()),
            (2, Some("long"), Some("n7"))
        );
    }

    #[test]
    fn held_jobs_and_arrays_are_seen() {
        let held = "5|5|PENDING|JobHeldUser|0|8|1795238180|N/A|N/A|0:00|UNLIMITED|N/A|1-1|long|normal|n/a|(null)|users|bob|30|N/A|fairmesh:importance=150";
        let job = of(held).expect("a job");
        assert!(job.held && job.start.is_none() && job.limit.is_none() && job.account.is_none());
        assert_eq!((job.own.importance.get(), job.own.nice), (150, 30));
        let array = "13|13_[3-9%2]|PENDING|JobArrayTaskLimit|1|2|1795238180|N/A|N/A|0:00|5:00|N/A|1|long|normal|n/a|vo1|users|bob|0|N/A|(null)";
        let job = of(array).expect("a job");
        assert!(!job.held);
        assert_eq!(job.target, "13_[3-9]");
        // A suspended job has priority 0 and is not held.
        let suspended = "11|11|SUSPENDED|None|0|2|1795238053|1795238054|N/A|0:02|UNLIMITED|cpu=2|1|long|normal|n1|vo2|users|bob|0|N/A|(null)";
        let job = of(suspended).expect("a job");
        assert!(!job.held && job.state == State::Running && job.used == 2 && !job.is_resized);
        let resized = suspended.replace("|N/A|(null)", "|INVALID|(null)");
        assert!(of(&resized).expect("a job").is_resized);
    }

    #[test]
    fn rows_of_another_shape_are_refused() {
        for line in [
            "",
            "x",
            "1|1|PENDING",
            "x|1|PENDING|None|0|1|5|N/A|N/A|0:00|5:00||1|p|q|n|a|g|b|0|N/A|",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn lengths_of_time_are_slurms() {
        for (text, expected) in [
            ("0:00", Some(0)),
            ("5:00", Some(300)),
            ("1:00:00", Some(3_600)),
            ("2-01:00:01", Some(176_401)),
            ("UNLIMITED", None),
            ("N/A", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
