//! Flux: the list that `flux jobs --json` prints.
//!
//! Invariant: a job has the number of its id as its key, however the id is written. It holds its cores from `t_run` to
//! `t_inactive`, as flux-accounting counts. Times are decimal seconds since the epoch, of which milliseconds are kept.
//!
//! Source: `JobInfo` of flux-core, RFC 19 (F58) and RFC 21 (states).

use fairmesh_model::{JobKey, Millis, WallTime};

use crate::error::{Reason, quoted};
use crate::fields::{self, given};
use crate::format::Format;
use crate::objects::{Object, ObjectFormat};
use crate::parser::{Ignored, Options};
use crate::record::BatchRecord;
use crate::state::JobState;
use crate::value;

const READ: [&str; 17] = [
    "bank",
    "duration",
    "id",
    "name",
    "ncores",
    "ngpus",
    "nnodes",
    "nodelist",
    "priority",
    "queue",
    "result",
    "state",
    "t_cleanup",
    "t_inactive",
    "t_run",
    "t_submit",
    "username",
];

/// The digits of F58.
const F58: &str = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

pub(crate) struct FluxJob(pub(crate) Options);

impl ObjectFormat for FluxJob {
    const AROUND: &'static [&'static str] = &["jobs"];

    fn is_read(&self, key: &str) -> bool {
        READ.contains(&key)
    }

    fn record(&self, job: &Object<'_>) -> Result<Result<BatchRecord, Ignored>, Reason> {
        let get = |name: &str| job.text(name).unwrap_or_default();
        let id = get("id");
        let id = given(&id).ok_or_else(|| Reason::missing("id"))?;
        let number = number_of(id).ok_or_else(|| Reason::field("id", id, "a job id"))?;
        let key = JobKey {
            cluster: self.0.cluster.clone(),
            job: number.to_string(),
            instance: 0,
        };
        let mut record = BatchRecord::new(Format::Flux, key, state(&get("state"), &get("result"))?);
        record.submit = record.if_read(time("t_submit", &get("t_submit")));
        record.start = time("t_run", &get("t_run"))?;
        let left = time("t_inactive", &get("t_inactive"))?;
        record.end = left.or(time("t_cleanup", &get("t_cleanup"))?);
        record.origin.user = fields::name(&get("username"));
        record.origin.account = fields::name(&get("bank"));
        record.name = fields::name(&get("name"));
        record.queue = fields::name(&get("queue"));
        record.hosts = fields::name(&get("nodelist"));
        record.priority = record.if_read(fields::number("priority", &get("priority")));
        record.nodes = record.if_read(fields::count("nnodes", &get("nnodes")));
        let limit = value::decimal(&get("duration"), 3).filter(|limit| *limit > 0);
        record.requested_wall = limit.map(Millis);
        record.cpus = fields::count("ncores", &get("ncores"))?;
        record.gpus = fields::count("ngpus", &get("ngpus"))?;
        record.checked().map(Ok)
    }
}

/// `280246615040`, or in base 58 `ƒ8r1jPmh`, also `f8r1jPmh`.
fn number_of(id: &str) -> Option<u64> {
    let Some(digits) = id.strip_prefix(['ƒ', 'f']) else {
        return id.parse().ok();
    };
    digits.chars().try_fold(0_u64, |number, c| {
        number.checked_mul(58)?.checked_add(F58.find(c)? as u64)
    })
}

/// 0 for what has not happened.
fn time(field: &str, text: &str) -> Result<Option<WallTime>, Reason> {
    let Some(text) = given(text) else {
        return Ok(None);
    };
    let millis = value::decimal(text, 3);
    let millis = millis.ok_or_else(|| Reason::field(field, text, "seconds since the epoch"))?;
    Ok((millis > 0).then_some(WallTime(millis)))
}

/// The state by its name or its bit, and of an inactive job how it ended.
fn state(state: &str, result: &str) -> Result<JobState, Reason> {
    Ok(match (state, result) {
        ("NEW" | "DEPEND" | "PRIORITY" | "SCHED" | "1" | "2" | "4" | "8", _) => JobState::Pending,
        ("RUN" | "16", _) => JobState::Running,
        ("CLEANUP" | "32", _) => JobState::Completing,
        ("INACTIVE" | "64", "COMPLETED" | "1") => JobState::Completed,
        ("INACTIVE" | "64", "FAILED" | "2") => JobState::Failed,
        ("INACTIVE" | "64", "CANCELED" | "4") => JobState::Cancelled,
        ("INACTIVE" | "64", "TIMEOUT" | "8") => JobState::Timeout,
        ("", _) => return Err(Reason::missing("state")),
        _ => return Err(Reason::UnknownState(quoted(&format!("{state} {result}")))),
    })
}

#[cfg(test)]
mod tests {
    use super::number_of;

    #[test]
    fn an_id_is_one_number_in_each_of_its_spellings() {
        assert_eq!(number_of("ƒ1"), Some(0));
        assert_eq!(number_of("f21"), Some(58));
        assert_eq!(number_of("12402053611520"), Some(12_402_053_611_520));
        for wrong in ["ƒ0", "ƒl", "", "x1", "ƒzzzzzzzzzzzzzzzz"] {
            assert_eq!(number_of(wrong), None, "{wrong}");
        }
    }
}
