//! Commands that are hindered: whoever reads of them goes away, or the disk is full.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

use anyhow::{Context as _, ensure};
use fairmesh_tests::{Node, Site, Vo};

use crate::PROGRAM;

/// The program with these words, in this folder.
fn fairmesh(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(line.split_whitespace()).current_dir(folder);
    command
}

/// Runs what must succeed; gives what it printed.
fn run(folder: &Path, line: &str) -> anyhow::Result<String> {
    let Output { status, stdout, .. } = fairmesh(folder, line).output()?;
    ensure!(status.success(), "{line}: {status}");
    Ok(String::from_utf8(stdout)?.trim_end().to_owned())
}

/// How the command ends whose reader is gone before it begins, and what it says to standard error.
fn unread(mut command: Command) -> anyhow::Result<(ExitStatus, String)> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let mut child = command.stdout(writer).stderr(Stdio::piped()).spawn()?;
    let mut told = String::new();
    let stderr = child.stderr.as_mut().context("piped")?;
    stderr.read_to_string(&mut told)?;
    Ok((child.wait()?, told))
}

/// A VO whose charter one officer signs and whose shares another does: `charter.cbor` and `shares.cbor`, and `bad.cbor`,
/// shares that the wrong one has signed.
fn founded(folder: &Path) -> anyhow::Result<()> {
    let [a, b] = ["a.key", "b.key"].map(|name| run(folder, &format!("policy keygen {name}")));
    let (a, b) = (a?, b?);
    run(folder, "init hpc1 --name hpc1 --cores 1")?;
    let named = format!("--name vo --authority {a} --policy {b} --site hpc1/member.toml");
    run(
        folder,
        &format!("policy new charter {named} -o charter.toml"),
    )?;
    run(folder, "policy sign charter.toml --key a.key")?;
    run(
        folder,
        "policy new shares --charter charter.cbor -o shares.toml",
    )?;
    let draft = std::fs::read_to_string(folder.join("shares.toml"))?;
    std::fs::write(folder.join("shares.toml"), draft + "\"/x\" = 60\n")?;
    run(folder, "policy sign shares.toml --key b.key")?;
    run(folder, "policy sign shares.toml --key a.key -o bad.cbor")?;
    Ok(())
}

#[test]
fn a_reader_that_goes_away_makes_no_success_of_a_failure() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    founded(folder.path())?;
    for (line, code) in [
        ("policy verify charter.cbor bad.cbor", 1),
        ("policy verify charter.cbor shares.cbor", 141),
        ("sla show nowhere.toml", 2),
        ("check-config --config hpc1/fairmesh.toml", 141),
    ] {
        let (status, told) = unread(fairmesh(folder.path(), line))?;
        ensure!(status.code() == Some(code), "{line}: {status}: {told}");
        ensure!(told.is_empty() || code == 2, "{line}: {told}");
    }
    Ok(())
}

/// How many documents a node has.
fn held(node: &Node) -> anyhow::Result<usize> {
    let answer = node.http("GET", "/v1/documents", b"")?;
    Ok(answer.body["documents"]
        .as_array()
        .context("documents")?
        .len())
}

#[test]
fn all_is_published_whoever_reads_of_it() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &["ann"])?;
    site.configure("a", &[], &[("physics", vo.id())])?;
    let node = site.start()?;
    let credit = vo.grant("/ann", 1_000, &[site.id], |_| {})?;
    let [charter, shares] = vo.documents();
    for (name, bytes) in [
        ("charter", charter),
        ("shares", shares),
        ("credit", &credit),
    ] {
        std::fs::write(folder.path().join(name), bytes)?;
    }
    let mut publish = fairmesh(folder.path(), "policy publish charter shares credit");
    publish.env("FAIRMESH_SOCKET", node.socket());
    let (status, told) = unread(publish)?;
    ensure!(status.code() == Some(141), "{status}: {told}");
    ensure!(held(&node)? == 3, "{} are held", held(&node)?);
    node.stop()?;
    Ok(())
}

/// What stands in a folder.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?;
    Ok(entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?)
}

/// What a command says that fails because no file may have more than so many blocks, as where the disk is full.
fn fails_on_full_disk(folder: &Path, blocks: u8, line: &str) -> anyhow::Result<String> {
    let limited = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
    let full = Command::new("sh")
        .args(["-c", &limited, "sh", PROGRAM])
        .args(line.split_whitespace())
        .current_dir(folder)
        .output()?;
    ensure!(full.status.code() == Some(2), "{line}: {full:?}");
    Ok(String::from_utf8(full.stderr)?)
}

#[test]
fn a_full_disk_leaves_nothing_that_is_in_the_way_of_the_next_try() -> anyhow::Result<()> {
    let (desk, disk) = (tempfile::tempdir()?, tempfile::tempdir()?);
    founded(desk.path())?;
    let on_disk = |name: &str| disk.path().join(name).display().to_string();
    let sign = format!(
        "policy sign shares.toml --key b.key -o {}",
        on_disk("x.cbor")
    );
    for (name, line) in [
        ("x.key", format!("policy keygen {}", on_disk("x.key"))),
        ("x.cbor", sign),
    ] {
        let told = fails_on_full_disk(desk.path(), 0, &line)?;
        let named = told.contains(&format!("cannot make {}", on_disk(name)));
        ensure!(named, "{told}");
        ensure!(files(disk.path())?.is_empty(), "{:?}", files(disk.path())?);

        run(desk.path(), &line)?;
        let made = std::fs::read(disk.path().join(name))?;
        let again = fairmesh(desk.path(), &line).output()?;
        ensure!(!again.status.success(), "{again:?}");
        ensure!(std::fs::read(disk.path().join(name))? == made, "{name}");
        ensure!(files(disk.path())? == [disk.path().join(name)], "{name}");
        std::fs::remove_file(disk.path().join(name))?;
    }
    // There is room for the share tree, and not for the configuration.
    let init = format!("init {} --name hpc2 --cores 1", disk.path().display());
    let told = fails_on_full_disk(desk.path(), 4, &init)?;
    ensure!(told.contains("fairmesh.toml"), "{told}");
    ensure!(files(disk.path())?.is_empty(), "{:?}", files(disk.path())?);
    run(desk.path(), &init)?;
    ensure!(files(disk.path())?.len() == 4, "{:?}", files(disk.path())?);
    Ok(())
}

#[test]
fn a_plan_names_what_it_leaves_out_of_either_side() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    founded(folder.path())?;
    let planned = |old: &str, new: &str| -> anyhow::Result<String> {
        let line = format!("policy plan --old charter.cbor {old} --new charter.cbor {new}");
        let planned = fairmesh(folder.path(), &line).output()?;
        ensure!(planned.status.success(), "{planned:?}");
        Ok(String::from_utf8(planned.stderr)?)
    };
    let told = planned("bad.cbor", "shares.cbor")?;
    ensure!(
        told.starts_with("left out of the old: bad.cbor: share policy 1"),
        "{told}"
    );
    let told = planned("shares.cbor", "bad.cbor")?;
    ensure!(
        told.starts_with("left out of the new: bad.cbor: share policy 1"),
        "{told}"
    );
    Ok(())
}
