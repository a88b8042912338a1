//! The documents of `jobcomp/elasticsearch` and `jobcomp/kafka`: one JSON object for each run of a job that ended.
//!
//! Invariant: a run has the key and the charge that its line in the file of `jobcomp/filetxt` has. Documents stand
//! alone, in Elasticsearch's bulk format, or in what a search of it returns. Times are UTC and bear no zone.
//!
//! Source: `jobcomp_common.c`, and `jobcomp_elasticsearch.c` of Slurm 17.02 to 22.05.

use fairmesh_model::{JobKey, Millis};

use super::tres::{self, Tres};
use crate::error::Reason;
use crate::fields::{self, given};
use crate::format::Format;
use crate::objects::{Object, ObjectFormat};
use crate::parser::{Ignored, Options};
use crate::record::BatchRecord;
use crate::zone::Zone;

const READ: [&str; 33] = [
    "@eligible",
    "@end",
    "@start",
    "@submit",
    "account",
    "array_job_id",
    "array_task_id",
    "cluster",
    "create",
    "exit_code",
    "group_id",
    "groupname",
    "gres_alloc",
    "het_job_id",
    "het_job_offset",
    "index",
    "job_name",
    "jobid",
    "nodes",
    "pack_job_id",
    "pack_job_offset",
    "partition",
    "priority",
    "qos",
    "state",
    "time_limit",
    "total_cpus",
    "total_nodes",
    "tres_alloc",
    "tres_req",
    "update",
    "user_id",
    "username",
];

/// What a line of Elasticsearch's bulk format is named that precedes a document.
const ACTIONS: [&str; 3] = ["create", "index", "update"];

pub(crate) struct JobcompDocument(pub(crate) Options);

impl ObjectFormat for JobcompDocument {
    const AROUND: &'static [&'static str] = &["_source", "hits"];

    fn is_read(&self, key: &str) -> bool {
        READ.contains(&key)
    }

    fn record(&self, job: &Object<'_>) -> Result<Result<BatchRecord, Ignored>, Reason> {
        let get = |name: &str| job.text(name).unwrap_or_default();
        let id = get("jobid");
        if id.is_empty() && ACTIONS.iter().any(|action| job.0.contains_key(*action)) {
            return Ok(Err(Ignored::Decoration));
        }
        let id = given(&id).ok_or_else(|| Reason::missing("jobid"))?;
        if !id.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Reason::field("jobid", id, "a number"));
        }
        // Of a job that starts (jobcomp/kafka).
        if get("@end").is_empty() {
            return Ok(Err(Ignored::OtherEvent));
        }
        let key = JobKey {
            cluster: given(&get("cluster")).unwrap_or(&self.0.cluster).to_owned(),
            job: id.to_owned(),
            instance: 0,
        };
        let state = fields::state(&get("state"))?;
        let mut record = BatchRecord::new(Format::SlurmJobcompJson, key, state);
        let utc = Zone::utc();
        let time = |name: &str| fields::time(&utc, name, &get(name), None);
        record.submit = time("@submit")?;
        record.eligible = record.if_read(time("@eligible"));
        record.start = time("@start")?;
        record.end = time("@end")?;
        fields::after_requeue(&mut record);
        fields::set_instance(&mut record, "@submit")?;
        let label = label(id, &get);
        fields::set_label(&mut record, label);
        whose(&mut record, &get);
        resources(&mut record, &get)?;
        record.checked().map(Ok)
    }
}

fn whose(record: &mut BatchRecord, get: &impl Fn(&str) -> String) {
    record.origin.user = fields::name(&get("username"));
    record.origin.group = fields::name(&get("groupname"));
    record.origin.account = fields::name(&get("account"));
    record.uid = record.if_read(fields::number("user_id", &get("user_id")));
    record.gid = record.if_read(fields::number("group_id", &get("group_id")));
    record.name = fields::name(&get("job_name"));
    record.queue = fields::name(&get("partition"));
    record.qos = given(&get("qos")).map(str::to_owned);
    record.hosts = fields::name(&get("nodes"));
    record.exit = record.if_read(fields::exit("exit_code", &get("exit_code")));
    record.priority = record.if_read(fields::number("priority", &get("priority")));
    let limit = fields::number("time_limit", &get("time_limit"));
    record.requested_wall = record.if_read(limit).map(Millis::from_secs);
}

fn resources(record: &mut BatchRecord, get: &impl Fn(&str) -> String) -> Result<(), Reason> {
    let cpus = fields::count("total_cpus", &get("total_cpus"))?;
    record.cpus = Some(cpus.ok_or_else(|| Reason::missing("total_cpus"))?);
    record.nodes = record.if_read(fields::count("total_nodes", &get("total_nodes")));
    let held = Tres::parse("tres_alloc", &get("tres_alloc"), record)?;
    let asked = Tres::asked("tres_req", &get("tres_req"), record, false)?;
    (record.memory_mib, record.energy_j) = (held.memory_mib, held.energy_j);
    record.requested_memory_mib = asked.memory_mib;
    // Slurms before 18.08 name generic resources alone.
    let gpus = held.gpus.or_else(|| tres::gres_gpus(&get("gres_alloc")));
    let gpus = gpus.map(|count| fields::narrow("gres/gpu", count));
    record.gpus = gpus.transpose()?;
    Ok(())
}

fn label(job: &str, get: &impl Fn(&str) -> String) -> String {
    let pair = |first: &str, second: &str| {
        let (first, second) = (get(first), get(second));
        let is_part = !matches!(first.as_str(), "" | "0") && !second.is_empty();
        is_part.then_some((first, second))
    };
    let het = || pair("het_job_id", "het_job_offset").or(pair("pack_job_id", "pack_job_offset"));
    match (pair("array_job_id", "array_task_id"), het()) {
        (Some((array, task)), _) => format!("{array}_{task}"),
        (None, Some((het, offset))) => format!("{het}+{offset}"),
        (None, None) => job.to_owned(),
    }
}
