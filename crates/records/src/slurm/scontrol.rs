//! `scontrol show jobs`: blocks of indented lines, or with `-o` a job a line.
//!
//! Invariant: a job's name, account, directory or comment can say what it likes on its own line. In
//! a block only the line that begins with a key is asked for it. In `-o` form the text between
//! ` UserId=` and ` Command=` is asked, and a record in which either stands twice is refused; so is
//! one in which a key that counts stands twice, or that is cut short.
//!
//! Slurm also prints the line ends in names and comments as they are. A record reaches up to the next
//! line that begins with `JobId=`, so that pieces of a job are refused; but a whole job that somebody
//! made up in a name looks like any other. [`super::SQUEUE_FORMAT`] has no such field.
//!
//! Times are local and bear no zone. Of a job that waits, start and end are forecasts, and left out;
//! so is the start of one that was cancelled in the queue or is being requeued.

use std::collections::BTreeMap;

use fairmesh_model::{Importance, JobKey, Millis};

use super::tres::{self, Tres};
use crate::blocks::{BlockFormat, Place};
use crate::error::Reason;
use crate::fields::{self, given};
use crate::format::Format;
use crate::parser::Options;
use crate::record::BatchRecord;
use crate::state::JobState;
use crate::value;

/// What every record begins with.
const HEAD: &str = "JobId=";

/// What every line but the first of a block begins with; details lie deeper.
const INDENT: &str = "   ";

/// What is printed in place of an empty list.
pub(crate) const NO_JOBS: &str = "No jobs in the system";

/// The key of the first of the lines that users fill as they like.
const COMMAND: &str = "Command";

/// The lines of a block that count, each by its keys. Text before the next of them belongs to the
/// last; the others are here to end it.
const LINES: [&[&str]; 15] = [
    &["UserId", "GroupId", "MCS_label"],
    &["Priority", "Nice", "Account", "QOS", "WCKey"],
    &["JobState", "Reason", "FailedNode", "Dependency"],
    &["Requeue", "Restarts", "BatchFlag", "Reboot", "ExitCode"],
    &["RunTime", "TimeLimit", "TimeMin"],
    &["SubmitTime", "EligibleTime"],
    &["StartTime", "EndTime", "Deadline"],
    &["Partition", "AllocNode:Sid"],
    &["NodeList"],
    &["BatchHost"],
    &["NumNodes", "NumCPUs", "NumTasks"],
    &["TRES"],
    &["ReqTRES"],
    &["AllocTRES"],
    &["MinCPUsNode", "MinMemoryNode", "MinMemoryCPU"],
];

/// Keys behind the command that count: of a job's own GPUs where Slurm does not track them.
const BEHIND: [&str; 2] = ["TresPerJob", "TresPerNode"];

/// Keys whose values may hold blanks.
const TEXTS: [&str; 5] = ["JobName", "UserId", "GroupId", "Account", "QOS"];

/// The values of a record by their keys.
#[derive(Debug, Default)]
struct Pairs<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Pairs<'a> {
    fn add(&mut self, key: &'a str, value: &'a str) -> Result<(), Reason> {
        match self.0.insert(key, value) {
            Some(_) => Err(twice(key)),
            None => Ok(()),
        }
    }

    /// Adds the pairs of a text whose words may begin with one of these keys.
    fn add_all(&mut self, text: &'a str, keys: &[&str]) -> Result<(), Reason> {
        let mut open: Option<(&str, usize)> = None;
        let mut at = 0;
        for word in text.split(' ') {
            if let Some((key, _)) = word.split_once('=')
                && keys.contains(&key)
            {
                if let Some((key, from)) = open {
                    self.add(key, &text[from..at])?;
                }
                open = Some((key, at + key.len() + 1));
            }
            at += word.len() + 1;
        }
        match open {
            Some((key, from)) => self.add(key, &text[from..]),
            None => Ok(()),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// A value, of which only what belongs to it: blanks end all but [`TEXTS`].
    fn get(&self, key: &str) -> &'a str {
        let value = self.0.get(key).copied().unwrap_or_default().trim();
        let is_text = TEXTS.contains(&key);
        let end = value.find(char::is_whitespace).filter(|_| !is_text);
        &value[..end.unwrap_or(value.len())]
    }

    fn given(&self, key: &str) -> Option<&'a str> {
        given(self.get(key))
    }

    fn must(&self, key: &str) -> Result<&'a str, Reason> {
        self.given(key).ok_or_else(|| Reason::missing(key))
    }
}

