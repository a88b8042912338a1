//! A site of which key and configuration are left, and whose configuration names no peers. It gets its charter from a
//! node that calls it, or from its operator, and with that all it had published.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use fairmesh_tests::{Node, Site, Vo, records_of_now};

use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_wiped_site_without_peers_gets_its_charter_from_a_caller_or_its_operator() -> anyhow::Result<()>
{
    let folder = tempfile::tempdir()?;
    let site = |name: &str| Site::init(PROGRAM, &folder.path().join(name), name);
    let (a, b) = (site("a")?, site("b")?);
    b.configure("b", &[], &[])?;
    let b_node = b.start()?;
    let address = b_node.address.clone();
    let sites = [(a.id, "a"), (b.id, "b")];
    let vo = Vo::found_with("physics", &sites, &["ann"], |charter| {
        let b = charter.sites.iter_mut().find(|member| member.name == "b");
        b.expect("it is listed").addresses = vec![address];
    })?;
    let vos = [("physics", vo.id())];
    a.configure("a", &[], &vos)?;
    let a_node = a.start()?;
    await_answer(&a_node, "doctor", "charter-missing")?;

    // B knows where A is, and calls.
    b.configure("b", &[(a.id, &a_node.address)], &vos)?;
    b_node.reload()?;
    await_answer(&b_node, "doctor", "charter-missing")?;
    vo.publish(&b_node)?;
    await_that(&a_node, "status", |text| !text.contains("charter-missing"))?;
    b_node.await_usage("physics", "ann", 0)?;
    let answer = a_node.http(
        "POST",
        "/v1/records",
        &records_of_now("physics", "ann", 0, 3),
    )?;
    ensure!(answer.body["counted"] == 3, "{answer:?}");
    b_node.await_usage("physics", "ann", 3_000)?;

    // A loses its disk and gets another address, which B does not know.
    ensure!(a_node.stop()?.success());
    fs::remove_dir_all(a.data())?;
    let a_node = a.start()?;
    let missing = await_answer(&a_node, "doctor", "charter-missing")?;
    ensure!(missing.contains("policy publish"), "{missing}");
    let charter = folder.path().join("charter.cbor");
    fs::write(&charter, vo.charter())?;
    let charter = charter.to_string_lossy();
    let output = fairmesh(&a_node, &["policy", "publish", &charter])?;
    ensure!(output.status.success(), "{output:?}");
    a_node.await_usage("physics", "ann", 3_000)?;
    await_answer(&a_node, "status", "counters-recovered")?;
    Ok(())
}

fn fairmesh(node: &Node, words: &[&str]) -> anyhow::Result<std::process::Output> {
    let mut command = Command::new(PROGRAM);
    let command = command.args(words).env("FAIRMESH_SOCKET", node.socket());
    Ok(command.output()?)
}

/// Waits until a command prints this, and returns all that it prints then.
fn await_answer(node: &Node, command: &str, expected: &str) -> anyhow::Result<String> {
    await_that(node, command, |text| text.contains(expected))
}

fn await_that(node: &Node, command: &str, is_it: impl Fn(&str) -> bool) -> anyhow::Result<String> {
    let began = Instant::now();
    loop {
        let output = fairmesh(node, &[command])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if is_it(&text) {
            return Ok(text);
        }
        ensure!(began.elapsed() < PATIENCE, "{command}: {output:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
