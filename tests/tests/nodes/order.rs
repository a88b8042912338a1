//! What schedulers get is the exact order: ten thousand users of one node, and nobody ties who is not
//! equal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use fairmesh_tests::{Node, Site};
use serde_json::Value;

use crate::PROGRAM;

/// Groups, and users of each.
const SIDE: usize = 100;

/// The share tree of one lab, as `[shares]`: three levels, all siblings alike.
fn shares() -> String {
    let mut shares = "[shares]\n\"/lab\" = 100\n".to_owned();
    for group in 0..SIDE {
        let _ = writeln!(shares, "\"/lab/g{group}\" = 1");
        for user in 0..SIDE {
            let _ = writeln!(shares, "\"/lab/g{group}/u{user}\" = 1");
        }
    }
    shares
}

/// A job for each user, and no two alike. Those of different groups overlap in length.
fn jobs() -> anyhow::Result<String> {
    let start = SystemTime::now() - Duration::from_secs(43_200);
    let start = u64::try_from(start.duration_since(UNIX_EPOCH)?.as_millis())?;
    let mut lines = String::new();
    for group in 0..SIDE {
        for user in 0..SIDE {
            let seconds = 1_000 + 100 * user + (group * 7 + user * 13) % 97;
            let end = start + 1_000 * u64::try_from(seconds).expect("few");
            let _ = writeln!(
                lines,
                "{{\"cluster\":\"c\",\"job\":\"{group}-{user}\",\"user\":\"u{user}\",\"account\":\"g{group}\",\
                 \"start_ms\":{start},\"end_ms\":{end},\"cores\":{}}}",
                1 + group % 3
            );
        }
    }
    Ok(lines)
}

fn configure(site: &Site, projection: &str) -> anyhow::Result<()> {
    let text = format!(
        "[site]\nname = \"lab\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
         [[identity]]\naccount = \"*\"\npath = \"/lab/{{account}}/{{user}}\"\n\
         [history]\nhalf_life = \"none\"\nhorizon = \"30d\"\n[order]\nprojection = \"{projection}\"\n{}",
        shares()
    );
    Ok(std::fs::write(site.config(), text)?)
}

/// Factors by the paths of all users, as `prio --stdin` looks them up.
fn factors(node: &Node) -> anyhow::Result<BTreeMap<String, String>> {
    let mut prio = Command::new(PROGRAM)
        .args(["prio", "--stdin", "--socket"])
        .arg(node.socket())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let asked: String = (0..SIDE * SIDE)
        .map(|at| format!("u{} g{}\n", at % SIDE, at / SIDE))
        .collect();
    let mut input = prio.stdin.take().context("piped")?;
    input.write_all(asked.as_bytes())?;
    drop(input);
    let output = prio.wait_with_output()?;
    ensure!(output.status.success(), "prio failed");
    let text = String::from_utf8(output.stdout)?;
    let row = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [user, group, factor] = words[..] else {
            anyhow::bail!("{line}");
        };
        Ok((format!("/lab/{group}/{user}"), factor.to_owned()))
    };
    text.lines().map(row).collect()
}

fn entries(node: &Node) -> anyhow::Result<Vec<Value>> {
    let answer = node.http("GET", "/v1/shares", b"")?;
    Ok(answer.body["entries"]
        .as_array()
        .context("entries")?
        .clone())
}

/// What `emulate` makes of the tree and of the usage that the node shows: ranks by path.
fn emulated(site: &Site, entries: &[Value]) -> anyhow::Result<BTreeMap<String, u64>> {
    let (tree, usage) = (
        site.folder().join("tree.toml"),
        site.folder().join("usage.csv"),
    );
    std::fs::write(&tree, shares())?;
    let mut charges = "path,charge\n".to_owned();
    for entry in entries.iter().filter(|entry| entry["leaf"] == true) {
        let (path, charge) = (&entry["path"], &entry["usage_core_ms"]);
        let both = path.as_str().zip(charge.as_str()).context("text")?;
        let _ = writeln!(charges, "{},{}", both.0, both.1);
    }
    std::fs::write(&usage, charges)?;
    let mut emulate = Command::new(PROGRAM);
    emulate.args(["emulate", "--json", "--policy"]).arg(&tree);
    let output = emulate.arg("--usage").arg(&usage).output()?;
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let rows = answer["entries"].as_array().context("entries")?.iter();
    let row = |entry: &Value| {
        let path = entry["path"].as_str().context("a path")?.to_owned();
        Ok((path, entry["rank"].as_u64().context("a rank")?))
    };
    rows.map(row).collect()
}

#[test]
fn ten_thousand_users_have_ten_thousand_factors_in_the_order_of_emulate() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("lab"), "lab")?;
    configure(&site, "rank")?;
    let node = site.start()?;
    let report = node.http("POST", "/v1/records", jobs()?.as_bytes())?;
    ensure!(report.body["counted"] == SIDE * SIDE, "{report:?}");

    // Whoever asks the control socket waits for what he knows of; look-ups are answered from the same.
    let entries = entries(&node)?;
    let factors = factors(&node)?;
    let different: BTreeSet<&String> = factors.values().collect();
    assert_eq!(different.len(), SIDE * SIDE, "factors of as many users");
    let emulated = emulated(&site, &entries)?;
    let mut by_rank: Vec<(u64, &str, &str)> = Vec::new();
    for entry in &entries {
        let path = entry["path"].as_str().context("a path")?;
        let factor = entry["factor"].as_str().context("a factor")?;
        by_rank.push((entry["rank"].as_u64().context("a rank")?, path, factor));
        if let Some(looked_up) = factors.get(path) {
            assert_eq!(looked_up, factor, "{path}");
        }
    }
    by_rank.sort_unstable();
    for pair in by_rank.windows(2) {
        let [(rank, path, factor), (next_rank, next, next_factor)] = [pair[0], pair[1]];
        let order = rank.cmp(&next_rank);
        assert_eq!(next_factor.cmp(factor), order, "{path} and {next}");
        assert_eq!(
            emulated[path].cmp(&emulated[next]),
            order,
            "{path} and {next}"
        );
    }

    let words = explained(&node)?;
    assert!(
        words.contains(" is served first. It is decided at level "),
        "{words}"
    );

    // Another order, while the node runs: digits tie what is nearer than one of them.
    configure(&site, "bits")?;
    node.reload()?;
    let began = Instant::now();
    while entries_different(&node)? == SIDE * SIDE {
        ensure!(began.elapsed().as_secs() < 60, "still the exact order");
        std::thread::sleep(Duration::from_millis(50));
    }
    let words = explained(&node)?;
    assert!(
        words.contains(" is served first by the projection `bits`."),
        "{words}"
    );
    Ok(())
}

/// Why a user of one group is served before or behind one of another.
fn explained(node: &Node) -> anyhow::Result<String> {
    let mut explain = Command::new(PROGRAM);
    explain.args(["explain", "/lab/g0/u0", "--vs", "/lab/g1/u99", "--socket"]);
    let output = explain.arg(node.socket()).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

fn entries_different(node: &Node) -> anyhow::Result<usize> {
    Ok(factors(node)?.into_values().collect::<BTreeSet<_>>().len())
}
