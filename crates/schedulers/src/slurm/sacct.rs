//! `sacct`: what slurmdbd knows of finished jobs, a day at a time and by their end.
//!
//! Invariant: what ended behind the newest end that was seen, less `overlap`, is asked for again until something of it
//! is seen: slurmdbd may hear of late what slurmctld kept for it, for hours or days. The node knows what it has counted.
//! How far the days have been asked through is another thing, and only remembered: it keeps days in which nothing ended
//! from being asked for one by one again. Earlier runs of a requeued job are records of their own. Deliberately not here:
//! suspended time, which `sacct` has taken out of the elapsed time already.

use fairmesh_records::slurm::SACCT_FORMAT;
use fairmesh_records::{Format, Options, Records};

use crate::command::{CommandError, Commands};
use crate::feed::{Cursor, Portion};
use crate::mark::Mark;

/// How far back the first call goes: the longest that usage counts by default.
const FIRST_LOOK_S: u64 = 90 * 86_400;

/// Most of the past in one call.
const STEP_S: u64 = 86_400;

/// Asks for what is behind the cursor: a day, where days are left that were not asked for, else all up to now, which
/// has been asked for before and is what has come late.
pub(super) async fn read(
    commands: &Commands,
    cursor: &Cursor,
    overlap_s: u64,
    now_s: u64,
    options: &Options,
) -> Result<Portion, CommandError> {
    let known = cursor.sacct_until;
    let since = known.unwrap_or(now_s.saturating_sub(FIRST_LOOK_S));
    let asked = cursor.sacct_asked.map_or(since, |asked| asked.max(since));
    let to = asked.saturating_add(STEP_S);
    let more = to < now_s;
    let from = if more { asked } else { since }.saturating_sub(overlap_s);
    let (start, end) = (moment(from), moment(to));
    let mark = Mark::draw()?;
    let delimiter = format!("--delimiter={}", mark.text());
    let mut arguments = vec!["-a", "-X", "-P", "-D", &delimiter];
    arguments.extend(["-o", SACCT_FORMAT, "-S", &start]);
    if more {
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
    let newest = newest.map(|end| (end.0 / 1_000).min(now_s));
    let until = known.max(newest);
    Ok(Portion {
        records,
        bad,
        more,
        again_from_s: Some(until.unwrap_or(since).saturating_sub(overlap_s)),
        cursor: Cursor {
            sacct_until: until,
            sacct_asked: Some(if more { to } else { u64::MAX }),
            ..cursor.clone()
        },
        ..Portion::default()
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
