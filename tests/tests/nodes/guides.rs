//! The pages for people, word by word: every command of them is run, on a machine without a network.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use fairmesh_needs::Need;

use crate::PROGRAM;

/// What begins a block of commands, and one whose last command must be refused.
const BLOCKS: [(&str, bool); 2] = [("```sh", false), ("```sh refused", true)];

/// A network of its own has addresses once its loopback is up.
const LOOPBACK: &str = "ip link set lo up";

/// What a document, a job without credit and a stranger's signature are refused with; that something is missing is no
/// refusal.
const REFUSED: &str = "REFUSED|core-hours left here|no allocation covers it|0 valid signatures";

/// How long a story may take, on whatever machine.
const PATIENCE_SECONDS: &str = "300";

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

/// All blocks of these pages as one script, in which each is announced.
fn script(pages: &[&str]) -> anyhow::Result<String> {
    // As most machines have it.
    let mut script = format!("set -eu\numask 022\n{LOOPBACK}\n");
    for page in pages {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../docs")
            .join(page);
        let text = std::fs::read_to_string(&file).with_context(|| (*page).to_owned())?;
        let blocks = blocks(&text);
        ensure!(blocks.len() >= 3, "{page}: {} blocks", blocks.len());
        for (heading, refused, block) in blocks {
            // It stands between quotes.
            let heading = heading.replace('\'', "");
            script.push_str(&format!("echo '==> {page}: {heading}'\n"));
            script.push_str(&match refused {
                false => block,
                true => format!(
                    "if told=$({{\n{block}}} 2>&1); then echo 'it was not refused'; exit 1; fi\n\
                     echo \"$told\"\necho \"$told\" | grep -qE '{REFUSED}'\n"
                ),
            });
        }
    }
    Ok(script + "echo '==> the end'\n")
}

/// Does what the pages say, in one shell, where what it leaves running ends with it.
fn follow(pages: &[&str]) -> anyhow::Result<()> {
    let own = ["--net", "--pid", "--fork", "--kill-child"];
    let can = Command::new("unshare")
        .args(own)
        .args(["sh", "-c", LOOPBACK])
        .output();
    if !can.is_ok_and(|output| output.status.success()) {
        fairmesh_needs::lacks(Need::Root, "no network and no processes of its own");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    symlink(PROGRAM, folder.path().join("fairmesh"))?;
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH")?);
    // The pages wait for a node to answer, as people do.
    let output = Command::new("timeout")
        .args(["--signal=KILL", PATIENCE_SECONDS, "unshare"])
        .args(own)
        .args(["sh", "-c", &script(pages)?])
        .current_dir(folder.path())
        .env("PATH", path)
        .env_remove("FAIRMESH_SOCKET")
        .stdin(Stdio::null())
        .output()?;
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    println!("{said}");
    let logs =
        ["site.log", "moved.log"].map(|log| std::fs::read_to_string(folder.path().join(log)));
    ensure!(output.status.success(), "{}\n{said}{logs:?}", output.status);
    ensure!(said.contains("==> the end"), "{said}");
    Ok(())
}

#[test]
fn every_drill_of_the_officers_page_can_be_done() -> anyhow::Result<()> {
    follow(&["officers.md"])
}

#[test]
fn a_site_is_made_asked_backed_up_and_moved_as_the_guides_say() -> anyhow::Result<()> {
    follow(&[
        "guides/first-site.md",
        "guides/waiting.md",
        "guides/backup.md",
    ])
}

#[test]
fn credit_is_granted_and_passed_on_as_the_guides_say() -> anyhow::Result<()> {
    follow(&[
        "guides/first-site.md",
        "guides/grant.md",
        "guides/leader.md",
    ])
}

#[test]
fn two_sites_and_a_vo_are_made_as_their_guide_says() -> anyhow::Result<()> {
    follow(&["guides/two-sites.md"])
}

#[test]
fn a_slurm_site_migrates_from_fair_tree_as_its_guide_says() -> anyhow::Result<()> {
    follow(&["guides/fair-tree.md"])
}
