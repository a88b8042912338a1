//! A node that starts again: behind a stop, a kill, an old backup, a wiped disk, on two machines at once,
//! and on a folder of the first edition. Nothing is lost that a disk or a peer held, nothing is counted
//! twice, and all nodes end with one view. Real processes, three sites, a real mesh.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use fairmesh_model::{Incarnation, SiteId};
use fairmesh_round::SideState;
use fairmesh_tests::{Node, Site, Vo, records, records_of_now};
use serde_json::Value;

use crate::PROGRAM;

/// How long views may take to become one: many times the interval of anti-entropy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Site A, which starts again and again, and two that stay. A finds both, and C finds B.
struct Grid {
    folder: tempfile::TempDir,
    vo: Vo,
    a: Site,
    b: Node,
    c: Node,
    ids: [SiteId; 2],
}

impl Grid {
    fn found() -> anyhow::Result<Self> {
        Self::found_with(|_| Ok(()))
    }

    /// The same, with other configurations.
    fn found_with(change: fn(&Site) -> anyhow::Result<()>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let site = |name: &str| Site::init(PROGRAM, &folder.path().join(name), name);
        let (a, b, c) = (site("a")?, site("b")?, site("c")?);
        let sites = [(a.id, "a"), (b.id, "b"), (c.id, "c")];
        let vo = Vo::found("physics", &sites, &["ann", "bob", "cat"])?;
        let vos = [("physics", vo.id())];
        b.configure("b", &[], &vos)?;
        change(&b)?;
        let b_node = b.start()?;
        c.configure("c", &[(b.id, &b_node.address)], &vos)?;
        change(&c)?;
        let c_node = c.start()?;
        vo.publish(&b_node)?;
        vo.publish(&c_node)?;
        let grid = Self {
            folder,
            vo,
            a,
            ids: [b.id, c.id],
            b: b_node,
            c: c_node,
        };
        grid.configure(&grid.a, true, true)?;
        change(&grid.a)?;
        Ok(grid)
    }

    /// Writes the configuration of A, or of a clone of it, with those of the other two that it finds.
    fn configure(&self, site: &Site, finds_b: bool, finds_c: bool) -> anyhow::Result<()> {
        let [b, c] = self.ids;
        let all = [(b, &self.b, finds_b), (c, &self.c, finds_c)];
        let found = all.iter().filter(|(_, _, is_found)| *is_found);
        let found: Vec<(SiteId, &str)> = found
            .map(|(id, node, _)| (*id, node.address.as_str()))
            .collect();
        site.configure("a", &found, &[("physics", self.vo.id())])
    }

