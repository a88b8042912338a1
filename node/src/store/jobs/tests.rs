use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::*;

/// So few become a segment, that there are many.
const FEW: usize = 200;

fn open(dir: &Path, newest: u64) -> Result<Jobs, String> {
    let mut jobs = Jobs::open(dir, newest).expect("can be read")?;
    jobs.recent_max = FEW;
    Ok(jobs)
}

/// The mark of a job that is charged up to some moment.
fn entry(job: u64, charged_until: u64) -> Entry {
    let mut value = [7; VALUE_BYTES];
    value[..8].copy_from_slice(&charged_until.to_be_bytes());
    // As evenly apart as hashes are.
    let key = (u128::from(job) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    (key.to_be_bytes(), value)
}

fn until(jobs: &Jobs, job: u64) -> Option<u64> {
    let value = jobs.get(&entry(job, 0).0).expect("is not damaged");
    value.map(|value| charged_until(&value))
}

/// Does what a thread is at, and what is due then.
fn settle(jobs: &mut Jobs) {
    while jobs.merge.is_some() {
        jobs.end_merge().expect("merged");
        jobs.tidy();
    }
}

/// Changes of fifty jobs each, of which ten have one already. What all of them come to, and the newest change.
fn fill(jobs: &mut Jobs, changes: u64) -> (BTreeMap<u64, u64>, u64) {
    let (mut all, mut newest) = (BTreeMap::new(), 0);
    for change in 0..changes {
        let of = (change * 40)..(change * 40 + 50);
        let entries = of.clone().map(|job| entry(job, change)).collect();
        newest = jobs.append(entries).expect("written");
        all.extend(of.map(|job| (job, change)));
        jobs.tidy();
        if change % 7 == 0 {
            settle(jobs);
        }
    }
    (all, newest)
}

fn assert_all(jobs: &Jobs, all: &BTreeMap<u64, u64>) {
    for (job, charged) in all {
        assert_eq!(until(jobs, *job), Some(*charged), "job {job}");
    }
    assert_eq!(jobs.keys().len(), all.len());
    assert_eq!(until(jobs, 1 << 40), None);
}

#[test]
fn each_job_has_its_last_mark_whatever_was_packed_and_over_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = open(dir.path(), 0).expect("whole");
    let (all, newest) = fill(&mut jobs, 500);
    assert_all(&jobs, &all);
    settle(&mut jobs);
    assert_all(&jobs, &all);
    let sizes: Vec<u64> = jobs.segments.iter().map(|(_, of)| of.marks).collect();
    assert!(sizes.len() <= 3 * 4, "there are few: {sizes:?}");
    drop(jobs);
    let mut jobs = open(dir.path(), newest).expect("whole");
    assert_all(&jobs, &all);
    assert_eq!(jobs.append(vec![entry(0, 9)]).expect("written"), newest + 1);
    assert_eq!(until(&jobs, 0), Some(9));
}

#[test]
fn a_mark_takes_little_on_disk() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = Jobs::open(dir.path(), 0).expect("read").expect("whole");
    let marks = 2 * RECENT_MAX as u64;
    for first in (0..marks).step_by(1 << 12) {
        let entries = (first..first + (1 << 12)).map(|job| entry(job, job));
        jobs.append(entries.collect()).expect("written");
        jobs.tidy();
    }
    let bytes: u64 = fs::read_dir(dir.path())
        .expect("there")
        .map(|entry| entry.expect("there").metadata().expect("there").len())
        .sum();
    assert!(bytes < 44 * marks, "{bytes} bytes for {marks}");
    assert!(jobs.recent.marks.is_empty());
}

