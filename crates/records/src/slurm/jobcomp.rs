//! The file of `jobcomp/filetxt`: one line of `Key=Value` for each run of a job that ended.
//!
//! Invariant: a job's name, directory or key of charge may hold blanks and whole pairs of their own;
//! a line in which a key that counts stands twice is refused, for nothing tells the true one.
//!
//! Times are local and bear no zone. A run that was requeued is written as PENDING; the time for
//! which a job was suspended is not known here.

use std::collections::BTreeMap;

use fairmesh_model::JobKey;

use super::tres::{self, Tres};
use crate::error::Reason;
use crate::fields::{self, given};
use crate::format::Format;
use crate::parser::{Ignored, LineFormat, Options};
use crate::record::BatchRecord;

/// The keys of Slurm's lines, of any version. Text before the next of them belongs to the last.
const KEYS: [&str; 30] = [
    "JobId",
    "UserId",
    "GroupId",
    "Name",
    "JobState",
    "Partition",
    "TimeLimit",
    "StartTime",
    "EndTime",
    "NodeList",
    "NodeCnt",
    "ProcCnt",
    "Procs",
    "WorkDir",
    "ReservationName",
    "Gres",
    "Tres",
    "Account",
    "QOS",
    "WcKey",
    "Cluster",
    "SubmitTime",
    "EligibleTime",
    "ArrayJobId",
    "ArrayTaskId",
    "HetJobId",
    "HetJobOffset",
    "DerivedExitCode",
    "ExitCode",
    "SessionId",
];

/// Length of the longest of them.
const KEY_BYTES_MAX: usize = 15;

pub(crate) struct JobcompLine(pub(crate) Options);

impl LineFormat for JobcompLine {
    fn record(&self, line: &str) -> Result<Result<BatchRecord, Ignored>, Reason> {
        let pairs = pairs(line)?;
        let get = |key: &str| pairs.get(key).copied().unwrap_or_default();
        let must = |key: &str| given(get(key)).ok_or_else(|| Reason::missing(key));
        let job = must("JobId")?;
        if !job.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Reason::field("JobId", job, "a number"));
        }
        let key = JobKey {
            cluster: given(get("Cluster")).unwrap_or(&self.0.cluster).to_owned(),
            job: job.to_owned(),
            instance: 0,
        };
        let state = fields::state(must("JobState")?)?;
        let mut record = BatchRecord::new(Format::SlurmJobcomp, key, state);
        let zone = &self.0.zone;
        record.submit = fields::time(zone, "SubmitTime", get("SubmitTime"), None)?;
        let eligible = fields::time(zone, "EligibleTime", get("EligibleTime"), record.submit);
        record.eligible = record.if_read(eligible);
        record.start = fields::time(zone, "StartTime", get("StartTime"), record.submit)?;
        record.end = fields::time(zone, "EndTime", must("EndTime")?, record.start)?;
        fields::after_requeue(&mut record);
        // Old Slurms write no submit time, and these jobs are known by their start (docs/records.md, "Columns").
        if record.submit.is_some() {
            fields::set_instance(&mut record, "SubmitTime")?;
        }
        fields::set_label(&mut record, label(job, get));
        let (user, uid) = name_and_number("UserId", must("UserId")?);
        (record.origin.user, record.uid) = (user, record.if_read(uid));
        let (group, gid) = name_and_number("GroupId", get("GroupId"));
        (record.origin.group, record.gid) = (group, record.if_read(gid));
        record.origin.account = fields::name(get("Account"));
        record.name = fields::name(get("Name"));
        record.queue = fields::name(get("Partition"));
        record.qos = fields::name(get("QOS"));
        record.requested_wall = record.if_read(fields::minutes("TimeLimit", get("TimeLimit")));
        record.exit = record.if_read(fields::exit("ExitCode", get("ExitCode")));
        record.hosts = fields::name(get("NodeList"));
        resources(&mut record, get)?;
        record.checked().map(Ok)
    }
}

fn resources<'a>(record: &mut BatchRecord, get: impl Fn(&str) -> &'a str) -> Result<(), Reason> {
    let cpus = given(get("ProcCnt")).or(given(get("Procs")));
    let cpus = cpus.ok_or_else(|| Reason::missing("ProcCnt"))?;
    record.cpus = fields::count("ProcCnt", cpus)?;
    record.nodes = record.if_read(fields::count("NodeCnt", get("NodeCnt")));
    let tres = Tres::parse("Tres", given(get("Tres")).unwrap_or_default(), record)?;
    (record.memory_mib, record.energy_j) = (tres.memory_mib, tres.energy_j);
    let gpus = tres.gpus.or(given(get("Gres")).and_then(tres::gres_gpus));
    record.gpus = gpus
        .map(|count| fields::narrow("gres/gpu", count))
        .transpose()?;
    Ok(())
}

fn label<'a>(job: &str, get: impl Fn(&str) -> &'a str) -> String {
    let pair = |first: &str, second: &str| Some((given(get(first))?, given(get(second))?));
    match (
        pair("ArrayJobId", "ArrayTaskId"),
        pair("HetJobId", "HetJobOffset"),
    ) {
        (Some((array, task)), _) => format!("{array}_{task}"),
        (None, Some((het, offset))) => format!("{het}+{offset}"),
        (None, None) => job.to_owned(),
    }
}

fn name_and_number(field: &str, text: &str) -> (Option<String>, Result<Option<u64>, Reason>) {
    let parts = text
        .strip_suffix(')')
        .and_then(|inner| inner.rsplit_once('('));
    match parts {
        Some((name, number)) => (fields::name(name), fields::number(field, number)),
        None => (fields::name(text), Ok(None)),
    }
}

/// The pairs of a line, by key.
fn pairs(line: &str) -> Result<BTreeMap<&str, &str>, Reason> {
    let mut starts = Vec::new();
    for (at, _) in line.match_indices('=') {
        // No further back than a key is long: a line may hold a million of these.
        let window = &line.as_bytes()[at.saturating_sub(KEY_BYTES_MAX + 1)..at];
        let blank = window.iter().rposition(|byte| *byte == b' ');
        let key_at = match blank {
            Some(blank) => at - window.len() + blank + 1,
            None if window.len() == at => 0,
            None => continue,
        };
        if KEYS.contains(&&line[key_at..at]) {
            starts.push((key_at, at));
        }
    }
    let mut pairs = BTreeMap::new();
    for (index, (key_at, equals)) in starts.iter().enumerate() {
        let end = starts.get(index + 1).map_or(line.len(), |(next, _)| *next);
        let key = &line[*key_at..*equals];
        if pairs.insert(key, line[equals + 1..end].trim()).is_some() {
            return Err(Reason::Shape(format!(
                "{key} stands twice: the job's name or directory has one in it"
            )));
        }
    }
    Ok(pairs)
}
