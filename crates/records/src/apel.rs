//! APEL's individual-job messages: blocks of `Key: value`, each ended by `%%`.
//!
//! Invariant: one bad block costs itself alone; times are seconds since the epoch, UTC.
//!
//! Source: APEL's message formats, individual job records, v0.3.

use std::collections::BTreeMap;

use fairmesh_model::{JobKey, Millis};

use crate::blocks::{BlockFormat, Place};
use crate::error::{Reason, quoted};
use crate::fields::{self, given};
use crate::format::Format;
use crate::parser::Options;
use crate::record::BatchRecord;
use crate::state::JobState;
use crate::value;
use crate::zone::Zone;

/// The first line of a message.
pub(crate) const HEADER: &str = "APEL-individual-job-message";

pub(crate) struct ApelBlock(pub(crate) Options);

impl BlockFormat for ApelBlock {
    fn place(&self, line: &str) -> Place {
        let line = line.trim();
        if line.is_empty() || line.starts_with(HEADER) {
            Place::Outside
        } else if line.starts_with("%%") {
            Place::Ends
        } else {
            Place::Inside
        }
    }

    fn record(&self, text: &str) -> Result<BatchRecord, Reason> {
        record(text, &self.0)
    }
}

fn record(text: &str, options: &Options) -> Result<BatchRecord, Reason> {
    let mut pairs = BTreeMap::new();
    for line in text.lines() {
        let pair = line.split_once(':');
        let pair =
            pair.ok_or_else(|| Reason::Shape(format!("`{}` has no `:`", quoted(line.trim()))))?;
        pairs.insert(pair.0.trim(), pair.1.trim());
    }
    let get = |key: &str| pairs.get(key).copied().unwrap_or_default();
    let must = |key: &str| given(get(key)).ok_or_else(|| Reason::missing(key));
    let cluster = given(get("MachineName")).or(given(get("SubmitHost")));
    let label = must("LocalJobId")?;
    let (job, submit) = fields::condor_job(label);
    let key = JobKey {
        cluster: cluster.unwrap_or(&options.cluster).to_owned(),
        job: job.to_owned(),
        instance: submit.map_or(0, |submit| submit.0 / 1_000),
    };
    let mut record = BatchRecord::new(Format::ApelJob, key, JobState::Completed);
    record.submit = submit;
    fields::set_label(&mut record, label.to_owned());
    let utc = Zone::utc();
    record.start = fields::time(&utc, "StartTime", must("StartTime")?, None)?;
    record.end = fields::time(&utc, "EndTime", must("EndTime")?, None)?;
    let length = |key: &str| -> Result<Option<Millis>, Reason> {
        let seconds = fields::number(key, get(key))?;
        Ok(seconds.map(Millis::from_secs))
    };
    record.wall = length("WallDuration")?;
    record.cpu_time = record.if_read(length("CpuDuration"));
    let name = |key: &str| given(get(key)).map(str::to_owned);
    record.origin.user = name("LocalUserId");
    record.origin.group = name("LocalUserGroup");
    record.origin.subject = name("GlobalUserName");
    record.fqans = name("FQAN").into_iter().collect();
    record.queue = name("Queue");
    record.machine = name("InfrastructureDescription");
    // 0 says that the site does not publish it.
    let count = |key: &str| -> Result<Option<u32>, Reason> {
        Ok(fields::count(key, get(key))?.filter(|count| *count > 0))
    };
    record.cpus = count("Processors")?;
    record.nodes = record.if_read(count("NodeCount"));
    record.memory_peak_bytes = given(get("MemoryReal")).and_then(|kib| value::bytes(kib, 1 << 10));
    record.virtual_peak_bytes =
        given(get("MemoryVirtual")).and_then(|kib| value::bytes(kib, 1 << 10));
    record.checked()
}
