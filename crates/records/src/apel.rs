//! APEL's individual-job messages: blocks of `Key: value`, each ended by `%%`.
//!
//! Invariant: one bad block costs itself alone; times are seconds since the epoch, UTC.
//!
//! Source: APEL's message formats, individual job records, v0.3.

use std::collections::BTreeMap;

use fairmesh_model::{JobKey, Millis};

use crate::error::{Reason, quoted};
use crate::fields::{self, given};
use crate::format::Format;
use crate::reader::{Found, Gathered, Ignored, Options, Parser};
use crate::record::BatchRecord;
use crate::state::JobState;
use crate::value;
use crate::zone::Zone;

/// The first line of a message.
pub(crate) const HEADER: &str = "APEL-individual-job-message";

pub(crate) struct ApelBlocks {
    options: Options,
    gathered: Gathered,
}

impl ApelBlocks {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            gathered: Gathered::default(),
        }
    }

    fn finish(&mut self, found: &mut Found) {
        let (first, text) = self.gathered.take();
        let record = text.and_then(|text| record(&text, &self.options));
        found.record(first, record);
    }
}

impl Parser for ApelBlocks {
    fn line(&mut self, line: &str, number: u64, found: &mut Found) {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(HEADER) {
            return found.ignore(Ignored::Decoration);
        }
        match (trimmed.starts_with("%%"), self.gathered.is_empty()) {
            (false, _) => self.gathered.push(trimmed, number),
            (true, false) => self.finish(found),
            (true, true) => found.ignore(Ignored::Decoration),
        }
    }

    fn end(&mut self, _number: u64, found: &mut Found) {
        if !self.gathered.is_empty() && !self.options.growing {
            self.finish(found);
        }
    }

    fn lost(&mut self) {
        self.gathered = Gathered::default();
    }

    fn is_at_rest(&self) -> bool {
        self.gathered.is_empty()
    }
}

fn record(text: &str, options: &Options) -> Result<BatchRecord, Reason> {
    let mut pairs = BTreeMap::new();
    for line in text.lines() {
        let pair = line.split_once(':');
        let pair = pair.ok_or_else(|| Reason::Shape(format!("`{}` has no `:`", quoted(line))))?;
        pairs.insert(pair.0.trim(), pair.1.trim());
    }
    let get = |key: &str| pairs.get(key).copied().unwrap_or_default();
    let must = |key: &str| given(get(key)).ok_or_else(|| Reason::missing(key));
    let cluster = given(get("MachineName")).or(given(get("SubmitHost")));
    let key = JobKey {
        cluster: cluster.unwrap_or(&options.cluster).to_owned(),
        job: must("LocalJobId")?.to_owned(),
        instance: 0,
    };
    let mut record = BatchRecord::new(Format::ApelJob, key, JobState::Completed);
    let utc = Zone::utc();
    record.start = fields::time(&utc, "StartTime", must("StartTime")?, None)?;
    record.end = fields::time(&utc, "EndTime", must("EndTime")?, None)?;
    let length = |key: &str| -> Result<Option<Millis>, Reason> {
        let seconds = fields::number(key, get(key))?;
        Ok(seconds.map(Millis::from_secs))
    };
    record.wall = length("WallDuration")?;
    record.cpu_time = length("CpuDuration")?;
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
    record.nodes = count("NodeCount")?;
    record.memory_peak_bytes = given(get("MemoryReal")).and_then(|kib| value::bytes(kib, 1 << 10));
    record.virtual_peak_bytes =
        given(get("MemoryVirtual")).and_then(|kib| value::bytes(kib, 1 << 10));
    record.checked()
}
