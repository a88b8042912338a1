//! A log that grows, and every way in which logs are rotated.

use std::fs;
use std::io::Write as _;

use fairmesh_model::WallTime;

use super::folder::is_ahead;
use super::*;

fn reader(options: &Options, most: usize) -> Reader<'_> {
    Reader {
        most,
        ..Reader::new(Format::SlurmJobcomp, options)
    }
}

fn line(job: u64) -> String {
    format!(
        "JobId={job} UserId=ann(7) GroupId=ann(7) Name=wrap JobState=COMPLETED Partition=main \
         TimeLimit=5 StartTime=2026-11-21T05:13:46 EndTime=2026-11-21T05:13:48 NodeList=n1 \
         NodeCnt=1 ProcCnt=8 WorkDir=/ ReservationName= Tres=cpu=8,node=1 Account=vo1 QOS= WcKey= \
         Cluster=unknown SubmitTime=2026-11-21T05:13:43 EligibleTime=2026-11-21T05:13:43 \
         DerivedExitCode=0:0 ExitCode=0:0 \n"
    )
}

struct Followed {
    _folder: tempfile::TempDir,
    path: std::path::PathBuf,
    at: Option<FilePosition>,
}

impl Followed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobcomp.log");
        Self {
            _folder: folder,
            path,
            at: None,
        }
    }

    fn write(&self, text: &str) {
        let file = File::options().create(true).append(true).open(&self.path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .expect("written");
    }

    fn jobs(&mut self, most: usize) -> Vec<String> {
        let options = Options {
            cluster: "c".to_owned(),
            growing: true,
            ..Options::default()
        };
        let portion = reader(&options, most).read(&self.path, self.at.as_ref());
        let portion = portion.expect("read");
        assert!(portion.bad.is_empty());
        self.at = Some(portion.next);
        let jobs = portion.records.into_iter();
        jobs.map(|record| record.key.job).collect()
    }
}

#[test]
fn a_line_is_read_once_it_is_whole() {
    let mut file = Followed::new();
    let second = line(2);
    file.write(&line(1));
    file.write(&second[..40]);
    assert_eq!(file.jobs(10), ["1"]);
    assert_eq!(file.jobs(10), [""; 0]);
    file.write(&second[40..]);
    assert_eq!(file.jobs(10), ["2"]);
}

#[test]
fn of_long_records_a_portion_has_few() {
    let mut file = Followed::new();
    let name = format!("Name={}", "x".repeat(1_000_000));
    let lines: Vec<String> = (0..20)
        .map(|job| line(job).replace("Name=wrap", &name))
        .collect();
    file.write(&lines.concat());
    let options = Options {
        growing: true,
        ..Options::default()
    };
    let first = reader(&options, 100).read(&file.path, None).expect("read");
    assert!(
        first.more && first.records.len() == 17,
        "{}",
        first.records.len()
    );
    file.at = Some(first.next);
    assert_eq!(file.jobs(100), ["17", "18", "19"]);
}

#[test]
fn a_renamed_file_is_read_to_its_end_first() {
    let mut file = Followed::new();
    file.write(&line(1));
    assert_eq!(file.jobs(10), ["1"]);
    file.write(&line(2));
    fs::rename(&file.path, file.path.with_extension("log.1")).expect("renamed");
    file.write(&line(3));
    assert_eq!(file.jobs(10), ["2"]);
    assert_eq!(file.jobs(10), ["3"]);
    assert_eq!(file.jobs(10), [""; 0]);
}

#[test]
fn an_emptied_file_begins_anew_and_portions_are_bounded() {
    let mut file = Followed::new();
    file.write(&(line(1) + &line(2) + &line(3)));
    assert_eq!(file.jobs(2), ["1", "2"]);
    assert_eq!(file.jobs(2), ["3"]);
    File::create(&file.path).expect("emptied");
    file.write(&line(4));
    assert_eq!(file.jobs(2), ["4"]);
}

