//! The fields that most formats share, however they name them.
//!
//! Invariant: a word for "nothing" (`Unknown`, `None`, `N/A`, an empty field) is `None`, and any
//! other value that is not what the field holds is an error that names the field.

use csv_core::{ReadRecordResult, ReaderBuilder};
use fairmesh_model::{Millis, WallTime};

use crate::error::Reason;
use crate::record::{BatchRecord, Exit};
use crate::state::JobState;
use crate::value;
use crate::zone::Zone;

/// The value, unless it stands for none.
pub(crate) fn given(text: &str) -> Option<&str> {
    let text = text.trim();
    let none = ["unknown", "none", "n/a", "(null)", "null", "invalid"];
    let is_none = text.is_empty() || none.iter().any(|word| text.eq_ignore_ascii_case(word));
    (!is_none).then_some(text)
}

/// A name: unlike other values it may be a word for "nothing", so only an empty field is none.
pub(crate) fn name(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text != "(null)").then(|| text.to_owned())
}

/// A time, not before another where that decides between two readings. The epoch is no time.
pub(crate) fn time(
    zone: &Zone,
    field: &str,
    text: &str,
    not_before: Option<WallTime>,
) -> Result<Option<WallTime>, Reason> {
    let Some(text) = given(text).filter(|text| *text != "0") else {
        return Ok(None);
    };
    let moment = zone.parse(text, not_before);
    moment
        .map(Some)
        .ok_or_else(|| Reason::field(field, text, "a time"))
}

pub(crate) fn number(field: &str, text: &str) -> Result<Option<u64>, Reason> {
    let number = |text| value::count(text).ok_or_else(|| Reason::field(field, text, "a number"));
    given(text).map(number).transpose()
}

/// A count that a record has room for.
pub(crate) fn count(field: &str, text: &str) -> Result<Option<u32>, Reason> {
    number(field, text)?
        .map(|count| narrow(field, count))
        .transpose()
}

pub(crate) fn narrow(field: &str, count: u64) -> Result<u32, Reason> {
    u32::try_from(count)
        .map_err(|_| Reason::field(field, &count.to_string(), "a number below 2^32"))
}

/// A length of time; words for "no limit" are none.
pub(crate) fn length(field: &str, text: &str) -> Result<Option<Millis>, Reason> {
    let unlimited = ["unlimited", "infinite", "partition_limit", "not_set"];
    let limited = |text: &&str| !unlimited.iter().any(|word| text.eq_ignore_ascii_case(word));
    let length =
        |text| value::duration(text).ok_or_else(|| Reason::field(field, text, "[days-]hh:mm:ss"));
    given(text).filter(limited).map(length).transpose()
}

/// A number of minutes, or a length of time.
pub(crate) fn minutes(field: &str, text: &str) -> Result<Option<Millis>, Reason> {
    match text.trim().parse::<u64>() {
        Ok(minutes) => Ok(Some(Millis::from_secs(minutes.saturating_mul(60)))),
        Err(_) => length(field, text),
    }
}

/// An amount of energy that is written in kWh, in joules.
pub(crate) fn kwh(field: &str, text: &str) -> Result<Option<u64>, Reason> {
    let joules = |text| {
        value::decimal(text, 6)?
            .checked_mul(36)
            .map(|tenths| tenths / 10)
    };
    let energy = |text| joules(text).ok_or_else(|| Reason::field(field, text, "kWh"));
    given(text).map(energy).transpose()
}

pub(crate) fn state(text: &str) -> Result<JobState, Reason> {
    JobState::parse(text).ok_or_else(|| Reason::UnknownState(crate::error::quoted(text)))
}

pub(crate) fn exit(field: &str, text: &str) -> Result<Option<Exit>, Reason> {
    let Some(text) = given(text) else {
        return Ok(None);
    };
    let (code, signal) = text.split_once(':').unwrap_or((text, "0"));
    match (code.parse(), signal.parse()) {
        (Ok(code), Ok(signal)) => Ok(Some(Exit { code, signal })),
        _ => Err(Reason::field(field, text, "code:signal")),
    }
}

/// A job completion plug-in's record of a run that was requeued says PENDING, for that is what the
/// job is by then; it ended all the same. So did the part of a job that was resized, and says that it began then.
pub(crate) fn after_requeue(record: &mut BatchRecord) {
    if record.state == JobState::Resizing && record.end.is_some() {
        (record.state, record.start) = (JobState::Resized, None);
    } else if !record.state.has_ended() && record.end.is_some() {
        record.state = JobState::Requeued;
    }
}

/// Completes the key of a run in Slurm. Its submit time distinguishes it from the job's other runs; without it the job
/// would have another key than in other reports, and count twice.
pub(crate) fn set_instance(record: &mut BatchRecord, field: &str) -> Result<(), Reason> {
    let submit = record.submit.ok_or_else(|| Reason::missing(field))?;
    record.key.instance = submit.0 / 1_000;
    Ok(())
}

/// A label, where it is not the key's own id.
pub(crate) fn set_label(record: &mut BatchRecord, label: String) {
    record.label = (label != record.key.job).then_some(label);
}

/// A job of HTCondor in the forms that accounting scripts give it, as its own sources name it, with its submit time if
/// the form has that: `5.0`, `5.0_schedd`, `schedd#5.0#1795132800`. Any other id stays as it is.
pub(crate) fn condor_job(id: &str) -> (&str, Option<WallTime>) {
    let is_job = |text: &str| {
        let numbers = text.split_once('.');
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        numbers.is_some_and(|(cluster, process)| is_number(cluster) && is_number(process))
    };
    let id = id.trim();
    if let [_, job, submit] = id.split('#').collect::<Vec<_>>()[..]
        && is_job(job)
    {
        // Shortened ids have a few digits of it.
        let submit = submit
            .parse()
            .ok()
            .filter(|submit| *submit >= 1_000_000_000);
        return (job, submit.map(WallTime::from_unix_secs));
    }
    match id.split_once('_') {
        Some((job, _)) if is_job(job) => (job, None),
        _ => (id, None),
    }
}

/// The words of a line, without their quotation marks.
pub(crate) fn words(line: &str, delimiter: u8) -> Result<Vec<String>, Reason> {
    let shape = || Reason::Shape("not a line of words".to_owned());
    // With its line end, a record is complete in one call.
    let line = format!("{line}\n");
    let mut reader = ReaderBuilder::new().delimiter(delimiter).build();
    let mut text = vec![0; line.len() + 1];
    let mut ends = vec![0; line.len() + 1];
    let (result, _, _, count) = reader.read_record(line.as_bytes(), &mut text, &mut ends);
    if !matches!(result, ReadRecordResult::Record) {
        return Err(shape());
    }
    let mut start = 0;
    let mut all = Vec::with_capacity(count);
    for end in &ends[..count] {
        let word = text.get(start..*end).ok_or_else(shape)?;
        all.push(String::from_utf8_lossy(word).into_owned());
        start = *end;
    }
    Ok(all)
}
