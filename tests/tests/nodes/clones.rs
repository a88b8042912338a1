//! A data folder and a key: a clone under another key does not start, a key is replaced and keeps all history, and two
//! machines with one key are both received and both reported. Real processes, a real mesh.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use fairmesh_model::SiteId;
use fairmesh_tests::{Node, Site, Vo, records, records_of_now};

use crate::PROGRAM;

/// How long a state may take to be reached.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sites A, B and C of one VO. B and C run, and find each other; A finds both.
struct Grid {
    folder: tempfile::TempDir,
    vo: Vo,
    a: Site,
    b: (Site, Node),
    c: (Site, Node),
}

impl Grid {
    fn found(more: &[(SiteId, &str)]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let site = |name: &str| Site::init(PROGRAM, &folder.path().join(name), name);
        let (a, b, c) = (site("a")?, site("b")?, site("c")?);
        let sites = [&[(a.id, "a"), (b.id, "b"), (c.id, "c")], more].concat();
        let vo = Vo::found("physics", &sites, &["ann", "bob"])?;
        let vos = [("physics", vo.id())];
        b.configure("b", &[], &vos)?;
        let b_node = b.start()?;
        c.configure("c", &[(b.id, &b_node.address)], &vos)?;
        let c_node = c.start()?;
        vo.publish(&b_node)?;
        vo.publish(&c_node)?;
        let grid = Self {
            folder,
            vo,
            a,
            b: (b, b_node),
            c: (c, c_node),
        };
        grid.configure(&grid.a)?;
        Ok(grid)
    }

    /// Lets a site find B and C.
    fn configure(&self, site: &Site) -> anyhow::Result<()> {
        let found = [&self.b, &self.c].map(|(site, node)| (site.id, node.address.as_str()));
        site.configure("a", &found, &[("physics", self.vo.id())])
    }

    fn others(&self) -> [&Node; 2] {
        [&self.b.1, &self.c.1]
    }

    /// A copy of A's whole machine.
    fn clone_of_a(&self) -> anyhow::Result<Site> {
        let folder = self.folder.path().join("clone");
        copy(self.a.folder(), &folder)?;
        Site::at(PROGRAM, &folder)
    }
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(status.success(), "cannot copy {}", from.display());
    Ok(())
}

fn report(node: &Node, user: &str, first: u64, count: u64) -> anyhow::Result<()> {
    let answer = node.http(
        "POST",
        "/v1/records",
        &records("physics", user, first, count),
    )?;
    ensure!(answer.body["counted"] == count, "{answer:?}");
    Ok(())
}

fn report_now(node: &Node, first: u64, count: u64) -> anyhow::Result<()> {
    let answer = node.http(
        "POST",
        "/v1/records",
        &records_of_now("physics", "ann", first, count),
    )?;
    ensure!(answer.body["counted"] == count, "{answer:?}");
    Ok(())
}

fn await_all(nodes: &[&Node], user: &str, jobs: u64) -> anyhow::Result<()> {
    nodes
        .iter()
        .try_for_each(|node| node.await_usage("physics", user, jobs * 1_000))
}

