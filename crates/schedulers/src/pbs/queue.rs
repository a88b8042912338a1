//! What `qstat -f -F dsv` says of jobs: a line for each, and within it attributes as `name=value`.
//!
//! `-F json` is no way: it prints some values that users write without quotation marks, which are no JSON then, or
//! another value (`Job_Name` up to 20.0; `Variable_List`). With `-F dsv` line ends within values are printed as `\n`,
//! and attributes are separated by a mark that is drawn for each call.
//!
//! Invariant: an attribute is read by its place in a line, so nothing that users write is taken for one.

use std::collections::BTreeMap;

use fairmesh_client::Own;
use fairmesh_model::record::fitting;
use fairmesh_model::{Importance, JobKey, clean};
use fairmesh_records::{BatchRecord, Format, JobState, WallRule, pbs};
use jiff::civil::DateTime;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;

use super::PbsSettings;
use crate::command::{CommandError, Commands};
use crate::job::{Job, State};
use crate::mark::Mark;
use crate::now;

/// Bits of an id that are a task's index within its array, plus one.
const INDEX_BITS: u32 = 24;

/// A job, and its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) job: Job,
    pub(super) number: i64,
}

/// Reads the jobs of everybody that wait; with `all`, all that the server has, and the tasks of arrays. Also gives what
/// made no sense.
pub(super) async fn read(
    commands: &Commands,
    settings: &PbsSettings,
    all: bool,
) -> Result<(Vec<Row>, Vec<String>), CommandError> {
    let mark = Mark::draw()?;
    let mut arguments = vec!["-f", "-F", "dsv", "-D", mark.text()];
    if all {
        arguments.push("-t");
    }
    let text = commands.ask("qstat", &arguments).await?;
    let (mut rows, mut bad): (Vec<Row>, Vec<String>) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match row(&mark.columns(line), settings) {
            Some(row) => rows.push(row),
            None => bad.push(clean(&line.replace(mark.text(), "|"))),
        }
    }
    // The tasks of an array are listed by themselves then, and it must not wait beside them.
    let is_whole = |row: &Row| row.job.target.contains("[]");
    rows.retain(|row| match all {
        true => !is_whole(row),
        false => row.job.state == State::Pending,
    });
    Ok((rows, bad))
}

fn row(columns: &[&str], settings: &PbsSettings) -> Option<Row> {
    let (first, attributes) = columns.split_first()?;
    let label = first.strip_prefix("Job Id: ")?.trim();
    let attributes = attributes.iter().filter_map(|it| it.split_once('='));
    let attributes: BTreeMap<&str, &str> = attributes.collect();
    let get = |name: &str| attributes.get(name).copied().filter(|it| !it.is_empty());
    let name = |name: &str| get(name).map(fitting);
    let state = state(get("job_state")?, get("array_indices_remaining"));
    let start = get("stime").and_then(moment);
    let number = get(&format!("Resource_List.{}", settings.resource));
    let priority: i64 = get("Priority").and_then(|it| it.parse().ok()).unwrap_or(0);
    let held = held(&attributes)?;
    let project = name("project").filter(|project| project != pbs::NO_PROJECT);
    // Only managers are shown who it runs as.
    let owner = get("Job_Owner").and_then(|owner| owner.split('@').next());
    let hosts = get("exec_host").and_then(|hosts| hosts.split(['/', '+']).next());
    let job = Job {
        id: id(label)?,
        target: clean(label),
        label: Some(clean(label)),
        state,
        held: get("job_state") == Some("H"),
        cpus: held.cpus.unwrap_or(1),
        gpus: held.gpus.unwrap_or(0),
        mem_mib: held.memory_mib.unwrap_or(0),
        nodes: held.nodes.unwrap_or(0),
        // The accounting log tells runs apart by when they started.
        submit: start.unwrap_or(0),
        start: start.filter(|_| state == State::Running),
        used: start.map_or(0, |start| used(start, &get, settings)),
        limit: get("Resource_List.walltime").and_then(seconds),
        partition: name("queue"),
        host: hosts.map(fitting),
        account: name("Account_Name").or(project),
        group: name("egroup"),
        user: fitting(get("euser").or(owner)?),
        own: Own {
            importance: Importance::of_nice(-priority),
            nice: 0,
        },
        ..Job::default()
    };
    Some(Row {
        job,
        number: number.and_then(|it| it.parse().ok()).unwrap_or(0),
    })
}

/// An array that has begun waits as long as some of its tasks do.
fn state(letter: &str, remaining: Option<&str>) -> State {
    match letter {
        "Q" | "W" | "H" => State::Pending,
        "B" if remaining.is_some() => State::Pending,
        "R" | "S" | "U" => State::Running,
        "F" | "M" | "X" => State::Ended,
        _ => State::Leaving,
    }
}

/// What it holds, or asks for, as its record will say it.
fn held(attributes: &BTreeMap<&str, &str>) -> Option<BatchRecord> {
    let key = JobKey {
        cluster: String::new(),
        job: String::new(),
        instance: 0,
    };
    let mut record = BatchRecord::new(Format::Pbs, key, JobState::Running);
    let pairs = attributes.iter().map(|(name, value)| (*name, *value));
    pbs::held(pairs, &mut record).ok()?;
    Some(record)
}

/// How long it has run, by the rule by which its record will be charged.
fn used<'a>(start: u64, get: &impl Fn(&str) -> Option<&'a str>, settings: &PbsSettings) -> u64 {
    let stands = get("job_state") != Some("R");
    if stands || settings.common.charge_rule.wall == WallRule::Stated {
        return get("resources_used.walltime")
            .and_then(seconds)
            .unwrap_or(0);
    }
    (now().0 / 1_000).saturating_sub(start)
}

/// A number for `123.server`, `123[].server` and `123[4].server`.
fn id(label: &str) -> Option<u64> {
    let (label, _) = label.split_once('.')?;
    let (number, index) = match label.split_once('[') {
        Some((number, "]")) => (number, 0),
        Some((number, index)) => {
            let index: u64 = index.strip_suffix(']')?.parse().ok()?;
            (number, index.checked_add(1)?)
        }
        None => (label, 0),
    };
    let number: u64 = number.parse().ok()?;
    let fits = index >> INDEX_BITS == 0 && number >> (u64::BITS - INDEX_BITS) == 0;
    fits.then_some(number << INDEX_BITS | index)
}

/// Seconds since 1970 of `Wed Nov 25 14:12:56 2026`: commands run in UTC.
fn moment(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split_whitespace().skip(1).collect();
    let parts = BrokenDownTime::parse("%b %d %H:%M:%S %Y", words.join(" ")).ok()?;
    let time: DateTime = parts.to_datetime().ok()?;
    let seconds = time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
    u64::try_from(seconds).ok()
}

fn seconds(text: &str) -> Option<u64> {
    text.split(':').try_fold(0_u64, |sum, part| {
        sum.checked_mul(60)?.checked_add(part.parse().ok()?)
    })
}
