//! Jobs that a site with a full Slurm passes on to one with a free Slurm: each is there once by `squeue`'s word, whoever
//! is killed, and its user reads under which number.
//!
//! Deliberately not here: kills of nodes, and where a job goes, which stories with pretended batch systems have.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use fairmesh_tests::slurm::{Accounts, Kind, Slurm, await_that};
use fairmesh_tests::twins::configure;
use fairmesh_tests::{Node, Site, Vo};
use serde_json::Value;

use crate::PROGRAM;

/// CPUs of each cluster: all jobs of the story at once, so that none has to wait.
const CPUS: u32 = 8;
const JOBS: usize = 6;

/// How often what hands jobs over is killed.
const KILLS: usize = 3;

/// A job is submitted under the name that no other submission has.
const SUBMIT: &str = r#"#!/bin/sh
exec sbatch --parsable -J "$FAIRMESH_NAME" -A "$(basename "$FAIRMESH_PATH")" -n "$FAIRMESH_CPUS" -t 5 -o /dev/null \
    --wrap "sleep 1"
"#;

/// What Slurm says of that name.
const ASK: &str = r#"#!/bin/sh
state=$(squeue -h -t all -n "$FAIRMESH_NAME" -o %T) || exit 1
case $state in
    "") echo nowhere;;
    PENDING|CONFIGURING) echo waiting;;
    RUNNING|COMPLETING) echo running;;
    COMPLETED) echo ended;;
    *) echo failed "$state";;
esac
"#;

/// A cluster and its node.
struct Cluster {
    slurm: Slurm,
    node: Node,
    site: Site,
}

/// A process that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended, which is what was wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn clusters(folder: &Path) -> anyhow::Result<Option<[Cluster; 2]>> {
    let mut made = Vec::new();
    for name in ["a", "b"] {
        let site = Site::init(PROGRAM, &folder.join(name), name)?;
        let kind = Kind {
            name,
            cpus: CPUS,
            nodes: 1,
            accounts: Accounts::Filetxt,
            conf: "",
            plugins: None,
        };
        let Some(slurm) = Slurm::start(&folder.join(format!("slurm-{name}")), kind)? else {
            return Ok(None);
        };
        made.push((name, site, slurm));
    }
    let ids: Vec<_> = made
        .iter()
        .map(|(name, site, _)| (site.id, *name))
        .collect();
    let vo = Vo::found("physics", &ids, &["g1"])?;
    let more = format!(
        "with_node = true\n[advert]\ncpus = {CPUS}\nchange = 1\ninterval = \"1s\"\n\
         [forward]\naccept_forwarded = [\"physics\"]\nper_minute = 1000\n"
    );
    let mut clusters: Vec<Cluster> = Vec::new();
    for (name, site, slurm) in made {
        let before = clusters.first();
        let peers = before.map(|of| (of.site.id, of.node.address.as_str()));
        let peers: Vec<_> = peers.into_iter().collect();
        configure(&site, name, &peers, &vo, &slurm, &more)?;
        let node = site.start()?;
        vo.publish(&node)?;
        clusters.push(Cluster { slurm, node, site });
    }
    Ok(clusters.try_into().ok())
}

