//! `sacct`: what slurmdbd knows of finished jobs, a day at a time and by their end.
//!
//! Invariant: the next call asks again for `overlap` before the newest end that was seen, so a job
//! that slurmdbd hears of late is still found; the node knows what it has counted. Earlier runs of a
//! requeued job are records of their own. Deliberately not here: suspended time, which `sacct` has
//! taken out of the elapsed time already.

use fairmesh_records::slurm::SACCT_FORMAT;
use fairmesh_records::{BatchRecord, Format, Options, Records};

use super::frame::Mark;
use super::runner::{Runner, SlurmError};

/// How far back the first call goes: the longest that usage counts by default.
const FIRST_LOOK_S: u64 = 90 * 86_400;

/// Most of the past in one call.
const STEP_S: u64 = 86_400;

/// What one call gave.
pub(super) struct Portion {
    /// Finished jobs, and others.
    pub(super) records: Vec<BatchRecord>,
    /// Lines that made no sense, and why.
    pub(super) bad: Vec<String>,
    /// Finished jobs are known up to here.
    pub(super) until: u64,
    /// Whether the past is not worked off.
    pub(super) more: bool,
}

/// Asks for jobs that ended after `until`, all in seconds since 1970.
pub(super) fn read(
    runner: &Runner,
    until: Option<u64>,
    overlap_s: u64,
    now_s: u64,
    options: &Options,
) -> Result<Portion, SlurmError> {
    let until = until.unwrap_or(now_s.saturating_sub(FIRST_LOOK_S));
    let (from, to) = (
        until.saturating_sub(overlap_s),
        until.saturating_add(STEP_S),
    );
    let (start, end) = (moment(from), moment(to));
    let mark = Mark::draw()?;
    let delimiter = format!("--delimiter={}", mark.text());
    let mut arguments = vec!["-a", "-X", "-P", "-D", &delimiter];
    arguments.extend(["-o", SACCT_FORMAT, "-S", &start]);
    if to < now_s {
        arguments.extend(["-E", &end]);
    }
    let text = runner.ask("sacct", &arguments)?;
    let (text, mut bad) = mark.lines(&text, SACCT_FORMAT.split(',').count());
    let mut records = Vec::new();
    for record in Records::new(text.as_bytes(), Format::SlurmSacct, options) {
        match record {
            Ok(record) => records.push(record),
            Err(error) => bad.push(error.to_string()),
        }
    }
    let ends = records.iter().filter(|record| record.state.has_ended());
    let newest = ends.filter_map(|record| record.end).max();
    let newest = newest.map_or(until, |end| until.max(end.0 / 1_000));
    Ok(Portion {
        records,
        bad,
        until: if to < now_s { to } else { newest.min(now_s) },
        more: to < now_s,
    })
}

/// A moment as `sacct` takes it: in the zone that the runner sets, which is UTC.
fn moment(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let moment = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
    moment.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn moments_are_in_utc() {
        assert_eq!(super::moment(1_795_238_184), "2026-11-21T05:16:24");
    }
}