#[test]
fn a_file_that_was_copied_and_emptied_is_read_to_its_end_first() {
    let mut file = Followed::new();
    file.write(&line(1));
    assert_eq!(file.jobs(10), ["1"]);
    file.write(&line(2));
    fs::copy(&file.path, file.path.with_extension("log.1")).expect("copied");
    File::create(&file.path).expect("emptied");
    // As long as what was there before: only its beginning tells it apart.
    file.write(&(line(3) + &line(4)));
    assert_eq!(file.jobs(10), ["2"]);
    assert_eq!(file.jobs(10), ["3", "4"]);
    assert_eq!(file.jobs(10), [""; 0]);
}

#[test]
fn a_bad_line_is_given_with_its_number_and_text() {
    let mut file = Followed::new();
    file.write(&(line(1) + "JobId=x nonsense\n" + &line(2)));
    let options = Options::default();
    let portion = reader(&options, 10).read(&file.path, None).expect("read");
    assert_eq!(portion.records.len(), 2);
    let bad = &portion.bad[0];
    assert_eq!(
        (bad.line, bad.text.as_slice()),
        (2, &b"JobId=x nonsense"[..])
    );
    file.at = Some(portion.next);
    assert_eq!(file.jobs(10), [""; 0]);
}

#[test]
fn logs_that_were_rotated_while_nobody_looked_are_read_in_their_order() {
    let mut file = Followed::new();
    let beside = |file: &Followed, end: &str| file.path.with_extension(end);
    let at = |path: &std::path::Path, second: u64| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
        let log = File::options().append(true).open(path).expect("opened");
        log.set_modified(time).expect("dated");
    };
    file.write(&line(1));
    assert_eq!(file.jobs(10), ["1"]);
    fs::rename(&file.path, beside(&file, "log.3")).expect("renamed");
    for (end, job, second) in [("log.2", 2, 200), ("log.1", 3, 300)] {
        file.write(&line(job));
        at(&file.path, second);
        fs::rename(&file.path, beside(&file, end)).expect("renamed");
    }
    at(&beside(&file, "log.3"), 100);
    fs::write(beside(&file, "log.rejects"), "no log").expect("written");
    file.write(&line(4));
    for jobs in [vec!["2"], vec!["3"], vec!["4"], vec![]] {
        assert_eq!(file.jobs(10), jobs);
    }
}

/// A server whose clock was in 2036 for a moment has left an empty log of then, and goes on in those of today.
#[test]
fn a_log_of_a_day_to_come_ends_none_of_the_days_before() -> anyhow::Result<()> {
    // 2 January 2026, an hour before midnight UTC.
    let now = WallTime::from_unix_secs(1_767_394_800);
    for (name, ahead) in [
        ("20260102", false),
        ("20260103", false),
        ("20260104", true),
        ("20360101", true),
        ("jobcomp.log", false),
    ] {
        assert_eq!(is_ahead(name, now), ahead, "{name}");
    }
    let folder = tempfile::tempdir()?;
    let write = |day: &str, text: &str| fs::write(folder.path().join(day), text);
    let options = Options {
        growing: true,
        ..Options::default()
    };
    let read_on = |from: Option<FilePosition>, now: WallTime| {
        let (mut at, mut jobs) = (from, Vec::new());
        loop {
            let folder = folder.path();
            let listing = Listing::new(folder, now)?;
            let read = reader(&options, 10).read_folder(folder, &listing, at.as_ref())?;
            jobs.extend(read.records.into_iter().map(|record| record.key.job));
            at = Some(read.next);
            if !read.more {
                return anyhow::Ok((at, jobs));
            }
        }
    };
    write("20260101", &line(1))?;
    write("20360101", "")?;
    let (at, jobs) = read_on(None, now)?;
    assert_eq!(jobs, ["1"]);
    // A feed that had taken it for the newest.
    let (ahead, _) = read_on(None, WallTime::from_unix_secs(2_082_758_400))?;
    write("20260102", &line(2))?;
    assert_eq!(read_on(at, now)?.1, ["2"]);
    let (at, jobs) = read_on(ahead, now)?;
    assert_eq!(jobs, ["2"]);
    let (at, jobs) = read_on(at, now)?;
    assert_eq!(jobs, [""; 0]);
    // A server whose clock was ahead goes on in the log of the day before.
    write("20260103", &line(3))?;
    let (at, jobs) = read_on(at, now)?;
    assert_eq!(jobs, ["3"]);
    let second = line(2) + &line(4);
    write("20260102", &second[..second.len() - 9])?;
    let (at, jobs) = read_on(at, now)?;
    assert_eq!(jobs, [""; 0], "half a line");
    write("20260102", &second)?;
    let (at, jobs) = read_on(at, now)?;
    assert_eq!(jobs, ["4"]);
    assert_eq!(read_on(at, now)?.1, [""; 0]);
    Ok(())
}

