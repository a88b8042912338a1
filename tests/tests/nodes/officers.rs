//! The page for a VO's officers, word by word: every command of it is run, on a machine without a network where this
//! user can make one.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};

use crate::PROGRAM;

/// What begins a block of commands, and one whose last command must be refused.
const BLOCKS: [(&str, bool); 2] = [("```sh", false), ("```sh refused", true)];

/// The page's blocks in order, each with its heading and whether it must be refused.
fn blocks(page: &str) -> Vec<(String, bool, String)> {
    let (mut found, mut heading) = (Vec::new(), String::new());
    let mut open: Option<(bool, String)> = None;
    for line in page.lines() {
        if let Some((refused, mut block)) = open.take() {
            if line == "```" {
                found.push((heading.clone(), refused, block));
            } else {
                block.push_str(line);
                block.push('\n');
                open = Some((refused, block));
            }
        } else if let Some((_, refused)) = BLOCKS.iter().find(|(begins, _)| *begins == line) {
            open = Some((*refused, String::new()));
        } else if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut heading);
        }
    }
    found
}

/// Runs a script in a folder. What variables it leaves the next one has.
fn run(folder: &Path, script: &str) -> anyhow::Result<Output> {
    let path = format!("{}:{}", folder.display(), std::env::var("PATH")?);
    let around = format!(
        "set -eu\ntouch variables\n. ./variables\n{script}\nset > variables.new\ngrep -E '^[A-Z]+=' variables.new | grep -vE '^(PATH|IFS|PWD|OLDPWD|PPID|HOME|OPTIND|LINENO)=' > variables\n"
    );
    let offline = Command::new("unshare").args(["--net", "true"]).output();
    let can_be_offline = offline.is_ok_and(|output| output.status.success());
    let mut shell = match can_be_offline {
        true => Command::new("unshare"),
        false => Command::new("env"),
    };
    if can_be_offline {
        shell.args(["--net", "--"]);
    }
    let shell = shell.args(["sh", "-c", &around]).current_dir(folder);
    Ok(shell.env("PATH", path).output()?)
}

#[test]
fn every_drill_of_the_officers_page_can_be_done() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    symlink(PROGRAM, folder.path().join("fairmesh"))?;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/officers.md");
    let page = std::fs::read_to_string(&page).context("docs/officers.md")?;
    let blocks = blocks(&page);
    ensure!(blocks.len() >= 10, "{} blocks", blocks.len());
    for (heading, refused, script) in blocks {
        let output = run(folder.path(), &script)?;
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        println!("## {heading}\n{script}{said}");
        ensure!(
            output.status.success() != refused,
            "{heading}: {}\n{script}{said}",
            output.status
        );
        // It is refused as a document, and not because something is missing.
        ensure!(!refused || said.contains("REFUSED"), "{heading}: {said}");
    }
    Ok(())
}