impl Cluster {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(words)
            .env("FAIRMESH_SOCKET", self.node.socket());
        command
    }

    /// What hands jobs over to its Slurm, under a folder with the two commands.
    fn hand_over(&self, folder: &Path) -> anyhow::Result<Running> {
        let [submit, ask] = [("submit.sh", SUBMIT), ("ask.sh", ASK)].map(|(name, text)| {
            let file = folder.join(name);
            fs::write(&file, text)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
            Ok::<_, std::io::Error>(file.display().to_string())
        });
        let log = File::options()
            .create(true)
            .append(true)
            .open(folder.join("runner.log"))?;
        let (submit, ask) = (submit?, ask?);
        let words = [
            "forward",
            "run",
            "--poll-ms",
            "100",
            "--submit",
            &submit,
            "--ask",
            &ask,
        ];
        let mut command = self.command(&words);
        command
            .arg("--folder")
            .arg(self.site.folder().join("handed-over"))
            .env("SLURM_CONF", self.slurm.conf())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(Running(command.spawn()?))
    }

    /// The jobs that were passed on to it, by their names: their numbers and their states.
    fn jobs(&self) -> anyhow::Result<BTreeMap<String, Vec<(String, String)>>> {
        let text = self
            .slurm
            .run("squeue", &["-h", "-t", "all", "-o", "%j|%A|%T"])?;
        let mut jobs: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("fm-")) {
            let words: Vec<&str> = line.split('|').collect();
            let [name, id, state] = words[..] else {
                anyhow::bail!("squeue said {line}");
            };
            let job = (id.to_owned(), state.to_owned());
            jobs.entry(name.to_owned()).or_default().push(job);
        }
        Ok(jobs)
    }

    /// What it knows of how many CPUs are free where.
    fn free(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let answer = self.node.http("GET", "/v1/sites?vo=physics", b"")?;
        let sites = answer.body["sites"].as_array().into_iter().flatten();
        let free =
            sites.filter_map(|of| Some((of["name"].as_str()?.to_owned(), of["free"].as_u64()?)));
        Ok(free.collect())
    }
}

#[test]
fn a_job_that_is_passed_on_is_in_the_other_slurm_once_and_its_user_reads_its_number()
-> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let Some([a, b]) = clusters(folder)? else {
        return Ok(());
    };
    // All of A is taken for longer than the story lasts.
    let cpus = CPUS.to_string();
    let fill = [
        "-A",
        "g1",
        "-n",
        &cpus,
        "-t",
        "60",
        "-o",
        "/dev/null",
        "--wrap",
        "sleep 3000",
    ];
    a.slurm.run("sbatch", &fill)?;
    await_that("A to know that only B is free", || {
        let free = a.free()?;
        Ok(free.get("a") == Some(&0) && free.get("b") == Some(&u64::from(CPUS)))
    })?;

    let job = folder.join("job.toml");
    fs::write(
        &job,
        "vo = \"physics\"\nuser = \"root\"\naccount = \"g1\"\ncpus = 1\ntime = \"2m\"\nrun = \"sleep 1\"\n",
    )?;
    let job = job.to_str().context("a plain name")?;
    let _runner_a = a.hand_over(folder)?;
    let mut runner = b.hand_over(folder)?;
    let mut handed_in = Vec::new();
    for number in 0..JOBS {
        let key = format!("j{number}");
        let words = [
            "place", job, "--submit", "--key", &key, "--wait", "240", "--json",
        ];
        let child = a
            .command(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        handed_in.push(child);
        if number < KILLS {
            // In the middle of whatever it does with that job, or the next.
            await_that("one job more at B", || Ok(b.jobs()?.len() > number))?;
            runner.0.kill()?;
            runner.0.wait()?;
            runner = b.hand_over(folder)?;
        }
    }
    let mut told = Vec::new();
    for child in handed_in {
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer: Value = serde_json::from_slice(&output.stdout).context(said)?;
        let job = &answer["jobs"][0];
        ensure!(
            output.status.success() && job["state"] == "submitted" && job["site"] == "b",
            "{answer:#}"
        );
        told.push(job["batch"].as_str().unwrap_or_default().to_owned());
    }
    await_that("all jobs to have run", || {
        let jobs = b.jobs()?;
        let is_over = |of: &Vec<(String, String)>| of.iter().all(|(_, state)| state == "COMPLETED");
        Ok(jobs.len() == JOBS && jobs.values().all(is_over))
    })?;
    let jobs = b.jobs()?;
    ensure!(
        jobs.values().all(|of| of.len() == 1),
        "submitted twice: {jobs:?}"
    );
    ensure!(a.jobs()?.is_empty(), "A has one, too");
    let numbers: Vec<&str> = jobs.values().map(|of| of[0].0.as_str()).collect();
    // Where the command was killed before it said the number, Slurm was asked for the name.
    let known: Vec<&String> = told.iter().filter(|batch| !batch.is_empty()).collect();
    ensure!(
        known.len() + KILLS >= JOBS && known.iter().all(|batch| numbers.contains(&batch.as_str())),
        "{told:?} of {jobs:?}"
    );
    Ok(())
}
