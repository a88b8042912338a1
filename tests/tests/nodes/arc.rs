//! Credit at a real A-REX: jobs are held when they are submitted and charged when they have ended, and whoever has
//! nothing left reads why.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, ensure};
use fairmesh_tests::arc::{self, Arc};
use fairmesh_tests::slurm::await_that;
use fairmesh_tests::{Site, Vo, quota};

use crate::PROGRAM;

/// Three core-hours.
const CREDIT: u64 = 10_800_000;

/// Minutes that a job asks for.
const MINUTES: u32 = 10;

#[test]
fn a_computing_element_holds_charges_and_refuses() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &["xavier"])?;
    let text = format!(
        "[site]\nname = \"a\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
         [timing]\npublish = \"100ms\"\nsync = \"300ms\"\nheartbeat = \"2s\"\n[vos]\nphysics = \"{}\"\n\
         [[identity]]\nsubject = \"{}\"\nvo = \"physics\"\npath = \"/xavier\"\n\
         [shares]\n\"/physics\" = {{ share = 100, mount = \"physics\" }}\n",
        vo.id(),
        arc::SUBJECT
    );
    fs::write(site.config(), text)?;
    let node = site.start()?;
    vo.publish(&node)?;
    let credit = vo.grant("/xavier", CREDIT, &[site.id], |_| {})?;
    ensure!(node.http("POST", "/v1/documents", &credit)?.status == 200);
    let amount = |name: &str| quota::amount(&node, "xavier", name);
    await_that("rights", || Ok(amount("here")? == CREDIT))?;
    let Some(arc) = Arc::start(&folder.path().join("arc"), PROGRAM, &site)? else {
        return Ok(());
    };

    // Held for as long as it asks for, charged for as long as it runs.
    let held = u64::from(MINUTES) * 60_000;
    arc.submit("sleep 2", MINUTES)?;
    ensure!(amount("held")? == held, "{}", amount("held")?);
    let charged = || anyhow::Ok((amount("held")? == 0).then_some(amount("used")?));
    let mut used = 0;
    await_that("what it ran is charged", || {
        used = charged()?.unwrap_or(0);
        Ok(used > 0)
    })?;
    ensure!((2_000..held).contains(&used), "{used}");

    // A job that is killed has no times of its own, and is charged all the same.
    let job = arc.submit("sleep 317", MINUTES)?;
    await_that("it runs", || {
        let said = arc.run("ps", &["-C", "sleep", "-o", "args="])?;
        Ok(said.lines().any(|line| line == "sleep 317"))
    })?;
    arc.run("arckill", &[&job])?;
    let before = used;
    await_that("what it ran is charged, too", || {
        used = charged()?.unwrap_or(0);
        Ok(used > before)
    })?;
    ensure!(node.usage("physics", "xavier")? == used);

    // More than is left: its user reads why, and there is no job.
    let refused = arc.submit("sleep 1", 60 * 4);
    let said = format!(
        "{:#}",
        refused.err().context("a job without credit was taken")?
    );
    ensure!(
        said.contains("left here") && said.contains("fairmesh quota show xavier"),
        "{said}"
    );
    ensure!(amount("held")? == 0);

    // The archive once more: all is known.
    let mut again = Command::new(PROGRAM);
    again.args(["report", "--cluster", arc::NAME, "--socket"]);
    let again = again.arg(node.socket()).arg(arc.archive()).output()?;
    let words = String::from_utf8_lossy(&again.stdout).into_owned();
    ensure!(
        again.status.success() && words.contains("known 2,"),
        "{again:?}"
    );
    ensure!(amount("used")? == used);
    Ok(())
}
