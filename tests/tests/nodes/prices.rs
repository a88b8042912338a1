//! What a site's machines cost, through real nodes: others get it, signed, get each change, and
//! charge a job record by it to the same core-millisecond.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairmesh_model::{ChargingRule, Factor};
use fairmesh_tests::{Node, Site, Vo};
use serde_json::Value;

use crate::PROGRAM;

/// How long a change may take to show.
const PATIENCE: Duration = Duration::from_secs(60);

/// A job of 4 CPUs and 512 GiB for two hours: half of a fat machine's memory.
const SACCT: &str = "\
JobIDRaw|Cluster|User|Account|Partition|Submit|Start|End|State|NCPUS|NNodes|ReqMem|AllocTRES|NodeList
7|a|ann|physics|long|2026-11-01T08:00:00|2026-11-01T10:00:00|2026-11-01T12:00:00|COMPLETED|4|1|512G|\
billing=4,cpu=4,mem=512G,node=1|fat3
";

fn append(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = File::options().append(true).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

fn machines(cost: &str, spec: &str) -> String {
    format!(
        "[charging.queues]\nlong = {cost}\n\
         [[machine]]\nclass = \"thin\"\ncount = 9\ncpus = 64\nmemory = \"256GiB\"\nhosts = [\"n*\"]\n\
         [[machine]]\nclass = \"fat\"\ncount = 2\ncpus = 64\nmemory = \"1TiB\"\nspec = {spec}\n\
         hosts = [\"fat*\"]\n"
    )
}

/// Runs a command that prints JSON, at a node.
fn json(node: &Node, words: &[&str]) -> anyhow::Result<Value> {
    let output = Command::new(PROGRAM)
        .args(words)
        .arg("--json")
        .env("FAIRMESH_SOCKET", node.socket())
        .output()?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Waits until a node holds what site A says last of its machines and queues, and gives it.
fn await_prices(node: &Node, cost: &str) -> anyhow::Result<Value> {
    let began = Instant::now();
    loop {
        let told = json(node, &["prices", "--site", "a"])?;
        if told["sites"][0]["queues"][0]["cost"] == cost {
            return Ok(told["sites"][0].clone());
        }
        ensure!(began.elapsed() < PATIENCE, "not {cost}: {told}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What a dry run at a node says that the job is charged, in core-milliseconds.
fn charge(node: &Node, file: &str, more: &[&str]) -> anyhow::Result<u64> {
    let words = ["report", "--dry-run", "--tz", "UTC", file];
    let told = json(node, &[&words, more].concat())?;
    let charge = told["accounts"][0]["charge_core_ms"].as_str();
    Ok(charge.with_context(|| told.to_string())?.parse()?)
}

#[test]
fn a_members_charge_can_be_checked_at_another_site() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let a = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let b = Site::init(PROGRAM, &folder.path().join("b"), "b")?;
    let sites = [(a.id, "a"), (b.id, "b")];
    let vo = Vo::found_with("physics", &sites, &["ann"], |charter| {
        charter.charging = ChargingRule::Penalty {
            gpu: true,
            gpu_weight: None,
            disk: true,
            factor_max: Factor::from_millionths(4_000_000),
        };
    })?;
    let vos = [("physics", vo.id())];
    b.configure("b", &[], &vos)?;
    let b_node = b.start()?;
    a.configure("a", &[(b.id, &b_node.address)], &vos)?;
    let plain = std::fs::read_to_string(a.config())?;
    append(&a.config(), &machines("1.5", "1.25"))?;
    let a_node = a.start()?;
    vo.publish(&b_node)?;
    let file = folder.path().join("jobs.sacct");
    std::fs::write(&file, SACCT)?;
    let file = file.to_str().context("a plain name")?;

    let told = await_prices(&b_node, "1.5")?;
    assert_eq!(told["machines"][0]["class"], "fat");
    assert_eq!(told["machines"][0]["mem_mib"], 1 << 20);
    // Half of 64 CPUs for two hours × 1.25 × 1.5, at A by its own file and at B by what A signed.
    let expected = 32 * 2 * 3_600_000 * 125 * 15 / 1_000;
    assert_eq!(charge(&a_node, file, &[])?, expected);
    assert_eq!(charge(&b_node, file, &["--at-site", "a"])?, expected);

    // The owner changes his mind.
    std::fs::write(a.config(), &plain)?;
    append(&a.config(), &machines("2", "1"))?;
    a_node.reload()?;
    await_prices(&b_node, "2")?;
    let dearer = 32 * 2 * 3_600_000 * 2;
    assert_eq!(charge(&b_node, file, &["--at-site", "a"])?, dearer);

    // Nothing is made up, and nothing is counted in another's name.
    let refused = Command::new(PROGRAM)
        .args(["report", "--dry-run", file, "--at-site", "nobody"])
        .env("FAIRMESH_SOCKET", b_node.socket())
        .output()?;
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("no site is called `nobody`"), "{words}");
    assert!(words.contains("known here: "), "{words}");
    let answer = b_node.http("POST", "/v1/accounting?at_site=a", b"")?;
    assert_eq!(answer.status, 400, "{answer:?}");

    // A lost disk: what the owner says now is in the next head, whatever the ones before it said.
    a_node.kill()?;
    std::fs::remove_dir_all(a.data())?;
    std::fs::write(a.config(), &plain)?;
    append(&a.config(), &machines("3", "1"))?;
    let a_node = a.start()?;
    await_prices(&b_node, "3")?;
    await_prices(&a_node, "3")?;
    assert_eq!(charge(&b_node, file, &["--at-site", "a"])?, dearer / 2 * 3);
    Ok(())
}
