//! A day of a log that is followed: it is rotated in every way and packed at once, its folder has strays, clocks are set
//! back and forth, the follower and the node are killed at any line, and the node is away or has no charter yet.
//!
//! The follower reads its wall clock in one place: a log that is named by a day to come does not count yet. The tests of
//! `fairmesh_schedulers::follow` set that clock, as it is a parameter there. All else that depends on a clock are the times
//! at which the file system says that logs were written, so here a step of the clock shifts these.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use flate2::write::GzEncoder;

use super::records::{Going, PATIENCE, Place, append, jobcomp};

/// What happens in the day. The lines are those of jobs that are counted from 1.
#[derive(Debug, Clone, Copy)]
enum Happens {
    Renamed,
    RenamedAndPacked,
    CopiedAndEmptied,
    CopiedPackedAndEmptied,
    Stray,
    ClockSet,
    FollowerKilled,
    NodeKilled,
    NodeAway,
    Nothing,
}

const ALL: [Happens; 10] = [
    Happens::Renamed,
    Happens::RenamedAndPacked,
    Happens::CopiedAndEmptied,
    Happens::CopiedPackedAndEmptied,
    Happens::Stray,
    Happens::ClockSet,
    Happens::FollowerKilled,
    Happens::NodeKilled,
    Happens::NodeAway,
    Happens::Nothing,
];

/// How far the clock is ahead after it was set, in seconds: it starts in 1970 without a battery, and may be days off.
const CLOCKS: [i64; 5] = [0, -3_600, 3_600, 3 * 86_400, -1_700_000_000];

/// The first step at which the node has a charter.
const CHARTER_FROM: usize = 12;

/// Dates a log as if it were written to now, by a clock that is so many seconds ahead.
fn date(log: &Path, ahead_s: i64) -> anyhow::Result<()> {
    let (now, by) = (
        SystemTime::now(),
        Duration::from_secs(ahead_s.unsigned_abs()),
    );
    let shown = match ahead_s < 0 {
        true => now - by,
        false => now + by,
    };
    Ok(File::options()
        .append(true)
        .open(log)?
        .set_modified(shown)?)
}

fn pack(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut packed = GzEncoder::new(File::create(to)?, Default::default());
    std::io::copy(&mut File::open(from)?, &mut packed)?;
    let modified = fs::metadata(from)?.modified()?;
    packed.finish()?.set_modified(modified)?;
    Ok(())
}

fn rotate(log: &Path, how: Happens, step: usize, ahead_s: i64) -> anyhow::Result<()> {
    let old = log.with_file_name(format!("jobcomp.log.{step}"));
    let packed = log.with_file_name(format!("jobcomp.log.{step}.gz"));
    date(log, ahead_s)?;
    match how {
        Happens::Renamed => fs::rename(log, old)?,
        Happens::RenamedAndPacked => {
            fs::rename(log, &old)?;
            pack(&old, &packed)?;
            fs::remove_file(old)?;
        }
        Happens::CopiedAndEmptied => {
            fs::copy(log, &old)?;
            date(&old, ahead_s)?;
            File::create(log)?;
        }
        Happens::CopiedPackedAndEmptied => {
            pack(log, &packed)?;
            File::create(log)?;
        }
        Happens::Stray => append(&log.with_file_name("README"), "no log\n")?,
        Happens::ClockSet
        | Happens::FollowerKilled
        | Happens::NodeKilled
        | Happens::NodeAway
        | Happens::Nothing => {}
    }
    Ok(())
}

/// Numbers that look random and are the same in each run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }
}

/// The node is away for a while, in which this job ends and the log is rotated, and the follower notices.
fn be_away(
    place: &mut Place,
    going: &mut Going,
    log: &Path,
    (step, job): (usize, u64),
) -> anyhow::Result<()> {
    place.kill()?;
    append(log, &jobcomp(job))?;
    going.await_line("trying again")?;
    rotate(log, Happens::Renamed, step, 0)?;
    append(log, "")?;
    place.start_again()?;
    going.await_line("all is well again")
}

#[test]
fn whatever_rotates_a_log_and_whoever_is_killed_each_record_counts_once() -> anyhow::Result<()> {
    let (mut place, vo) = Place::without_charter("physics", &["ann"])?;
    let log = place.path("jobcomp.log");
    let (mut draws, mut jobs, mut ahead_s) = (Draws(20_261_129), 1, 0);
    // What was rotated before the follower first read the log is not followed.
    append(&log, &jobcomp(1))?;
    let mut going = Some(Going::start(&place, "jobcomp.log")?);
    let follower = going.as_mut().expect("it runs");
    follower.await_line("refuses records for now")?;
    for step in 0..60 {
        if step == CHARTER_FROM {
            vo.publish(place.node())?;
        }
        let mut text = String::new();
        for _ in 0..=draws.below(3) {
            jobs += 1;
            text += &jobcomp(jobs);
        }
        // The last line comes in two parts.
        let half = text.len() - draws.below(text.len().min(200));
        append(&log, &text[..half])?;
        // The day is longer than the time between two looks of the follower, so that it reads halves of lines, too.
        let pause = 10 + 40 * u64::try_from(draws.below(2))?;
        std::thread::sleep(Duration::from_millis(pause));
        append(&log, &text[half..])?;
        let happens = ALL[draws.below(ALL.len())];
        rotate(&log, happens, step, ahead_s)?;
        match happens {
            Happens::ClockSet => ahead_s = CLOCKS[draws.below(CLOCKS.len())],
            Happens::FollowerKilled => {
                drop(going.take());
                going = Some(Going::start(&place, "jobcomp.log")?);
            }
            Happens::NodeKilled => place.kill_and_start()?,
            Happens::NodeAway if step > CHARTER_FROM => {
                let follower = going.as_mut().expect("it runs");
                jobs += 1;
                be_away(&mut place, follower, &log, (step, jobs))?;
            }
            _ => {}
        }
    }
    append(&log, "")?;
    place.await_logged(jobs)?;
    place.node().await_usage("physics", "ann", jobs * 10_000)?;
    let status = place.json(&["status"])?.to_string();
    assert!(!status.contains("log-lost"), "{status}");
    assert_eq!(going.expect("it runs").terminate()?, Some(0));
    Ok(())
}

#[test]
fn a_log_that_is_gone_before_it_was_read_is_reported_by_status_and_metrics() -> anyhow::Result<()> {
    let place = Place::start("physics", &["ann"])?;
    let log = place.path("jobcomp.log");
    append(&log, &jobcomp(1))?;
    let going = Going::start(&place, "jobcomp.log")?;
    place.await_logged(1)?;
    drop(going);
    append(&log, &jobcomp(2))?;
    fs::remove_file(&log)?;
    append(&log, &jobcomp(3))?;
    let going = Going::start(&place, "jobcomp.log")?;
    place.await_logged(2)?;
    // The follower reports the loss after the node has accepted the records.
    let began = Instant::now();
    loop {
        let status = place.json(&["status"])?.to_string();
        if status.contains("log-lost") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{status}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let metrics = String::from_utf8(place.run(&["metrics"])?.stdout)?;
    assert!(metrics.contains("follow_lost_logs_total 1"), "{metrics}");
    assert_eq!(going.terminate()?, Some(0));
    Ok(())
}
