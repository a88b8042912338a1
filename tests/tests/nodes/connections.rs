//! Connections that are dead without a notice, and more of them than there are places.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairmesh_model::{SigningKey, SiteId};
use fairmesh_needs::Need;
use fairmesh_tests::namespaces::{Namespaces, host};
use fairmesh_tests::{Node, Site, Vo, records};
use serde_json::Value;

use crate::PROGRAM;

/// How long a node may take to notice that a peer is gone. Pings alone would take 160 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// For how long a peer would be turned away if only pings showed that its earlier connections are dead: twice 80 s.
const TURNED_AWAY: Duration = Duration::from_secs(80);

/// The only peer of a node.
fn peer(node: &Node) -> anyhow::Result<Value> {
    let answer = node.http("GET", "/v1/peers", b"")?;
    let peer = answer.body["peers"].get(0).context("a peer")?;
    Ok(peer.clone())
}

/// Waits until the node's only peer is connected, or is not; what the node knows of it then.
fn await_reachable(node: &Node, reachable: bool) -> anyhow::Result<Value> {
    await_peer(node, "reachable", reachable)
}

fn await_peer(node: &Node, key: &str, value: impl Into<Value>) -> anyhow::Result<Value> {
    let value = value.into();
    let began = Instant::now();
    loop {
        let peer = peer(node)?;
        if peer[key] == value {
            return Ok(peer);
        }
        ensure!(began.elapsed() < PATIENCE, "still: {peer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What the node's status tells its operator.
fn notices(node: &Node) -> anyhow::Result<String> {
    let status = node.http("GET", "/v1/status", b"")?;
    Ok(status.body["notices"].to_string())
}

fn report(node: &Node, job: u64) -> anyhow::Result<()> {
    let answer = node.http("POST", "/v1/records", &records("physics", "ann", job, 1))?;
    ensure!(answer.body["counted"] == 1, "{answer:?}");
    Ok(())
}

/// Two sites in namespaces: the second calls the first, which does not know where it is.
struct Pair {
    a: Node,
    at: Site,
    b: Node,
    namespaces: Namespaces,
    _folder: tempfile::TempDir,
}

impl Pair {
    /// In sync.
    fn start() -> anyhow::Result<Option<Self>> {
        let Some(pair) = Self::begin(1_500, 1)? else {
            return Ok(None);
        };
        pair.b.await_usage("physics", "ann", 1_000)?;
        // Whatever connections were made again as the charter arrived.
        for node in [&pair.a, &pair.b] {
            await_peer(node, "in_sync", true)?;
        }
        Ok(Some(pair))
    }

    /// With packets of up to so many bytes between them, and jobs of so many users at the first.
    fn begin(bytes: u16, users: u64) -> anyhow::Result<Option<Self>> {
        let Some(namespaces) = Namespaces::make(2)? else {
            fairmesh_needs::lacks(Need::Root, "this user may not make network namespaces");
            return Ok(None);
        };
        namespaces.limit_packets(1, bytes)?;
        let folder = tempfile::tempdir()?;
        let site = |name: &str, at: usize| {
            let site = Site::init(PROGRAM, &folder.path().join(name), name)?;
            anyhow::Ok(site.within(&namespaces.of(at)))
        };
        let (a, b) = (site("a", 0)?, site("b", 1)?);
        let vo = Vo::found("physics", &[(a.id, "a"), (b.id, "b")], &["ann"])?;
        let vos = [("physics", vo.id())];
        a.configure("a", &[], &vos)?;
        let listen = format!("/ip4/{}/tcp/7600", host(0));
        let text = fs::read_to_string(a.config())?;
        fs::write(a.config(), text.replace("/ip4/127.0.0.1/tcp/0", &listen))?;
        b.configure("b", &[(a.id, &listen)], &vos)?;
        let (at_a, at_b) = (a.start()?, b.start()?);
        vo.publish(&at_a)?;
        // Names that do not shrink much when they are packed.
        let name = |number: u64| format!("u{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let job = |number: u64| {
            let user = if number == 1 {
                "ann".to_owned()
            } else {
                name(number)
            };
            records("physics", &user, number, 1)
        };
        let jobs = (1..=users).flat_map(job).collect::<Vec<u8>>();
        let answer = at_a.http("POST", "/v1/records", &jobs)?;
        ensure!(answer.body["counted"] == users, "{answer:?}");
        vo.publish(&at_b)?;
        Ok(Some(Self {
            a: at_a,
            at: b,
            b: at_b,
            namespaces,
            _folder: folder,
        }))
    }
}

/// Handshakes pass, exchanges do not.
#[test]
fn a_way_that_loses_large_packets_is_reported_at_both_ends() -> anyhow::Result<()> {
    let Some(pair) = Pair::begin(1_000, 1_000)? else {
        return Ok(());
    };
    await_peer(&pair.b, "state", "never-exchanged")?;
    let told = notices(&pair.b)?;
    ensure!(told.contains("MTU"), "{told}");
    pair.namespaces.limit_packets(1, 1_500)?;
    for node in [&pair.a, &pair.b] {
        await_peer(node, "state", "in-sync")?;
        let told = notices(node)?;
        ensure!(!told.contains("peer-"), "{told}");
    }
    Ok(())
}

#[test]
fn a_peer_that_is_gone_without_a_word_is_noticed_by_the_exchanges_that_fail() -> anyhow::Result<()>
{
    let Some(pair) = Pair::start()? else {
        return Ok(());
    };
    pair.namespaces.cut(1)?;
    for node in [&pair.a, &pair.b] {
        await_reachable(node, false)?;
        // It might have come back at once.
        await_peer(node, "state", "unreachable")?;
        let told = notices(node)?;
        ensure!(told.contains("no other site is reachable"), "{told}");
    }
    pair.namespaces.come_back_at(1, &host(1))?;
    for node in [&pair.a, &pair.b] {
        await_reachable(node, true)?;
        let told = notices(node)?;
        ensure!(!told.contains("reachable"), "{told}");
    }
    report(&pair.b, 2)?;
    pair.a.await_usage("physics", "ann", 2_000)
}

/// Its machine acknowledges all that is sent to it, and its process does nothing.
#[test]
fn a_peer_whose_process_hangs_is_noticed_by_the_exchanges_that_fail() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = |name: &str| Site::init(PROGRAM, &folder.path().join(name), name);
    let (a, b) = (site("a")?, site("b")?);
    let vo = Vo::found("physics", &[(a.id, "a"), (b.id, "b")], &["ann"])?;
    let vos = [("physics", vo.id())];
    a.configure("a", &[], &vos)?;
    let at_a = a.start()?;
    vo.publish(&at_a)?;
    b.configure("b", &[(a.id, &at_a.address)], &vos)?;
    let at_b = b.start()?;
    vo.publish(&at_b)?;
    await_peer(&at_a, "in_sync", true)?;
    let signal = |name: &str| {
        let mut kill = Command::new("kill");
        kill.args([name, &at_b.pid().to_string()]).status()
    };
    ensure!(signal("-STOP")?.success());
    await_reachable(&at_a, false)?;
    await_peer(&at_a, "state", "unreachable")?;
    let told = notices(&at_a)?;
    ensure!(told.contains("no other site is reachable"), "{told}");
    ensure!(signal("-CONT")?.success());
    await_reachable(&at_a, true)?;
    Ok(())
}

#[test]
fn a_site_whose_power_fails_again_and_again_is_back_within_a_turn() -> anyhow::Result<()> {
    let Some(mut pair) = Pair::start()? else {
        return Ok(());
    };
    for life in 2..=5 {
        pair.namespaces.cut(1)?;
        pair.b.kill()?;
        let address = format!("10.77.0.{}", 100 + life);
        pair.namespaces.come_back_at(1, &address)?;
        pair.b = pair.at.start()?;
        // A start within ten seconds of the one before may be another machine: it waits for its turn.
        let began = Instant::now();
        await_peer(&pair.b, "state", "in-sync")?;
        ensure!(began.elapsed() < TURNED_AWAY, "{:?}", began.elapsed());
    }
    report(&pair.b, 2)?;
    pair.a.await_usage("physics", "ann", 2_000)?;
    let of_b = peer(&pair.a)?;
    ensure!(of_b["connections"].as_u64() <= Some(2), "{of_b}");
    Ok(())
}

#[test]
fn two_thousand_members_of_which_two_are_alive_do_not_keep_these_apart() -> anyhow::Result<()> {
    let Some(namespaces) = Namespaces::make(2)? else {
        fairmesh_needs::lacks(Need::Root, "this user may not make network namespaces");
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let site = |name: &str, at: usize| {
        namespaces.bury(at)?;
        let site = Site::init(PROGRAM, &folder.path().join(name), name)?;
        anyhow::Ok(site.within(&namespaces.of(at)))
    };
    let (a, b) = (site("a", 0)?, site("b", 1)?);
    let dead = (2_u16..2_000).map(|number| {
        let mut secret = [7; 32];
        secret[..2].copy_from_slice(&number.to_be_bytes());
        (
            SigningKey::from_secret(&secret).site_id(),
            format!("d{number}"),
        )
    });
    let dead: Vec<(SiteId, String)> = dead.collect();
    let dead = dead.iter().map(|(site, name)| (*site, name.as_str()));
    let members: Vec<_> = [(a.id, "a"), (b.id, "b")].into_iter().chain(dead).collect();
    let vo = Vo::found_with("physics", &members, &["ann"], |charter| {
        for (at, member) in charter.sites.iter_mut().enumerate() {
            let host = match at {
                0 | 1 => host(at),
                _ => format!("10.99.{}.{}", at / 250, at % 250 + 1),
            };
            member.addresses = vec![format!("/ip4/{host}/tcp/7600")];
        }
    })?;
    let vos = [("physics", vo.id())];
    let start = |site: &Site, name: &str, at: usize| {
        site.configure(name, &[], &vos)?;
        let listen = format!("/ip4/{}/tcp/7600", host(at));
        let text = fs::read_to_string(site.config())?;
        fs::write(site.config(), text.replace("/ip4/127.0.0.1/tcp/0", &listen))?;
        site.start()
    };
    let nodes = [start(&a, "a", 0)?, start(&b, "b", 1)?];
    for node in &nodes {
        vo.publish(node)?;
    }
    report(&nodes[0], 1)?;
    nodes[1].await_usage("physics", "ann", 1_000)
}

#[test]
fn a_node_that_may_open_few_files_says_so_once_and_answers_when_some_are_free() -> anyhow::Result<()>
{
    const FILES: usize = 64;
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    site.configure("a", &[], &[])?;
    let mut few = Command::new("sh");
    let script = format!("ulimit -n {FILES}; exec \"$@\"");
    few.args(["-c", &script, "sh", PROGRAM]);
    let node = site.start_by(few)?;
    let log = || fs::read_to_string(site.folder().join("log"));
    let warned = "this process may open 64 files and sockets, and its connections may need ";
    ensure!(log()?.contains(warned), "{}", log()?);

    // A client takes all that are left.
    let take = || UnixStream::connect(node.socket());
    let held: Vec<UnixStream> = (0..FILES).map(|_| take()).collect::<Result<_, _>>()?;
    for _ in 0..20 {
        let mut waits = take()?;
        waits.set_read_timeout(Some(Duration::from_millis(100)))?;
        waits.write_all(b"GET /v1/status HTTP/1.1\r\nhost: fairmesh\r\n\r\n")?;
        ensure!(waits.read(&mut [0; 1]).is_err(), "there was a file left");
    }
    drop(held);
    notices(&node)?;
    let log = log()?;
    let lines = log.matches("cannot accept connections").count();
    ensure!(lines == 1, "{lines} lines:\n{log}");
    Ok(())
}
