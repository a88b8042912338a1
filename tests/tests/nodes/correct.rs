//! Jobs that were reported in error are taken back: once, with a trace, whatever the node does meanwhile,
//! and everywhere. Real nodes, the real command.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use fairmesh_tests::{Call, Node, Site, Vo, records};

use crate::PROGRAM;

/// How long a state may take to be reached.
const PATIENCE: Duration = Duration::from_secs(60);

/// Core-milliseconds of each job.
const JOB: u64 = 1_000;

fn run(node: &Node, arguments: &[&str]) -> anyhow::Result<Output> {
    let socket = node.socket().to_owned();
    let (command, rest) = arguments.split_first().expect("a command");
    Ok(Command::new(PROGRAM)
        .arg(command)
        .arg("--socket")
        .arg(socket)
        .args(rest)
        .output()?)
}

/// What counts of ann's usage, and what was taken back of it.
fn charge(node: &Node) -> anyhow::Result<(u64, u64)> {
    let answer = node.http("GET", "/v1/usage?vo=physics&path=/ann", b"")?;
    let total = &answer.body["ledgers"][0]["total"];
    let number = |name: &str| total[name].as_str().and_then(|text| text.parse().ok());
    Ok((
        number("charge_core_ms").unwrap_or(0),
        number("refunds_core_ms").unwrap_or(0),
    ))
}

fn await_charge(node: &Node, expected: (u64, u64)) -> anyhow::Result<()> {
    let began = Instant::now();
    while charge(node)? != expected {
        let known = charge(node)?;
        let asked = |target| node.http("GET", target, b"").map(|answer| answer.text);
        anyhow::ensure!(
            began.elapsed() < PATIENCE,
            "{known:?}, not {expected:?}: {:?} {:?}",
            asked("/v1/status"),
            asked("/v1/audit")
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Grid {
    folder: tempfile::TempDir,
    a: Site,
    a_node: Node,
    b_node: Node,
}

fn grid() -> anyhow::Result<Grid> {
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
    Ok(Grid {
        folder,
        a,
        a_node,
        b_node,
    })
}

#[test]
fn a_job_is_taken_back_once_here_and_everywhere_with_who_and_why() -> anyhow::Result<()> {
    let grid = grid()?;
    let (a, b) = (&grid.a_node, &grid.b_node);
    let reported = records("physics", "ann", 1, 5);
    let answer = a.http("POST", "/v1/records", &reported)?;
    assert_eq!(answer.body["counted"], 5, "{answer:?}");
    await_charge(b, (5 * JOB, 0))?;
    let why = "--why=a test job, reported twice";
    let done = run(a, &["correct", "2", why, "--by=bob"])?;
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("taken back"), "{done:?}");
    for node in [a, b] {
        await_charge(node, (4 * JOB, JOB))?;
    }
    for (job, word) in [("2", "taken back already"), ("77", "not in the record log")] {
        let refused = run(a, &["correct", job, why])?;
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains(word), "{refused:?}");
    }
    // Of a file some may be unknown; the others are taken back all the same.
    let file = grid.folder.path().join("wrong.jsonl");
    let of = |job: usize| reported.split_inclusive(|byte| *byte == b'\n').nth(job - 1);
    let unknown = records("physics", "ann", 6, 1);
    let some = [of(5), Some(&unknown[..]), of(2)].map(Option::unwrap_or_default);
    let some = some.concat();
    std::fs::write(&file, some)?;
    let file = format!("--file={}", file.display());
    let done = run(a, &["correct", &file, why])?;
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("never counted"), "{done:?}");
    await_charge(b, (3 * JOB, 2 * JOB))?;
    // Known is known: the feed repeats the records, and nothing counts.
    let answer = a.http("POST", "/v1/records", &reported)?;
    assert_eq!(
        (&answer.body["counted"], &answer.body["known"]),
        (&0.into(), &5.into())
    );
    let audit = text(&run(a, &["audit"])?.stdout);
    for word in ["bob (uid ", "reported twice", "/ann", "test 2", "test 5"] {
        assert!(audit.contains(word), "{word} is not in {audit}");
    }
    // B is told by A's head who took how much back of whom and why, and of no job.
    let told = text(&run(b, &["audit"])?.stdout);
    for word in ["bob (uid ", "reported twice", "/ann"] {
        assert!(told.contains(word), "{word} is not in {told}");
    }
    assert!(!told.contains("test 2"), "{told}");
    let sums = a.http("GET", "/v1/accounting?totals=true", b"")?;
    assert!(sums.text.contains("\"jobs\":3"), "{}", sums.text);
    let list = text(&run(a, &["records"])?.stdout);
    assert_eq!(list.matches("TAKEN_BACK").count(), 2, "{list}");
    Ok(())
}

#[test]
fn a_job_is_taken_back_once_however_often_the_node_is_killed() -> anyhow::Result<()> {
    let grid = grid()?;
    let Grid {
        folder: _folder,
        a,
        a_node,
        b_node,
    } = grid;
    let jobs = 6;
    let reported = records("physics", "ann", 0, jobs);
    a_node.http("POST", "/v1/records", &reported)?;
    await_charge(&b_node, (jobs * JOB, 0))?;
    let target = "/v1/corrections?why=test";
    let mut a_node = a_node;
    for (job, wrong) in (0..jobs).zip(reported.split_inclusive(|byte| *byte == b'\n')) {
        let answered = job % 2 == 0;
        let mut call = Call::open(a_node.socket(), "POST", target, wrong.len())?;
        call.send(wrong)?;
        if answered {
            let answer = call.answer()?;
            assert_eq!(answer.body["refused"], 0, "{answer:?}");
        }
        a_node.kill()?;
        a_node = a.start()?;
        let again = a_node.http("POST", target, wrong)?;
        let refused = again.body["refused"].as_u64();
        let is_done = again.text.contains("already") || refused == Some(0);
        assert!(is_done && (refused == Some(1) || !answered), "{again:?}");
        // What B had before the kill stays until A has told the rest.
        await_charge(&a_node, ((jobs - job - 1) * JOB, (job + 1) * JOB))?;
        await_charge(&b_node, ((jobs - job - 1) * JOB, (job + 1) * JOB))?;
    }
    let audit = a_node.http("GET", "/v1/audit", b"")?;
    let entries = audit.body["refunds"].as_array().map(Vec::len);
    assert_eq!(entries, Some(6), "{audit:?}");
    Ok(())
}