/// `sacct > file` from cron: the same inode and the same first bytes, with lines that have changed or gone before the place.
#[test]
fn a_file_that_is_rewritten_is_read_again_from_its_beginning() {
    let mut followed = Followed::new();
    followed.write(&(1..=9).map(line).collect::<String>());
    assert_eq!(followed.jobs(100).len(), 9);
    let rewritten = [1, 2, 3, 4, 50, 6, 7, 8, 90, 10].map(line).concat();
    fs::write(&followed.path, &rewritten).expect("rewritten");
    assert_eq!(followed.jobs(100).len(), 10, "all of them");
    followed.write(&line(11));
    assert_eq!(followed.jobs(100), ["11"]);
}

fn pack(path: &std::path::Path, to: &str, end: &str) {
    let text = fs::read(path).expect("read");
    let modified = fs::metadata(path)
        .and_then(|of| of.modified())
        .expect("a time");
    let packed = match end {
        "gz" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(&text).expect("packed");
            encoder.finish().expect("packed")
        }
        "bz2" => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(&text).expect("packed");
            encoder.finish().expect("packed")
        }
        _ => zstd::encode_all(text.as_slice(), 0).expect("packed"),
    };
    let to = path.with_file_name(format!("jobcomp.log.{to}.{end}"));
    fs::write(&to, packed).expect("written");
    let file = File::options().write(true).open(&to).expect("opened");
    file.set_modified(modified).expect("set");
    fs::remove_file(path).expect("removed");
}

/// `compress` without `delaycompress`, and more than one rotation while nobody looked.
#[test]
fn a_log_that_was_packed_when_it_was_rotated_is_read_to_its_end_first() {
    for end in ["gz", "bz2", "zst"] {
        let mut file = Followed::new();
        file.write(&line(1));
        assert_eq!(file.jobs(10), ["1"]);
        file.write(&line(2));
        pack(&file.path, "1", end);
        std::thread::sleep(std::time::Duration::from_millis(20));
        file.write(&line(3));
        pack(&file.path, "2", end);
        std::thread::sleep(std::time::Duration::from_millis(20));
        file.write(&line(4));
        let jobs: Vec<String> = (0..4).flat_map(|_| file.jobs(10)).collect();
        assert_eq!(jobs, ["2", "3", "4"], "{end}");
    }
}

