//! A disk that fills, is full, and is written by nobody: the node refuses what it could not keep, with a word, and
//! everything else goes on. When there is room again it goes on by itself.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail, ensure};
use fairmesh_needs::Need;
use fairmesh_tests::disk::Disk;
use fairmesh_tests::{Node, Site, Vo, records};

use crate::PROGRAM;

/// How long the node may take to see what has become of its disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a report is counted; why not, where it is refused.
fn report(node: &Node, user: &str, job: u64) -> anyhow::Result<Result<(), String>> {
    let answer = node.http("POST", "/v1/records", &records("physics", user, job, 1))?;
    if answer.body["counted"] == 1 || answer.body["known"] == 1 {
        return Ok(Ok(()));
    }
    ensure!(
        answer.body["for_now"] == 1,
        "to be reported again: {}",
        answer.body
    );
    Ok(Err(answer.body.to_string()))
}

/// Waits until a node says, or says no more, what is the matter with its disk.
fn await_notice(node: &Node, code: &str, is_there: bool) -> anyhow::Result<String> {
    let began = Instant::now();
    loop {
        let status = node.http("GET", "/v1/status", b"")?;
        let notices = status.body["notices"].as_array().context("notices")?;
        let found = notices.iter().find(|notice| notice["code"] == code);
        if found.is_some() == is_there {
            return Ok(found.map_or_else(String::new, |found| found["text"].to_string()));
        }
        if began.elapsed() > PATIENCE {
            bail!("{code}: {}", status.body);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// B publishes jobs of many hours, again and again, until A has no room for them. What A then says, and how many
/// jobs there were.
fn publish_until_full(a: &Node, b: &Node) -> anyhow::Result<(String, u64)> {
    const HOURS: u64 = 1_000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let now = u64::try_from(now)?;
    for round in 1..200 {
        let line = |hour: u64| {
            let end = now - hour * 3_600_000;
            format!(
                "{{\"cluster\":\"test\",\"job\":\"{}\",\"user\":\"bob\",\"account\":\"physics\",\"start_ms\":{},\"end_ms\":{end},\"cores\":1}}\n",
                round * HOURS + hour,
                end - 1_000
            )
        };
        let lines: String = (1..=HOURS).map(line).collect();
        let answer = b.http("POST", "/v1/records", lines.as_bytes())?;
        ensure!(answer.body["counted"] == HOURS, "{answer:?}");
        std::thread::sleep(Duration::from_millis(200));
        let status = a.http("GET", "/v1/status", b"")?;
        let notices = status.body["notices"].as_array().context("notices")?;
        if let Some(full) = notices.iter().find(|notice| notice["code"] == "disk-full") {
            return Ok((full["text"].to_string(), round * HOURS));
        }
    }
    bail!("there was always room")
}

#[test]
fn a_disk_that_is_full_refuses_reports_and_nothing_else_until_there_is_room() -> anyhow::Result<()>
{
    let folder = tempfile::tempdir()?;
    let site = |name: &str| Site::init(PROGRAM, &folder.path().join(name), name);
    let (a, b) = (site("a")?, site("b")?);
    let vo = Vo::found("physics", &[(a.id, "a"), (b.id, "b")], &["ann", "bob"])?;
    let vos = [("physics", vo.id())];
    fs::create_dir_all(a.data())?;
    let Some(disk) = Disk::mount(&a.data())? else {
        fairmesh_needs::lacks(Need::Root, "this user may not mount a disk");
        return Ok(());
    };
    b.configure("b", &[], &vos)?;
    let at_b = b.start()?;
    vo.publish(&at_b)?;
    a.configure("a", &[(b.id, &at_b.address)], &vos)?;
    let mut at_a = a.start()?;
    at_a.await_usage("physics", "ann", 0)?;
    ensure!(report(&at_a, "ann", 1)?.is_ok(), "there is room");

    // Little room: feeds are refused, members are heard.
    disk.fill(2_000)?;
    let low = await_notice(&at_a, "disk-low", true)?;
    ensure!(low.contains("below 3 MiB nothing is taken"), "{low}");
    let refused = report(&at_a, "ann", 2)?.err().context("it was taken")?;
    ensure!(refused.contains("MiB are left on the disk"), "{refused}");
    ensure!(report(&at_b, "bob", 1)?.is_ok(), "at B there is room");
    at_a.await_usage("physics", "bob", 1_000)?;

    // None: what members publish waits, and whoever asks is answered.
    disk.fill(0)?;
    let (full, jobs) = publish_until_full(&at_a, &at_b)?;
    ensure!(full.contains("No space left on device"), "{full}");
    let refused = report(&at_a, "ann", 2)?.err().context("it was taken")?;
    ensure!(refused.contains("the disk is full"), "{refused}");
    ensure!(at_a.usage("physics", "ann")? == 1_000);

    // With that disk it starts, too, and knows what it knew.
    at_a.kill()?;
    at_a = a.start()?;
    ensure!(at_a.usage("physics", "ann")? == 1_000);
    let refused = report(&at_a, "ann", 2)?.err().context("it was taken")?;
    ensure!(refused.contains("disk"), "{refused}");

    disk.make_room()?;
    await_notice(&at_a, "disk-full", false)?;
    await_notice(&at_a, "disk-low", false)?;
    ensure!(report(&at_a, "ann", 2)?.is_ok(), "there is room");
    for node in [&at_a, &at_b] {
        node.await_usage("physics", "ann", 2_000)?;
        node.await_usage("physics", "bob", 1_000 * (1 + jobs))?;
    }

    // A disk that nobody may write: the node waits for it, and asks systemd to do so, too.
    at_a.kill()?;
    disk.write_protect(true)?;
    let socket = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&socket)?;
    systemd.set_read_timeout(Some(PATIENCE))?;
    at_a = std::thread::scope(|scope| -> anyhow::Result<Node> {
        let starting = scope.spawn(|| {
            let mut command = Command::new(PROGRAM);
            command.env("NOTIFY_SOCKET", &socket);
            a.start_by(command)
        });
        let waits = "the disk is read-only: the node waits and starts by itself";
        let began = Instant::now();
        while !fs::read_to_string(a.folder().join("log"))?.contains(waits) {
            ensure!(began.elapsed() < PATIENCE, "it says nothing");
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut told = [0; 4_096];
        while !told.starts_with(b"EXTEND_TIMEOUT_USEC=120000000\n") {
            let length = systemd.recv(&mut told).context("it asks for no time")?;
            told[length..].fill(0);
        }
        disk.write_protect(false)?;
        starting
            .join()
            .map_err(|_| anyhow!("a start that panics"))?
    })?;
    ensure!(report(&at_a, "ann", 3)?.is_ok(), "it may be written");
    for node in [&at_a, &at_b] {
        node.await_usage("physics", "ann", 3_000)?;
    }
    Ok(())
}

#[test]
fn a_node_whose_disk_nobody_may_write_shows_what_it_knew_until_somebody_may() -> anyhow::Result<()>
{
    let folder = tempfile::tempdir()?;
    let site = |name: &str| Site::init(PROGRAM, &folder.path().join(name), name);
    let (a, b) = (site("a")?, site("b")?);
    let vo = Vo::found("physics", &[(a.id, "a"), (b.id, "b")], &["ann", "bob"])?;
    let vos = [("physics", vo.id())];
    fs::create_dir_all(a.data())?;
    let Some(disk) = Disk::mount(&a.data())? else {
        fairmesh_needs::lacks(Need::Root, "this user may not mount a disk");
        return Ok(());
    };
    b.configure("b", &[], &vos)?;
    let at_b = b.start()?;
    vo.publish(&at_b)?;
    a.configure("a", &[(b.id, &at_b.address)], &vos)?;
    // Sockets are elsewhere, as in /run.
    let sockets = "[sockets]\nlookup = \"s/lookup.sock\"\ncontrol = \"s/control.sock\"\n[timing]";
    let text = fs::read_to_string(a.config())?.replacen("[timing]", sockets, 1);
    fs::write(a.config(), text)?;
    let at_a = a.start()?;
    at_a.await_usage("physics", "ann", 0)?;
    ensure!(report(&at_a, "ann", 1)?.is_ok());
    at_b.await_usage("physics", "ann", 1_000)?;
    at_a.kill()?;
    disk.write_protect(true)?;
    let before = contents(&a.data())?;

    let at_a = a.start()?;
    ensure!(at_a.usage("physics", "ann")? == 1_000);
    let lookup = a.folder().join("s/lookup.sock");
    let mut client = fairmesh_client::Client::connect(lookup, PATIENCE)?;
    let known = fairmesh_client::Who::Names(fairmesh_client::Names {
        user: Some("ann"),
        account: Some("physics"),
        ..Default::default()
    });
    let factor = client.lookup(&[known])?.factor(0);
    ensure!(factor.is_some(), "nobody is known");
    let refused = report(&at_a, "ann", 2)?.err().context("it was taken")?;
    ensure!(refused.contains("Read-only file system"), "{refused}");
    let full = await_notice(&at_a, "disk-full", true)?;
    ensure!(full.contains("Read-only"), "{full}");
    // Others' news is not taken, and nothing of this start is known to anybody.
    ensure!(report(&at_b, "bob", 1)?.is_ok());
    at_b.await_usage("physics", "bob", 1_000)?;
    ensure!(at_a.usage("physics", "bob")? == 0);
    ensure!(contents(&a.data())? == before, "nothing was written");

    // When it may be written again the node begins anew, as the same process.
    disk.write_protect(false)?;
    let began = Instant::now();
    while !report(&at_a, "ann", 2).is_ok_and(|done| done.is_ok()) {
        ensure!(began.elapsed() < PATIENCE, "it takes nothing");
        std::thread::sleep(Duration::from_millis(200));
    }
    for node in [&at_a, &at_b] {
        node.await_usage("physics", "ann", 2_000)?;
        node.await_usage("physics", "bob", 1_000)?;
    }
    let left = fs::read_dir(a.folder().join("s"))?.count();
    ensure!(left == 2, "{left} files are left beside the sockets");
    Ok(())
}

/// What all files below a folder hold.
fn contents(folder: &Path) -> anyhow::Result<std::collections::BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = std::collections::BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(contents(&path)?);
        } else if path.is_file() {
            found.insert(path.clone(), fs::read(&path)?);
        }
    }
    Ok(found)
}
