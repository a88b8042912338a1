//! One bit of one file of the data folder, file by file: what the node then serves is right, or it says which file is not,
//! and what to do.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use fairmesh_tests::{Site, Vo, records};

use crate::PROGRAM;
use crate::restarts::publish_every;

/// Files whose damage cannot go unseen: every byte of them counts.
const SEEN: [&str; 3] = ["site.state", "site.journal", "store/jobs.recent"];

/// The only file that has the last rounds, which the store had not followed: they go with it, with a word.
const JOURNAL: &str = "site.journal";

/// Files below a folder that hold something, but for sockets.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.is_file() && fs::metadata(&path)?.len() > 0 {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    for file in files(from)? {
        let copy = to.join(file.strip_prefix(from)?);
        fs::create_dir_all(copy.parent().context("a folder")?)?;
        fs::copy(&file, copy)?;
    }
    Ok(())
}

#[test]
fn a_bit_of_any_file_is_served_by_nobody_and_named() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = |name: &str| Site::init(PROGRAM, &folder.path().join(name), name);
    let (a, b) = (site("a")?, site("b")?);
    let vo = Vo::found("physics", &[(a.id, "a"), (b.id, "b")], &["ann", "bob"])?;
    let vos = [("physics", vo.id())];
    b.configure("b", &[], &vos)?;
    let at_b = b.start()?;
    vo.publish(&at_b)?;
    a.configure("a", &[(b.id, &at_b.address)], &vos)?;
    let node = a.start()?;
    node.await_usage("physics", "ann", 0)?;
    node.http("POST", "/v1/records", &records("physics", "ann", 0, 10))?;
    at_b.await_usage("physics", "ann", 10_000)?;
    ensure!(node.stop()?.success());
    // What only A knows.
    publish_every(&a, "1h")?;
    let node = a.start()?;
    let lines = records("physics", "bob", 100, 30);
    ensure!(node.http("POST", "/v1/records", &lines)?.status == 200);
    node.kill()?;
    let whole = folder.path().join("whole");
    copy(&a.data(), &whole)?;
    let log = a.folder().join("log");
    let mut seen = Vec::new();
    for file in files(&whole)? {
        let name = file.strip_prefix(&whole)?;
        fs::remove_dir_all(a.data())?;
        copy(&whole, &a.data())?;
        let damaged = a.data().join(name);
        let mut bytes = fs::read(&damaged)?;
        let at = bytes.len() / 2;
        bytes[at] ^= 0x10;
        fs::write(&damaged, bytes)?;
        fs::write(&log, "")?;
        let name = name.display().to_string();
        let told = match a.start() {
            Ok(node) => {
                node.await_usage("physics", "ann", 10_000)
                    .context(name.clone())?;
                let bob = node.usage("physics", "bob")?;
                ensure!(
                    bob == 30_000 || (bob == 0 && name == JOURNAL),
                    "{name}: {bob}"
                );
                // Fed again it is all there, once.
                let again = node.http("POST", "/v1/records", &lines)?;
                let known = if bob == 0 { 0 } else { 30 };
                ensure!(again.body["known"] == known, "{name}: {again:?}");
                node.await_usage("physics", "bob", 30_000)
                    .context(name.clone())?;
                node.kill()?;
                fs::read_to_string(&log)?
            }
            Err(error) => {
                let told = format!("{error:#}");
                ensure!(told.contains(&name), "{name} is not named: {told}");
                told
            }
        };
        let is_named =
            told.contains("damage") || told.contains("not whole") || told.contains(&name);
        ensure!(
            is_named || !SEEN.contains(&name.as_str()),
            "{name}: nothing is said: {told}"
        );
        seen.push(name);
    }
    ensure!(
        SEEN.iter().all(|name| seen.iter().any(|of| of == name)),
        "{seen:?}"
    );
    Ok(())
}
