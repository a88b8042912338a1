//! Files of batch systems, all the way through a real node: published totals come out of its record
//! log, logs are followed while they are rotated, and a kill loses nothing and counts nothing twice.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use fairmesh_tests::{Node, Site, Vo};
use serde_json::Value;

use crate::PROGRAM;

/// How long a change may take to show.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The fields of Open XDMoD's samples, which have no header line.
const COLUMNS: &str = "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,\
    eligible,start,end,elapsed,exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,\
    timelimit,nodelist,jobname";

/// A node of one VO, to which the jobs of the batch account of its name belong.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    site: Site,
    node: Option<Node>,
}

impl Place {
    pub(crate) fn start(vo_name: &str, users: &[&str]) -> anyhow::Result<Self> {
        let (place, vo) = Self::without_charter(vo_name, users)?;
        vo.publish(place.node())?;
        Ok(place)
    }

    pub(crate) fn without_charter(vo_name: &str, users: &[&str]) -> anyhow::Result<(Self, Vo)> {
        let folder = tempfile::tempdir()?;
        let site = Site::init(PROGRAM, &folder.path().join("hpc1"), "hpc1")?;
        let vo = Vo::found(vo_name, &[(site.id, "hpc1")], users)?;
        site.configure("hpc1", &[], &[(vo_name, vo.id())])?;
        // Open XDMoD's jobs are of 2016.
        let config = site.folder().join("fairmesh.toml");
        append(&config, "[records]\nkeep = \"20000d\"\n")?;
        let node = Some(site.start()?);
        let place = Self { folder, site, node };
        Ok((place, vo))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn node(&self) -> &Node {
        self.node.as_ref().expect("it runs")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(words)
            .current_dir(self.folder.path())
            .env("FAIRMESH_SOCKET", self.site.data().join("run/control.sock"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn kill_and_start(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        self.start_again()
    }

    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.node.take().context("it runs")?.kill()
    }

    pub(crate) fn start_again(&mut self) -> anyhow::Result<()> {
        self.node = Some(self.site.start()?);
        Ok(())
    }

    pub(crate) fn run(&self, words: &[&str]) -> anyhow::Result<Output> {
        Ok(self.command(words).output()?)
    }

    /// Runs a command that prints JSON.
    pub(crate) fn json(&self, words: &[&str]) -> anyhow::Result<Value> {
        let output = self.run(&[words, &["--json"]].concat())?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Jobs that the record log holds.
    fn logged(&self) -> anyhow::Result<u64> {
        let sums = self.json(&["records", "--totals"])?;
        sums["totals"]["jobs"].as_u64().context("a number")
    }

    pub(crate) fn await_logged(&self, expected: u64) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.logged()? != expected {
            let late = began.elapsed() > PATIENCE;
            ensure!(!late, "{} jobs are logged, not {expected}", self.logged()?);
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

pub(crate) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

// ---- Open XDMoD's totals. ----

/// Where a published statistic stands in our sums.
fn field(statistic: &str) -> Option<&'static str> {
    Some(match statistic {
        "job_count" => "jobs",
        "started_job_count" => "started",
        "submitted_job_count" => "submitted_same_day",
        "total_cpu_hours" => "cpu_hours",
        "total_gpu_hours" => "gpu_hours",
        "total_node_hours" => "node_hours",
        "total_wallduration_hours" => "wall_hours",
        "total_waitduration_hours" => "wait_hours",
        _ => return None,
    })
}

fn is_published(sums: &Value, statistic: &str, published: &Value, place: &str) {
    let Some(field) = field(statistic) else {
        return;
    };
    let published = published.as_f64().expect("a number");
    let shown = match &sums[field] {
        Value::Null if published == 0.0 => return,
        Value::Number(count) => format!("{count}.0000"),
        hours => hours.as_str().expect("a decimal").to_owned(),
    };
    assert_eq!(shown, format!("{published:.4}"), "{statistic} {place}");
}

/// Compares sums by day with all that is published.
fn are_published(body: &Value, expected: &Value) {
    let totals = expected["totals"].as_object().expect("totals");
    for (statistic, published) in totals {
        is_published(&body["totals"], statistic, published, "in all");
    }
    let groups = body["groups"].as_array().expect("groups");
    for (statistic, days) in expected["per_day"].as_object().expect("series") {
        for (day, published) in days.as_object().expect("days") {
            let group = groups
                .iter()
                .find(|group| group["names"][0] == day.as_str());
            is_published(group.unwrap_or(&Value::Null), statistic, published, day);
        }
    }
}

#[test]
fn open_xdmods_totals_come_out_of_the_log_and_of_a_dry_run() -> anyhow::Result<()> {
    let Some(folder) = fairmesh_needs::traces("accounting/slurm") else {
        return Ok(());
    };
    let place = Place::start("chaff", &["chaff"])?;
    let file = folder.join("xdmod-phillips.sacct.gz");
    let file = file.to_str().context("UTF-8")?;
    let expected = std::fs::read(folder.join("xdmod-phillips.expected.json"))?;
    let expected: Value = serde_json::from_slice(&expected)?;
    let format = [
        "--format",
        "slurm-sacct",
        "--columns",
        COLUMNS,
        "--tz",
        "UTC",
    ];
    let report = [&["report", file][..], &format].concat();

    let tried = place.json(&[&report[..], &["--dry-run", "--by", "day"]].concat())?;
    are_published(&tried["summary"], &expected);
    assert_eq!(tried["read"], 4_285, "{tried}");
    assert_eq!(tried["skipped"]["cancelled before start"], 239);
    let accounts = tried["accounts"].as_array().context("accounts")?;
    let of_vo = accounts
        .iter()
        .any(|account| account["vo"] == "chaff" && account["mapped"] == true);
    assert!(of_vo, "{accounts:?}");
    assert_eq!(place.logged()?, 0, "a dry run records nothing");

    let first = place.json(&report)?;
    assert_eq!(
        (&first["counted"], &first["known"]),
        (&4_046.into(), &0.into())
    );
    assert_eq!(
        (&first["refused"], &first["logged"]),
        (&0.into(), &4_285.into())
    );
    are_published(&place.json(&["records", "--by", "day"])?, &expected);
    let again = place.json(&report)?;
    assert_eq!(
        (&again["counted"], &again["known"]),
        (&0.into(), &4_046.into())
    );
    are_published(&place.json(&["records", "--by", "day"])?, &expected);

    let words = place.run(&[&report[..], &["--dry-run"]].concat())?;
    let words = String::from_utf8(words.stdout)?;
    let sums = "4046 jobs: 11767.9883 CPU-hours, 438.8203 wall-hours, 1344.8686 node-hours, \
                506.9128 GPU-hours, 18829.9292 wait-hours";
    assert!(words.contains(sums), "{words}");
    let csv = place.run(&["records", "--totals", "--csv"])?;
    let csv = String::from_utf8(csv.stdout)?;
    assert!(
        csv.contains("4046,11767.9883,438.8203,1344.8686,506.9128,18829.9292"),
        "{csv}"
    );
    let month = ["--since", "2016-12-01", "--until", "2017-01-01"];
    let ogf = place.run(&[&["records", "--ogf"][..], &month].concat())?;
    let ogf = String::from_utf8(ogf.stdout)?;
    assert!(
        ogf.matches("<urf:JobUsageRecord").count() > 3_000,
        "{} bytes",
        ogf.len()
    );
    // The sample has no CPU times, which APEL demands: nothing is made up.
    let apel = place.run(&[&["records", "--apel", "--site", "X"][..], &month].concat())?;
    assert_eq!(apel.status.code(), Some(1));
    let told = String::from_utf8(apel.stderr)?;
    let told = told.lines().next().context("a word")?;
    let (left_out, why) = told.split_once(" jobs: ").context(told.to_owned())?;
    let (left_out, all) = left_out.split_once(" of ").context(told.to_owned())?;
    assert_eq!(left_out.strip_prefix("fairmesh: left out "), Some(all));
    let reason = format!("no CPU time used (CpuDuration; see --cpu-held): {all}");
    assert_eq!(why, reason);
    let apel = [
        &["records", "--apel", "--cpu-held", "--site", "X"][..],
        &month,
    ]
    .concat();
    let apel = place.run(&apel)?;
    assert_eq!(apel.status.code(), Some(0));
    let apel = String::from_utf8(apel.stdout)?;
    assert_eq!(apel.matches("\nCpuDuration: ").count().to_string(), all);
    let list = place.json(&["records", "--limit", "10", "--user", "honbu"])?;
    assert_eq!(list["records"].as_array().map(Vec::len), Some(10));
    assert_eq!(
        (&list["more"], &list["schema"]),
        (&true.into(), &"fairmesh.records/1".into())
    );
    Ok(())
}

// ---- A log that is followed. ----

pub(crate) fn jobcomp(job: u64) -> String {
    let end = now_s() - 600;
    let start = end - 10;
    format!(
        "JobId={job} UserId=ann(7) GroupId=ann(7) Name=wrap JobState=COMPLETED Partition=main \
         TimeLimit=5 StartTime={start} EndTime={end} NodeList=n1 NodeCnt=1 ProcCnt=1 WorkDir=/ \
         ReservationName= Tres=cpu=1,node=1 Account=physics QOS= WcKey= Cluster=unknown \
         SubmitTime={start} EligibleTime={start} DerivedExitCode=0:0 ExitCode=0:0 \n"
    )
}

pub(crate) fn append(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = File::options().create(true).append(true).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

/// A command that continues; killed when dropped.
pub(crate) struct Going(Child, Option<Lines<BufReader<ChildStderr>>>);

impl Going {
    pub(crate) fn start(place: &Place, file: &str) -> anyhow::Result<Self> {
        let words = ["report", file, "--follow", "--cluster", "c1", "--tz", "UTC"];
        let mut child = place.command(&words).spawn()?;
        let stderr = child.stderr.take().map(BufReader::new);
        Ok(Self(child, stderr.map(BufReader::lines)))
    }

    /// Waits for the next line of its standard error with these words.
    pub(crate) fn await_line(&mut self, words: &str) -> anyhow::Result<()> {
        let lines = self.1.as_mut().context("standard error")?;
        for line in lines {
            if line?.contains(words) {
                return Ok(());
            }
        }
        anyhow::bail!("it ended without a line with {words:?}")
    }

    pub(crate) fn terminate(self) -> anyhow::Result<Option<i32>> {
        self.end_by("-TERM")
    }

    fn end_by(mut self, signal: &str) -> anyhow::Result<Option<i32>> {
        let pid = self.0.id().to_string();
        Command::new("kill").args([signal, &pid]).status()?;
        Ok(self.0.wait()?.code())
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        // It may have ended already, which is what was wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_log_is_followed_through_rotation_and_kills_and_bad_lines_are_kept() -> anyhow::Result<()> {
    let place = Place::start("physics", &["ann"])?;
    let log = place.path("jobcomp.log");
    append(&log, &(jobcomp(1) + &jobcomp(2)))?;
    let going = Going::start(&place, "jobcomp.log")?;
    place.await_logged(2)?;
    append(&log, &(jobcomp(3) + "JobId=x that is no job\n"))?;
    std::fs::rename(&log, place.path("jobcomp.log.1"))?;
    append(&log, &jobcomp(4))?;
    place.await_logged(4)?;
    // kill -9, and news while nobody looks.
    drop(going);
    append(&log, &jobcomp(5))?;
    std::fs::copy(&log, place.path("jobcomp.log.2"))?;
    File::create(&log)?;
    append(&log, &(jobcomp(6) + &jobcomp(7) + &jobcomp(8)))?;
    let going = Going::start(&place, "jobcomp.log")?;
    place.await_logged(8)?;
    place.node().await_usage("physics", "ann", 8 * 10_000)?;
    let rejects = std::fs::read_to_string(place.path("jobcomp.log.rejects"))?;
    assert!(rejects.contains("jobcomp.log:4: "), "{rejects}");
    assert!(rejects.contains("\nJobId=x that is no job\n"), "{rejects}");
    assert_eq!(going.terminate()?, Some(0), "the second refused nothing");
    Ok(())
}

/// Codes of the loops' notices, with their texts.
fn notices_of_loops(place: &Place) -> anyhow::Result<Vec<(String, String)>> {
    let body = place.node().http("GET", "/v1/status", b"")?.body;
    let notices = body["notices"].as_array().context("notices")?.iter();
    let text = |of: &Value, part: &str| of[part].as_str().unwrap_or_default().to_owned();
    let notices = notices.map(|of| (text(of, "code"), text(of, "text")));
    Ok(notices.filter(|of| of.0.starts_with("loop-")).collect())
}

fn await_notice(place: &Place, code: Option<&str>) -> anyhow::Result<String> {
    let began = Instant::now();
    loop {
        let notices = notices_of_loops(place)?;
        match (notices.first(), code) {
            (None, None) => return Ok(String::new()),
            (Some((found, text)), Some(code)) if found == code => return Ok(text.clone()),
            _ => ensure!(began.elapsed() < PATIENCE, "{notices:?}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether the follower is dead, was stopped or ended by hand, the operator of the node reads it.
#[test]
fn a_follower_that_dies_is_reported_and_its_node_restored_from_a_backup_gets_all_again()
-> anyhow::Result<()> {
    let mut place = Place::start("physics", &["ann"])?;
    let log = place.path("jobcomp.log");
    append(&log, &jobcomp(1))?;
    let mut going = Going::start(&place, "jobcomp.log")?;
    place.await_logged(1)?;
    place.kill()?;
    let (data, backup) = (place.site.data(), place.path("backup"));
    let copy = |from: &Path, to: &Path| Command::new("cp").arg("-a").arg(from).arg(to).status();
    ensure!(copy(&data, &backup)?.success());
    place.start_again()?;
    append(&log, &jobcomp(2))?;
    let began = Instant::now();
    let cursor = place.path("jobcomp.log.fairmesh-cursor");
    while !std::fs::read_to_string(&cursor)?.contains("\"lines\":2") {
        ensure!(began.elapsed() < PATIENCE, "the cursor does not move");
        std::thread::sleep(Duration::from_millis(50));
    }
    place.kill()?;
    std::fs::remove_dir_all(&data)?;
    ensure!(copy(&backup, &data)?.success());
    place.start_again()?;
    going.await_line("restored from a backup")?;
    place.await_logged(2)?;
    place.node().await_usage("physics", "ann", 2 * 10_000)?;

    await_notice(&place, None)?;
    drop(going);
    let text = await_notice(&place, Some("loop-silent"))?;
    let file = log.display();
    let begin = format!("`fairmesh report --follow {file}` has not reported for");
    ensure!(text.starts_with(&begin), "{text}");
    let metrics = place.node().http("GET", "/v1/metrics", b"")?.text;
    let is_there = metrics.contains("code=\"loop-silent\",severity=\"warning\"} 1");
    ensure!(is_there, "{metrics}");
    let going = Going::start(&place, "jobcomp.log")?;
    await_notice(&place, None)?;
    assert_eq!(going.terminate()?, Some(0));
    await_notice(&place, Some("loop-stopped"))?;
    // A person ends it with Ctrl-C: nothing is expected of it any more.
    let going = Going::start(&place, "jobcomp.log")?;
    await_notice(&place, None)?;
    assert_eq!(going.end_by("-INT")?, Some(0));
    ensure!(notices_of_loops(&place)?.is_empty());
    Ok(())
}

#[test]
fn a_folder_of_daily_logs_is_followed_from_day_to_day() -> anyhow::Result<()> {
    let place = Place::start("physics", &["ann"])?;
    let folder = place.path("accounting");
    std::fs::create_dir(&folder)?;
    append(&folder.join("20261120"), &jobcomp(1))?;
    append(&folder.join("20261121"), &jobcomp(2))?;
    for stray in [
        "20261121.bak",
        "20261121~",
        "README",
        "old.tar",
        "core.1234",
    ] {
        append(&folder.join(stray), "no log\n")?;
    }
    let going = Going::start(&place, "accounting")?;
    place.await_logged(2)?;
    append(&folder.join("20261121"), &jobcomp(3))?;
    append(&folder.join("20261122"), &jobcomp(4))?;
    place.await_logged(4)?;
    assert_eq!(going.terminate()?, Some(0));
    append(&folder.join("20261122"), &jobcomp(5))?;
    let again = Going::start(&place, "accounting")?;
    place.await_logged(5)?;
    place.node().await_usage("physics", "ann", 5 * 10_000)?;
    assert_eq!(again.terminate()?, Some(0));
    Ok(())
}

#[test]
fn a_stray_that_comes_later_is_skipped_with_a_warning() -> anyhow::Result<()> {
    let place = Place::start("physics", &["ann"])?;
    let folder = place.path("accounting");
    std::fs::create_dir(&folder)?;
    append(&folder.join("jobs-1"), &jobcomp(1))?;
    let mut going = Going::start(&place, "accounting")?;
    place.await_logged(1)?;
    append(&folder.join("jobs-2"), "this is\nno log\n")?;
    append(
        &folder.join("jobs-3"),
        "; no log of this folder\n1 0 5 60 1 -1 -1 1 60 -1 1 7 1 1 1 1 -1 -1\n",
    )?;
    append(&folder.join("jobs-4"), &jobcomp(2))?;
    place.await_logged(2)?;
    let mut lines = going.1.take().context("standard error")?;
    for stray in ["jobs-2", "jobs-3"] {
        let line = lines.next().context("a line")??;
        ensure!(
            line.ends_with(&format!(
                "{stray} is skipped: it is not a log of this folder"
            )),
            "{line}"
        );
    }
    assert_eq!(going.terminate()?, Some(0));
    ensure!(!place.path("accounting.rejects").exists());
    Ok(())
}

#[test]
fn records_that_are_refused_for_now_are_sent_again() -> anyhow::Result<()> {
    let (place, vo) = Place::without_charter("physics", &["ann"])?;
    let log = place.path("jobcomp.log");
    append(&log, &(jobcomp(1) + &jobcomp(2)))?;
    let mut following = Going::start(&place, "jobcomp.log")?;
    let mut lines = following.1.take().context("standard error")?;
    let refused = lines.next().context("a line")??;
    ensure!(refused.contains("refuses records for now"), "{refused}");
    let cursor = std::fs::read_to_string(place.path("jobcomp.log.fairmesh-cursor"))?;
    let position = &serde_json::from_str::<Value>(&cursor)?["place"]["position"];
    ensure!(
        (&position["bytes"], &position["lines"]) == (&0.into(), &0.into()),
        "{cursor}"
    );
    vo.publish(place.node())?;
    place.node().await_usage("physics", "ann", 2 * 10_000)?;
    ensure!(
        lines
            .next()
            .context("a line")??
            .contains("all is well again")
    );
    append(&log, &jobcomp(3))?;
    place.node().await_usage("physics", "ann", 3 * 10_000)?;
    assert_eq!(following.terminate()?, Some(0));
    ensure!(!place.path("jobcomp.log.rejects").exists());
    Ok(())
}

#[test]
fn json_lines_that_are_followed_are_charged_as_they_would_be_at_once() -> anyhow::Result<()> {
    let place = Place::start("physics", &["ann"])?;
    let config = place.site.folder().join("fairmesh.toml");
    append(&config, "[charging]\nstates = [\"FAILED\"]\n")?;
    place.node().reload()?;
    let (start, end) = ((now_s() - 600) * 1_000, (now_s() - 590) * 1_000);
    let common = |job: u64| {
        format!("\"cluster\":\"c1\",\"job\":\"{job}\",\"user\":\"ann\",\"account\":\"physics\"")
    };
    let usage = |job: u64| {
        let common = common(job);
        format!("{{{common},\"start_ms\":{start},\"end_ms\":{end},\"cores\":1}}\n")
    };
    let record = |job: u64, state: &str| {
        let common = common(job);
        format!(
            "{{\"format\":\"pbs\",{common},\"instance\":1,\"submit\":{start},\"start\":{start},\
             \"end\":{end},\"cpus\":2,\"state\":\"{state}\",\"queue\":\"long\"}}\n"
        )
    };
    // Usage was charged by whoever reports it, so the node's states say nothing of it.
    let log = place.path("jobs.jsonl");
    append(
        &log,
        &(usage(1) + &record(2, "failed") + &record(3, "completed")),
    )?;
    let going = Going::start(&place, "jobs.jsonl")?;
    place.await_logged(3)?;
    append(&log, &usage(4))?;
    place.await_logged(4)?;
    place.node().await_usage("physics", "ann", 40_000)?;
    assert_eq!(going.terminate()?, Some(0));
    let again = place.json(&["report", "jobs.jsonl"])?;
    assert_eq!((&again["counted"], &again["known"]), (&0.into(), &3.into()));
    assert_eq!(again["skipped"]["state not charged"], 1);
    let listed = place.json(&["records", "--queue", "long"])?;
    let records = listed["records"].as_array().context("records")?;
    assert!(
        records.iter().all(|record| record["submit"] == start),
        "{listed}"
    );
    assert_eq!(records.len(), 2);
    Ok(())
}

#[test]
fn a_swf_log_without_a_start_is_refused_as_a_whole() -> anyhow::Result<()> {
    let place = Place::start("physics", &["ann"])?;
    let job = "1 10 -1 60 1 0.5 -1 1 60 -1 1 3 2 -1 -1 7 -1 -1\n";
    append(&place.path("old.swf"), &job.repeat(1_000))?;
    let refused = place.run(&["report", "old.swf"])?;
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8(refused.stderr)?;
    assert!(
        told.contains("old.swf: the header has no UnixStartTime"),
        "{told}"
    );
    assert!(
        told.contains("--unix-start") && told.lines().count() < 4,
        "{told}"
    );
    assert!(!place.path("old.swf.rejects").exists(), "nothing was kept");
    let start = ["--unix-start", "2026-01-01T00:00:00Z"];
    let taken = place.json(&[&["report", "old.swf"][..], &start].concat())?;
    assert_eq!(
        (&taken["refused"], &taken["read"]),
        (&0.into(), &1_000.into())
    );
    let listed = place.json(&["records", "--since", "2026-01-01"])?;
    let submit = &listed["records"][0]["submit"];
    assert_eq!(submit.as_u64(), Some(1_767_225_610_000));
    let nonsense = place.run(&["report", "old.swf", "--unix-start", "once"])?;
    assert_eq!(nonsense.status.code(), Some(2));
    Ok(())
}

#[test]
fn a_bad_line_is_told_kept_and_stops_nothing() -> anyhow::Result<()> {
    let place = Place::start("physics", &["ann"])?;
    append(
        &place.path("jobs.log"),
        &(jobcomp(1) + "nonsense\n" + &jobcomp(2)),
    )?;
    let output = place.run(&["report", "jobs.log", "--cluster", "c1"])?;
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr)?;
    assert!(told.contains("first at jobs.log:2"), "{told}");
    let rejects = std::fs::read_to_string(place.path("jobs.log.rejects"))?;
    assert!(
        rejects.contains("\n# jobs.log:2: ") && rejects.ends_with("\nnonsense\n"),
        "{rejects}"
    );
    assert_eq!(place.logged()?, 2);
    let nameless = place.run(&["report", "jobs.log"])?;
    assert_eq!(nameless.status.code(), Some(2));
    assert!(String::from_utf8(nameless.stderr)?.contains("--cluster"));
    Ok(())
}

#[test]
fn a_job_of_two_sources_is_counted_and_logged_once_over_a_restart() -> anyhow::Result<()> {
    let mut place = Place::start("physics", &["ann"])?;
    append(&place.path("jobcomp.log"), &jobcomp(1))?;
    let first = place.json(&["report", "jobcomp.log", "--cluster", "c1", "--tz", "UTC"])?;
    assert_eq!(
        (&first["counted"], &first["logged"]),
        (&1.into(), &1.into())
    );
    let listed = place.json(&["records"])?;
    let (start, end) = (&listed["records"][0]["start"], &listed["records"][0]["end"]);
    let second = |time: &Value| time.as_u64().map(|ms| ms / 1_000).context("a time");
    let (start, end) = (second(start)?, second(end)?);
    append(
        &place.path("sacct.txt"),
        &format!(
            "JobIDRaw|Cluster|User|Account|Submit|Start|End|Elapsed|State|NCPUS|QOS\n\
             1|c1|ann|physics|{start}|{start}|{end}|00:00:10|COMPLETED|1|long\n"
        ),
    )?;
    place.node.take().context("it runs")?.kill()?;
    place.node = Some(place.site.start()?);
    for file in ["sacct.txt", "sacct.txt"] {
        let again = place.json(&["report", file])?;
        assert_eq!((&again["counted"], &again["known"]), (&0.into(), &1.into()));
    }
    let listed = place.json(&["records"])?;
    let records = listed["records"].as_array().context("records")?;
    assert_eq!((records.len(), &records[0]["qos"]), (1, &"long".into()));
    place.node().await_usage("physics", "ann", 10_000)
}

/// Sources of one job each: one has a submit time, another none, and HTCondor's id has three forms.
#[test]
fn one_job_of_sources_with_and_without_a_submit_time_counts_once_in_any_order() -> anyhow::Result<()>
{
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/records/tests/cases/one-job");
    let place = Place::start("physics", &["ann"])?;
    let groups: [&[&str]; 2] = [
        &[
            "k-sacct.txt",
            "k-apel.txt",
            "k-jobcomp-old.txt",
            "k-jobcomp.txt",
        ],
        &["h.json", "h.fields", "h2.fields", "h3.fields"],
    ];
    let mut jobs = 0;
    for files in groups {
        for round in 0..2 * files.len() {
            // The same job under a number of its own.
            jobs += 1;
            let number = format!("9{jobs}");
            let mut order = files.to_vec();
            order.rotate_left(round % files.len());
            if round >= files.len() {
                order.reverse();
            }
            let mut charged = 0;
            for file in order.iter().chain(&order) {
                let text = std::fs::read_to_string(cases.join(file))?;
                let text = match file.starts_with('k') {
                    true => text.replace("77", &number),
                    false => text
                        .replace("5.0", &format!("{number}.0"))
                        .replace(":5,", &format!(":{number},")),
                };
                let copy = format!("{jobs}-{file}");
                std::fs::write(place.path(&copy), text)?;
                let told = place.json(&["report", &copy, "--cluster", "k1", "--tz", "UTC"])?;
                assert_eq!(told["refused"], 0, "{file}: {told}");
                charged += told["charge_core_ms"]
                    .as_str()
                    .context("a sum")?
                    .parse::<u64>()?;
            }
            assert_eq!(charged, 4 * 3_600_000, "{order:?}");
            assert_eq!(place.logged()?, jobs, "{order:?}");
        }
    }
    Ok(())
}

// ---- kill -9 in between. ----

#[test]
fn a_node_that_is_killed_while_it_is_told_loses_nothing() -> anyhow::Result<()> {
    const JOBS: u64 = 20_000;
    let mut place = Place::start("physics", &["ann"])?;
    let end = now_s() - 600;
    let mut text =
        "JobIDRaw|Cluster|User|Account|Submit|Start|End|Elapsed|State|NCPUS\n".to_owned();
    for job in 1..=JOBS {
        let start = end - 1;
        text.push_str(&format!(
            "{job}|c1|ann|physics|{start}|{start}|{end}|00:00:01|COMPLETED|1\n"
        ));
    }
    append(&place.path("sacct.txt"), &text)?;
    let reporting = place.command(&["report", "sacct.txt"]).spawn()?;
    let began = Instant::now();
    while place.logged()? == 0 {
        ensure!(began.elapsed() < PATIENCE, "nothing is logged");
    }
    place.node.take().context("it runs")?.kill()?;
    let ended = reporting.wait_with_output()?;
    place.node = Some(place.site.start()?);
    let before = place.logged()?;
    if ended.status.code() != Some(0) {
        assert_eq!(ended.status.code(), Some(2), "the node was away");
    }
    let again = place.json(&["report", "sacct.txt"])?;
    let sum = |name: &str| again[name].as_u64().unwrap_or(0);
    assert_eq!(
        sum("counted") + sum("known"),
        JOBS,
        "{before} were logged; {again}"
    );
    assert_eq!(place.logged()?, JOBS);
    place.node().await_usage("physics", "ann", JOBS * 1_000)?;
    Ok(())
}
