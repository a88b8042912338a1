//! What a node reports about other sites and about its own membership: green if all is well, and the right message first if
//! it is not.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use fairmesh_tests::{Node, Site, Vo, records};
use serde_json::Value;

use crate::PROGRAM;

/// How long a state may take to show.
const PATIENCE: Duration = Duration::from_secs(60);

/// `GET /v1/status`.
fn status(node: &Node) -> anyhow::Result<Value> {
    let answer = node.http("GET", "/v1/status", b"")?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(answer.body)
}

/// Waits until the status is as wanted.
fn await_status(node: &Node, is_it: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
    let began = Instant::now();
    loop {
        let status = status(node)?;
        if is_it(&status) {
            return Ok(status);
        }
        if began.elapsed() > PATIENCE {
            bail!("{status:#}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn state(status: &Value, name: &str) -> String {
    let peers = status["peers"].as_array().into_iter().flatten();
    let mut of_name = peers.filter(|peer| peer["name"] == name);
    let state = of_name.next().and_then(|peer| peer["state"].as_str());
    state.unwrap_or_default().to_owned()
}

/// The codes of warnings and errors, the worst first.
fn codes(status: &Value) -> Vec<String> {
    let notices = status["notices"].as_array().into_iter().flatten();
    let codes = notices.filter(|notice| notice["severity"] != "info");
    codes
        .map(|notice| notice["code"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn command(node: &Node, words: &str) -> anyhow::Result<(Option<i32>, String)> {
    let output = std::process::Command::new(PROGRAM)
        .args(words.split(' '))
        .env("FAIRMESH_SOCKET", node.socket())
        .output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8(text)?))
}

/// Sites a, b and c; only a listens, and the others know its address.
struct Grid {
    folder: tempfile::TempDir,
    sites: Vec<Site>,
    vo: Vo,
}

impl Grid {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let names = ["a", "b", "c"];
        let sites = names.map(|name| Site::init(PROGRAM, &folder.path().join(name), name));
        let sites: Vec<Site> = sites.into_iter().collect::<anyhow::Result<_>>()?;
        let members: Vec<_> = sites.iter().map(|site| site.id).zip(names).collect();
        let vo = Vo::found("physics", &members, &["ann"])?;
        Ok(Self { folder, sites, vo })
    }

    fn start(&self) -> anyhow::Result<Vec<Node>> {
        let vos = [("physics", self.vo.id())];
        let [hub, outer @ ..] = &self.sites[..] else {
            bail!("three sites");
        };
        hub.configure("a", &[], &vos)?;
        let first = hub.start()?;
        self.vo.publish(&first)?;
        let mut nodes = vec![first];
        for (site, name) in outer.iter().zip(["b", "c"]) {
            site.configure(name, &[(hub.id, &nodes[0].address)], &vos)?;
            let config = std::fs::read_to_string(site.config())?;
            let listens = config.lines().find(|line| line.starts_with("listen = "));
            let config = config.replace(listens.context("listen")?, "listen = []");
            std::fs::write(site.config(), config)?;
            nodes.push(site.start()?);
        }
        Ok(nodes)
    }
}

#[test]
fn sites_that_only_call_out_are_reached_through_others_and_green() -> anyhow::Result<()> {
    let grid = Grid::new()?;
    let nodes = grid.start()?;
    let [_, b, c] = &nodes[..] else {
        bail!("three nodes");
    };
    for (node, other) in [(b, "c"), (c, "b")] {
        let is_through = |status: &Value| {
            state(status, other) == "through-others" && state(status, "a") == "in-sync"
        };
        let status = await_status(node, is_through)?;
        ensure!(
            codes(&status).is_empty() && status["healthy"] == true,
            "{status:#}"
        );
        for words in ["status", "netcheck", "doctor"] {
            let (code, text) = command(node, words)?;
            ensure!(code == Some(0), "{words}: {text}");
        }
    }
    let (_, metrics) = command(b, "metrics")?;
    ensure!(
        metrics.contains("fairmesh_peers{state=\"through-others\"} 1"),
        "{metrics}"
    );
    ensure!(
        !metrics.contains("fairmesh_peer_received_bytes"),
        "{metrics}"
    );
    let (_, metrics) = command(b, "metrics --sites")?;
    ensure!(
        metrics.contains("fairmesh_peer_received_bytes"),
        "{metrics}"
    );
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}

#[test]
fn a_site_that_the_charter_leaves_out_reads_just_that() -> anyhow::Result<()> {
    let mut grid = Grid::new()?;
    let nodes = grid.start()?;
    let [a, b, _] = &nodes[..] else {
        bail!("three nodes");
    };
    await_status(b, |status| state(status, "a") == "in-sync")?;
    let removed = grid.sites[1].id;
    grid.vo
        .renew(|charter| charter.sites.retain(|member| member.site != removed))?;
    grid.vo.publish(a)?;
    reads_that_it_is_no_member(&grid, b)?;
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}

/// The charter that removes it reaches a site only if a member lets it in.
#[test]
fn a_site_that_was_down_when_a_charter_removed_it_reads_just_that() -> anyhow::Result<()> {
    let mut grid = Grid::new()?;
    let mut nodes = grid.start()?;
    await_status(&nodes[1], |status| state(status, "a") == "in-sync")?;
    nodes.remove(1).stop()?;
    let removed = grid.sites[1].id;
    grid.vo
        .renew(|charter| charter.sites.retain(|member| member.site != removed))?;
    grid.vo.publish(&nodes[0])?;
    let b = grid.sites[1].start()?;
    reads_that_it_is_no_member(&grid, &b)?;
    // To a member it is no peer.
    let status = status(&nodes[0])?;
    ensure!(state(&status, "b").is_empty(), "{status:#}");
    ensure!(codes(&status).is_empty(), "{status:#}");
    b.stop()?;
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}

/// Waits until a node reports that charter 2 does not list it, in each answer.
fn reads_that_it_is_no_member(grid: &Grid, node: &Node) -> anyhow::Result<()> {
    let status = await_status(node, |status| {
        codes(status).contains(&"not-a-member".to_owned())
    })?;
    ensure!(codes(&status) == ["not-a-member"], "{status:#}");
    let (code, text) = command(node, "status")?;
    ensure!(code == Some(1) && !text.contains("firewall"), "{text}");
    let told = "charter 2 of VO physics does not list this site";
    ensure!(text.contains(told), "{text}");
    let file = grid.folder.path().join("jobs.jsonl");
    std::fs::write(&file, records("physics", "ann", 0, 1))?;
    for words in [format!("report {}", file.display()), "share".to_owned()] {
        let (_, text) = command(node, &words)?;
        ensure!(text.contains(told), "{words}: {text}");
    }
    Ok(())
}

#[test]
fn a_node_without_a_charter_reads_that_first() -> anyhow::Result<()> {
    let grid = Grid::new()?;
    let away = "/ip4/127.0.0.1/tcp/9";
    let site = &grid.sites[1];
    site.configure(
        "b",
        &[(grid.sites[0].id, away)],
        &[("physics", grid.vo.id())],
    )?;
    let node = site.start()?;
    let is_dialled = |status: &Value| status["peers"][0]["dial_failure"].is_string();
    let status = await_status(&node, is_dialled)?;
    let codes = codes(&status);
    ensure!(codes[0] == "charter-missing", "{status:#}");
    let is_of_ways = |code: &String| code == "alone" || code.starts_with("peer-");
    ensure!(!codes.iter().any(is_of_ways), "{status:#}");
    let (code, text) = command(&node, "doctor")?;
    ensure!(code == Some(1) && !text.contains("firewall"), "{text}");
    node.stop()?;
    Ok(())
}

#[test]
fn a_site_that_has_ended_is_reported_and_its_return_clears_that() -> anyhow::Result<()> {
    let grid = Grid::new()?;
    let mut nodes = grid.start()?;
    await_status(&nodes[0], |status| {
        ["b", "c"]
            .iter()
            .all(|name| state(status, name) == "in-sync")
    })?;
    nodes.pop().context("three")?.kill()?;
    let status = await_status(&nodes[0], |status| state(status, "c") == "unreachable")?;
    ensure!(
        codes(&status) == ["peer-without-address"] || codes(&status) == ["peer-unreachable"],
        "{status:#}"
    );
    nodes.push(grid.sites[2].start()?);
    let status = await_status(&nodes[0], |status| state(status, "c") == "in-sync")?;
    ensure!(codes(&status).is_empty(), "{status:#}");
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}