/// The lines of a job.
pub(crate) struct ScontrolJob(pub(crate) Options);

impl BlockFormat for ScontrolJob {
    fn place(&self, line: &str) -> Place {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed == NO_JOBS {
            Place::Outside
        } else if line.starts_with(HEAD) {
            Place::Begins
        } else {
            Place::Inside
        }
    }

    fn record(&self, text: &str) -> Result<BatchRecord, Reason> {
        record(text, &self.0)
    }
}

/// Whether a list in this form begins here: a job's first line, and what tells one form or the other
/// anywhere behind it, for the first job's name may hold line ends.
pub(crate) fn begins_list(text: &str) -> bool {
    let is_head = |line: &str| head(line).is_ok();
    let whole = |line: &str| line.contains(" UserId=") && line.contains(" JobState=");
    text.lines().next().is_some_and(is_head)
        && text
            .lines()
            .any(|line| is_second(line) || (is_head(line) && whole(line)))
}

/// What follows the first line of a block.
fn is_second(line: &str) -> bool {
    let keys = ["UserId=", "HetJobIdSet=", "PackJobIdSet="];
    let inner = line.strip_prefix(INDENT);
    inner.is_some_and(|inner| keys.iter().any(|key| inner.starts_with(key)))
}

fn record(text: &str, options: &Options) -> Result<BatchRecord, Reason> {
    let pairs = match text.lines().nth(1) {
        Some(second) if is_second(second) => block(text)?,
        _ => one_line(text)?,
    };
    let job = pairs.must("JobId")?;
    if !job.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Reason::field("JobId", job, "a number"));
    }
    if !pairs.has(COMMAND) {
        return Err(Reason::missing(COMMAND));
    }
    let key = JobKey {
        cluster: options.cluster.clone(),
        job: job.to_owned(),
        instance: 0,
    };
    let state = fields::state(pairs.must("JobState")?)?;
    let mut record = BatchRecord::new(Format::SlurmScontrol, key, state);
    let hosts = pairs.given("NodeList").or(pairs.given("BatchHost"));
    record.hosts = hosts.map(str::to_owned);
    times(&mut record, options, &pairs)?;
    fields::set_instance(&mut record, "SubmitTime")?;
    fields::set_label(&mut record, label(job, &pairs));
    let (user, uid) = name_and_number("UserId", pairs.must("UserId")?)?;
    (record.origin.user, record.uid) = (user, record.if_read(uid));
    let (group, gid) = name_and_number("GroupId", pairs.must("GroupId")?)?;
    (record.origin.group, record.gid) = (group, record.if_read(gid));
    record.origin.account = fields::name(pairs.get("Account"));
    record.name = fields::name(pairs.get("JobName"));
    record.queue = fields::name(pairs.get("Partition"));
    record.qos = pairs.given("QOS").map(str::to_owned);
    record.priority = record.if_read(fields::number("Priority", pairs.get("Priority")));
    record.importance = record.if_read(importance(pairs.get("Nice")));
    record.exit = record.if_read(fields::exit("ExitCode", pairs.get("ExitCode")));
    pairs.must("NumCPUs")?;
    resources(&mut record, &pairs)?;
    record.checked()
}

/// By the nice alone: the comment is free text, of which nothing is taken here.
fn importance(nice: &str) -> Result<Option<Importance>, Reason> {
    let Some(text) = given(nice).filter(|text| *text != "0") else {
        return Ok(None);
    };
    let nice = text.parse();
    let nice = nice.map_err(|_| Reason::field("Nice", text, "a whole number"))?;
    Ok(Some(Importance::of_nice(nice)))
}

