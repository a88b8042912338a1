//! What `bjobs` says of jobs that wait.
//!
//! What a user writes is not asked for where a job is listed, so a line end in it makes no job. His project is asked for
//! in a second list. A job that stands there twice with different ones has a line of somebody's, and is left alone.
//!
//! Invariant: each job is one that LSF has, with the user that it has. Deliberately not here: elements of arrays by
//! themselves: `bmod -aps` takes a job as a whole.

use std::collections::BTreeMap;

use fairmesh_model::clean;
use fairmesh_model::record::fitting;

use crate::command::Commands;
use crate::job::{Job, State};

/// What separates columns: LSF takes one character.
const MARK: char = '^';

/// Reads the waiting jobs of everybody. Also gives what made no sense.
pub(super) async fn read(commands: &Commands) -> anyhow::Result<(Vec<Job>, Vec<String>)> {
    let text = list(commands, "jobid stat user queue nreq_slot").await?;
    let (mut jobs, mut bad): (Vec<Job>, Vec<String>) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match job(line) {
            Some(job) if job.state == State::Pending => jobs.push(job),
            Some(_) => {}
            None => bad.push(clean(line)),
        }
    }
    // An array waits as long as one of its elements does.
    jobs.sort_by_key(|job| (job.id, job.held));
    jobs.dedup_by_key(|job| job.id);
    let text = list(commands, "jobid proj_name").await?;
    let rows = text.lines().filter_map(|line| line.split_once(MARK));
    let rows = rows.filter_map(|(id, project)| Some((id.trim().parse().ok()?, project.trim())));
    let projects = agreed(rows);
    jobs.retain_mut(|job| match projects.get(&job.id) {
        Some(Some(project)) => {
            job.account = Some(fitting(*project)).filter(|project| !project.is_empty());
            true
        }
        Some(None) => {
            let id = job.id;
            bad.push(format!(
                "job {id} has more than one project: a line end stands in one"
            ));
            false
        }
        // It has started meanwhile.
        None => false,
    });
    Ok((jobs, bad))
}

/// The system values; 0 for jobs that have none.
pub(super) async fn numbers(commands: &Commands) -> anyhow::Result<BTreeMap<u64, i64>> {
    let text = ask(commands, &["-u", "all", "-aps"]).await?;
    let rows = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let id: u64 = words.next()?.parse().ok()?;
        let value = words.next_back()?.strip_prefix('(').unwrap_or("0");
        Some((id, value.split(['.', ')']).next()?.parse().ok()?))
    });
    let agreed = agreed(rows).into_iter();
    Ok(agreed
        .filter_map(|(id, number)| Some((id, number?)))
        .collect())
}

async fn list(commands: &Commands, fields: &str) -> anyhow::Result<String> {
    let format = format!("{fields} delimiter='{MARK}'");
    ask(commands, &["-u", "all", "-noheader", "-o", &format]).await
}

/// An empty queue is said in a sentence, as an error.
async fn ask(commands: &Commands, arguments: &[&str]) -> anyhow::Result<String> {
    let output = commands.try_ask("bjobs", arguments).await?;
    let is_empty = output.stderr.contains("No unfinished job found");
    let said = clean(output.stderr.trim());
    anyhow::ensure!(output.good || is_empty, "`bjobs` failed: {said}");
    Ok(output.stdout)
}

fn job(line: &str) -> Option<Job> {
    let words: Vec<&str> = line.split(MARK).map(str::trim).collect();
    let [id, state, user, queue, slots] = words[..] else {
        return None;
    };
    let (state, held) = match state {
        "PEND" => (State::Pending, false),
        "PSUSP" => (State::Pending, true),
        _ => (State::Running, false),
    };
    Some(Job {
        id: id.parse().ok()?,
        target: id.to_owned(),
        state,
        held,
        cpus: slots.parse().unwrap_or(1),
        partition: Some(fitting(queue)),
        user: Some(fitting(user)).filter(|user| !user.is_empty())?,
        ..Job::default()
    })
}

/// What all rows of a job say alike; none where they differ.
fn agreed<T: PartialEq>(rows: impl Iterator<Item = (u64, T)>) -> BTreeMap<u64, Option<T>> {
    let mut agreed: BTreeMap<u64, Option<T>> = BTreeMap::new();
    for (id, said) in rows {
        match agreed.get_mut(&id) {
            Some(known) if known.as_ref() == Some(&said) => {}
            Some(known) => *known = None,
            None => {
                agreed.insert(id, Some(said));
            }
        }
    }
    agreed
}
