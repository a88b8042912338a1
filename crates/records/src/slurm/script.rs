//! The environment that `jobcomp/script` runs its script in, as a record.
//!
//! Invariant: only the variables that Slurm sets are read. They come from `slurmctld` and not from
//! the job, so a user can choose the job's name and directory, and nothing else of it.

use std::collections::BTreeMap;

use fairmesh_model::JobKey;

use crate::blocks::{BlockFormat, Place};
use crate::error::{Reason, quoted};
use crate::fields::{self, given};
use crate::format::Format;
use crate::parser::Options;
use crate::record::BatchRecord;

/// `ARRAYTASKID` of a job that is no array task (Slurm's `NO_VAL`).
const NO_TASK: &str = "4294967294";

/// The record of a finished job in the environment of its script; `variable` looks one up.
pub fn script_record(
    variable: impl Fn(&str) -> Option<String>,
    options: &Options,
) -> Result<BatchRecord, Reason> {
    let get = |name: &str| variable(name).unwrap_or_default();
    let must = |name: &str| {
        let value = get(name);
        given(&value)
            .map(str::to_owned)
            .ok_or_else(|| Reason::missing(name))
    };
    let cluster = get("CLUSTER");
    let key = JobKey {
        cluster: given(&cluster).unwrap_or(&options.cluster).to_owned(),
        job: must("JOBID")?,
        instance: 0,
    };
    let mut record = BatchRecord::new(Format::SlurmScript, key, fields::state(&must("JOBSTATE")?)?);
    let zone = &options.zone;
    record.submit = fields::time(zone, "SUBMIT", &get("SUBMIT"), None)?;
    record.start = fields::time(zone, "START", &get("START"), None)?;
    record.end = fields::time(zone, "END", &must("END")?, None)?;
    fields::after_requeue(&mut record);
    fields::set_instance(&mut record, "SUBMIT")?;
    let label = label_of(&record.key.job, &get);
    fields::set_label(&mut record, label);
    record.name = fields::name(&get("JOBNAME"));
    record.origin.user = fields::name(&get("USERNAME"));
    record.origin.group = fields::name(&get("GROUPNAME"));
    record.origin.account = fields::name(&get("ACCOUNT"));
    record.uid = record.if_read(fields::number("UID", &get("UID")));
    record.gid = record.if_read(fields::number("GID", &get("GID")));
    record.queue = fields::name(&get("PARTITION"));
    record.qos = given(&get("QOS")).map(str::to_owned);
    record.cpus = fields::count("PROCS", &must("PROCS")?)?;
    record.nodes = record.if_read(fields::count("NODECNT", &get("NODECNT")));
    record.requested_wall = record.if_read(fields::minutes("LIMIT", &get("LIMIT")));
    record.exit = record.if_read(fields::exit("EXITCODE", &get("EXITCODE")));
    record.hosts = fields::name(&get("NODES"));
    record.checked()
}

fn label_of(job: &str, get: &impl Fn(&str) -> String) -> String {
    let (array, task) = (get("ARRAYJOBID"), get("ARRAYTASKID"));
    let (het, offset) = (get("HETJOBID"), get("HETJOBOFFSET"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if is_number(&array) && array != "0" && is_number(&task) && task != NO_TASK {
        format!("{array}_{task}")
    } else if is_number(&het) && het != "0" && is_number(&offset) {
        format!("{het}+{offset}")
    } else {
        job.to_owned()
    }
}

/// Blocks of `KEY=value` lines, such as a script writes that saves its environment.
pub(crate) struct ScriptBlock(pub(crate) Options);

impl BlockFormat for ScriptBlock {
    fn place(&self, line: &str) -> Place {
        if line.trim().is_empty() || line.starts_with("--") {
            Place::Ends
        } else {
            Place::Inside
        }
    }

    fn record(&self, text: &str) -> Result<BatchRecord, Reason> {
        let mut variables = BTreeMap::new();
        for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
            // A job's name may hold a line end, and a variable of its own behind it.
            if variables.insert(name, value).is_some() {
                let name = quoted(name);
                return Err(Reason::Shape(format!("{name} stands twice in one job")));
            }
        }
        let look_up = |name: &str| variables.get(name).map(|value| (*value).to_owned());
        script_record(look_up, &self.0)
    }
}