#[test]
fn what_is_not_there_is_mostly_known_without_a_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = open(dir.path(), 0).expect("whole");
    fill(&mut jobs, 200);
    settle(&mut jobs);
    // Whatever is read now is damaged.
    for (_, segment) in &jobs.segments {
        let length = fs::metadata(segment.path()).expect("there").len();
        let file = File::options().write(true).open(segment.path());
        let file = file.expect("opens");
        for block in (0..length / 4096).map(|block| block * 4096) {
            file.write_all_at(&[0; 64], block).expect("written");
        }
    }
    let others = 1 << 40..(1 << 40) + 1_000;
    let read = others
        .filter(|job| jobs.get(&entry(*job, 0).0).is_err())
        .count();
    assert!(read < 40 * jobs.segments.len(), "{read} of 1000");
    assert!(jobs.get(&entry(7, 0).0).is_err());
}

#[test]
fn what_the_history_has_passed_over_goes_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = open(dir.path(), 0).expect("whole");
    let (all, newest) = fill(&mut jobs, 400);
    for before in [100, 250, 390] {
        jobs.forget(WallTime(before));
        settle(&mut jobs);
        for (job, charged) in all.iter().filter(|(_, charged)| **charged >= before) {
            assert_eq!(until(&jobs, *job), Some(*charged), "job {job}");
        }
        let needed = all.values().filter(|charged| **charged >= before).count();
        let kept = jobs.keys().len();
        assert!(
            kept < 2 * needed + 3 * FEW,
            "{kept} where {needed} are needed"
        );
    }
    drop(jobs);
    let jobs = open(dir.path(), newest).expect("a chain, though most of it is empty");
    assert_eq!(until(&jobs, 400 * 40), Some(399));
}

#[test]
fn a_change_that_the_store_did_not_follow_is_not_there_and_one_that_is_torn_neither() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = open(dir.path(), 0).expect("whole");
    assert_eq!(jobs.append(vec![entry(1, 1)]).expect("written"), 1);
    assert_eq!(
        jobs.append(vec![entry(1, 2), entry(2, 2)])
            .expect("written"),
        2
    );
    drop(jobs);
    let path = dir.path().join("jobs.recent");
    let whole = fs::read(&path).expect("there");
    for cut in 0..=90 {
        fs::write(&path, &whole[..whole.len() - cut]).expect("written");
        let mut jobs = open(dir.path(), 1).expect("the first is whole");
        assert_eq!(
            [1, 2].map(|job| until(&jobs, job)),
            [Some(1), None],
            "{cut}"
        );
        assert_eq!(jobs.append(vec![entry(3, 3)]).expect("written"), 2);
        drop(jobs);
        let jobs = open(dir.path(), 2).expect("whole");
        assert_eq!(
            [1, 2, 3].map(|job| until(&jobs, job)),
            [Some(1), None, Some(3)]
        );
    }
    fs::write(&path, &whole[..whole.len() - 1]).expect("written");
    let words = open(dir.path(), 2).expect_err("it was on disk");
    assert!(
        words.contains("jobs.recent") && words.contains("change 1"),
        "{words}"
    );
}

#[test]
fn whatever_a_packing_that_was_cut_off_has_left_nothing_is_lost_or_twice() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = open(dir.path(), 0).expect("whole");
    let (all, newest) = fill(&mut jobs, 60);
    // Before it is put in their place, all of it beside what it was made of.
    let before = tempfile::tempdir().expect("a folder");
    let copy = |to: &Path| {
        for entry in fs::read_dir(dir.path()).expect("there").flatten() {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    };
    copy(before.path());
    jobs.pack_recent().expect("packed");
    copy(before.path());
    fs::write(before.path().join(MERGING), b"half of it").expect("written");
    fs::write(before.path().join(PACKING), b"half of it").expect("written");
    let whole = jobs.segments.len();
    jobs.merge = Some(jobs.begin_merge(0..whole).expect("begun"));
    jobs.end_merge().expect("merged");
    copy(before.path());
    assert!(fs::read_dir(before.path()).expect("there").count() > whole + 2);
    let jobs = open(before.path(), newest).expect("whole");
    assert_all(&jobs, &all);
    assert_eq!(jobs.segments.len(), 1);
    assert_eq!(fs::read_dir(before.path()).expect("there").count(), 2);
}

