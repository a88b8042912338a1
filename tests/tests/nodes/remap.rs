//! A rule was missing, and usage went to the root of one site: with the rule it moves into the VO, once, however often the
//! node and the command are killed, and every site has it to the core-millisecond. And a job that was taken back is
//! reported again. Real nodes, the real command.

use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fairmesh_tests::{Node, Site, Vo, records};

use crate::PROGRAM;

/// How long a state may take to be reached.
const PATIENCE: Duration = Duration::from_secs(60);

/// Core-milliseconds of each job.
const JOB: u64 = 1_000;

/// Jobs that go to the wrong account.
const JOBS: u64 = 1_200;

fn command(node: &Node, arguments: &[&str]) -> Command {
    let (name, rest) = arguments.split_first().expect("a command");
    let mut command = Command::new(PROGRAM);
    command
        .arg(name)
        .arg("--socket")
        .arg(node.socket())
        .args(rest);
    command
}

fn run(node: &Node, arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(command(node, arguments).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What counts of each account of a VO, or of the site's own.
fn nets(node: &Node) -> anyhow::Result<BTreeMap<String, u64>> {
    let answer = node.http("GET", "/v1/usage", b"")?;
    let mut nets = BTreeMap::new();
    for ledger in answer.body["ledgers"].as_array().into_iter().flatten() {
        let prefix = if ledger["vo"].is_null() {
            "own:"
        } else {
            "vo:"
        };
        for of in ledger["by_account"].as_array().into_iter().flatten() {
            let number = |name: &str| {
                let text = of[name].as_str();
                text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
            };
            let net = number("charge_core_ms").saturating_sub(number("refunds_core_ms"));
            let path = of["id"].as_str().unwrap_or("?");
            if net > 0 {
                nets.insert(format!("{prefix}{path}"), net);
            }
        }
    }
    Ok(nets)
}

fn await_nets(node: &Node, expected: &[(&str, u64)]) -> anyhow::Result<()> {
    let expected = expected
        .iter()
        .map(|(name, net)| ((*name).to_owned(), *net))
        .collect();
    let began = Instant::now();
    while nets(node)? != expected {
        let asked = node.http("GET", "/v1/usage", b"")?.text;
        anyhow::ensure!(
            began.elapsed() < PATIENCE,
            "{:?}, not {expected:?}: {asked}",
            nets(node)?
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The account `CMS` of site A belongs to the VO as well.
fn add_rule(a: &Site) -> anyhow::Result<()> {
    let config = std::fs::read_to_string(a.config())?;
    let rule = "[[identity]]\naccount = \"CMS\"\nvo = \"physics\"\npath = \"/{user}\"\n[shares]";
    std::fs::write(a.config(), config.replacen("[shares]", rule, 1))?;
    Ok(())
}

struct Grid {
    _folder: tempfile::TempDir,
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
        _folder: folder,
        a,
        a_node,
        b_node,
    })
}

/// Asks for the move, and kills the command, the node, or both after some milliseconds; what there is then is one of two
/// states, whole.
fn kill_while_it_moves(
    a: &Site,
    mut node: Node,
    move_it: &[&str],
    states: [&[(&str, u64)]; 2],
) -> anyhow::Result<Node> {
    for (index, wait_ms) in [0, 5, 20, 60, 120].into_iter().enumerate() {
        let mut asked = command(&node, move_it);
        let mut child = asked.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_millis(wait_ms));
        if index % 2 == 0 {
            child.kill()?;
        }
        node.kill()?;
        child.wait()?;
        node = a.start()?;
        let held = nets(&node)?;
        let is = |of: &[(&str, u64)]| of.iter().all(|(name, net)| held.get(*name) == Some(net));
        assert!(
            held.len() == 2 && states.iter().any(|of| is(of)),
            "{held:?}"
        );
    }
    Ok(node)
}

#[test]
fn usage_moves_once_however_often_node_and_command_are_killed() -> anyhow::Result<()> {
    let grid = grid()?;
    let (a, b, mut node) = (&grid.a, &grid.b_node, grid.a_node);
    node.http("POST", "/v1/records", &records("CMS", "ann", 0, JOBS))?;
    node.http("POST", "/v1/records", &records("physics", "bob", JOBS, 5))?;
    await_nets(&node, &[("own:/", JOBS * JOB), ("vo:/bob", 5 * JOB)])?;
    add_rule(a)?;
    node.kill()?;
    node = a.start()?;
    let dry = ["remap", "--since", "1d", "--dry-run"];
    let shown = run(&node, &dry)?;
    let words = text(&shown.stdout);
    assert!(shown.status.success(), "{shown:?}");
    for word in [
        "local:/",
        "physics:/ann",
        "1200 jobs of 1205 jobs would move",
        "nothing was changed",
    ] {
        assert!(words.contains(word), "{word} is not in {words}");
    }
    await_nets(&node, &[("own:/", JOBS * JOB), ("vo:/bob", 5 * JOB)])?;
    let move_it = ["remap", "--since", "1d", "--why", "a rule was missing"];
    let moved = [("vo:/ann", JOBS * JOB), ("vo:/bob", 5 * JOB)];
    let not_moved = [("own:/", JOBS * JOB), ("vo:/bob", 5 * JOB)];
    node = kill_while_it_moves(a, node, &move_it, [&moved, &not_moved])?;
    let done = run(&node, &move_it)?;
    assert!(done.status.success(), "{done:?}");
    let again = run(&node, &move_it)?;
    assert!(
        text(&again.stdout).contains("0 jobs of 1205 jobs moved"),
        "{again:?}"
    );
    await_nets(&node, &moved)?;
    await_nets(b, &moved)?;
    let audit = node.http("GET", "/v1/audit", b"")?;
    let refunds = audit.body["refunds"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(refunds.len(), 1, "{audit:?}");
    assert_eq!(
        (&refunds[0]["jobs"], &refunds[0]["moved_to"]["path"]),
        (&JOBS.into(), &"/ann".into())
    );
    assert!(
        refunds[0]["why"]
            .as_str()
            .is_some_and(|why| why == "a rule was missing")
    );
    // The books follow, and what a feed repeats is known.
    let sums = node.http("GET", "/v1/accounting?totals=true&vo=physics", b"")?;
    assert!(sums.text.contains("\"jobs\":1205"), "{}", sums.text);
    let told = node.http("POST", "/v1/records", &records("CMS", "ann", 0, JOBS))?;
    assert_eq!(
        (&told.body["counted"], &told.body["known"]),
        (&0.into(), &JOBS.into())
    );
    await_nets(b, &moved)
}

#[test]
fn a_job_that_was_taken_back_is_reported_again_as_something_else() -> anyhow::Result<()> {
    let grid = grid()?;
    let (a, b) = (&grid.a_node, &grid.b_node);
    let wrong = records("physics", "ann", 7, 1);
    let right = text(&wrong)
        .replace("\"ann\"", "\"bob\"")
        .replace("\"cores\":1", "\"cores\":3");
    let post = |bytes: &[u8]| a.http("POST", "/v1/records", bytes);
    post(&wrong)?;
    // A line of the log's as people write it.
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), &wrong)?;
    let file = file.path().display().to_string();
    assert!(
        run(a, &["correct", "7", "--why", "the wrong user"])?
            .status
            .success()
    );
    for _ in 0..2 {
        let told = text(&run(a, &["report", &file])?.stdout);
        assert!(
            told.contains("taken back on 20") && told.contains(": 1 job"),
            "{told}"
        );
    }
    await_nets(b, &[])?;
    let both = [&wrong[..], right.as_bytes(), &wrong[..]].concat();
    for counted in [1, 0] {
        let told = post(&both)?;
        assert_eq!(told.body["counted"], counted, "{told:?}");
    }
    await_nets(b, &[("vo:/bob", 3 * JOB)])?;
    // The log has the job as it counts: it is taken back by its id, and does not move.
    let dry = run(a, &["remap", "--since", "1d", "--dry-run"])?;
    assert!(
        text(&dry.stdout).contains("0 jobs of 1 job would move"),
        "{dry:?}"
    );
    let done = run(a, &["correct", "7", "--why", "it was neither"])?;
    assert!(done.status.success(), "{done:?}");
    let told = post(&both)?;
    assert_eq!(
        (&told.body["counted"], &told.body["known"]),
        (&0.into(), &3.into())
    );
    await_nets(b, &[])
}

#[test]
fn after_the_data_folder_is_lost_nobody_says_that_a_job_was_never_counted() -> anyhow::Result<()> {
    let grid = grid()?;
    let (a, b, mut node) = (&grid.a, &grid.b_node, grid.a_node);
    let reported = records("physics", "ann", 1, 3);
    node.http("POST", "/v1/records", &reported)?;
    await_nets(b, &[("vo:/ann", 3 * JOB)])?;
    node.kill()?;
    std::fs::remove_dir_all(a.data())?;
    node = a.start()?;
    await_nets(&node, &[("vo:/ann", 3 * JOB)])?;
    node.http("POST", "/v1/records", &reported)?;
    let refused = run(&node, &["correct", "2", "--why", "a test"])?;
    let words = text(&refused.stderr);
    assert!(
        words.contains("came back") && !words.contains("never counted"),
        "{words}"
    );
    let listed = run(&node, &["remap", "--since", "1d", "--dry-run"])?;
    let words = text(&listed.stdout);
    for word in [
        "0 jobs of 3 jobs would move",
        "3 jobs: no mark here",
        "physics:/ann",
    ] {
        assert!(words.contains(word), "{word} is not in {words}");
    }
    Ok(())
}
