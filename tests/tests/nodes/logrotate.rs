//! A day of a log that is followed: it is rotated in every way, packed at once, has strays beside it, and whoever
//! follows it, and the node, are killed at any line.

use std::fs::{self, File};
use std::path::Path;

use flate2::write::GzEncoder;

use super::records::{Going, Place, append, jobcomp};

/// What happens in the day. The lines are those of jobs that are counted from 1.
#[derive(Debug, Clone, Copy)]
enum Happens {
    Renamed,
    RenamedAndPacked,
    CopiedAndEmptied,
    CopiedPackedAndEmptied,
    Stray,
    FollowerKilled,
    NodeKilled,
    Nothing,
}

const ALL: [Happens; 8] = [
    Happens::Renamed,
    Happens::RenamedAndPacked,
    Happens::CopiedAndEmptied,
    Happens::CopiedPackedAndEmptied,
    Happens::Stray,
    Happens::FollowerKilled,
    Happens::NodeKilled,
    Happens::Nothing,
];

fn pack(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut packed = GzEncoder::new(File::create(to)?, Default::default());
    std::io::copy(&mut File::open(from)?, &mut packed)?;
    let modified = fs::metadata(from)?.modified()?;
    packed.finish()?.set_modified(modified)?;
    Ok(())
}

fn rotate(log: &Path, how: Happens, step: usize) -> anyhow::Result<()> {
    let old = log.with_file_name(format!("jobcomp.log.{step}"));
    let packed = log.with_file_name(format!("jobcomp.log.{step}.gz"));
    match how {
        Happens::Renamed => fs::rename(log, old)?,
        Happens::RenamedAndPacked => {
            fs::rename(log, &old)?;
            pack(&old, &packed)?;
            fs::remove_file(old)?;
        }
        Happens::CopiedAndEmptied => {
            fs::copy(log, old)?;
            File::create(log)?;
        }
        Happens::CopiedPackedAndEmptied => {
            pack(log, &packed)?;
            File::create(log)?;
        }
        Happens::Stray => append(&log.with_file_name("README"), "no log\n")?,
        Happens::FollowerKilled | Happens::NodeKilled | Happens::Nothing => {}
    }
    Ok(())
}

#[test]
fn whatever_rotates_a_log_and_whoever_is_killed_each_record_counts_once() -> anyhow::Result<()> {
    let mut place = Place::start("physics", &["ann"])?;
    let log = place.path("jobcomp.log");
    let (mut random, mut jobs) = (20_261_129_u64, 1);
    let mut draw = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(random >> 33).expect("31 bits") % below
    };
    // What was rotated before it looked for the first time is not followed.
    append(&log, &jobcomp(1))?;
    let mut going = Some(Going::start(&place, "jobcomp.log")?);
    place.await_logged(1)?;
    for step in 0..60 {
        let mut text = String::new();
        for _ in 0..=draw(3) {
            jobs += 1;
            text += &jobcomp(jobs);
        }
        // The last line comes in two parts.
        let half = text.len() - draw(text.len().min(200));
        append(&log, &text[..half])?;
        // Two rotations are in two ticks of the file system's clock.
        let pause = 10 + 40 * u64::try_from(draw(2))?;
        std::thread::sleep(std::time::Duration::from_millis(pause));
        append(&log, &text[half..])?;
        let happens = ALL[draw(ALL.len())];
        rotate(&log, happens, step)?;
        match happens {
            Happens::FollowerKilled => {
                drop(going.take());
                going = Some(Going::start(&place, "jobcomp.log")?);
            }
            Happens::NodeKilled => place.kill_and_start()?,
            _ => {}
        }
    }
    append(&log, "")?;
    place.await_logged(jobs)?;
    place.node().await_usage("physics", "ann", jobs * 10_000)?;
    let status = place.json(&["status"])?.to_string();
    assert!(!status.contains("log-lost"), "{status}");
    assert_eq!(going.expect("it goes on").terminate()?, Some(0));
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
    let status = place.json(&["status"])?.to_string();
    assert!(status.contains("log-lost"), "{status}");
    let metrics = String::from_utf8(place.run(&["metrics"])?.stdout)?;
    assert!(metrics.contains("follow_lost_logs_total 1"), "{metrics}");
    assert_eq!(going.terminate()?, Some(0));
    Ok(())
}
