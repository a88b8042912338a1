//! `sacct`: what slurmdbd knows of finished jobs, a day at a time and by their end.
//!
//! Invariant: the next call asks again for `overlap` before the newest end that was seen, so a job
//! that slurmdbd hears of late is still found; the node knows what it has counted. Earlier runs of a
//! requeued job are records of their own. Deliberately not here: suspended time, which `sacct` has
//! taken out of the elapsed time already.

use fairmesh_records::slurm::SACCT_FORMAT;
use fairmesh_records::{Format, Options, Records};

use crate::command::{CommandError, Commands};
use crate::feed::Portion;
use crate::mark::Mark;

/// How far back the first call goes: the longest that usage counts by default.
const FIRST_LOOK_S: u64 = 90 * 86_400;

/// Most of the past in one call.
const STEP_S: u64 = 86_400;

/// Asks for jobs that ended after `until`, all in seconds since 1970; also gives up to when they are known now.
pub(super) async fn read(
    commands: &Commands,
    until: Option<u64>,
    overlap_s: u64,
    now_s: u64,
    options: &Options,
) -> Result<(Portion, u64), CommandError> {
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
    let text = commands.ask("sacct", &arguments).await?;
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
    let more = to < now_s;
    let until = if more { to } else { newest.min(now_s) };
    let portion = Portion {
        records,
        bad,
        more,
        again_from_s: Some(until.saturating_sub(overlap_s)),
        ..Portion::default()
    };
    Ok((portion, until))
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