fn times(record: &mut BatchRecord, options: &Options, pairs: &Pairs<'_>) -> Result<(), Reason> {
    let time = |field, not_before| fields::time(&options.zone, field, pairs.get(field), not_before);
    record.wall = fields::length("RunTime", pairs.get("RunTime"))?;
    record.requested_wall = record.if_read(fields::length("TimeLimit", pairs.get("TimeLimit")));
    record.submit = time("SubmitTime", None)?;
    record.eligible = record.if_read(time("EligibleTime", record.submit));
    let start = time("StartTime", record.submit)?;
    let ran = record.wall.unwrap_or(Millis(0));
    let end = time("EndTime", start.map(|start| start.after(ran)))?;
    let at_once = record.wall == Some(Millis(0));
    // What was cancelled in the queue has a start, too, and no nodes; that of a run which is being
    // requeued is the present.
    let never_ran = at_once && record.state.has_ended() && record.hosts.is_none();
    let is_requeued = at_once && record.state == JobState::Completing && end.is_none();
    if record.state != JobState::Pending {
        record.start = start.filter(|_| !never_ran && !is_requeued);
        record.end = end;
    }
    Ok(())
}

fn resources(record: &mut BatchRecord, pairs: &Pairs<'_>) -> Result<(), Reason> {
    // What waits may have a range, `4-8`: the least of it.
    let least = |field: &str| {
        let text = pairs.get(field);
        fields::count(field, text.split('-').next().unwrap_or(text))
    };
    record.cpus = least("NumCPUs")?;
    record.nodes = record.if_read(least("NumNodes"));
    let list = |field| pairs.given(field).unwrap_or_default();
    let held = Tres::parse("AllocTRES", list("AllocTRES"), record)?;
    // Up to Slurm 23.02 one list is what was asked for, and then what is held.
    let only = Tres::parse("TRES", list("TRES"), record)?;
    let is_untold = list("AllocTRES").is_empty() && list("TRES").is_empty();
    let asked = Tres::asked("ReqTRES", list("ReqTRES"), record, is_untold)?;
    let (held, asked) = match (pairs.given("TRES"), record.start) {
        (Some(_), None) => (held, only),
        (Some(_), Some(_)) => (only, asked),
        (None, _) => (held, asked),
    };
    (record.memory_mib, record.energy_j) = (held.memory_mib, held.energy_j);
    let requested = memory_mib(record, pairs);
    record.requested_memory_mib = record.if_read(requested).or(asked.memory_mib);
    let gpus = held.gpus.or_else(|| untracked_gpus(record, pairs));
    let gpus = gpus.or(asked.gpus);
    record.gpus = gpus
        .map(|count| fields::narrow("gres/gpu", count))
        .transpose()?;
    Ok(())
}

/// Clusters that do not track GPUs say only what was asked for.
fn untracked_gpus(record: &BatchRecord, pairs: &Pairs<'_>) -> Option<u64> {
    let named = |field: &str| pairs.given(field).and_then(tres::gres_gpus);
    let nodes = u64::from(record.nodes.unwrap_or(1));
    let of_nodes = || named("TresPerNode").map(|count| count.saturating_mul(nodes));
    named("TresPerJob").or_else(of_nodes)
}

/// The least memory of a node or of a CPU; 0 means that none was asked for.
fn memory_mib(record: &BatchRecord, pairs: &Pairs<'_>) -> Result<Option<u64>, Reason> {
    let of = |field: &str, times: Option<u32>| -> Result<Option<u64>, Reason> {
        let Some(text) = pairs.given(field) else {
            return Ok(None);
        };
        let bytes = value::bytes(text, 1 << 20);
        let bytes = bytes.ok_or_else(|| Reason::field(field, text, "an amount of memory"))?;
        let total = (bytes >> 20).saturating_mul(u64::from(times.unwrap_or(1)));
        Ok((total > 0).then_some(total))
    };
    let of_nodes = of("MinMemoryNode", record.nodes)?;
    Ok(of_nodes.or(of("MinMemoryCPU", record.cpus)?))
}

/// `12_7`, `12_[8-9%1]` for tasks that wait, `12+1`.
fn label(job: &str, pairs: &Pairs<'_>) -> String {
    let pair = |first: &str, second: &str| Some((pairs.given(first)?, pairs.given(second)?));
    let het = pair("HetJobId", "HetJobOffset").or(pair("PackJobId", "PackJobOffset"));
    match (pair("ArrayJobId", "ArrayTaskId"), het) {
        (Some((array, task)), _) if task.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{array}_{task}")
        }
        (Some((array, tasks)), _) => format!("{array}_[{tasks}]"),
        (None, Some((het, offset))) => format!("{het}+{offset}"),
        (None, None) => job.to_owned(),
    }
}

