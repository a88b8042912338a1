//! Nodes whose log cannot be written: a full disk, a pipe whose reader has ended, a pipe that nobody reads.
//!
//! Each node counts jobs, answers and obeys SIGTERM, `status` reports the log, and the log reports what it has lost once
//! it can be written again.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairmesh_needs::Need;
use fairmesh_tests::disk::Disk;
use fairmesh_tests::{Node, Site, Vo, records};

use crate::PROGRAM;

/// How long a node may take for what it does at once.
const PATIENCE: Duration = Duration::from_secs(60);

struct Alone {
    folder: tempfile::TempDir,
    site: Site,
    vo: Vo,
}

impl Alone {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
        let vo = Vo::found("physics", &[(site.id, "a")], &["ann"])?;
        site.configure("a", &[], &[("physics", vo.id())])?;
        Ok(Self { folder, site, vo })
    }

    /// A node that logs all that it does to `log`.
    fn start(&self, log: impl Into<Stdio>) -> anyhow::Result<Node> {
        let mut command = Command::new(PROGRAM);
        command.env("FAIRMESH_LOG", "trace");
        self.site.start_with_log(command, log.into())
    }
}

/// The text of the notice about the log, if there is one.
fn notice(node: &Node) -> anyhow::Result<Option<String>> {
    let answer = node.http("GET", "/v1/status", b"")?;
    let notices = answer.body["notices"].as_array().context("notices")?;
    let found = notices
        .iter()
        .find(|notice| notice["code"] == "log-unwritten");
    Ok(found.and_then(|found| Some(found["text"].as_str()?.to_owned())))
}

/// Asks until the notice about the log is there or is not, as wanted. Each request makes lines.
fn await_notice(node: &Node, is_there: bool) -> anyhow::Result<String> {
    let began = Instant::now();
    loop {
        let found = notice(node)?;
        if found.is_some() == is_there {
            return Ok(found.unwrap_or_default());
        }
        ensure!(began.elapsed() < PATIENCE, "{found:?}");
    }
}

/// Publishes the VO, counts jobs, and finds the lines that were lost in the metrics.
fn works(node: &Node, vo: &Vo) -> anyhow::Result<()> {
    vo.publish(node)?;
    let answer = node.http("POST", "/v1/records", &records("physics", "ann", 0, 2))?;
    ensure!(answer.status == 200, "{answer:?}");
    node.await_usage("physics", "ann", 2_000)?;
    let metrics = Command::new(PROGRAM)
        .arg("metrics")
        .env("FAIRMESH_SOCKET", node.socket())
        .output()?;
    let metrics = String::from_utf8(metrics.stdout)?;
    let lost = metrics
        .lines()
        .find(|line| line.starts_with("fairmesh_log_lines_lost_total "));
    ensure!(lost.is_some_and(|lost| !lost.ends_with(" 0")), "{lost:?}");
    Ok(())
}

fn ends(node: Node) -> anyhow::Result<()> {
    let status = node.stop()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test]
fn a_log_that_is_full_or_closed_stops_nothing() -> anyhow::Result<()> {
    let (_, closed) = std::io::pipe()?;
    let full = File::options().write(true).open("/dev/full")?;
    for (log, why) in [
        (Stdio::from(full), "No space left on device"),
        (Stdio::from(closed), "Broken pipe"),
    ] {
        let alone = Alone::new()?;
        let node = alone.start(log)?;
        let told = await_notice(&node, true)?;
        ensure!(told.contains(why), "{told}");
        works(&node, &alone.vo)?;
        ends(node)?;
    }
    Ok(())
}

#[test]
fn a_log_on_a_full_disk_reports_what_it_lost_when_there_is_room() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(disk) = Disk::mount(folder.path())? else {
        fairmesh_needs::lacks(Need::Root, "this user may not mount a disk");
        return Ok(());
    };
    let alone = Alone::new()?;
    let path = folder.path().join("log");
    disk.fill(0)?;
    let node = alone.start(File::options().create(true).append(true).open(&path)?)?;
    await_notice(&node, true)?;
    works(&node, &alone.vo)?;
    disk.make_room()?;
    await_notice(&node, false)?;
    ends(node)?;
    let log = std::fs::read_to_string(&path)?;
    let told = log
        .lines()
        .find(|line| line.contains("of this log are lost"));
    ensure!(
        told.is_some_and(|told| told.contains("No space left on device")),
        "{log}"
    );
    Ok(())
}

#[test]
fn a_pipe_that_nobody_reads_holds_up_neither_the_watchdog_nor_the_end() -> anyhow::Result<()> {
    let alone = Alone::new()?;
    let (mut reader, writer) = std::io::pipe()?;
    let notify = alone.folder.path().join("notify");
    let systemd = UnixDatagram::bind(&notify)?;
    systemd.set_read_timeout(Some(PATIENCE))?;
    let mut command = Command::new(PROGRAM);
    command
        .env("FAIRMESH_LOG", "trace")
        .env("NOTIFY_SOCKET", &notify)
        .env("WATCHDOG_USEC", "1000000");
    let node = alone.site.start_with_log(command, writer.into())?;
    await_notice(&node, true)?;
    works(&node, &alone.vo)?;
    let mut fed = 0;
    while fed < 3 {
        let mut message = [0; 4_096];
        let length = systemd.recv(&mut message)?;
        let message = String::from_utf8_lossy(&message[..length]).into_owned();
        fed += message.matches("WATCHDOG=1").count();
    }
    ends(node)?;
    // The node is gone, with the lines that waited: what the pipe has ends.
    let mut log = String::new();
    reader.read_to_string(&mut log)?;
    ensure!(log.contains("the node runs"), "{log}");
    Ok(())
}

#[test]
fn a_slow_reader_reads_how_many_lines_are_lost() -> anyhow::Result<()> {
    let alone = Alone::new()?;
    let (mut reader, writer) = std::io::pipe()?;
    let node = alone.start(writer)?;
    await_notice(&node, true)?;
    let reads = std::thread::spawn(move || {
        let mut log = String::new();
        reader.read_to_string(&mut log).map(|_| log)
    });
    await_notice(&node, false)?;
    ends(node)?;
    let log = reads.join().expect("no panic")?;
    ensure!(
        // Of one line it is "is lost".
        log.contains(" of this log ") && log.contains(" lost: its reader is too slow"),
        "{log}"
    );
    Ok(())
}
