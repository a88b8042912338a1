//! kill -9 at every moment of a report, and a damaged store: nothing that was acknowledged is lost, and
//! nothing is counted twice. Real processes, a real mesh, a real disk. (Wiped disks and old backups:
//! `restarts`.)

use std::fs::DirEntry;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use fairmesh_tests::{Call, Node, Site, Vo, records};

use crate::PROGRAM;
use crate::restarts::publish_every;

/// How often the node is killed, where `FAIRMESH_KILLS` does not say.
const KILLS: usize = 50;

/// Records in one report.
const REPORT: u64 = 20;

/// How long a node may take to write what it is told.
const PATIENCE: Duration = Duration::from_secs(60);

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
    let vo = Vo::found(
        "physics",
        &[(a.id, "a"), (b.id, "b")],
        &["ann", "bob", "cat"],
    )?;
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

/// Where the node is when it is killed. Each is an event that the killer waits for.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// The report is on its way: half of it has been written.
    HalfSent,
    /// The node has all of the report, and nobody has waited for anything.
    Sent,
    /// It has begun to write into its folder.
    Writing,
    /// It has answered, and what follows the answer is under way.
    Answered,
}

impl Moment {
    const ALL: [Self; 4] = [Self::HalfSent, Self::Sent, Self::Writing, Self::Answered];
}

/// Reports one after the other, so many in all, and kills the node at that moment of the last. Gives
/// the number of the next report: one without an answer is sent again after the restart, at least
/// once here, exactly once in the counters.
fn report_and_kill(
    a: &Site,
    node: Node,
    next: u64,
    before: u64,
    at: Moment,
) -> anyhow::Result<u64> {
    for number in next..next + before {
        let answer = node.http("POST", "/v1/records", &report(number))?;
        anyhow::ensure!(answer.status == 200, "{answer:?}");
    }
    let next = next + before;
    let last = report(next);
    let mut call = Call::open(node.socket(), "POST", "/v1/records", last.len())?;
    let before_it = state_of(&a.data());
    match at {
        Moment::HalfSent => call.send(&last[..last.len() / 2])?,
        Moment::Sent | Moment::Writing | Moment::Answered => call.send(&last)?,
    }
    let answered = match at {
        Moment::HalfSent | Moment::Sent => false,
        Moment::Writing => {
            let began = Instant::now();
            while state_of(&a.data()) == before_it {
                anyhow::ensure!(began.elapsed() < PATIENCE, "nothing is written");
                std::thread::yield_now();
            }
            false
        }
        Moment::Answered => call.answer()?.status == 200,
    };
    node.kill()?;
    Ok(next + u64::from(answered))
}

fn report(number: u64) -> Vec<u8> {
    records("physics", "ann", number * REPORT, REPORT)
}

/// Something that is another number as soon as a file below has been written to.
pub(crate) fn state_of(folder: &Path) -> u128 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let state = |entry: DirEntry| match entry.metadata() {
        Ok(it) if it.is_dir() => state_of(&entry.path()),
        Ok(it) => {
            let written = it
                .modified()
                .unwrap_or(UNIX_EPOCH)
                .duration_since(UNIX_EPOCH);
            written.unwrap_or_default().as_nanos() + u128::from(it.len())
        }
        // It has gone since it was listed.
        Err(_) => 0,
    };
    entries.map(state).sum()
}

/// What A has counted so far is at B when B has this job, which A counts later.
fn await_later_news(a_node: &Node, b_node: &Node) -> anyhow::Result<()> {
    let later = records("physics", "cat", u64::MAX / 2, 1);
    let answer = a_node.http("POST", "/v1/records", &later)?;
    anyhow::ensure!(answer.status == 200, "{answer:?}");
    b_node.await_usage("physics", "cat", 1_000)
}

fn kills() -> anyhow::Result<usize> {
    Ok(match std::env::var("FAIRMESH_KILLS") {
        Ok(text) => text.parse()?,
        Err(_) => KILLS,
    })
}

#[test]
fn kills_at_any_moment_lose_nothing_and_count_nothing_twice() -> anyhow::Result<()> {
    let (began, kills) = (Instant::now(), kills()?);
    let Pair {
        _folder,
        a,
        mut a_node,
        b_node,
    } = pair()?;
    let mut next = 0;
    for kill in 0..kills {
        let moment = Moment::ALL[kill % Moment::ALL.len()];
        // From none to twelve reports in one run, so that the node is caught in different states.
        let before = u64::try_from(kill * 7 % 13)?;
        next = report_and_kill(&a, a_node, next, before, moment)?;
        a_node = a.start()?;
    }
    // The report that the last kill cut off may have been counted; sent again it must be known.
    let all = records("physics", "ann", 0, (next + 1) * REPORT);
    let last = a_node.http("POST", "/v1/records", &all)?;
    assert_eq!(last.status, 200, "{last:?}");
    let expected = (next + 1) * REPORT * 1_000;
    a_node.await_usage("physics", "ann", expected)?;
    b_node.await_usage("physics", "ann", expected)?;
    await_later_news(&a_node, &b_node)?;
    assert_eq!(b_node.usage("physics", "ann")?, expected);
    let (jobs, known) = ((next + 1) * REPORT, &last.body["known"]);
    println!(
        "{kills} kills, {jobs} jobs ({known} known when all were sent again), {:?}",
        began.elapsed()
    );
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
    await_later_news(&a_node, &b_node)?;
    assert_eq!(b_node.usage("physics", "bob")?, 30_000);
    assert_eq!(b_node.usage("physics", "ann")?, 10_000);
    Ok(())
}