/// A name, and the number behind it.
type Named = (Option<String>, Result<Option<u64>, Reason>);

/// `name(number)`; the name may hold blanks.
fn name_and_number(field: &str, text: &str) -> Result<Named, Reason> {
    let parts = text
        .strip_suffix(')')
        .and_then(|inner| inner.rsplit_once('('));
    let wrong = || Reason::field(field, text, "name(number)");
    let (name, number) = parts.ok_or_else(wrong)?;
    Ok((fields::name(name), fields::number(field, number)))
}

/// The pairs before the job's name, and all behind `JobName=`.
fn head(text: &str) -> Result<(Pairs<'_>, &str), Reason> {
    let mut pairs = Pairs::default();
    let mut rest = text;
    if !text.starts_with(HEAD) {
        return Err(Reason::missing("JobId"));
    }
    loop {
        if let Some(name) = rest.strip_prefix("JobName=") {
            return Ok((pairs, name));
        }
        let (word, after) = rest
            .split_once(' ')
            .ok_or_else(|| Reason::missing("JobName"))?;
        match word.split_once('=') {
            // A line of `jobcomp/filetxt` goes on like this.
            Some(("UserId", _)) => return Err(Reason::missing("JobName")),
            Some((key, value)) => pairs.add(key, value)?,
            None => {}
        }
        rest = after;
    }
}

/// The pairs of a block.
fn block(text: &str) -> Result<Pairs<'_>, Reason> {
    let mut lines = text.lines();
    let (mut pairs, name) = head(lines.next().unwrap_or_default())?;
    pairs.0.insert("JobName", name);
    for line in lines.filter_map(|line| line.strip_prefix(INDENT)) {
        let (first, value) = line.split_once('=').unwrap_or((line, ""));
        let is_behind = pairs.has(COMMAND);
        if first == COMMAND || (is_behind && BEHIND.contains(&first)) {
            pairs.add(first, value)?;
        } else if let Some(keys) = LINES.iter().find(|keys| keys[0] == first && !is_behind) {
            pairs.add_all(line, keys)?;
        }
    }
    Ok(pairs)
}

/// The pairs of a job on one line, if it was not broken.
fn one_line(text: &str) -> Result<Pairs<'_>, Reason> {
    let (mut pairs, rest) = head(text)?;
    let (name, rest) = split_once_only(rest, "UserId")?;
    let set = name.rfind(" HetJobIdSet=").or(name.rfind(" PackJobIdSet="));
    let is_component = pairs.has("HetJobId") || pairs.has("PackJobId");
    let name_end = set.filter(|_| is_component).unwrap_or(name.len());
    pairs.0.insert("JobName", &name[..name_end]);
    let (believed, behind) = split_once_only(rest, COMMAND)?;
    let keys: Vec<&str> = LINES.concat();
    pairs.add_all(believed, &keys)?;
    pairs.0.insert(COMMAND, "");
    for word in behind.split_whitespace() {
        if let Some((key, value)) = word.split_once('=')
            && BEHIND.contains(&key)
        {
            pairs.add(key, value)?;
        }
    }
    Ok(pairs)
}

/// What lies before a key, and from it on, if it stands there once and behind a blank.
fn split_once_only<'a>(text: &'a str, key: &str) -> Result<(&'a str, &'a str), Reason> {
    let is_key = |at: &usize| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(char::is_whitespace) && text[*at + key.len()..].starts_with('=')
    };
    let mut places = text.match_indices(key).map(|(at, _)| at).filter(is_key);
    match (places.next(), places.next()) {
        (None, _) => Err(Reason::missing(key)),
        (Some(at), None) => Ok(text.split_at(at)),
        (Some(_), Some(_)) => Err(twice(key)),
    }
}

fn twice(key: &str) -> Reason {
    let key = crate::error::quoted(key);
    Reason::Shape(format!(
        "{key} stands twice: a name or a comment has one in it, and nothing tells which is Slurm's"
    ))
}

#[cfg(test)]
mod tests;
