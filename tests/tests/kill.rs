//! kill -9 at random moments, a wiped or damaged store and an old backup: nothing that was
//! acknowledged is lost, and nothing is counted twice. Real processes, a real mesh, a real disk.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairmesh_tests::{Node, Site, Vo, records, request};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// How often the node is killed.
const KILLS: u64 = 50;

/// Records in one report.
const REPORT: u64 = 20;

struct Pair {
    _folder: tempfile::TempDir,
    a: Site,
    a_node: Node,
    b_node: Node,
}

/// Two sites of one VO; only B is reached by an address, so A may come back anywhere.
fn pair() -> anyhow::Result<Pair> {
    let folder = tempfile::tempdir()?;
    let a = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let b = Site::init(PROGRAM, &folder.path().join("b"), "b")?;
    let vo = Vo::found("physics", &[(a.id, "a"), (b.id, "b")], &["ann", "bob"])?;
    let vos = [("physics", vo.id())];
    b.configure("b", &[], &vos)?;
    let b_node = b.start()?;
    a.configure("a", &[(b.id, &b_node.address)], &vos)?;
    let a_node = a.start()?;
    vo.publish(&b_node)?;
    vo.publish(&a_node)?;
    Ok(Pair {
        _folder: folder,
        a,
        a_node,
        b_node,
    })
}

/// Small, seeded, and good enough to scatter the kills.
fn scatter(step: u64) -> Duration {
    let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x2545_f491_4f6c_dd1d;
    Duration::from_millis(mixed % 180)
}

#[test]
fn fifty_kills_lose_nothing_and_count_nothing_twice() -> anyhow::Result<()> {
    let Pair {
        _folder,
        a,
        mut a_node,
        b_node,
    } = pair()?;
    let mut acknowledged: u64 = 0;
    for kill in 0..KILLS {
        let stop = AtomicBool::new(false);
        let socket = a_node.socket().to_owned();
        acknowledged = std::thread::scope(|scope| {
            let feed = scope.spawn(|| {
                let mut next = acknowledged;
                while !stop.load(Ordering::Relaxed) {
                    // A report without an answer is sent again after the restart: at least once
                    // here, exactly once in the counters.
                    match request(
                        &socket,
                        "POST",
                        "/v1/records",
                        &records("physics", "ann", next * REPORT, REPORT),
                    ) {
                        Ok(answer) if answer.status == 200 => next += 1,
                        _ => break,
                    }
                }
                next
            });
            std::thread::sleep(scatter(kill));
            let killed = a_node.kill();
            stop.store(true, Ordering::Relaxed);
            let next = feed.join().expect("the feed does not panic");
            killed.map(|()| next)
        })?;
        a_node = a.start()?;
    }
    assert!(
        acknowledged > KILLS,
        "the feed hardly got through: {acknowledged} reports"
    );
    // The report that the last kill cut off may have been counted; sent again it must be known.
    let last = a_node.http(
        "POST",
        "/v1/records",
        &records("physics", "ann", 0, (acknowledged + 1) * REPORT),
    )?;
    assert_eq!(last.status, 200, "{last:?}");
    let expected = (acknowledged + 1) * REPORT * 1_000;
    a_node.await_usage("physics", "ann", expected)?;
    b_node.await_usage("physics", "ann", expected)?;
    // Long enough for anything counted twice to show.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(b_node.usage("physics", "ann")?, expected);
    Ok(())
}

#[test]
fn a_wiped_store_and_an_old_backup_come_back_with_all_that_was_gossiped() -> anyhow::Result<()> {
    let Pair {
        _folder,
        a,
        a_node,
        b_node,
    } = pair()?;
    let report = |node: &Node, first: u64, count: u64| {
        node.http(
            "POST",
            "/v1/records",
            &records("physics", "bob", first, count),
        )
    };
    report(&a_node, 0, 10)?;
    b_node.await_usage("physics", "bob", 10_000)?;
    assert!(a_node.stop()?.success());
    let backup = a.folder().join("backup");
    copy(&a.data(), &backup)?;

    // Go on, then lose the disk.
    let a_node = a.start()?;
    report(&a_node, 10, 10)?;
    b_node.await_usage("physics", "bob", 20_000)?;
    a_node.kill()?;
    std::fs::remove_dir_all(a.data())?;
    let a_node = a.start()?;
    a_node.await_usage("physics", "bob", 20_000)?;
    report(&a_node, 20, 10)?;
    b_node.await_usage("physics", "bob", 30_000)?;
    assert!(a_node.stop()?.success());

    // And then restore the backup, which knows of ten records only.
    std::fs::remove_dir_all(a.data())?;
    copy(&backup, &a.data())?;
    let a_node = a.start()?;
    a_node.await_usage("physics", "bob", 30_000)?;
    report(&a_node, 30, 10)?;
    b_node.await_usage("physics", "bob", 40_000)?;
    a_node.await_usage("physics", "bob", 40_000)?;
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(b_node.usage("physics", "bob")?, 40_000);
    Ok(())
}

#[test]
fn a_damaged_store_gives_back_what_was_acknowledged_and_never_published() -> anyhow::Result<()> {
    let Pair {
        _folder,
        a,
        a_node,
        b_node,
    } = pair()?;
    let report = |node: &Node| {
        let lines = records("physics", "bob", 100, 30);
        node.http("POST", "/v1/records", &lines)
    };
    a_node.http("POST", "/v1/records", &records("physics", "ann", 0, 10))?;
    b_node.await_usage("physics", "ann", 10_000)?;
    assert!(a_node.stop()?.success());
    publish_every(&a, "1h")?;
    let a_node = a.start()?;
    assert_eq!(report(&a_node)?.status, 200);
    a_node.kill()?;

    // What only A knew is on none but its own, damaged, disk.
    let data = a.data().join("store/db");
    let mut bytes = std::fs::read(&data)?;
    bytes
        .iter_mut()
        .skip(64)
        .step_by(97)
        .for_each(|byte| *byte ^= 0x10);
    std::fs::write(&data, bytes)?;
    let a_node = a.start()?;
    a_node.await_usage("physics", "bob", 30_000)?;
    a_node.await_usage("physics", "ann", 10_000)?;
    assert_eq!(b_node.usage("physics", "bob")?, 0);
    assert_eq!(report(&a_node)?.body["known"], 30);
    let aside = std::fs::read_dir(a.data())?.flatten().any(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with("store.damaged-")
    });
    assert!(aside, "the damaged store is kept");

    // As soon as it publishes, B has it, once.
    assert!(a_node.stop()?.success());
    publish_every(&a, "100ms")?;
    let a_node = a.start()?;
    b_node.await_usage("physics", "bob", 30_000)?;
    assert_eq!(report(&a_node)?.body["known"], 30);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(b_node.usage("physics", "bob")?, 30_000);
    assert_eq!(b_node.usage("physics", "ann")?, 10_000);
    Ok(())
}

/// Sets how often a site publishes, from its next start on.
fn publish_every(site: &Site, interval: &str) -> anyhow::Result<()> {
    let file = site.folder().join("fairmesh.toml");
    let text = std::fs::read_to_string(&file)?;
    let line = |line: &str| match line.split_once(" = ") {
        Some(("publish", _)) => format!("publish = \"{interval}\"\nsilence = \"9h\"\n"),
        Some(("heartbeat", _)) => format!("heartbeat = \"{interval}\"\n"),
        Some(("silence", _)) => String::new(),
        _ => format!("{line}\n"),
    };
    std::fs::write(file, text.lines().map(line).collect::<String>())?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    anyhow::ensure!(status.success(), "cannot copy {}", from.display());
    Ok(())
}
