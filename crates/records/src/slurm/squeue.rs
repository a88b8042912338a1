//! The list of running and waiting jobs, as `squeue` prints it with [`SQUEUE_FORMAT`].
//!
//! Invariant: the account stands last, because without a database it is free text and may hold the
//! separator; nothing that a user chooses stands before it.

use fairmesh_model::JobKey;

use super::tres::{self, Tres};
use crate::error::Reason;
use crate::fields::{self, given};
use crate::format::Format;
use crate::parser::{Ignored, LineFormat, Options};
use crate::record::BatchRecord;

/// What to call `squeue -h -r -O` with. Its columns are the same as those of the shorter `-o` form,
/// `%A|%i|%u|%U|%g|%T|%C|%D|%V|%S|%e|%M|%l|%P|%Q|%q|%b|%m|%N|%a`, which is read too, but for `tres-alloc` in the place of
/// `%b`: what the job holds of everything. `%b` is per node, and `N/A` for `--gpus`; `%m` is per CPU or per node. With `-r`,
/// each pending task of an array is a line of its own.
pub const SQUEUE_FORMAT: &str = "JobID:|,JobArrayID:|,UserName:|,UserID:|,GroupName:|,State:|,NumCPUs:|,NumNodes:|,\
    SubmitTime:|,StartTime:|,EndTime:|,TimeUsed:|,TimeLimit:|,Partition:|,PriorityLong:|,QOS:|,tres-alloc:|,MinMemory:|,\
    NodeList:|,Account:|";

const COLUMNS: usize = 20;

pub(crate) struct SqueueLine(pub(crate) Options);

impl LineFormat for SqueueLine {
    fn record(&self, line: &str) -> Result<Result<BatchRecord, Ignored>, Reason> {
        let columns: Vec<&str> = line.splitn(COLUMNS, '|').collect();
        let [
            raw,
            label,
            user,
            uid,
            group,
            state,
            cpus,
            nodes,
            submit,
            start,
            end,
            used,
            limit,
            partition,
            priority,
            qos,
            gres,
            memory,
            hosts,
            account,
        ] = columns[..]
        else {
            let found = columns.len();
            return Err(Reason::Shape(format!(
                "{found} fields, where squeue was asked for {COLUMNS}"
            )));
        };
        if raw == "JOBID" {
            return Ok(Err(Ignored::Decoration));
        }
        if raw.is_empty() || !raw.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Reason::field("%A", raw, "a job id"));
        }
        let key = JobKey {
            cluster: self.0.cluster.clone(),
            job: raw.to_owned(),
            instance: 0,
        };
        let mut record = BatchRecord::new(Format::SlurmSqueue, key, fields::state(state)?);
        let zone = &self.0.zone;
        record.submit = fields::time(zone, "%V", submit, None)?;
        record.start = fields::time(zone, "%S", start, record.submit)?;
        record.end = fields::time(zone, "%e", end, record.start)?;
        fields::set_instance(&mut record, "%V")?;
        fields::set_label(&mut record, label.to_owned());
        record.origin.user = fields::name(user);
        record.origin.group = fields::name(group);
        record.origin.account = fields::name(account.strip_suffix('|').unwrap_or(account));
        record.uid = record.if_read(fields::number("%U", uid));
        record.cpus = fields::count("%C", cpus)?;
        let nodes = nodes.split('-').next().unwrap_or(nodes);
        record.nodes = record.if_read(fields::count("%D", nodes));
        record.wall = fields::length("%M", used)?;
        record.requested_wall = record.if_read(fields::length("%l", limit));
        record.queue = fields::name(partition);
        record.priority = record.if_read(fields::number("%Q", priority));
        record.qos = given(qos).map(str::to_owned);
        resources(gres, memory, &mut record)?;
        record.hosts = fields::name(hosts);
        Ok(Ok(record))
    }
}

/// What the job holds by `tres-alloc`, which has pairs, or by `%b` and `%m`.
fn resources(gres: &str, memory: &str, record: &mut BatchRecord) -> Result<(), Reason> {
    if gres.contains('=') {
        let held = Tres::parse("tres-alloc", gres, record)?;
        let gpus = held.gpus.map(|count| fields::narrow("tres-alloc", count));
        record.gpus = gpus.transpose()?;
        record.memory_mib = held.memory_mib;
    } else {
        record.gpus = gpus(gres, record.nodes)?;
        record.requested_memory_mib = memory_mib(memory, record.nodes);
    }
    Ok(())
}

/// `%b` counts per node.
fn gpus(gres: &str, nodes: Option<u32>) -> Result<Option<u32>, Reason> {
    let per_node = given(gres).and_then(tres::gres_gpus);
    let total = per_node.map(|count| count.saturating_mul(u64::from(nodes.unwrap_or(1))));
    total.map(|count| fields::narrow("%b", count)).transpose()
}

/// `%m` is the least memory of a node; 0 means that none was asked for.
fn memory_mib(text: &str, nodes: Option<u32>) -> Option<u64> {
    let per_node = crate::value::bytes(given(text)?, 1 << 20)? >> 20;
    (per_node > 0).then(|| per_node.saturating_mul(u64::from(nodes.unwrap_or(1))))
}
