//! APEL's individual-job messages, v0.3.
//!
//! Invariant: one job is one block of `Key: value` lines that ends with `%%`, with all that APEL
//! demands; it reads back as the record it was made of, in whole seconds and KiB, with the first
//! of its FQANs. Deliberately not here: benchmark values, which APEL takes from the site's own record.

use std::fmt::{Display, Write};

use super::{Gap, on_one_line, seconds, unix_seconds};
use crate::apel::HEADER;
use crate::blah::vo_of;
use crate::record::BatchRecord;

/// How the Grid knows the site that sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApelSite {
    /// Its name in the Grid's configuration database.
    pub name: String,
    /// Through what jobs came: `grid` or `local`.
    pub infrastructure: String,
}

/// The first line of a message of jobs.
pub fn apel_job_header() -> String {
    format!("{HEADER}: v0.3\n")
}

/// The block of one job.
///
/// # Errors
/// [`Gap`] where the job has not ended, or lacks a start, an end or its CPU time.
pub fn apel_job(record: &BatchRecord, site: &ApelSite) -> Result<String, Gap> {
    let told = Told::of(record)?;
    let vo = record.fqans.first().and_then(|fqan| vo_of(fqan));
    let mut block = Block::default();
    block.some("Site", Some(&site.name));
    block.some("SubmitHost", Some(&record.key.cluster));
    block.some("MachineName", Some(&record.key.cluster));
    block.some("Queue", record.queue.as_ref());
    block.some("LocalJobId", Some(&record.key.job));
    block.some("LocalUserId", record.origin.user.as_ref());
    block.some("GlobalUserName", record.origin.subject.as_ref());
    block.some("FQAN", record.fqans.first());
    block.some("VO", vo.map(|(vo, _, _)| vo));
    block.some("VOGroup", vo.map(|(_, group, _)| group));
    block.some("VORole", vo.and_then(|(_, _, role)| role));
    block.some("WallDuration", Some(told.wall_s));
    block.some("CpuDuration", Some(told.cpu_s));
    block.some("Processors", record.cpus);
    block.some("NodeCount", record.nodes);
    block.some("StartTime", Some(told.start_s));
    block.some("EndTime", Some(told.end_s));
    block.some("InfrastructureDescription", record.machine.as_ref());
    block.some("InfrastructureType", Some(&site.infrastructure));
    let kib = |bytes: Option<u64>| bytes.map(|bytes| bytes >> 10);
    block.some("MemoryReal", kib(record.memory_peak_bytes));
    block.some("MemoryVirtual", kib(record.virtual_peak_bytes));
    Ok(block.end())
}

/// What APEL demands of a job.
pub(super) struct Told {
    pub(super) wall_s: u64,
    pub(super) cpu_s: u64,
    start_s: u64,
    pub(super) end_s: u64,
}

impl Told {
    pub(super) fn of(record: &BatchRecord) -> Result<Self, Gap> {
        if !record.state.has_ended() {
            return Err(Gap::NotEnded(record.key.job.clone()));
        }
        let missing = |field| Gap::Missing {
            job: record.key.job.clone(),
            field,
        };
        let wall = record.wall.or_else(|| record.span());
        Ok(Self {
            wall_s: seconds(wall.ok_or_else(|| missing("WallDuration"))?),
            cpu_s: seconds(record.cpu_time.ok_or_else(|| missing("CpuDuration"))?),
            start_s: unix_seconds(record.start.ok_or_else(|| missing("StartTime"))?),
            end_s: unix_seconds(record.end.ok_or_else(|| missing("EndTime"))?),
        })
    }
}

/// Lines of `Key: value`.
#[derive(Default)]
pub(super) struct Block(String);

impl Block {
    pub(super) fn some(&mut self, key: &str, value: Option<impl Display>) {
        let value = value.map(|value| on_one_line(&value.to_string()));
        if let Some(value) = value.filter(|value| !value.trim().is_empty()) {
            writeln!(self.0, "{key}: {}", value.trim()).expect("a string takes all text");
        }
    }

    pub(super) fn end(mut self) -> String {
        self.0.push_str("%%\n");
        self.0
    }
}