/// A new log that had half a line when it was looked at, and is rotated before it is looked at again.
#[test]
fn a_log_without_a_whole_line_is_not_forgotten() {
    for packs in [false, true] {
        let mut file = Followed::new();
        file.write(&line(1));
        assert_eq!(file.jobs(10), ["1"]);
        fs::rename(&file.path, file.path.with_extension("log.1")).expect("renamed");
        file.write(&line(2)[..40]);
        assert_eq!(file.jobs(10), [""; 0]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        file.write(&line(2)[40..]);
        match packs {
            true => pack(&file.path, "2", "gz"),
            false => {
                fs::copy(&file.path, file.path.with_extension("log.2")).expect("copied");
                fs::write(&file.path, "").expect("emptied");
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        file.write(&line(3));
        let jobs: Vec<String> = (0..3).flat_map(|_| file.jobs(10)).collect();
        assert_eq!(jobs, ["2", "3"], "{packs}");
    }
}

#[test]
fn a_log_that_is_gone_with_what_was_not_read_is_lost() {
    let mut file = Followed::new();
    file.write(&line(1));
    assert_eq!(file.jobs(10), ["1"]);
    file.write(&line(2));
    fs::rename(&file.path, file.path.with_file_name("elsewhere")).expect("moved");
    file.write(&line(3));
    let options = Options {
        growing: true,
        ..Options::default()
    };
    let read = reader(&options, 10).read(&file.path, file.at.as_ref());
    let read = read.expect("read");
    assert_eq!((read.lost, read.records.len()), (Some(file.path), 1));
}

/// Rotated logs are put in order by their times, which go back with the clock of the machine.
#[test]
fn logs_that_were_rotated_while_the_clock_was_set_back_and_forth_are_read() {
    let mut file = Followed::new();
    file.write(&line(1));
    assert_eq!(file.jobs(10), ["1"]);
    file.write(&line(2));
    for (job, second) in [(3, 500), (4, 100), (5, 900), (6, 300)] {
        let log = File::options().append(true).open(&file.path);
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
        log.and_then(|log| log.set_modified(time)).expect("dated");
        let rotated = format!("jobcomp.log.{second}");
        fs::rename(&file.path, file.path.with_file_name(rotated)).expect("renamed");
        file.write(&line(job));
    }
    let mut jobs: Vec<String> = (0..5).flat_map(|_| file.jobs(10)).collect();
    assert_eq!((jobs[0].as_str(), jobs[4].as_str()), ("2", "6"));
    jobs.sort_unstable();
    assert_eq!(jobs, ["2", "3", "4", "5", "6"]);
    // Packed later, as `delaycompress` does.
    pack(&file.path.with_file_name("jobcomp.log.100"), "100", "gz");
    file.write(&line(7));
    assert_eq!(file.jobs(10), ["7"]);
    fs::rename(&file.path, file.path.with_extension("log.1")).expect("renamed");
    file.write(&line(8));
    let jobs: Vec<String> = (0..3).flat_map(|_| file.jobs(10)).collect();
    assert_eq!(jobs, ["8"]);
}

/// The node accepts nothing yet, so the position stays at the beginning.
#[test]
fn a_log_that_is_rotated_before_its_first_records_were_accepted_is_read() {
    for rotation in ["renamed", "copied", "packed"] {
        let mut file = Followed::new();
        fs::write(file.path.with_extension("log.9"), line(99)).expect("written");
        file.write(&line(1));
        let options = Options {
            growing: true,
            ..Options::default()
        };
        let first = reader(&options, 10).read(&file.path, None).expect("read");
        assert_eq!(first.start.position.bytes, 0);
        file.at = Some(first.start);
        std::thread::sleep(std::time::Duration::from_millis(20));
        file.write(&line(2));
        let rotated = file.path.with_extension("log.1");
        match rotation {
            "renamed" => fs::rename(&file.path, rotated).expect("renamed"),
            "packed" => pack(&file.path, "1", "gz"),
            _ => {
                fs::copy(&file.path, rotated).expect("copied");
                File::create(&file.path).expect("emptied");
            }
        }
        file.write(&line(3));
        let jobs: Vec<String> = (0..4).flat_map(|_| file.jobs(10)).collect();
        assert_eq!(jobs, ["1", "2", "3"], "{rotation}");
    }
}

/// A folder with a log for each day, and a follower whose clock shows one of them.
struct Days {
    folder: tempfile::TempDir,
    at: Option<FilePosition>,
    lost: Vec<std::path::PathBuf>,
}

impl Days {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            at: None,
            lost: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, day: u64, job: u64) {
        let log = self.path(&day.to_string());
        let log = File::options().create(true).append(true).open(log);
        log.and_then(|mut log| log.write_all(line(job).as_bytes()))
            .expect("written");
    }

    /// The jobs that a follower finds in January 2026, on this day by its clock.
    fn jobs(&mut self, day: u64) -> Vec<String> {
        let now = WallTime::from_unix_secs(1_767_225_600 + (day - 1) * 86_400);
        let options = Options {
            growing: true,
            ..Options::default()
        };
        let mut jobs = Vec::new();
        loop {
            let folder = self.folder.path();
            let listing = Listing::new(folder, now).expect("listed");
            let read = reader(&options, 10).read_folder(folder, &listing, self.at.as_ref());
            let read = read.expect("read");
            jobs.extend(read.records.into_iter().map(|record| record.key.job));
            self.lost.extend(read.lost);
            self.at = Some(read.next);
            if !read.more {
                return jobs;
            }
        }
    }
}

#[test]
fn the_clock_of_the_follower_jumps_and_each_record_is_read_once() {
    let mut days = Days::new();
    days.write(20_260_118, 1);
    days.write(20_260_119, 2);
    days.write(20_260_120, 3);
    assert_eq!(days.jobs(20), ["1", "2", "3"]);
    // Set back: the log of today is of a day to come, and grows all the same.
    days.write(20_260_120, 4);
    assert_eq!(days.jobs(18), ["4"]);
    days.write(20_260_120, 5);
    days.write(20_260_119, 6);
    assert_eq!(days.jobs(18), ["5", "6"]);
    // A clock that starts in 1970 knows of no log at all.
    days.write(20_260_121, 7);
    assert_eq!(days.jobs(1), [""; 0]);
    assert_eq!(days.jobs(21), ["7"]);
    // Set forth, with the clock of the server, and back.
    days.write(20_260_301, 8);
    assert_eq!(days.jobs(90), ["8"]);
    days.write(20_260_121, 9);
    assert_eq!(days.jobs(90), ["9"]);
    days.write(20_260_122, 10);
    assert_eq!(days.jobs(22), ["10"]);
    days.write(20_260_122, 11);
    assert_eq!(days.jobs(22), ["11"]);
    assert!(days.lost.is_empty(), "{:?}", days.lost);
}

#[test]
fn a_position_of_an_earlier_release_in_a_log_that_does_not_count_is_left() {
    let place = |name: &str| FilePosition {
        name: Some(name.to_owned()),
        ..FilePosition::default()
    };
    for (name, jobs, is_lost) in [
        ("20260301", vec!["2"], true),
        ("README", vec!["1", "2"], false),
    ] {
        let mut days = Days::new();
        days.write(20_260_118, 1);
        days.write(20_260_119, 2);
        fs::write(days.path(name), "").expect("written");
        days.at = Some(place(name));
        assert_eq!(days.jobs(19), jobs, "{name}");
        assert_eq!(!days.lost.is_empty(), is_lost, "{name}");
    }
}

#[test]
fn logs_of_days_that_were_packed_are_read_to_their_end_once() {
    let mut days = Days::new();
    let pack = |days: &Days, day: u64| {
        let text = fs::read(days.path(&day.to_string())).expect("read");
        let packed = zstd::encode_all(text.as_slice(), 0).expect("packed");
        fs::write(days.path(&format!("{day}.zst")), packed).expect("written");
        fs::remove_file(days.path(&day.to_string())).expect("removed");
    };
    days.write(20_260_101, 100);
    pack(&days, 20_260_101);
    days.write(20_260_118, 1);
    days.write(20_260_119, 2);
    assert_eq!(days.jobs(19), ["1", "2"]);
    days.write(20_260_118, 3);
    days.write(20_260_119, 4);
    days.write(20_260_120, 5);
    for day in 20_260_118..=20_260_120 {
        pack(&days, day);
    }
    days.write(20_260_121, 6);
    assert_eq!(days.jobs(21), ["3", "4", "5", "6"]);
    pack(&days, 20_260_121);
    days.write(20_260_122, 7);
    assert_eq!(days.jobs(22), ["7"]);
    assert!(days.lost.is_empty(), "{:?}", days.lost);
    // One that is gone without a copy.
    days.write(20_260_122, 8);
    fs::remove_file(days.path("20260122")).expect("removed");
    days.write(20_260_123, 9);
    assert_eq!(days.jobs(23), ["9"]);
    assert_eq!(days.lost, [days.path("20260122")]);
}
