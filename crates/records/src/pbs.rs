//! Accounting logs of PBS, Torque and OpenPBS: `time;event;job;attributes`.
//!
//! Invariant: only the end of a run is a record (`E`, and `R` for one that was requeued); every
//! other event is ignored and counted, and so is the end of an array as a whole, whose tasks have records of their own.
//! CPUs are those that were assigned, from whichever attribute of the three dialects names them best.
//!
//! PBS writes what users chose (account, project, resources that are words) as it is, blanks and line ends too. So a
//! user can make his record have an attribute twice, and such a record is an error. A line end makes a whole line, which
//! looks like any other: what reads this file has to keep line ends out of it (docs/pbs.md).
//!
//! Source: the Programmer's Guide of OpenPBS, "Accounting Log"; Torque's manual, "Job accounting".

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::record::CHUNKS_MAX;
use fairmesh_model::{Chunk, JobKey};

use crate::error::{Reason, quoted};
use crate::fields;
use crate::format::Format;
use crate::parser::{Ignored, LineFormat, Options};
use crate::record::{BatchRecord, Exit};
use crate::state::JobState;
use crate::value;
use crate::zone::Zone;

/// Bytes of `12/21/2024 17:58:09`, which a file name (`20150327:`) may stand before.
const TIME_BYTES: usize = 19;

/// The project of jobs that have none.
pub const NO_PROJECT: &str = "_pbs_project_default";

pub(crate) struct PbsLine(pub(crate) Options);

impl LineFormat for PbsLine {
    fn record(&self, line: &str) -> Result<Result<BatchRecord, Ignored>, Reason> {
        if line.starts_with(['#', ';']) {
            return Ok(Err(Ignored::Decoration));
        }
        let parts: Vec<&str> = line.splitn(4, ';').collect();
        let [time, event, job, attributes] = parts[..] else {
            return Err(Reason::Shape("not `time;event;job;attributes`".to_owned()));
        };
        let written = time.len().checked_sub(TIME_BYTES);
        let time = written.and_then(|at| time.get(at..)).unwrap_or(time);
        let time = self.0.zone.parse_as("%m/%d/%Y %H:%M:%S", time);
        let time =
            time.ok_or_else(|| Reason::field("the time", parts[0], "mm/dd/yyyy hh:mm:ss"))?;
        if !matches!(event, "E" | "R") {
            return Ok(Err(Ignored::OtherEvent));
        }
        if job.contains("[]") {
            return Ok(Err(Ignored::Step));
        }
        let run = Attributes::new(attributes)?;
        let state = match event {
            "E" => run.exit_state(),
            _ if run.get("start").is_some_and(|start| start != "0") => JobState::Requeued,
            _ => return Ok(Err(Ignored::OtherEvent)),
        };
        if job.trim().is_empty() {
            return Err(Reason::missing("the job id"));
        }
        let key = JobKey {
            cluster: self.0.cluster.clone(),
            job: job.trim().to_owned(),
            instance: 0,
        };
        let mut record = BatchRecord::new(Format::Pbs, key, state);
        let utc = Zone::utc();
        let moment = |name: &str| fields::time(&utc, name, run.get(name).unwrap_or_default(), None);
        let submit = moment("ctime").and_then(|at| Ok(at.or(moment("qtime")?)));
        record.submit = record.if_read(submit);
        record.eligible = record.if_read(moment("etime"));
        run.whose(&mut record);
        run.times(&mut record);
        (record.start, record.end) = (moment("start")?, moment("end")?);
        // Whatever was deleted before it ran has no start and no host; what could not be started has 0 as its end.
        let is_void =
            record.start.is_none() && record.hosts.is_none() || run.get("end") == Some("0");
        if event == "E" && is_void {
            (record.state, record.start, record.end) = (JobState::Cancelled, None, Some(time));
            return record.checked().map(Ok);
        }
        if state == JobState::Requeued {
            record.end = record.end.or(Some(time));
        }
        for (name, moment) in [("start", record.start), ("end", record.end)] {
            moment.ok_or_else(|| Reason::missing(name))?;
        }
        run.resources(&mut record)?;
        record.checked().map(Ok)
    }
}

/// What a job holds, by its attributes, which `qstat -f` names as the accounting log does.
///
/// # Errors
/// If one of them is not what it should be.
pub fn held<'a>(
    attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
    record: &mut BatchRecord,
) -> Result<(), Reason> {
    let pairs = attributes.into_iter();
    let pairs = pairs.map(|(key, value)| (key, value.to_owned()));
    Attributes(pairs.collect()).resources(record)
}

struct Attributes<'a>(BTreeMap<&'a str, String>);