/// Waits until `is_there`.
fn until(what: &str, mut is_there: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let began = Instant::now();
    while !is_there()? {
        ensure!(began.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[test]
fn a_cloned_folder_does_not_start_under_another_key_and_nobody_counts_twice() -> anyhow::Result<()>
{
    let elsewhere = tempfile::tempdir()?;
    let d = Site::init(PROGRAM, &elsewhere.path().join("d"), "d")?;
    let grid = Grid::found(&[(d.id, "d")])?;
    let a = grid.a.start()?;
    await_all(&[&a], "ann", 0)?;
    report(&a, "ann", 0, 3)?;
    await_all(&grid.others(), "ann", 3)?;
    ensure!(a.stop()?.success());

    // The machine is cloned for a new cluster, which gets a key of its own.
    grid.configure(&d)?;
    copy(&grid.a.data(), &d.data())?;
    let side = d.data().join("site.state");
    let before = fs::read(&side)?;
    let output = Command::new(PROGRAM)
        .arg("run")
        .arg("--config")
        .arg(d.config())
        .output()?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{words}");
    let (old, new) = (grid.a.id.to_string(), d.id.to_string());
    for named in [
        &old,
        &new,
        &d.data().display().to_string(),
        "--take-over",
        "data folder of its own",
    ] {
        assert!(words.contains(named), "{named}: {words}");
    }
    assert_eq!(fs::read(&side)?, before);
    // The store alone shows it, too; a take-over names the earlier site.
    fs::remove_file(&side)?;
    let Err(refused) = d.start() else {
        bail!("it started");
    };
    assert!(refused.to_string().contains(&old), "{refused}");
    let Err(refused) = d.start_with(&["--take-over", &new]) else {
        bail!("it started");
    };
    assert!(refused.to_string().contains("--take-over"), "{refused}");

    let a = grid.a.start()?;
    await_all(&[&a, grid.others()[0], grid.others()[1]], "ann", 3)?;
    // With a folder of its own it is a site like any other.
    fs::remove_dir_all(d.data())?;
    let d_node = d.start()?;
    await_all(&[&d_node], "ann", 3)?;
    report(&d_node, "bob", 0, 2)?;
    await_all(&[&a, grid.others()[0], grid.others()[1]], "bob", 2)
}

#[test]
fn a_sites_key_is_replaced_and_all_its_history_is_kept() -> anyhow::Result<()> {
    let mut grid = Grid::found(&[])?;
    let a = grid.a.start()?;
    await_all(&[&a], "ann", 0)?;
    report(&a, "ann", 0, 7)?;
    report_now(&a, 100, 4)?;
    report(&a, "bob", 200, 5)?;
    await_all(&grid.others(), "ann", 11)?;
    ensure!(a.stop()?.success());

    // The old machine stays, with the old key.
    let old = grid.clone_of_a()?;
    let old_id = grid.a.id;
    let fresh = Site::init(PROGRAM, &grid.folder.path().join("fresh"), "a")?;
    fs::copy(
        fresh.folder().join("site.key"),
        grid.a.folder().join("site.key"),
    )?;
    let new = Site::at(PROGRAM, grid.a.folder())?;
    ensure!(new.id != old_id && new.id == fresh.id);
    let id = new.id;
    grid.vo.renew(|charter| charter.sites[0].site = id)?;
    grid.others()
        .iter()
        .try_for_each(|node| grid.vo.publish(node))?;
    let a = new.start_with(&["--take-over", &old_id.to_string()])?;
    let all = [&a, grid.others()[0], grid.others()[1]];
    for (user, jobs) in [("ann", 11), ("bob", 5)] {
        await_all(&all, user, jobs)?;
    }
    // What was counted under the old key is known, and what comes is new.
    let again = a.http("POST", "/v1/records", &records("physics", "ann", 0, 8))?;
    assert_eq!(
        (&again.body["known"], &again.body["counted"]),
        (&7.into(), &1.into()),
        "{again:?}"
    );
    await_all(&all, "ann", 12)?;

    // The old node comes up again and counts for itself.
    let old_node = old.start()?;
    report(&old_node, "ann", 300, 9)?;
    old_node.await_usage("physics", "ann", 20_000)?;
    report(&a, "bob", 400, 1)?;
    await_all(&all, "bob", 6)?;
    for node in all {
        assert_eq!(node.usage("physics", "ann")?, 12_000);
    }
    ensure!(a.stop()?.success());

    // The folder is the new key's: with its words and without them, and the old key has none in it.
    let a = new.start_with(&["--take-over", &old_id.to_string()])?;
    a.await_usage("physics", "ann", 12_000)?;
    ensure!(a.stop()?.success());
    new.start()?.await_usage("physics", "ann", 12_000)?;
    fs::copy(
        old.folder().join("site.key"),
        grid.a.folder().join("site.key"),
    )?;
    let Err(refused) = Site::at(PROGRAM, grid.a.folder())?.start() else {
        bail!("it started");
    };
    assert!(refused.to_string().contains(&id.to_string()), "{refused}");
    Ok(())
}

/// The codes that `status`, `doctor` and the metrics of a node have, of which a node has one alike or none.
fn reports_two_machines(site: &Site, node: &Node) -> anyhow::Result<Option<String>> {
    let status = node.http("GET", "/v1/status", b"")?;
    let notices = status.body["notices"].as_array().context("notices")?;
    let notice = notices.iter().find(|notice| notice["code"] == "site-twice");
    let metrics = node.http("GET", "/v1/metrics", b"")?.text;
    let is_in_metrics = metrics.lines().any(|line| {
        line.starts_with("fairmesh_notices{") && line.contains("site-twice") && line.ends_with(" 1")
    });
    let doctor = Command::new(PROGRAM)
        .arg("doctor")
        .arg("--config")
        .arg(site.config())
        .output()?;
    let is_in_doctor = String::from_utf8_lossy(&doctor.stdout).contains("site-twice");
    let text = notice.and_then(|notice| notice["text"].as_str());
    Ok(text
        .filter(|_| is_in_metrics && is_in_doctor)
        .map(str::to_owned))
}

/// Waits until both machines and both other nodes report the two.
fn both_report(grid: &Grid, twin: (&Site, &Node), a: &Node) -> anyhow::Result<()> {
    for (site, node) in [(&grid.a, a), twin] {
        until("the machine itself", || {
            let text = reports_two_machines(site, node)?;
            Ok(text.is_some_and(|text| text.contains("another machine runs with this site's key")))
        })?;
    }
    for (site, node) in [&grid.b, &grid.c] {
        until("another site", || {
            let text = reports_two_machines(site, node)?;
            Ok(text.is_some_and(|text| text.contains("key of a, at /ip4/127.0.0.1/tcp/")))
        })?;
    }
    Ok(())
}

/// How many heads a node has signed.
fn heads(node: &Node) -> anyhow::Result<u64> {
    let metrics = node.http("GET", "/v1/metrics", b"")?.text;
    let name = "fairmesh_heads_published_total ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.context("no heads")?.parse()?)
}

#[test]
fn two_machines_with_one_key_are_both_received_and_both_reported() -> anyhow::Result<()> {
    let grid = Grid::found(&[])?;
    // One head a second.
    let config = fs::read_to_string(grid.a.config())?;
    let config = config.replace("publish = \"100ms\"", "publish = \"1s\"");
    fs::write(grid.a.config(), config)?;
    let a = grid.a.start()?;
    await_all(&[&a], "ann", 0)?;
    report(&a, "ann", 0, 10)?;
    await_all(&grid.others(), "ann", 10)?;
    ensure!(a.stop()?.success());
    let twin = grid.clone_of_a()?;
    let (mut jobs, mut first) = (10, 1_000);
    for begins_with_twin in [false, true] {
        let began = Instant::now();
        // At a peer both are one site, and either may have come first.
        let (a, t) = match begins_with_twin {
            true => {
                let t = twin.start()?;
                (grid.a.start()?, t)
            }
            false => (grid.a.start()?, twin.start()?),
        };
        let all = [&a, &t, grid.others()[0], grid.others()[1]];
        for run in 0..if begins_with_twin { 1 } else { 3 } {
            report_now(&a, first, 4)?;
            report_now(&t, first + 500, 3)?;
            (jobs, first) = (jobs + 7, first + 1_000);
            await_all(&all, "ann", jobs).with_context(|| format!("run {run}"))?;
        }
        both_report(&grid, (&twin, &t), &a)?;
        // A head of the other machine is no reason for one more.
        let (signed, most) = (heads(&a)?, began.elapsed().as_secs() + 5);
        ensure!(signed <= most, "{signed} heads, at most {most}");
        // One of them is stopped: nothing is lost, and the others say no more.
        ensure!(t.stop()?.success());
        if !begins_with_twin {
            for (site, node) in [
                (&grid.a, &a),
                (&grid.b.0, &grid.b.1),
                (&grid.c.0, &grid.c.1),
            ] {
                until("it is over", || {
                    Ok(reports_two_machines(site, node)?.is_none())
                })?;
            }
        }
        await_all(&[&a, grid.others()[0], grid.others()[1]], "ann", jobs)?;
        ensure!(a.stop()?.success());
    }
    Ok(())
}
