//! A VO mounts another VO's policy, through real nodes: a member of the first alone divides its tree as the
//! second says, says so, and still does after a start with nobody to ask.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use fairmesh_tests::{Node, Site, Vo};
use serde_json::Value;

use crate::PROGRAM;

/// How long a change may take to show.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a node's tree has an entry, and gives it.
fn await_entry(node: &Node, path: &str) -> anyhow::Result<Value> {
    let began = Instant::now();
    loop {
        let answer = node.http("GET", "/v1/shares", b"")?;
        let entries = answer.body["entries"].as_array().cloned();
        let found = entries
            .into_iter()
            .flatten()
            .find(|entry| entry["path"] == path);
        if let Some(found) = found {
            return Ok(found);
        }
        ensure!(began.elapsed() < PATIENCE, "no {path}: {answer:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn says(node: &Node, words: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(PROGRAM)
        .args(words)
        .env("FAIRMESH_SOCKET", node.socket())
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_reader_divides_its_tree_as_the_other_vo_says_and_names_it() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let a = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let b = Site::init(PROGRAM, &folder.path().join("b"), "b")?;
    let mut grid = Vo::found("grid", &[(a.id, "a"), (b.id, "b")], &["ann"])?;
    let inner = Vo::found_with("project", &[(a.id, "a")], &["eve", "kim"], |charter| {
        charter.readers = [grid.vo()].into();
    })?;
    grid.mount("/guests", &inner)?;
    b.configure("b", &[], &[("grid", grid.id())])?;
    let b_node = b.start()?;
    let vos = [("grid", grid.id()), ("project", inner.id())];
    a.configure("a", &[(b.id, &b_node.address)], &vos)?;
    let a_node = a.start()?;
    grid.publish(&b_node)?;
    await_entry(&a_node, "/grid/ann")?;
    inner.publish(&a_node)?;

    for node in [&a_node, &b_node] {
        let entry = await_entry(node, "/grid/guests/eve")?;
        assert_eq!(
            (&entry["target"], &entry["divided_by"]),
            (&"50".into(), &"project".into())
        );
        let told = says(node, &["explain", "/grid/guests/eve"])?;
        assert!(told.contains("as the policy of VO project says"), "{told}");
        let told = says(node, &["share", "-l"])?;
        let guest = told
            .lines()
            .find(|line| line.starts_with("/grid/guests/kim"));
        assert!(
            guest.is_some_and(|line| line.ends_with("project")),
            "{told}"
        );
    }
    // It holds the other VO's charter and policy, and takes no part in it.
    let answer = b_node.http("GET", "/v1/documents", b"")?;
    let documents = answer.body["documents"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let of_inner = documents
        .iter()
        .filter(|document| document["vo"] == inner.id());
    assert_eq!(of_inner.count(), 2);
    let usage = b_node.http("GET", &format!("/v1/usage?vo={}", inner.id()), b"")?;
    assert_eq!(usage.status, 404, "{usage:?}");

    a_node.stop()?;
    b_node.stop()?;
    let b_node = b.start()?;
    await_entry(&b_node, "/grid/guests/eve")?;
    b_node.stop()?;
    Ok(())
}