impl<'a> Attributes<'a> {
    /// Words of `key=value`; a word without a key belongs to the value before it, and so does one whose key is nothing that is
    /// read here and stands there a second time.
    fn new(text: &'a str) -> Result<Self, Reason> {
        let mut pairs: BTreeMap<&str, String> = BTreeMap::new();
        let mut last = None;
        for word in text.split_whitespace() {
            match (word.split_once('='), last) {
                (Some((key, value)), _) if !pairs.contains_key(key) => {
                    pairs.insert(key, value.to_owned());
                    last = Some(key);
                }
                (Some((key, _)), _) if is_read(key) => {
                    return Err(Reason::Shape(format!("`{}` stands twice", quoted(key))));
                }
                (Some(_), _) => {}
                (None, Some(key)) => {
                    if let Some(value) = pairs.get_mut(key) {
                        value.push(' ');
                        value.push_str(word);
                    }
                }
                (None, None) => {}
            }
        }
        Ok(Self(pairs))
    }

    fn get(&self, key: &str) -> Option<&str> {
        let value = self.0.get(key)?.trim_matches('"');
        (!value.is_empty()).then_some(value)
    }

    fn exit(&self) -> Result<Option<i64>, Reason> {
        let Some(text) = self.get("Exit_status") else {
            return Ok(None);
        };
        let status: i32 = text
            .parse()
            .map_err(|_| Reason::field("Exit_status", text, "a number"))?;
        Ok(Some(status.into()))
    }

    fn exit_state(&self) -> JobState {
        let exit = self.exit().ok().flatten();
        exit.map_or(JobState::Completed, JobState::of_exit)
    }

    fn whose(&self, record: &mut BatchRecord) {
        let name = |key: &str| self.get(key).map(str::to_owned);
        record.origin.user = name("user");
        record.origin.group = name("group");
        record.origin.account =
            name("account").or(name("project").filter(|project| project != NO_PROJECT));
        record.name = name("jobname");
        record.queue = name("queue");
        record.hosts = name("exec_host");
    }

    fn times(&self, record: &mut BatchRecord) {
        let length = |key: &str| fields::length(key, self.get(key).unwrap_or_default());
        record.wall = record.if_read(length("resources_used.walltime"));
        record.cpu_time = record.if_read(length("resources_used.cput"));
        record.requested_wall = record.if_read(length("Resource_List.walltime"));
        let energy = self.get("resources_used.energy").unwrap_or_default();
        record.energy_j = record.if_read(fields::kwh("resources_used.energy", energy));
        let exit = record.if_read(self.exit());
        // Above 256 it was a signal.
        record.exit = exit.map(|code| match u32::try_from(code - 256) {
            Ok(signal) if signal > 0 => Exit { code, signal },
            _ => Exit { code, signal: 0 },
        });
    }

    fn resources(&self, record: &mut BatchRecord) -> Result<(), Reason> {
        let assigned = |resource| self.assigned(resource);
        let stated = assigned("ncpus").or(self.number("total_execution_slots"));
        let hosts = self.get("exec_host").map(ExecHost::parse).transpose();
        let hosts = match stated {
            Some(_) => record.if_read(hosts),
            None => hosts?,
        };
        let slots = hosts.as_ref().map(|hosts| hosts.slots);
        let cpus = stated
            .or(slots)
            .or(self.number("resources_used.ncpus"))
            .or(self.spec("ppn"))
            .or(self.number("Resource_List.ncpus"));
        let nodes = self
            .number("unique_node_count")
            .or(hosts.map(|hosts| hosts.names.len() as u64))
            .or(self.number("Resource_List.nodect"));
        let gpus = assigned("ngpus")
            .or(self.get("exec_gpus").map(listed))
            .or(self.number("Resource_List.ngpus"))
            .or(self.number("Resource_List.gpus"))
            .or(self.spec("gpus"));
        let narrow =
            |field, count: Option<u64>| count.map(|count| fields::narrow(field, count)).transpose();
        record.cpus = narrow("CPUs", cpus)?;
        record.nodes = record.if_read(narrow("nodes", nodes));
        record.gpus = narrow("GPUs", gpus)?;
        let size = |key: &str| self.get(key).and_then(|text| value::bytes(text, 1));
        // Torque's schedulers place by it; elsewhere it limits a process, as `file` does: its user's word alone.
        let per_cpu = size("Resource_List.pmem").filter(|_| self.get("exec_vnode").is_none());
        let per_cpu = per_cpu.map(|bytes| bytes.saturating_mul(cpus.unwrap_or(1)));
        let asked = size("Resource_List.mem").or(per_cpu);
        let held = assigned("mem").or(size("resource_assigned.mem")).or(asked);
        record.requested_memory_mib = asked.map(|bytes| bytes >> 20);
        record.memory_mib = held.map(|bytes| bytes >> 20);
        record.memory_peak_bytes = size("resources_used.mem");
        record.virtual_peak_bytes = size("resources_used.vmem");
        let disk = assigned("scratch_local").or(size("Resource_List.scratch_local"));
        record.disk_mib = disk.map(|bytes| bytes >> 20);
        record.chunks = self.chunks(record);
        Ok(())
    }

