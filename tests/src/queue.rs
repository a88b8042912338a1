//! A real Slurm in which a job of each of many accounts waits: every one has the place that the node gives
//! it, and the jobs start in that order.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};

use crate::bench::{Bench, Cluster};
use crate::process::{Node, Site};
use crate::slurm::await_that;

/// Accounts of one group.
const GROUP: usize = 100;

/// Queues a job of each of `accounts` accounts, looks at their places in `sprio -l`, and lets the first
/// `starts` of them run, one behind the other.
///
/// # Errors
/// Whatever is not as the node says; nothing where the machine lacks a Slurm.
pub fn each_account_has_its_place(
    program: &str,
    accounts: usize,
    starts: usize,
) -> anyhow::Result<()> {
    let Some(bench) = Bench::new(program)? else {
        return Ok(());
    };
    let site = bench.site()?;
    configure(&site, accounts)?;
    let node = site.start()?;
    for jobs in jobs(accounts)?.chunks(5_000) {
        let answer = node.http("POST", "/v1/records", jobs.concat().as_bytes())?;
        ensure!(answer.body["counted"] == jobs.len(), "{answer:?}");
    }
    let cluster = bench.slurm(&bench.parameters(&site))?;
    let gate = cluster.close_gate()?;
    let mut accounts_of = BTreeMap::new();
    // Whoever is to start first comes last.
    for at in (0..accounts).rev() {
        let script = format!("echo {} >> {}", name(at), bench.order().display());
        let account = format!("--account={}", name(at));
        accounts_of.insert(cluster.submit("games", &[&account], &script)?, name(at));
    }

    let by_node = by_node(&node)?;
    ensure!(by_node.len() == accounts, "{} places", by_node.len());
    await_that("the node's order in sprio", || {
        Ok(by_sprio(&cluster, &accounts_of)? == by_node)
    })?;

    fs::write(gate, "")?;
    let began = || anyhow::Ok(fs::read_to_string(bench.order())?);
    for wanted in (0..=starts).step_by(10) {
        await_that("the next ten", || Ok(began()?.lines().count() >= wanted))?;
    }
    let began = began()?;
    let began: Vec<&str> = began.lines().take(starts).collect();
    ensure!(
        began == by_node[..starts],
        "{began:?} instead of {by_node:?}"
    );
    println!(
        "{accounts} accounts have {accounts} places in sprio -l; the first {starts} started in that order"
    );
    Ok(())
}

fn name(at: usize) -> String {
    format!("g{}-u{}", at / GROUP, at % GROUP)
}

/// The site's tree: groups of a hundred accounts, all siblings alike.
fn configure(site: &Site, accounts: usize) -> anyhow::Result<()> {
    let mut text = "[site]\nname = \"site\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
                    [history]\nhalf_life = \"none\"\nhorizon = \"30d\"\n"
        .to_owned();
    let mut shares = "[shares]\n\"/lab\" = 100\n".to_owned();
    for at in 0..accounts {
        let group = at / GROUP;
        if at % GROUP == 0 {
            let rule = format!("account = \"g{group}-*\"\npath = \"/lab/g{group}/{{account}}\"");
            writeln!(text, "[[identity]]\n{rule}")?;
            writeln!(shares, "\"/lab/g{group}\" = 1")?;
        }
        writeln!(shares, "\"/lab/g{group}/{}\" = 1", name(at))?;
    }
    Ok(fs::write(site.config(), text + &shares)?)
}

/// A job of each account, and no two alike.
fn jobs(accounts: usize) -> anyhow::Result<Vec<String>> {
    let start = SystemTime::now() - Duration::from_secs(43_200);
    let start = u64::try_from(start.duration_since(UNIX_EPOCH)?.as_millis())?;
    let job = |at: usize| {
        let end = start + 1_000 * u64::try_from(1_000 + 7 * (at % GROUP) + at % 3)?;
        let (account, cores) = (name(at), 1 + at / GROUP);
        Ok(format!(
            "{{\"cluster\":\"c\",\"job\":\"{at}\",\"user\":\"games\",\"account\":\"{account}\",\
             \"start_ms\":{start},\"end_ms\":{end},\"cores\":{cores}}}\n"
        ))
    };
    (0..accounts).map(job).collect()
}

/// The accounts, the one that the node ranks first first.
fn by_node(node: &Node) -> anyhow::Result<Vec<String>> {
    let answer = node.http("GET", "/v1/shares", b"")?;
    let entries = answer.body["entries"].as_array().context("entries")?;
    let mut ranked = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry["leaf"] == true) {
        let path = entry["path"].as_str().context("a path")?;
        let name = path.rsplit('/').next().unwrap_or_default();
        let rank = entry["rank"].as_u64().context("a rank")?;
        let tied = ranked.insert(rank, name.to_owned());
        ensure!(tied.is_none(), "{path} ties with {tied:?}");
    }
    Ok(ranked.into_values().collect())
}

/// The accounts of waiting jobs, the highest site factor first; those that tie in no order.
fn by_sprio(cluster: &Cluster, accounts: &BTreeMap<String, String>) -> anyhow::Result<Vec<String>> {
    let mut ranked = BTreeMap::new();
    for (job, factor) in cluster.slurm.site_factors_by("JOBID")? {
        ranked.insert(-factor, accounts.get(&job).context(job)?.clone());
    }
    Ok(ranked.into_values().collect())
}
