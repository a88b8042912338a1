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

/// Most of the past in one call; shorter where there is more to say of it than a command may, or says in its time.
const STEPS_S: [u64; 3] = [86_400, 3_600, 150];

/// Asks for what is behind the cursor: a day, where days are left that were not asked for, else all up to now, which
/// has been asked for before and is what has come late. What is too much for one call is asked for in shorter ones.
pub(super) async fn read(
    commands: &Commands,
    cursor: &Cursor,
    overlap_s: u64,
    now_s: u64,
    options: &Options,
) -> Result<Portion, CommandError> {
    let known = cursor.sacct_until;
    let since = known.unwrap_or(now_s.saturating_sub(FIRST_LOOK_S));
    let mut asked = cursor.sacct_asked.map_or(since, |asked| asked.max(since));
    let mut step = cursor.sacct_step.unwrap_or(STEPS_S[0]);
    let mut late = since;
    let (mark, text, to) = loop {
        let to = Some(asked.saturating_add(step)).filter(|to| *to < now_s);
        let from = if to.is_some() { asked } else { late };
        // A mark of its own for each call: users see how it was called.
        let mark = Mark::draw()?;
        let error = match ask(commands, &mark, from.saturating_sub(overlap_s), to).await {
            Ok(text) => break (mark, text, to),
            Err(error @ (CommandError::TooMuch { .. } | CommandError::Slow { .. })) => error,
            Err(error) => return Err(error),
        };
        if to.is_none() && late < asked && asked < now_s {
            // All of it was asked for, in pieces; the rest is at least not lost.
            late = asked;
            continue;
        }
        asked = if asked < now_s { asked } else { since };
        let left = step.min(now_s.saturating_sub(asked));
        let shorter = STEPS_S.into_iter().find(|step| *step < left);
        step = shorter.ok_or(error)?;
    };
    let more = to.is_some();
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
            sacct_asked: Some(to.unwrap_or(u64::MAX)),
            sacct_step: more.then_some(step),
            ..cursor.clone()
        },
        ..Portion::default()
    })
}

/// What `sacct` says of the time from one moment to another, or to now.
async fn ask(
    commands: &Commands,
    mark: &Mark,
    from: u64,
    to: Option<u64>,
) -> Result<String, CommandError> {
    let (start, end) = (moment(from), to.map(moment));
    let delimiter = format!("--delimiter={}", mark.text());
    let mut arguments = vec!["-a", "-X", "-P", "-D", &delimiter];
    arguments.extend(["-o", SACCT_FORMAT, "-S", &start]);
    if let Some(end) = &end {
        arguments.extend(["-E", end]);
    }
    commands.ask("sacct", &arguments).await
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
