//! `accounting.jsonl` of Open and Gridware Cluster Scheduler 9: one JSON object a line.
//!
//! Invariant: a job has the key that its line in Grid Engine's `accounting` has. Times are in microseconds. A record of
//! a task of a parallel job is a step, as there.
//!
//! Source: `sge_accounting(5)` and `sge_write_rusage` of Open Cluster Scheduler 9.

use fairmesh_model::{JobKey, WallTime};

use super::{FAILED_RESCHEDULING, given, integer, length};
use crate::error::Reason;
use crate::fields;
use crate::format::Format;
use crate::objects::Object;
use crate::parser::Ignored;
use crate::record::{BatchRecord, Exit};
use crate::state::JobState;

pub(super) fn record(line: &str, cluster: &str) -> Result<Result<BatchRecord, Ignored>, Reason> {
    let object = Object::parse(line)?;
    let text = |name: &str| object.text(name);
    if text("pe_taskid").as_deref().and_then(given).is_some() {
        return Ok(Err(Ignored::Step));
    }
    let number = text("job_number").ok_or_else(|| Reason::missing("job_number"))?;
    let number = whole("job_number", &number)?;
    let job = match whole(
        "task_number",
        &text("task_number").unwrap_or("0".to_owned()),
    )? {
        0 => number.to_string(),
        task => format!("{number}.{task}"),
    };
    let key = JobKey {
        cluster: cluster.to_owned(),
        job,
        instance: 0,
    };
    let mut record = BatchRecord::new(Format::GridEngine, key, JobState::Completed);
    let number = |field: &str| text(field).map(|text| integer(field, &text)).transpose();
    let failed = record.if_read(number("failed")).unwrap_or(0);
    let code = record.if_read(number("exit_status"));
    record.state = match failed {
        FAILED_RESCHEDULING => JobState::Requeued,
        0 => code.map_or(JobState::Completed, JobState::of_exit),
        _ => JobState::Failed,
    };
    record.submit = record.if_read(moment("submission_time", text("submission_time")));
    record.start = moment("start_time", text("start_time"))?;
    record.end = moment("end_time", text("end_time"))?;
    let slots = text("slots").ok_or_else(|| Reason::missing("slots"))?;
    record.cpus = Some(fields::narrow("slots", whole("slots", &slots)?)?);
    let name = |field: &str| {
        text(field)
            .as_deref()
            .and_then(given)
            .and_then(fields::name)
    };
    record.origin.group = name("group");
    record.origin.user = name("owner");
    let account = name("account").filter(|account| account != "sge");
    record.origin.account = name("project").or(account);
    record.name = name("job_name");
    record.queue = name("qname");
    record.hosts = name("hostname");
    record.exit = code.map(|code| Exit {
        code,
        signal: u32::try_from(code - 128).unwrap_or(0),
    });
    lengths(&object, &mut record);
    record.checked().map(Ok)
}

/// What the job used decides nothing.
fn lengths(object: &Object<'_>, record: &mut BatchRecord) {
    let usage = object.object("usage");
    let within = |name: &str, field: &str| usage.object(name).text(field);
    if let Some(wall) = within("rusage", "ru_wallclock") {
        record.wall = record.if_read(length("ru_wallclock", &wall));
    }
    if let Some(cpu) = within("usage", "cpu") {
        record.cpu_time = record.if_read(length("cpu", &cpu));
    }
}

fn whole(field: &str, text: &str) -> Result<u64, Reason> {
    text.parse()
        .map_err(|_| Reason::field(field, text, "a number"))
}

/// A time of a job that never started is 0.
fn moment(field: &str, text: Option<String>) -> Result<Option<WallTime>, Reason> {
    let text = text.ok_or_else(|| Reason::missing(field))?;
    let micros = whole(field, &text)?;
    Ok((micros > 0).then_some(WallTime(micros / 1_000)))
}