    /// Waits until all three have counted so many jobs of a second each and have one view of it.
    fn await_one_view(&self, a: &Node, jobs: u64) -> anyhow::Result<()> {
        for node in [a, &self.b, &self.c] {
            node.await_usage("physics", "ann", jobs * 1_000)?;
        }
        let began = Instant::now();
        loop {
            let views = [a, &self.b, &self.c].map(view);
            let views: BTreeSet<String> = views.into_iter().collect::<anyhow::Result<_>>()?;
            if views.len() == 1 {
                break;
            }
            ensure!(began.elapsed() < PATIENCE, "views differ: {views:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        for node in [a, &self.b, &self.c] {
            let used = node.usage("physics", "ann")?;
            ensure!(used == jobs * 1_000, "{used} core-ms of {jobs} jobs");
        }
        Ok(())
    }

    /// Waits until every node holds so many heads of A.
    fn await_heads(&self, a: &Node, expected: usize) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let held = [a, &self.b, &self.c].map(|node| heads(node, &self.a));
            let held: Vec<usize> = held.into_iter().collect::<anyhow::Result<_>>()?;
            if held == [expected; 3] {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "heads of A: {held:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn status(node: &Node) -> anyhow::Result<Value> {
    let answer = node.http("GET", "/v1/status?digests=true", b"")?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(answer.body)
}

/// Documents and weighed sums of the VO, as one hash.
fn view(node: &Node) -> anyhow::Result<String> {
    let status = status(node)?;
    let view = status["vos"][0]["view_digest"].as_str();
    Ok(view.unwrap_or("none yet").to_owned())
}

/// How many uncovered heads of a site a node holds.
fn heads(node: &Node, of: &Site) -> anyhow::Result<usize> {
    let status = status(node)?;
    let held = status["vos"][0]["heads"].as_array().context("heads")?;
    let is_of = |head: &&Value| head["site"] == of.id.to_string();
    Ok(held.iter().filter(is_of).count())
}

/// Reports jobs of a second each, by their numbers; all of them count.
fn report(node: &Node, first: u64, count: u64) -> anyhow::Result<()> {
    // Behind a loss what ran before that is taken to be counted.
    std::thread::sleep(Duration::from_secs(1));
    let lines = records_of_now("physics", "ann", first, count);
    let answer = node.http("POST", "/v1/records", &lines)?;
    ensure!(answer.body["counted"] == count, "{answer:?}");
    Ok(())
}

/// Sets how often a site publishes, from its next start on.
pub(crate) fn publish_every(site: &Site, interval: &str) -> anyhow::Result<()> {
    let text = fs::read_to_string(site.config())?;
    let line = |line: &str| match line.split_once(" = ") {
        Some(("publish", _)) => format!("publish = \"{interval}\"\nsilence = \"9h\"\n"),
        Some(("heartbeat", _)) => format!("heartbeat = \"{interval}\"\n"),
        Some(("silence", _)) => String::new(),
        _ => format!("{line}\n"),
    };
    fs::write(site.config(), text.lines().map(line).collect::<String>())?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(status.success(), "cannot copy {}", from.display());
    Ok(())
}

#[test]
fn a_restart_publishes_what_the_start_before_had_counted_and_covers_its_head() -> anyhow::Result<()>
{
    let grid = Grid::found()?;
    let a = grid.a.start()?;
    a.await_usage("physics", "ann", 0)?;
    report(&a, 0, 10)?;
    grid.await_one_view(&a, 10)?;
    grid.await_heads(&a, 1)?;
    ensure!(a.stop()?.success());

    // A start that publishes nothing before it is killed.
    publish_every(&grid.a, "1h")?;
    let a = grid.a.start()?;
    report(&a, 10, 7)?;
    a.kill()?;
    for other in [&grid.b, &grid.c] {
        assert_eq!(other.usage("physics", "ann")?, 10_000);
    }

    publish_every(&grid.a, "100ms")?;
    let a = grid.a.start()?;
    grid.await_one_view(&a, 17)?;
    report(&a, 17, 3)?;
    grid.await_one_view(&a, 20)?;
    grid.await_heads(&a, 1)?;
    let again = a.http("POST", "/v1/records", &records("physics", "ann", 0, 20))?;
    assert_eq!(again.body["known"], 20, "{again:?}");
    Ok(())
}

#[test]
fn a_restored_backup_counts_on_and_joins_what_peers_hold_of_the_time_since() -> anyhow::Result<()> {
    let grid = Grid::found()?;
    let a = grid.a.start()?;
    a.await_usage("physics", "ann", 0)?;
    report(&a, 0, 10)?;
    grid.await_one_view(&a, 10)?;
    ensure!(a.stop()?.success());
    let backup = grid.folder.path().join("backup");
    copy(&grid.a.data(), &backup)?;

    // What follows is on A's disk and at its peers; the disk dies.
    let a = grid.a.start()?;
    report(&a, 10, 10)?;
    grid.await_one_view(&a, 20)?;
    a.kill()?;
    fs::remove_dir_all(grid.a.data())?;
    copy(&backup, &grid.a.data())?;

    // The backup knows of ten jobs. It counts before it has met anybody: nobody is waited for.
    grid.configure(&grid.a, false, false)?;
    let a = grid.a.start()?;
    assert_eq!(a.usage("physics", "ann")?, 10_000);
    report(&a, 20, 5)?;
    a.await_usage("physics", "ann", 15_000)?;
    a.kill()?;
    grid.configure(&grid.a, true, true)?;
    let a = grid.a.start()?;
    grid.await_one_view(&a, 25)?;
    grid.await_heads(&a, 1)?;
    report(&a, 25, 5)?;
    grid.await_one_view(&a, 30)?;
    Ok(())
}

#[test]
fn a_wiped_disk_gets_back_all_that_was_published() -> anyhow::Result<()> {
    let grid = Grid::found()?;
    let mut jobs = 0;
    for _ in 0..2 {
        let a = grid.a.start()?;
        // The charter, too, comes from peers.
        a.await_usage("physics", "ann", jobs * 1_000)?;
        report(&a, jobs, 10)?;
        jobs += 10;
        grid.await_one_view(&a, jobs)?;
        a.kill()?;
        fs::remove_dir_all(grid.a.data())?;
    }
    let a = grid.a.start()?;
    grid.await_one_view(&a, jobs)?;
    report(&a, jobs, 1)?;
    grid.await_one_view(&a, jobs + 1)?;
    grid.await_heads(&a, 1)
}

#[test]
fn two_machines_with_one_key_add_up_and_are_joined_by_the_next_start() -> anyhow::Result<()> {
    let grid = Grid::found()?;
    let a = grid.a.start()?;
    a.await_usage("physics", "ann", 0)?;
    report(&a, 0, 10)?;
    grid.await_one_view(&a, 10)?;
    ensure!(a.stop()?.success());

    // Somebody clones the machine. To a peer both are one site, so each finds another one.
    let folder = grid.folder.path().join("clone");
    copy(grid.a.folder(), &folder)?;
    let clone = Site::at(PROGRAM, &folder)?;
    assert_eq!(clone.id, grid.a.id);
    grid.configure(&grid.a, true, false)?;
    grid.configure(&clone, false, true)?;
    let (a, twin) = (grid.a.start()?, clone.start()?);
    report(&a, 10, 10)?;
    report(&twin, 20, 5)?;
    for other in [&grid.b, &grid.c] {
        other.await_usage("physics", "ann", 25_000)?;
    }
    twin.kill()?;
    grid.await_one_view(&a, 25)?;
    ensure!(a.stop()?.success());
    let a = grid.a.start()?;
    report(&a, 25, 1)?;
    grid.await_one_view(&a, 26)?;
    grid.await_heads(&a, 1)
}

/// Nothing has changed meanwhile, so all that peers have to say of A's past is that they hold the same.
#[test]
fn a_node_that_starts_again_in_a_quiet_mesh_knows_its_past_and_nobody_has_to_act()
-> anyhow::Result<()> {
    let grid = Grid::found_with(heartbeat_hourly)?;
    let mut a = grid.a.start()?;
    report(&a, 0, 3)?;
    grid.await_one_view(&a, 3)?;
    for is_killed in [false, true] {
        match is_killed {
            true => a.kill()?,
            false => ensure!(a.stop()?.success()),
        }
        a = grid.a.start()?;
        let began = Instant::now();
        loop {
            let status = status(&a)?;
            let is_known = status["vos"][0]["past_known"] == true;
            let notices = status["notices"].as_array().context("notices")?;
            let is_quiet = notices.iter().all(|of| of["severity"] == "info");
            if is_known && is_quiet {
                break;
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "killed: {is_killed}: {status:#}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        grid.await_one_view(&a, 3)?;
    }
    Ok(())
}

/// Lets a site sign nothing for an hour that says nothing new.
fn heartbeat_hourly(site: &Site) -> anyhow::Result<()> {
    let text = fs::read_to_string(site.config())?;
    let hourly = text.replace("heartbeat = \"2s\"", "heartbeat = \"1h\"\nsilence = \"9h\"");
    ensure!(hourly != text, "{text}");
    Ok(fs::write(site.config(), hourly)?)
}

/// The connection of the start before has ended, so the next start is no second machine that waits for its turn.
#[test]
fn a_node_that_starts_again_and_again_is_let_in_at_once() -> anyhow::Result<()> {
    let grid = Grid::found()?;
    for start in 0..5 {
        let a = grid.a.start()?;
        let began = Instant::now();
        loop {
            let body = status(&a)?;
            let peers = body["peers"].as_array().context("peers")?;
            let failed = peers.iter().find(|peer| peer["dials_failed"] != 0);
            ensure!(failed.is_none(), "start {start}: {failed:#?}");
            if peers.iter().filter(|peer| peer["in_sync"] == true).count() == 2 {
                break;
            }
            ensure!(began.elapsed() < PATIENCE, "start {start}: {body:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
        match start % 2 {
            0 => a.kill()?,
            _ => ensure!(a.stop()?.success()),
        }
    }
    for node in [&grid.b, &grid.c] {
        let body = status(node)?;
        let notices = body["notices"].as_array().context("notices")?;
        ensure!(
            notices.iter().all(|notice| notice["code"] != "site-twice"),
            "{body:#}"
        );
    }
    Ok(())
}

#[test]
fn a_superseded_share_policy_is_no_damage_after_a_restart() -> anyhow::Result<()> {
    let mut grid = Grid::found()?;
    let a = grid.a.start()?;
    a.await_usage("physics", "ann", 0)?;
    for version in 2..=3 {
        grid.vo.divide_anew(version, &["ann", "bob"])?;
        grid.vo.publish(&a)?;
    }
    report(&a, 0, 1)?;
    grid.await_one_view(&a, 1)?;
    ensure!(a.stop()?.success());
    let a = grid.a.start()?;
    grid.await_one_view(&a, 1)?;
    let began = Instant::now();
    loop {
        let output = Command::new(PROGRAM)
            .arg("status")
            .env("FAIRMESH_SOCKET", a.socket())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(!text.contains("damaged"), "{text}");
        if output.status.code() == Some(0) {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "{text}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_folder_of_the_first_edition_is_refused_by_name_and_left_as_it_is() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let a = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    a.configure("a", &[], &[])?;
    fs::create_dir_all(a.data())?;
    let state = SideState {
        format: 1,
        incarnation_floor: Incarnation(7),
        site: None,
    };
    let side = a.data().join("site.state");
    fs::write(&side, state.to_bytes())?;
    fs::write(a.data().join("site.journal"), b"fairmesh journal 1\n")?;
    let Err(refused) = a.start() else {
        bail!("it started");
    };
    let words = refused.to_string();
    assert!(words.contains(&side.display().to_string()), "{words}");
    for said in ["first edition", "Move the whole folder away", "CHANGELOG"] {
        assert!(words.contains(said), "{words}");
    }
    assert_eq!(fs::read(&side)?, state.to_bytes());
    assert!(!a.data().join("store").exists());

    // Done as it says, with the folder kept.
    fs::rename(a.data(), folder.path().join("kept"))?;
    ensure!(a.start()?.stop()?.success());
    Ok(())
}

/// What a node has told systemd since it was last asked, each of it a line.
fn told(systemd: &UnixDatagram) -> anyhow::Result<Vec<String>> {
    let mut bytes = [0; 4_096];
    let length = systemd.recv(&mut bytes)?;
    let text = std::str::from_utf8(&bytes[..length])?;
    Ok(text.lines().map(str::to_owned).collect())
}

#[test]
fn a_start_that_waits_for_its_disk_says_so_to_systemd_and_ends_when_it_is_told_to()
-> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    site.start()?.stop()?;
    // Whoever reads it waits for somebody who writes, as for a disk that does not answer.
    let journal = site.data().join("site.journal");
    fs::remove_file(&journal)?;
    let made = Command::new("mkfifo").arg(&journal).status()?;
    ensure!(made.success());

    let socket = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&socket)?;
    systemd.set_read_timeout(Some(PATIENCE))?;
    let mut node = Command::new(PROGRAM)
        .arg("run")
        .arg("--config")
        .arg(site.config())
        .env("NOTIFY_SOCKET", &socket)
        .stderr(fs::File::create(folder.path().join("log"))?)
        .spawn()?;
    let first = told(&systemd)?;
    ensure!(
        matches!(&first[..], [line] if line.starts_with("STATUS=starting for") && line.ends_with(": opens its store")),
        "{first:?}"
    );
    // It does not get on, so the unit's time for a start goes on.
    let next = told(&systemd)?;
    ensure!(
        matches!(&next[..], [line] if line.starts_with("STATUS=")),
        "{next:?}"
    );
    let asked = Command::new("kill").arg(node.id().to_string()).status()?;
    ensure!(asked.success());
    let began = Instant::now();
    let ended = loop {
        if let Some(ended) = node.try_wait()? {
            break ended;
        }
        if began.elapsed() > PATIENCE {
            node.kill()?;
            bail!("it still waits for its disk");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let log = fs::read_to_string(folder.path().join("log"))?;
    ensure!(
        ended.success() && log.contains("stopping while the node opens its store"),
        "{ended}: {log}"
    );
    Ok(())
}
