//! Peers that have host names, while what the system makes of names changes: no node is restarted for that, and what the
//! operator reads says DNS.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairmesh_needs::Need;
use fairmesh_tests::namespaces::{Namespaces, with_files};
use fairmesh_tests::{Node, Site, Vo, records};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::PROGRAM;

/// How long a node may take to notice. It dials each half a minute at the least.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a namespace's own resolver is.
const RESOLVER: &str = "127.0.0.1";

/// What a resolver knows: the address of each name.
type Zone = Arc<Mutex<BTreeMap<String, Ipv4Addr>>>;

/// The name and the type that a question asks for, and where it ends.
fn question(packet: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*packet.get(at)?);
        let label = packet.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        if length == 0 {
            let kind = u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?);
            return Some((labels.join("."), kind, at + 4));
        }
        labels.push(String::from_utf8_lossy(label).into_owned());
    }
}

/// An answer (RFC 1035): the address, nothing of another type than A, or that there is no such name.
fn answer(packet: &[u8], zone: &Zone) -> Option<Vec<u8>> {
    let (name, kind, end) = question(packet)?;
    let address = zone.lock().ok()?.get(&name).copied();
    let has_answer = address.is_some() && kind == 1;
    let code = if address.is_some() { 0 } else { 3 };
    let mut answer = packet[..2].to_vec();
    answer.extend([0x81, 0x80 | code, 0, 1, 0, u8::from(has_answer), 0, 0, 0, 0]);
    answer.extend(packet.get(12..end)?);
    if let Some(address) = address.filter(|_| has_answer) {
        // The name of the question, A, IN, no time to live, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}

/// A resolver in a namespace, for as long as the test runs.
fn resolve_in(namespace: &str, zone: &Zone) -> anyhow::Result<()> {
    let (namespace, zone) = (namespace.to_owned(), Arc::clone(zone));
    let bound = std::thread::spawn(move || -> anyhow::Result<UdpSocket> {
        // Of this thread alone.
        let file = File::open(Path::new("/run/netns").join(namespace))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(UdpSocket::bind((RESOLVER, 53))?)
    });
    let socket = bound.join().ok().context("the thread ended")??;
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((bytes, from)) = socket.recv_from(&mut packet) {
            if let Some(answer) = answer(&packet[..bytes], &zone) {
                // The caller may be gone.
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    Ok(())
}

/// Waits until a notice of the node's status has these words.
fn await_words(node: &Node, words: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let status = node.http("GET", "/v1/status", b"")?;
        let told = status.body["notices"].to_string();
        if told.contains(words) {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "not {words}: {told}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What `fairmesh netcheck` prints about a node.
fn netcheck(node: &Node) -> anyhow::Result<String> {
    let command = Command::new(PROGRAM)
        .arg("netcheck")
        .arg("--socket")
        .arg(node.socket())
        .output()?;
    ensure!(command.status.code() == Some(1), "{command:?}");
    Ok(String::from_utf8(command.stdout)?)
}

fn report(node: &Node, job: u64) -> anyhow::Result<()> {
    let answer = node.http("POST", "/v1/records", &records("physics", "ann", job, 1))?;
    ensure!(answer.body["counted"] == 1, "{answer:?}");
    Ok(())
}

#[test]
fn a_name_is_looked_up_at_each_dial_and_what_is_wrong_with_it_is_dns() -> anyhow::Result<()> {
    let Some(namespaces) = Namespaces::make(1)? else {
        fairmesh_needs::lacks(Need::Root, "this user may not make network namespaces");
        return Ok(());
    };
    let (namespace, folder) = (namespaces.of(0), tempfile::tempdir()?);
    let [resolv, hosts] = ["resolv.conf", "hosts"].map(|file| folder.path().join(file));
    fs::write(&resolv, "")?;
    fs::write(&hosts, "127.0.0.1 localhost\n")?;
    let site = |name: &str| {
        let site = Site::init(PROGRAM, &folder.path().join(name), name)?;
        anyhow::Ok(site.within(&namespace))
    };
    let (a, b) = (site("a")?, site("b")?);
    let vo = Vo::found("physics", &[(a.id, "a"), (b.id, "b")], &["ann"])?;
    let vos = [("physics", vo.id())];
    a.configure("a", &[], &vos)?;
    let at_a = a.start()?;
    vo.publish(&at_a)?;
    report(&at_a, 1)?;
    let (_, port) = at_a.address.rsplit_once('/').context("a port")?;
    let named = format!("/dns4/a.grid.test/tcp/{port}");
    b.configure("b", &[(a.id, &named)], &vos)?;
    let at_b = b.start_by(with_files(&namespace, &resolv, &hosts, PROGRAM.as_ref()))?;
    vo.publish(&at_b)?;

    // No resolver is there yet.
    let away = "DNS has no address for a.grid.test: Temporary failure in name resolution";
    await_words(&at_b, away)?;
    // One is, and does not know the name.
    let zone = Zone::default();
    resolve_in(&namespace, &zone)?;
    fs::write(&resolv, format!("nameserver {RESOLVER}\n"))?;
    let unknown = "DNS has no address for a.grid.test: Name or service not known";
    await_words(&at_b, unknown)?;
    let printed = netcheck(&at_b)?;
    ensure!(printed.contains(unknown), "{printed}");
    // It does.
    let add = |address| {
        zone.lock()
            .map(|mut zone| zone.insert("a.grid.test".to_owned(), address))
    };
    ensure!(add(Ipv4Addr::LOCALHOST).is_ok());
    at_b.await_usage("physics", "ann", 1_000)?;

    // The site moves, and the hosts file says so.
    fs::write(&hosts, "127.0.0.2 a.grid.test\n")?;
    let moved = fs::read_to_string(a.config())?;
    let moved = moved.replace(
        "/ip4/127.0.0.1/tcp/0",
        &format!("/ip4/127.0.0.2/tcp/{port}"),
    );
    fs::write(a.config(), moved)?;
    ensure!(at_a.stop()?.success());
    let at_a = a.start()?;
    report(&at_a, 2)?;
    at_b.await_usage("physics", "ann", 2_000)?;
    Ok(())
}
