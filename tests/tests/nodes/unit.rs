//! The unit that comes with the node, and what a process shows of itself to others.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use fairmesh_needs::Need;
use fairmesh_tests::Site;

use crate::PROGRAM;

/// Ten times what `systemd-analyze security` may find at most: as it is shipped, and without netlink.
const EXPOSURE: u32 = 13;
const WITHOUT_NETLINK: u32 = 12;

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/fairmesh.service")
}

/// Whether a unit is exposed no more than that.
fn is_closed(unit: &Path, exposure: u32) -> anyhow::Result<(bool, String)> {
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(format!("--threshold={exposure}"))
        .arg(unit)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(said.contains("Overall exposure level"), "{output:?}");
    Ok((output.status.success(), said))
}

#[test]
fn the_unit_is_closed_to_what_a_node_does_not_need() -> anyhow::Result<()> {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        fairmesh_needs::lacks(Need::Systemd, "there is no systemd-analyze");
        return Ok(());
    }
    let (closed, said) = is_closed(&shipped(), EXPOSURE)?;
    ensure!(closed, "{said}");
    // Netlink tells of new addresses, where a node listens on all of them.
    let text = std::fs::read_to_string(shipped())?;
    let folder = tempfile::tempdir()?;
    let unit = folder.path().join("fairmesh.service");
    std::fs::write(&unit, text.replace(" AF_NETLINK", ""))?;
    let (closed, said) = is_closed(&unit, WITHOUT_NETLINK)?;
    ensure!(closed, "{said}");
    let (closed, _) = is_closed(&unit, WITHOUT_NETLINK - 1)?;
    ensure!(
        !closed,
        "less is found now: say so in the threat model, and here"
    );
    Ok(())
}

/// Sockets of a process that are of netlink.
fn netlink_sockets(pid: u32) -> anyhow::Result<usize> {
    let table = std::fs::read_to_string("/proc/net/netlink")?;
    let inodes = table
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().last());
    let inodes: Vec<String> = inodes.map(|inode| format!("socket:[{inode}]")).collect();
    let files = std::fs::read_dir(format!("/proc/{pid}/fd"))?;
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    Ok(links
        .filter(|link| {
            inodes
                .iter()
                .any(|inode| link.as_os_str() == inode.as_str())
        })
        .count())
}

#[test]
fn a_node_that_listens_at_an_address_needs_no_netlink_and_tells_nobody_its_key()
-> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, folder.path(), "lab")?;
    site.configure("lab", &[], &[])?;
    let node = site.start()?;
    let pid = node.pid();
    ensure!(netlink_sockets(pid)? == 0);
    let secret = std::fs::read_to_string(folder.path().join("site.key"))?;
    let secret = secret.trim();
    ensure!(secret.len() == 64, "a key");
    let mut told = Vec::new();
    for file in ["cmdline", "environ"] {
        told.push(std::fs::read(format!("/proc/{pid}/{file}"))?);
    }
    for path in ["/v1/status", "/v1/peers", "/v1/metrics", "/v1/documents"] {
        told.push(node.http("GET", path, b"")?.text.into_bytes());
    }
    told.push(std::fs::read(folder.path().join("log"))?);
    node.stop()?;
    told.push(std::fs::read(folder.path().join("log"))?);
    for text in told {
        let text = String::from_utf8_lossy(&text);
        ensure!(!text.contains(secret), "{text}");
    }
    // On its own listening on all addresses needs it: the check above sees what it looks for.
    let text = std::fs::read_to_string(site.config())?;
    std::fs::write(site.config(), text.replace("127.0.0.1", "0.0.0.0"))?;
    let node = site.start()?;
    let count = netlink_sockets(node.pid()).context("sockets")?;
    ensure!(
        count > 0,
        "a node that listens on all addresses hears of new ones"
    );
    Ok(())
}
