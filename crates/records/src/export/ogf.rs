//! OGF Usage Records.
//!
//! Invariant: one record is one element, in the schema's order, and reads back as it was: key (but
//! for an instance that is not its start), owner, times, lengths, sizes, state.
//! Deliberately not here: signatures and properties that other systems define.

use std::fmt::Write;

use fairmesh_model::{Millis, WallTime};
use jiff::Timestamp;
use quick_xml::escape::escape;

use super::{Gap, on_one_line};
use crate::record::BatchRecord;
use crate::state::JobState;

/// What a file of several records begins with.
pub const USAGE_RECORDS_OPEN: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
    <urf:UsageRecords xmlns:urf=\"http://schema.ogf.org/urf/2003/09/urf\">\n";

/// What a file of several records ends with.
pub const USAGE_RECORDS_CLOSE: &str = "</urf:UsageRecords>\n";

const NAMESPACE: &str = "http://schema.ogf.org/urf/2003/09/urf";

/// The element of one record. `created` is when it is written.
///
/// # Errors
/// [`Gap`] where an ended job has no end, or a time is beyond the calendar.
pub fn usage_record(record: &BatchRecord, created: WallTime) -> Result<String, Gap> {
    let job = || record.key.job.clone();
    if record.state.has_ended() && record.end.is_none() {
        let field = "EndTime";
        return Err(Gap::Missing { job: job(), field });
    }
    let time = |moment: Option<WallTime>, field| {
        let iso = |moment| iso(moment).ok_or_else(|| Gap::Time { job: job(), field });
        moment.map(iso).transpose()
    };
    let mut xml = Elements::default();
    xml.open("JobUsageRecord", &[("xmlns:urf", NAMESPACE)]);
    let created = time(Some(created), "createTime")?.unwrap_or_default();
    let (cluster, instance) = (&record.key.cluster, record.key.instance);
    let id = format!("{cluster}/{}/{instance}", record.key.job);
    let identity = [("urf:recordId", id.as_str()), ("urf:createTime", &created)];
    xml.empty("RecordIdentity", &identity);
    xml.open("JobIdentity", &[]);
    xml.some("GlobalJobId", record.grid_job.as_deref());
    xml.some("LocalJobId", Some(&record.key.job));
    xml.close("JobIdentity");
    let owner = &record.origin;
    if owner.user.is_some() || owner.group.is_some() || owner.subject.is_some() {
        xml.open("UserIdentity", &[]);
        xml.some("GlobalUserName", owner.subject.as_deref());
        xml.some("LocalUserId", owner.user.as_deref());
        xml.some("LocalGroup", owner.group.as_deref());
        xml.close("UserIdentity");
    }
    xml.some("JobName", record.name.as_deref());
    xml.some("Status", Some(status(record.state)));
    xml.some("WallDuration", record.wall.map(duration).as_deref());
    let cpu = record.cpu_time.map(duration);
    xml.with("CpuDuration", ("urf:usageType", "all"), cpu.as_deref());
    xml.some("StartTime", time(record.start, "StartTime")?.as_deref());
    xml.some("EndTime", time(record.end, "EndTime")?.as_deref());
    xml.some("SubmitTime", time(record.submit, "SubmitTime")?.as_deref());
    xml.some("MachineName", Some(cluster));
    xml.some("Host", record.hosts.as_deref());
    xml.some("Queue", record.queue.as_deref());
    xml.some("ProjectName", owner.account.as_deref());
    let count = |count: Option<u32>| count.map(|count| count.to_string());
    xml.some("Processors", count(record.cpus).as_deref());
    xml.some("NodeCount", count(record.nodes).as_deref());
    for (kind, bytes) in [
        ("physical", record.memory_peak_bytes),
        ("virtual", record.virtual_peak_bytes),
    ] {
        let bytes = bytes.map(|bytes| bytes.to_string());
        xml.memory(kind, bytes.as_deref());
    }
    xml.close("JobUsageRecord");
    Ok(xml.text)
}

/// The words of GFD.98, section 4.3; how exactly a job failed has no place in them.
fn status(state: JobState) -> &'static str {
    match state {
        JobState::Completed => "completed",
        JobState::Cancelled | JobState::Deadline | JobState::Revoked => "aborted",
        JobState::Pending => "queued",
        JobState::Suspended => "suspended",
        state if state.has_ended() => "failed",
        _ => "started",
    }
}

/// ISO 8601 in UTC; a fraction of a second only where there is one.
pub(super) fn iso(moment: WallTime) -> Option<String> {
    let millis = i64::try_from(moment.0).ok()?;
    let moment = Timestamp::from_millisecond(millis).ok()?;
    Some(moment.to_string())
}

fn duration(length: Millis) -> String {
    let (whole, rest) = (length.0 / 1_000, length.0 % 1_000);
    if rest == 0 {
        return format!("PT{whole}S");
    }
    let decimals = format!("{rest:03}");
    format!("PT{whole}.{}S", decimals.trim_end_matches('0'))
}

/// Elements one below the other.
#[derive(Default)]
struct Elements {
    text: String,
    depth: usize,
}

impl Elements {
    fn open(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.tag(name, attributes, ">\n");
        self.depth += 1;
    }

    fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.tag(name, attributes, "/>\n");
    }

    fn close(&mut self, name: &str) {
        self.depth -= 1;
        let indent = self.depth * 2;
        self.write(format_args!("{:indent$}</urf:{name}>\n", ""));
    }

    fn some(&mut self, name: &str, content: Option<&str>) {
        self.element(name, &[], content);
    }

    fn with(&mut self, name: &str, attribute: (&str, &str), content: Option<&str>) {
        self.element(name, &[attribute], content);
    }

    fn memory(&mut self, kind: &str, bytes: Option<&str>) {
        let attributes = [
            ("urf:storageUnit", "B"),
            ("urf:metric", "max"),
            ("urf:type", kind),
        ];
        self.element("Memory", &attributes, bytes);
    }

    fn element(&mut self, name: &str, attributes: &[(&str, &str)], content: Option<&str>) {
        let Some(content) = content.filter(|content| !content.trim().is_empty()) else {
            return;
        };
        self.tag(name, attributes, ">");
        let content = allowed(content);
        self.write(format_args!("{}</urf:{name}>\n", escape(content)));
    }

    fn tag(&mut self, name: &str, attributes: &[(&str, &str)], end: &str) {
        let indent = self.depth * 2;
        self.write(format_args!("{:indent$}<urf:{name}", ""));
        for (key, value) in attributes {
            let value = allowed(value);
            self.write(format_args!(" {key}=\"{}\"", escape(value)));
        }
        self.text.push_str(end);
    }

    fn write(&mut self, what: std::fmt::Arguments<'_>) {
        self.text.write_fmt(what).expect("a string takes all text");
    }
}

/// Text without what XML 1.0 cannot hold at all, escaped or not.
fn allowed(text: &str) -> String {
    let clean = |c: char| match c {
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c => c,
    };
    on_one_line(text).chars().map(clean).collect()
}