    /// What `exec_vnode=(n1:ncpus=2:mem=4gb)+(n2:ncpus=1)` says each of several nodes held; nothing where it
    /// does not add up to the job, or where they are too many for one report.
    fn chunks(&self, record: &BatchRecord) -> Vec<Chunk> {
        let text = self.get("exec_vnode").unwrap_or_default();
        let mut nodes: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
        for part in text.split(['(', ')', '+']).filter(|part| !part.is_empty()) {
            let mut words = part.split(':');
            // `node1[0]` is a part of the host `node1`, such as a socket.
            let vnode = words.next().unwrap_or_default();
            let host = vnode.split_once('[').map_or(vnode, |(host, _)| host);
            if host.is_empty() {
                return Vec::new();
            }
            let held = nodes.entry(host).or_default();
            for (resource, amount) in words.filter_map(|word| word.split_once('=')) {
                let place = ["ncpus", "ngpus", "mem"]
                    .iter()
                    .position(|of| *of == resource);
                let Some(sum) = place.map(|place| &mut held[place]) else {
                    continue;
                };
                *sum = sum.saturating_add(value::bytes(amount, 1).unwrap_or(0));
            }
        }
        let chunk = |(node, [cores, gpus, bytes]): (&str, [u64; 3])| {
            Some(Chunk {
                nodes: 1,
                cores: u32::try_from(cores).ok()?,
                gpus: u32::try_from(gpus).ok()?,
                mem_mib: bytes >> 20,
                disk_mib: 0,
                machine: Some(node.to_owned()),
            })
        };
        let chunks: Option<Vec<Chunk>> = nodes.into_iter().map(chunk).collect();
        let of_job = [
            record.nodes.map(u64::from),
            record.cpus.map(u64::from),
            record.gpus.map(u64::from),
            record.memory_mib,
            record.disk_mib,
        ];
        let of_job = of_job.map(Option::unwrap_or_default);
        let chunks = chunks.filter(|chunks| (2..=CHUNKS_MAX).contains(&chunks.len()));
        chunks
            .filter(|chunks| Chunk::totals(chunks) == of_job)
            .unwrap_or_default()
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    /// What `exec_vnode=(n1:ncpus=2:mem=4gb)+(…)` holds of a resource, over all chunks.
    fn assigned(&self, resource: &str) -> Option<u64> {
        let amounts = self.get("exec_vnode")?.split(['(', ')', '+', ':']);
        let amounts = amounts.filter_map(|part| part.strip_prefix(resource)?.strip_prefix('='));
        let mut total = None;
        for amount in amounts {
            let amount = value::bytes(amount, 1)?;
            total = Some(total.unwrap_or(0_u64).checked_add(amount)?);
        }
        total
    }

    /// What `nodes=2:ppn=8+1:ppn=4` asks for of a property, over all nodes.
    fn spec(&self, property: &str) -> Option<u64> {
        let mut total = None;
        let nodes = self.get("Resource_List.nodes");
        for chunk in nodes.or(self.get("Resource_List.neednodes"))?.split('+') {
            let mut parts = chunk.split(':');
            let nodes: u64 = parts.next()?.parse().unwrap_or(1);
            let each = parts.find_map(|part| part.strip_prefix(property)?.strip_prefix('='));
            if let Some(each) = each.and_then(|each| each.parse::<u64>().ok()) {
                total = Some(
                    total
                        .unwrap_or(0_u64)
                        .checked_add(nodes.checked_mul(each)?)?,
                );
            }
        }
        total
    }
}

/// Whether an attribute of this name decides something.
fn is_read(name: &str) -> bool {
    let words = [
        "user",
        "group",
        "account",
        "project",
        "jobname",
        "queue",
        "ctime",
        "qtime",
        "etime",
        "start",
        "end",
        "total_execution_slots",
        "unique_node_count",
        "Exit_status",
    ];
    let lists = [
        "exec_",
        "resources_used.",
        "Resource_List.",
        "resource_assigned.",
    ];
    words.contains(&name) || lists.iter().any(|list| name.starts_with(list))
}

/// How many `exec_gpus=n1-gpu/0+n1-gpu/1` lists.
fn listed(gpus: &str) -> u64 {
    gpus.split('+').filter(|gpu| !gpu.is_empty()).count() as u64
}

/// `host/slots` by `+`, the slots being `5`, `0-3,7` or `0*4`.
struct ExecHost<'a> {
    names: BTreeSet<&'a str>,
    slots: u64,
}

impl<'a> ExecHost<'a> {
    fn parse(text: &'a str) -> Result<Self, Reason> {
        let mut hosts = Self {
            names: BTreeSet::new(),
            slots: 0,
        };
        for part in text.split('+') {
            let (name, slots) = part.split_once('/').unwrap_or((part, "0"));
            let count = match slots.split_once('*') {
                Some((_, times)) => times.parse().ok(),
                None => value::ranges(slots),
            };
            let sum = count.and_then(|count: u64| hosts.slots.checked_add(count));
            hosts.slots = sum.ok_or_else(|| Reason::field("exec_host", part, "host/slots"))?;
            hosts.names.insert(name);
        }
        if hosts.names.contains("") {
            return Err(Reason::field("exec_host", text, "hosts with names"));
        }
        Ok(hosts)
    }
}
