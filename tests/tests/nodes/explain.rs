//! `fairmesh explain` and `share -u` for people whom the tree calls otherwise, or not at all, and by-site figures that add up
//! to the sum that they explain.

use std::process::Command;

use anyhow::{Context as _, ensure};
use fairmesh_tests::{Node, Site, records};
use serde_json::Value;

use crate::PROGRAM;

/// A site whose users have other names in its tree, or no line in it.
const CONFIG: &str = "[site]\nname = \"lab\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
    [[identity]]\nuser = \"u1001\"\npath = \"/cms/ann\"\n\
    [[identity]]\nuser = \"eve\"\npath = \"/cms/{user}\"\n\
    [[identity]]\nuser = \"root\"\npath = \"/local\"\n\
    [[identity]]\nsubject = \"/CN=eve\"\npath = \"/cms/eve\"\n\
    [[identity]]\ngroup = \"pilots\"\npath = \"/cms\"\n\
    [shares]\n\"/cms\" = 60\n\"/cms/ann\" = 50\n\"/cms/bob\" = 50\n\"/local\" = 40\n";

struct Desk {
    node: Node,
    _folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let site = Site::init(PROGRAM, folder.path(), "lab")?;
        std::fs::write(site.config(), CONFIG)?;
        let node = site.start()?;
        for (user, first, count) in [("u1001", 0, 5), ("eve", 5, 3)] {
            let answer = node.http("POST", "/v1/records", &records("cms", user, first, count))?;
            ensure!(answer.status == 200, "{answer:?}");
        }
        Ok(Self {
            node,
            _folder: folder,
        })
    }

    /// What a command prints, as a user of whom the shell knows no name.
    fn run(&self, words: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(PROGRAM);
        command.args(words).arg("--socket").arg(self.node.socket());
        let output = command.env_remove("LOGNAME").env_remove("USER").output()?;
        ensure!(output.status.success(), "{words:?}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    }
}

#[test]
fn people_are_explained_by_what_the_batch_system_and_grids_call_them() -> anyhow::Result<()> {
    let desk = Desk::new()?;
    for (words, part) in [
        (&["u1001"][..], "Jobs of u1001 count at /cms/ann, rank "),
        (
            &["eve"],
            "eve has no line of their own in the share tree: their jobs count at /cms",
        ),
        (
            &["--subject", "/CN=eve"],
            "/CN=eve has no line of their own in the share tree: their jobs count at /cms",
        ),
        (
            &["--group", "pilots"],
            "the group pilots has no line of their own in the share tree: their jobs count at /cms/*",
        ),
    ] {
        let told = desk.run(&[&["explain"][..], words].concat())?;
        ensure!(told.contains(part), "{words:?}: no `{part}` in {told}");
    }
    let told = desk.run(&["explain", "eve"])?;
    ensure!(told.contains("/cms decides first: it has used "), "{told}");
    ensure!(!told.contains("eve has used"), "{told}");
    let by_uid = desk.run(&["explain", "root"])?;
    if by_uid.contains("Your jobs") {
        ensure!(
            desk.run(&["explain"])?
                .contains("Your jobs count at /local"),
            "{by_uid}"
        );
    }
    let shown = desk.run(&["share", "-u", "u1001", "-P", "-n", "-o", "account,user"])?;
    ensure!(shown == "/cms/ann|ann\n", "{shown}");
    Ok(())
}

#[test]
fn what_sites_are_said_to_have_used_is_the_sum_that_is_explained() -> anyhow::Result<()> {
    let desk = Desk::new()?;
    let explained: Value = serde_json::from_str(&desk.run(&["explain", "eve", "--json"])?)?;
    ensure!(
        explained["exact"] == false && explained["path"] == "/cms/eve",
        "{explained}"
    );
    ensure!(explained["account"] == "/cms/eve", "{explained}");
    let number = |value: &Value| -> anyhow::Result<u64> {
        let text = value.as_str().with_context(|| format!("{explained}"))?;
        Ok(text.parse()?)
    };
    let cause = &explained["causes"][0];
    let level = &explained["levels"][2];
    ensure!(
        cause["usage_core_ms"] == level["usage_core_ms"],
        "{explained}"
    );
    let sites = cause["sites"].as_array().context("sites")?;
    let weighted = sites.iter().map(|site| number(&site["weighted_core_ms"]));
    let weighted: u64 = weighted.sum::<anyhow::Result<u64>>()?;
    ensure!(
        weighted == number(&cause["usage_core_ms"])?,
        "one site: {explained}"
    );
    // Three core-seconds of eight on a site of one core, in a minute: raw they are all there.
    ensure!(number(&sites[0]["charge_core_ms"])? == 3_000, "{explained}");
    ensure!(weighted > 0 && weighted <= 3_000, "{explained}");
    Ok(())
}