#[test]
fn a_segment_that_cannot_be_merged_keeps_no_marks_in_memory() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = open(dir.path(), 0).expect("whole");
    let mut all = 0..;
    let mut add = |jobs: &mut Jobs| {
        let entries = all.by_ref().take(50).map(|job| entry(job, 1));
        jobs.append(entries.collect()).expect("written");
        jobs.tidy();
    };
    while jobs.segments.is_empty() {
        add(&mut jobs);
    }
    let segment = File::options().write(true).open(jobs.segments[0].1.path());
    let segment = segment.expect("opens");
    segment.write_all_at(&[0; 64], 0).expect("written");
    for _ in 0..100 {
        add(&mut jobs);
        while jobs
            .merge
            .as_ref()
            .is_some_and(|of| !of.thread.is_finished())
        {
            thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    assert!(jobs.is_stuck[1] && jobs.recent.marks.len() < FEW);
    assert_eq!(until(&jobs, 5_000), Some(1));
}

#[test]
fn what_comes_behind_a_packing_that_could_not_be_ended_is_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = open(dir.path(), 0).expect("whole");
    let (mut all, _) = fill(&mut jobs, 58);
    // In the way of the file that is to begin behind the segment.
    let in_the_way = dir.path().join(recent::NAMES[1]);
    fs::create_dir(&in_the_way).expect("made");
    jobs.pack_recent().expect_err("no other can be begun");
    let newest = jobs.append(vec![entry(0, 99), entry(1 << 20, 99)]);
    all.extend([(0, 99), (1 << 20, 99)]);
    assert_all(&jobs, &all);
    drop(jobs);
    fs::remove_dir(&in_the_way).expect("removed");
    let newest = newest.expect("written");
    let mut jobs = open(dir.path(), newest).expect("whole");
    assert_all(&jobs, &all);
    jobs.pack_recent().expect("packed");
    assert_all(&jobs, &all);
    drop(jobs);
    assert_all(&open(dir.path(), newest).expect("whole"), &all);
}

#[test]
fn a_file_that_is_gone_or_whose_bits_flip_is_named_and_nothing_of_it_served() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = open(dir.path(), 0).expect("whole");
    let (all, newest) = fill(&mut jobs, 58);
    settle(&mut jobs);
    assert!(jobs.segments.len() > 1 && !jobs.recent.marks.is_empty());
    drop(jobs);
    let files: Vec<PathBuf> = fs::read_dir(dir.path())
        .expect("there")
        .map(|entry| entry.expect("there").path())
        .collect();
    for path in files {
        let name = path.file_name().expect("a name").to_string_lossy();
        let whole = fs::read(&path).expect("there");
        fs::remove_file(&path).expect("removed");
        let words = open(dir.path(), newest).err();
        // Without the recent ones nobody knows where the last segment ends.
        let words = words.unwrap_or_else(|| panic!("{name} is missed by nobody"));
        assert!(words.contains("jobs."), "{name}: {words}");
        let end = whole.len().saturating_sub(60)..whole.len();
        for at in (0..whole.len()).step_by(307).chain(end.step_by(3)) {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            fs::write(&path, bytes).expect("written");
            let jobs = match open(dir.path(), newest) {
                Err(words) => {
                    assert!(words.contains(&*name), "{name} at {at}: {words}");
                    continue;
                }
                Ok(jobs) => jobs,
            };
            let mut unread = 0;
            for (job, charged) in &all {
                match jobs.get(&entry(*job, 0).0) {
                    Ok(value) => {
                        let value = value.map(|value| charged_until(&value));
                        assert_eq!(value, Some(*charged), "{name} at {at}");
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
                        assert!(error.to_string().contains(&*name), "{error}");
                        unread += 1;
                    }
                }
            }
            // Whatever may be in that block: which jobs these are nobody knows any more.
            assert!(
                (1..all.len() / 2).contains(&unread),
                "{name} at {at}: {unread} not read"
            );
        }
        fs::write(&path, whole).expect("written");
    }
}
