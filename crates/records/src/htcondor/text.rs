//! Ads as lines (`condor_history -long`, or a history file), and the lines of fields by `|` that
//! APEL's parser is fed with.
//!
//! Invariant: an ad ends at a blank line or at the banner of a history file (`*** Offset = …`). What its user
//! has added to it, of whatever length, does not lose it: those of its lines are kept that are read, up to a length.
//! Fields by `|` have no header: 10 of them, or 11 with a factor for the CPU time, which is not
//! applied here.

use fairmesh_model::{JobKey, Millis};

use super::ad::{self, Ad};
use crate::blocks::{BlockFormat, Place};
use crate::error::{Reason, quoted};
use crate::fields;
use crate::format::Format;
use crate::parser::{Ignored, LineFormat, Options};
use crate::record::BatchRecord;
use crate::state::JobState;
use crate::value;
use crate::zone::Zone;

/// Longest line that is kept: all of them together are far below what a record may have.
pub(super) const LINE_BYTES_MAX: usize = 4_096;

pub(crate) struct AdLines(pub(crate) Options);

impl BlockFormat for AdLines {
    fn place(&self, line: &str) -> Place {
        if line.trim().is_empty() || line.starts_with("***") {
            return Place::Ends;
        }
        let name = line.split_once('=').map(|(name, _)| name.trim());
        let is_read = name.is_none_or(|name| ad::is_read(&name.to_ascii_lowercase()));
        if is_read && line.len() <= LINE_BYTES_MAX {
            Place::Inside
        } else {
            Place::Skipped
        }
    }

    fn passes_long_lines(&self) -> bool {
        true
    }

    fn record(&self, text: &str) -> Result<BatchRecord, Reason> {
        ad::record(&parse(text)?, Format::HtcondorAds, &self.0)
    }
}

fn parse(text: &str) -> Result<Ad, Reason> {
    let pair = |line: &str| {
        let pair = line.split_once('=');
        let pair = pair.map(|(name, value)| (name.trim().to_ascii_lowercase(), unquoted(value)));
        pair.ok_or_else(|| Reason::Shape(format!("`{}` is not `Name = value`", quoted(line))))
    };
    text.lines().map(pair).collect()
}

/// A string without its quotation marks; any other value as it is.
fn unquoted(value: &str) -> String {
    let value = value.trim();
    let inner = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.map_or_else(|| value.to_owned(), unescaped)
}

/// A string as it was before HTCondor put backslashes into it.
pub(super) fn unescaped(text: &str) -> String {
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}

pub(crate) struct FieldLine(pub(crate) Options);

impl LineFormat for FieldLine {
    fn record(&self, line: &str) -> Result<Result<BatchRecord, Ignored>, Reason> {
        let row: Vec<&str> = line.split('|').collect();
        let (
            10 | 11,
            [
                job,
                user,
                wall,
                user_cpu,
                system_cpu,
                start,
                end,
                resident,
                image,
                cpus,
            ],
        ) = (row.len(), *row.first_chunk::<10>().unwrap_or(&[""; 10]))
        else {
            let found = row.len();
            return Err(Reason::Shape(format!(
                "{found} fields, where 10 or 11 are expected"
            )));
        };
        let label = job.trim();
        let (job, submit) = fields::condor_job(label);
        if job.is_empty() {
            return Err(Reason::missing("the job id"));
        }
        let key = JobKey {
            cluster: self.0.cluster.clone(),
            job: job.to_owned(),
            instance: submit.map_or(0, |submit| submit.0 / 1_000),
        };
        let mut record = BatchRecord::new(Format::HtcondorFields, key, JobState::Completed);
        record.submit = submit;
        fields::set_label(&mut record, label.to_owned());
        let utc = Zone::utc();
        let seconds = |field: &str, text: &str| {
            let millis = value::decimal(text, 3);
            millis.ok_or_else(|| Reason::field(field, text, "a number of seconds"))
        };
        let cpu = seconds("RemoteUserCpu", user_cpu).and_then(|user| {
            let system = seconds("RemoteSysCpu", system_cpu)?;
            Ok(Some(Millis(user.saturating_add(system))))
        });
        record.cpu_time = record.if_read(cpu);
        record.wall = Some(Millis(seconds("RemoteWallClockTime", wall)?));
        record.start = fields::time(&utc, "JobStartDate", start, None)?;
        record.end = fields::time(&utc, "EnteredCurrentStatus", end, None)?;
        record.origin.user = fields::name(user);
        record.cpus = fields::count("RequestCpus", cpus)?;
        record.memory_peak_bytes = value::bytes(resident, 1 << 10);
        record.virtual_peak_bytes = value::bytes(image, 1 << 10);
        record.checked().map(Ok)
    }
}
