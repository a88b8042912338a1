//! `sacct --json` of Slurm 21.08 and later: one document whose `jobs` are objects.
//!
//! Invariant: a job has the key and the charge that it has in a list of `sacct -P`. A number may be written as such, or
//! as an object that says whether there is one (Slurm 23.02 and later). A job's steps are passed over.
//!
//! Source: the job of the OpenAPI plug-ins `dbv0.0.36` to `38` and of the data parsers `v0.0.39` to `46` of Slurm.

use fairmesh_model::{JobKey, Millis};

use super::sacct;
use super::tres::Tres;
use crate::error::Reason;
use crate::fields::{self, given};
use crate::format::Format;
use crate::objects::{Object, ObjectFormat};
use crate::parser::{Ignored, Options};
use crate::record::{BatchRecord, Exit};
use crate::state::JobState;

/// A number that Slurm has none for, in the versions that write it as it is.
const NO_VAL: &str = "4294967294";

const READ: [&str; 19] = [
    "account",
    "allocation_nodes",
    "array",
    "association",
    "cluster",
    "exit_code",
    "group",
    "het",
    "job_id",
    "name",
    "nodes",
    "partition",
    "priority",
    "qos",
    "required",
    "state",
    "time",
    "tres",
    "user",
];

pub(crate) struct SacctJob(pub(crate) Options);

impl ObjectFormat for SacctJob {
    const AROUND: &'static [&'static str] = &["jobs"];

    fn is_read(&self, key: &str) -> bool {
        READ.binary_search(&key).is_ok()
    }

    fn record(&self, job: &Object<'_>) -> Result<Result<BatchRecord, Ignored>, Reason> {
        let id = number(job, "job_id").ok_or_else(|| Reason::missing("job_id"))?;
        let id = whole("job_id", &id)?.to_string();
        let association = job.object("association");
        let cluster = job.text("cluster").or_else(|| association.text("cluster"));
        let cluster = cluster.unwrap_or_default();
        let key = JobKey {
            cluster: given(&cluster).unwrap_or(&self.0.cluster).to_owned(),
            job: id,
            instance: 0,
        };
        let mut record = BatchRecord::new(Format::SlurmSacctJson, key, state(job)?);
        self.times(job, &mut record)?;
        fields::set_instance(&mut record, "time.submission")?;
        let label = label(job, &record.key.job);
        fields::set_label(&mut record, label);
        whose(job, &mut record);
        resources(job, &mut record)?;
        record.checked().map(Ok)
    }
}

impl SacctJob {
    fn times(&self, job: &Object<'_>, record: &mut BatchRecord) -> Result<(), Reason> {
        let times = job.object("time");
        let text = |name: &str| number(&times, name).unwrap_or_default();
        let time = |name: &str| {
            let field = format!("time.{name}");
            fields::time(&self.0.zone, &field, &text(name), None)
        };
        record.wall = fields::length("time.elapsed", &text("elapsed"))?;
        record.submit = time("submission")?;
        record.eligible = record.if_read(time("eligible"));
        record.start = time("start")?;
        record.end = time("end")?;
        let suspended = fields::length("time.suspended", &text("suspended"));
        let suspended = record.if_read(suspended).unwrap_or(Millis(0));
        // Slurm 21.08 writes the time from which on the job could have started in place of its start.
        if let (Some(end), Some(wall)) = (record.end, record.wall)
            && record.start.is_some()
            && record.start == record.eligible
        {
            let ran = Millis(wall.0.saturating_add(suspended.0));
            record.start = record.start.max(Some(end.before(ran)));
        }
        sacct::after_resize(record);
        record.requested_wall = record.if_read(fields::minutes("time.limit", &text("limit")));
        let total = times.object("total");
        let seconds = number(&total, "seconds").unwrap_or_default();
        record.cpu_time = record.if_read(fields::length("time.total.seconds", &seconds));
        Ok(())
    }
}

/// A state and what goes on with it, one of which says more: as `sacct -P` prints one word.
fn state(job: &Object<'_>) -> Result<JobState, Reason> {
    let states = job.object("state");
    let mut last = None;
    for word in states.list("current") {
        let word = word.get().trim_matches('"');
        match JobState::parse(word) {
            // What the job was before stands first.
            Some(state) => last = Some(state),
            None if last.is_some() => {}
            None => return fields::state(word),
        }
    }
    last.ok_or_else(|| Reason::missing("state.current"))
}

