//! A loop in a process of its own that dies, hangs, fails or is stopped, and a source that is away: what the operator of
//! the node reads. The Slurm is made of scripts, so that each of its daemons can be away.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use fairmesh_tests::{Node, Site, Vo, beside, records_of_now, scripted};
use serde_json::Value;

use crate::PROGRAM;

/// How long a state may take to show.
const PATIENCE: Duration = Duration::from_secs(120);

/// A node, and the scripts beside it.
struct Place {
    folder: tempfile::TempDir,
    site: Site,
    vo: Vo,
}

impl Place {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
        let vo = Vo::found("physics", &[(site.id, "a")], &["ann"])?;
        scripted::write(folder.path())?;
        let here = folder.path().display();
        // As `setup` advises: the cursor is outside of the data folder.
        let keys =
            format!("with_node = false\nbin_dir = \"{here}\"\nstate_file = \"{here}/feed.json\"\n");
        beside::configure(&site, "a", &[], &vo, "slurm", &keys)?;
        Ok(Self { folder, site, vo })
    }

    fn start(&self) -> anyhow::Result<Node> {
        let node = self.site.start()?;
        self.vo.publish(&node)?;
        Ok(node)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts `fairmesh slurm feed`.
    fn feed(&self) -> anyhow::Result<Loop> {
        self.start_loop("feed")
    }

    fn start_loop(&self, what: &str) -> anyhow::Result<Loop> {
        let mut command = Command::new(PROGRAM);
        command.args(["slurm", what, "--config"]);
        let log = fs::File::create(self.path("loop.log"))?;
        let child = command
            .arg(self.site.config())
            .stderr(log)
            .stdout(Stdio::null());
        Ok(Loop(child.spawn()?))
    }

    /// Puts a job into a list of the scripts.
    fn has(&self, list: &str, id: u64) -> anyhow::Result<()> {
        scripted::has(self.folder.path(), list, id)
    }

    /// A command of `fairmesh slurm` in the folder of the scripts, with a relative path of the configuration.
    fn slurm(&self, words: &[&str]) -> anyhow::Result<(bool, String)> {
        let mut command = Command::new(PROGRAM);
        command
            .args(["slurm", "--config", "a/fairmesh.toml"])
            .args(words);
        let output = command.current_dir(self.folder.path()).output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8(text)?))
    }

    fn doctor(&self) -> anyhow::Result<String> {
        let mut command = Command::new(PROGRAM);
        let output = command
            .args(["doctor", "--config"])
            .arg(self.site.config())
            .output()?;
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// A loop's process. Killed when dropped.
struct Loop(Child);

impl Loop {
    fn terminate(mut self) -> anyhow::Result<()> {
        let pid = self.0.id().to_string();
        ensure!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()?
                .success()
        );
        let ended = self.0.wait()?;
        ensure!(ended.success(), "{ended}");
        Ok(())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // It may have ended already, which is what was wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `fairmesh status` reports this code first, or no loop's code; gives its text.
fn await_code(node: &Node, code: Option<&str>) -> anyhow::Result<String> {
    let began = Instant::now();
    loop {
        let body: Value = node.http("GET", "/v1/status", b"")?.body;
        let notices = body["notices"].as_array().context("notices")?;
        let of = |notice: &Value, part: &str| notice[part].as_str().unwrap_or_default().to_owned();
        let is_of_loop = |code: &str| code.starts_with("loop-") || code == "source-away";
        let mut of_loops = notices
            .iter()
            .filter(|notice| is_of_loop(&of(notice, "code")));
        match (of_loops.next(), code) {
            (None, None) => return Ok(String::new()),
            (Some(notice), Some(code)) if of(notice, "code") == code => {
                let is_green = of(notice, "severity") == "info";
                ensure!(body["healthy"] == is_green, "{body:#}");
                return Ok(of(notice, "text"));
            }
            _ if began.elapsed() > PATIENCE => bail!("not {code:?}: {body:#}"),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Makes a fault, waits until it is reported, and ends it; gives the text.
fn while_there(node: &Node, fault: &Path, code: &str) -> anyhow::Result<String> {
    fs::write(fault, "")?;
    let text = await_code(node, Some(code))?;
    fs::remove_file(fault)?;
    Ok(text)
}

#[test]
fn a_daemon_that_is_away_is_named_and_running_jobs_are_reported_without_slurmdbd()
-> anyhow::Result<()> {
    let place = Place::new()?;
    let node = place.start()?;
    let _feed = place.feed()?;
    await_code(&node, None)?;
    fs::write(place.path("dbd-away"), "")?;
    let text = await_code(&node, Some("source-away"))?;
    let begin = "slurm feed: slurmdbd does not answer: `sacct` failed: Connection refused";
    ensure!(text.starts_with(begin), "{text}");
    place.has("queue", 1)?;
    let began = Instant::now();
    while node.usage("physics", "ann")? < 120_000 {
        ensure!(began.elapsed() < PATIENCE, "a running job is not reported");
        std::thread::sleep(Duration::from_millis(100));
    }
    let doctor = place.doctor()?;
    let is_right = doctor.contains("[source-away]") && !doctor.contains("start slurmctld");
    ensure!(
        is_right && doctor.contains("systemctl status slurmdbd"),
        "{doctor}"
    );
    fs::remove_file(place.path("dbd-away"))?;
    await_code(&node, None)?;

    let text = while_there(&node, &place.path("ctld-away"), "loop-failing")?;
    ensure!(
        text.contains("`scontrol` failed: Unable to contact"),
        "{text}"
    );
    await_code(&node, None)?;
    Ok(())
}

#[test]
fn a_loop_that_hangs_dies_or_is_stopped_is_reported_as_what_it_is() -> anyhow::Result<()> {
    let place = Place::new()?;
    let node = place.start()?;
    let feed = place.feed()?;
    await_code(&node, None)?;
    let text = while_there(&node, &place.path("hangs"), "loop-behind")?;
    ensure!(text.starts_with("slurm feed is alive"), "{text}");
    drop(feed);
    let text = await_code(&node, Some("loop-silent"))?;
    ensure!(
        text.starts_with("slurm feed has not reported for"),
        "{text}"
    );
    let metrics = node.http("GET", "/v1/metrics", b"")?.text;
    ensure!(
        metrics.contains("code=\"loop-silent\",severity=\"warning\"} 1"),
        "{metrics}"
    );
    // A node that starts meanwhile knows from its configuration which feed it does not hear.
    node.kill()?;
    let node = place.start()?;
    await_code(&node, Some("loop-silent"))?;
    let feed = place.feed()?;
    await_code(&node, None)?;
    feed.terminate()?;
    let text = await_code(&node, Some("loop-stopped"))?;
    ensure!(text.starts_with("slurm feed was stopped"), "{text}");
    Ok(())
}

#[test]
fn a_node_that_is_wiped_under_a_running_feed_gets_its_records_again() -> anyhow::Result<()> {
    let place = Place::new()?;
    let node = place.start()?;
    place.has("ended", 7)?;
    let _feed = place.feed()?;
    node.await_usage("physics", "ann", 120_000)?;
    ensure!(node.stop()?.success());
    fs::remove_dir_all(place.site.data())?;
    let node = place.start()?;
    node.await_usage("physics", "ann", 120_000)?;
    let logged = node.http("GET", "/v1/accounting", b"")?.body;
    ensure!(
        logged["records"].as_array().map(Vec::len) == Some(1),
        "{logged}"
    );
    Ok(())
}

/// The feed has acknowledged a job that the backup lacks; a crash lacks nothing.
#[test]
fn a_node_restored_from_a_backup_under_a_running_feed_gets_its_records_again() -> anyhow::Result<()>
{
    let place = Place::new()?;
    let (data, backup) = (place.site.data(), place.path("backup"));
    let copy = |from: &Path, to: &Path| -> anyhow::Result<()> {
        let copied = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
        ensure!(copied.success(), "{}", from.display());
        Ok(())
    };
    let logged = |node: &Node| -> anyhow::Result<Option<usize>> {
        let body = node.http("GET", "/v1/accounting", b"")?.body;
        Ok(body["records"].as_array().map(Vec::len))
    };
    let node = place.start()?;
    place.has("ended", 7)?;
    let _feed = place.feed()?;
    node.await_usage("physics", "ann", 120_000)?;
    let reach = || -> anyhow::Result<Value> {
        let cursor = fs::read(place.path("feed.json"))?;
        Ok(serde_json::from_slice::<Value>(&cursor)?["reach"].clone())
    };
    await_code(&node, None)?;
    ensure!(node.stop()?.success());
    copy(&data, &backup)?;
    let reach_of_backup = reach()?;

    let node = place.site.start()?;
    let first = fs::read_to_string(place.path("ended"))?;
    place.has("ended", 8)?;
    let second = fs::read_to_string(place.path("ended"))?;
    fs::write(place.path("ended"), first + &second)?;
    node.await_usage("physics", "ann", 240_000)?;
    let began = Instant::now();
    while reach()? == reach_of_backup {
        ensure!(began.elapsed() < PATIENCE, "the cursor does not move");
        std::thread::sleep(Duration::from_millis(50));
    }
    node.kill()?;
    let node = place.site.start()?;
    node.await_usage("physics", "ann", 240_000)?;
    await_code(&node, None)?;
    let log = || fs::read_to_string(place.path("loop.log"));
    ensure!(!log()?.contains("restored"), "{}", log()?);
    node.kill()?;

    fs::remove_dir_all(&data)?;
    copy(&backup, &data)?;
    let node = place.site.start()?;
    node.await_usage("physics", "ann", 240_000)?;
    let began = Instant::now();
    while logged(&node)? != Some(2) {
        ensure!(began.elapsed() < PATIENCE, "{:?}", logged(&node)?);
        std::thread::sleep(Duration::from_millis(100));
    }
    ensure!(log()?.contains("restored from a backup"), "{}", log()?);
    await_code(&node, None)?;
    node.await_usage("physics", "ann", 240_000)?;
    Ok(())
}

#[test]
fn no_loop_sets_site_factors_beside_the_plugin() -> anyhow::Result<()> {
    let place = Place::new()?;
    let node = place.start()?;
    place.has("waiting", 1)?;
    let _sync = place.start_loop("sync")?;
    let began = Instant::now();
    while !place.path("set").exists() {
        ensure!(began.elapsed() < PATIENCE, "no site factor is set");
        std::thread::sleep(Duration::from_millis(50));
    }
    // From now on the plug-in does it; another job waits.
    let plugin = "PrioritySiteFactorPlugin = site_factor/fairmesh\n";
    fs::write(place.path("plugin"), plugin)?;
    place.has("waiting", 2)?;
    let text = await_code(&node, Some("loop-failing"))?;
    let why = "the plug-in site_factor/fairmesh sets the site factors of this cluster";
    ensure!(
        text.starts_with("slurm sync: ") && text.contains(why),
        "{text}"
    );
    for words in [
        &["run"][..],
        &["sync"],
        &["sync", "--once"],
        &["sync", "--reset"],
    ] {
        let (is_good, text) = place.slurm(words)?;
        ensure!(
            !is_good && text.contains(why) && text.contains("slurm feed"),
            "{words:?}: {text}"
        );
    }
    let (is_good, text) = place.slurm(&["sync", "--dry-run"])?;
    ensure!(is_good, "{text}");
    let set = fs::read_to_string(place.path("set"))?;
    ensure!(!set.contains("JobId=2"), "{set}");
    Ok(())
}

#[test]
fn setup_writes_absolute_paths_and_asks_for_no_restart_that_is_not_needed() -> anyhow::Result<()> {
    let place = Place::new()?;
    let config = fs::read_to_string(place.site.config())?;
    let with_quota = config.replace("with_node = false\n", "with_node = false\nquota = true\n");
    fs::write(place.site.config(), with_quota)?;
    let (_, text) = place.slurm(&["setup", "--write", "files"])?;
    ensure!(
        text.contains("add these lines to slurm.conf, then run `scontrol reconfigure`"),
        "{text}"
    );
    ensure!(!text.contains("restart slurmctld"), "{text}");
    let check = fs::read_to_string(place.path("files/fairmesh-quota.lua"))?;
    let folder = place.folder.path().display();
    ensure!(
        check.contains(&format!("local SOCKET = \"{folder}/a/")),
        "{check}"
    );
    for file in ["fairmesh-prolog", "fairmesh-slurm.service"] {
        let text = fs::read_to_string(place.path("files").join(file))?;
        ensure!(
            text.contains(&format!(" --config {folder}/a/fairmesh.toml")),
            "{text}"
        );
    }
    Ok(())
}

/// A site whose feed is dead is connected and in sync: the age of its usage shows it.
#[test]
fn other_sites_see_how_old_the_newest_usage_of_a_site_is() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = |name: &str| Site::init(PROGRAM, &folder.path().join(name), name);
    let (a, b) = (site("a")?, site("b")?);
    let vo = Vo::found("physics", &[(a.id, "a"), (b.id, "b")], &["ann"])?;
    let vos = [("physics", vo.id())];
    a.configure("a", &[], &vos)?;
    let a_node = a.start()?;
    vo.publish(&a_node)?;
    b.configure("b", &[(a.id, &a_node.address)], &vos)?;
    let b_node = b.start()?;
    let reported = records_of_now("physics", "ann", 0, 3);
    let answer = a_node.http("POST", "/v1/records", &reported)?;
    ensure!(answer.body["counted"] == 3, "{answer:?}");
    b_node.await_usage("physics", "ann", 3_000)?;
    let age_of_peer = |node: &Node| -> anyhow::Result<(Option<u64>, Value)> {
        let body = node.http("GET", "/v1/peers", b"")?.body;
        Ok((body["peers"][0]["usage_age_ms"].as_u64(), body))
    };
    let (first, body) = age_of_peer(&b_node)?;
    let first = first.with_context(|| format!("{body:#}"))?;
    let began = Instant::now();
    while age_of_peer(&b_node)?.0 <= Some(first) {
        ensure!(began.elapsed() < PATIENCE, "it does not grow");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (of_b, body) = age_of_peer(&a_node)?;
    ensure!(of_b.is_none(), "b has published no usage: {body:#}");
    Ok(())
}