fn label(job: &Object<'_>, id: &str) -> String {
    let pair = |name: &str, first: &str, second: &str| {
        let object = job.object(name);
        let given = |key: &str| number(&object, key).filter(|text| text != NO_VAL);
        let number = given(first).filter(|number| number != "0")?;
        Some((number, given(second)?))
    };
    match (
        pair("array", "job_id", "task_id"),
        pair("het", "job_id", "job_offset"),
    ) {
        (Some((array, task)), _) => format!("{array}_{task}"),
        (None, Some((het, offset))) => format!("{het}+{offset}"),
        (None, None) => id.to_owned(),
    }
}

fn whose(job: &Object<'_>, record: &mut BatchRecord) {
    let association = job.object("association");
    let name = |key: &str| job.text(key).as_deref().and_then(fields::name);
    let owner = |key: &str| name(key).or_else(|| fields::name(&association.text(key)?));
    record.origin.user = owner("user");
    record.origin.account = owner("account");
    record.origin.group = name("group");
    record.name = name("name");
    record.queue = name("partition");
    record.qos = name("qos");
    record.hosts = name("nodes").filter(|hosts| hosts != "None assigned");
    let priority = number(job, "priority").unwrap_or_default();
    record.priority = record.if_read(fields::number("priority", &priority));
    let exit = job.object("exit_code");
    let signal = exit.object("signal");
    let signal = number(&signal, "id").or_else(|| number(&signal, "signal_id"));
    let code = number(&exit, "return_code").unwrap_or_default();
    let code = fields::number("exit_code.return_code", &code);
    record.exit = record.if_read(code).map(|code| Exit {
        code: i64::try_from(code).unwrap_or(i64::MAX),
        signal: signal.and_then(|signal| signal.parse().ok()).unwrap_or(0),
    });
}

fn resources(job: &Object<'_>, record: &mut BatchRecord) -> Result<(), Reason> {
    let lists = job.object("tres");
    let allocated = tres_text(&lists, "allocated");
    let held = Tres::parse("tres.allocated", &allocated, record)?;
    let requested = tres_text(&lists, "requested");
    let asked = Tres::asked("tres.requested", &requested, record, allocated.is_empty())?;
    let required = number(&job.object("required"), "CPUs").unwrap_or_default();
    let required = || fields::number("required.CPUs", &required);
    let allocated_cpus = held.cpus.filter(|cpus| *cpus > 0 || record.start.is_some());
    let cpus = match allocated_cpus {
        None => required()?.or(asked.cpus),
        held => held,
    };
    let narrow =
        |field, count: Option<u64>| count.map(|count| fields::narrow(field, count)).transpose();
    record.cpus = narrow("tres.allocated cpu", cpus)?;
    let nodes = number(job, "allocation_nodes").unwrap_or_default();
    let nodes = fields::number("allocation_nodes", &nodes);
    let nodes = nodes.and_then(|nodes| narrow("allocation_nodes", nodes.or(held.nodes)));
    record.nodes = record.if_read(nodes);
    record.gpus = narrow("gres/gpu", held.gpus.or(asked.gpus))?;
    record.energy_j = held.energy_j;
    record.requested_memory_mib = asked.memory_mib;
    record.memory_mib = match allocated.is_empty() {
        true => asked.memory_mib,
        false => held.memory_mib,
    };
    Ok(())
}

/// `cpu=4,gres/gpu:a100=2`, as `sacct -P` prints it.
fn tres_text(lists: &Object<'_>, name: &str) -> String {
    let item = |raw: &serde_json::value::RawValue| {
        let item = Object::parse(raw.get()).unwrap_or_default();
        let kind = item.text("type").unwrap_or_default();
        let name = item.text("name").filter(|name| !name.is_empty());
        let name = name.map_or_else(String::new, |name| format!("/{name}"));
        let count = number(&item, "count").unwrap_or_default();
        // What would end an item of the list is no part of one.
        let item = [kind, name, count].map(|part| part.replace([',', '='], "?"));
        format!("{}{}={}", item[0], item[1], item[2])
    };
    let items: Vec<String> = lists.list(name).into_iter().map(item).collect();
    items.join(",")
}

fn whole(field: &str, text: &str) -> Result<u64, Reason> {
    let number = text.parse();
    number.map_err(|_| Reason::field(field, text, "a number"))
}

/// A number as it is written; `None` for one that is not set or has no limit.
fn number(object: &Object<'_>, name: &str) -> Option<String> {
    let text = object.text(name)?;
    if !text.starts_with('{') {
        return Some(text);
    }
    let number = object.object(name);
    let is = |flag: &str| number.text(flag).as_deref() == Some("true");
    number
        .text("number")
        .filter(|_| is("set") && !is("infinite"))
}
