//! `fairmesh queue run` over three real Slurms with a node each: caps that hold by Slurm's own word, a cluster that is
//! stopped in the middle, and a manager that is killed five times.
//!
//! Deliberately not here: kills at every single step, which the queue's own tests have.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use fairmesh_tests::slurm::{Accounts, Kind, Slurm, await_that};
use fairmesh_tests::twins::configure;
use fairmesh_tests::{Node, Site, Vo};

use crate::PROGRAM;

/// Names of the sites and CPUs of each.
const SITES: [&str; 3] = ["a", "b", "c"];
const CPUS: u64 = 8;

/// The groups, and what a quarter of all CPUs is.
const GROUPS: [&str; 2] = ["g1", "g2"];
const CAP: usize = 6;

/// Jobs, unless [`JOBS_VARIABLE`] says otherwise.
const JOBS: usize = 40;
const JOBS_VARIABLE: &str = "FAIRMESH_QUEUE_JOBS";

const KILLS: usize = 5;

/// Which site is stopped.
const STOPPED: &str = SITES[2];

/// A job is submitted under its attempt's name.
const SUBMIT: &str = r#"#!/bin/sh
group=$(sed -n 's/.*"run":"\([a-z0-9]*\)".*/\1/p')
export SLURM_CONF="$(dirname "$0")/slurm-$FAIRMESH_SITE/etc/slurm.conf"
exec sbatch --parsable -J "$FAIRMESH_NAME" -A "$group" -n "$FAIRMESH_CPUS" -t 5 -o /dev/null \
    --wrap "sleep 1"
"#;

/// What Slurm says of that name; of a cluster that its operator has stopped, what it said last.
const ASK: &str = r#"#!/bin/sh
here=$(dirname "$0")
export SLURM_CONF="$here/slurm-$FAIRMESH_SITE/etc/slurm.conf"
if [ -e "$here/stopped-$FAIRMESH_SITE" ]; then
    states=$(sed -n "s/^$FAIRMESH_NAME|//p" "$here/stopped-$FAIRMESH_SITE")
else
    states=$(squeue -h -t all -n "$FAIRMESH_NAME" -o %T) || exit 1
fi
case $states in
    "") echo nowhere;;
    PENDING|CONFIGURING) echo waiting;;
    RUNNING|COMPLETING) echo running;;
    COMPLETED) echo ended;;
    *) echo failed "$states";;
esac
"#;

/// A cluster, its node, and what Slurm has said of its jobs.
struct Cluster {
    name: &'static str,
    slurm: Option<Slurm>,
    _node: Node,
    socket: PathBuf,
    jobs: BTreeMap<String, Listed>,
}

/// A job as `squeue` lists it: when it was submitted and, where it has, when it ended, in seconds since 1970.
#[derive(Debug)]
struct Listed {
    name: String,
    group: String,
    from: u64,
    to: Option<u64>,
    ended_well: bool,
}

/// `fairmesh queue run`. Killed when dropped.
struct Manager(Child);

impl Drop for Manager {
    fn drop(&mut self) {
        // It may have ended, which is what was wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn clusters(folder: &Path) -> anyhow::Result<Option<Vec<Cluster>>> {
    let mut made = Vec::new();
    for name in SITES {
        let site = Site::init(PROGRAM, &folder.join(name), name)?;
        let kind = Kind {
            name,
            cpus: u32::try_from(CPUS)?,
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
    let vo = Vo::found("physics", &ids, &GROUPS)?;
    let mut first: Option<(fairmesh_model::SiteId, String)> = None;
    let mut clusters = Vec::new();
    for (name, site, slurm) in made {
        let peers = first.as_ref().map(|(id, at)| (*id, at.as_str()));
        let peers: Vec<_> = peers.into_iter().collect();
        let more =
            format!("with_node = true\n[advert]\ncpus = {CPUS}\nchange = 1\ninterval = \"1s\"\n");
        configure(&site, name, &peers, &vo, &slurm, &more)?;
        let node = site.start()?;
        vo.publish(&node)?;
        first.get_or_insert((site.id, node.address.clone()));
        clusters.push(Cluster {
            name,
            slurm: Some(slurm),
            socket: node.socket().to_owned(),
            _node: node,
            jobs: BTreeMap::new(),
        });
    }
    let node = &clusters[0]._node;
    await_that("adverts of all three", || {
        let answer = node.http("GET", "/v1/sites?vo=physics", b"")?;
        Ok(answer.body["sites"]
            .as_array()
            .is_some_and(|of| of.len() == SITES.len()))
    })?;
    Ok(Some(clusters))
}

impl Cluster {
    /// Notes what Slurm says now of all jobs; it forgets them after a while.
    fn look(&mut self) -> anyhow::Result<()> {
        let Some(slurm) = &self.slurm else {
            return Ok(());
        };
        let text = slurm.run("squeue", &["-h", "-t", "all", "-o", "%A|%j|%a|%V|%e|%T"])?;
        for line in text.lines() {
            let words: Vec<&str> = line.split('|').collect();
            let [id, name, group, from, to, state] = words[..] else {
                bail!("squeue said {line}");
            };
            // Of a job that has not ended it says when it would at the latest.
            let is_over = !["PENDING", "CONFIGURING", "RUNNING", "COMPLETING"].contains(&state);
            let listed = Listed {
                name: name.to_owned(),
                group: group.to_owned(),
                from: from.parse()?,
                to: is_over.then(|| to.parse()).transpose()?,
                ended_well: state == "COMPLETED",
            };
            self.jobs.insert(id.to_owned(), listed);
        }
        Ok(())
    }

    /// Stops it for good. Its operator lets nothing in, ends what runs, and keeps its last word.
    fn stop(&mut self, folder: &Path) -> anyhow::Result<()> {
        let slurm = self.slurm.as_ref().context("it runs")?;
        slurm.run(
            "scontrol",
            &["update", "PartitionName=main", "State=INACTIVE"],
        )?;
        slurm.run("scancel", &["--user=root"])?;
        slurm.await_idle()?;
        let said = slurm.run("squeue", &["-h", "-t", "all", "-o", "%j|%T"])?;
        self.look()?;
        drop(self.slurm.take());
        let file = folder.join(format!("stopped-{}", self.name));
        fs::write(file.with_extension("new"), said)?;
        fs::rename(file.with_extension("new"), file)?;
        Ok(())
    }
}

fn write_program(file: &Path, text: &str) -> anyhow::Result<String> {
    fs::write(file, text)?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
    Ok(file.display().to_string())
}

fn manager(folder: &Path, socket: &Path) -> anyhow::Result<Manager> {
    let submit = write_program(&folder.join("submit.sh"), SUBMIT)?;
    let ask = write_program(&folder.join("ask.sh"), ASK)?;
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("queue.log"))?;
    let child = Command::new(PROGRAM)
        .args(["queue", "run"])
        .arg(folder.join("jobs.jsonl"))
        .args(["--vo", "physics", "--poll-ms", "300", "--socket"])
        .arg(socket)
        .arg("--sla")
        .arg(folder.join("sla.toml"))
        .args(["--submit", &submit, "--ask", &ask])
        .stdout(Stdio::from(log.try_clone()?))
        .stderr(log)
        .spawn()?;
    Ok(Manager(child))
}

/// Names of jobs, one for each attempt that has ended well by Slurm's word.
fn ended_well(clusters: &[Cluster]) -> Vec<&str> {
    let jobs = clusters.iter().flat_map(|of| of.jobs.values());
    let jobs = jobs.filter(|of| of.ended_well);
    let mut names: Vec<&str> = jobs
        .map(|of| of.name.split_once('.').unwrap_or_default().0)
        .collect();
    names.sort_unstable();
    names
}

/// Most jobs of a group that were at all sites at once, from their submission to their end.
fn most_at_once(clusters: &[Cluster], group: &str) -> usize {
    let jobs = clusters.iter().flat_map(|of| of.jobs.values());
    let jobs: Vec<&Listed> = jobs.filter(|of| of.group == group).collect();
    let at = |now: u64| {
        let is_there = |of: &&&Listed| of.from <= now && of.to.is_none_or(|to| now < to);
        jobs.iter().filter(is_there).count()
    };
    jobs.iter().map(|of| at(of.from)).max().unwrap_or(0)
}

#[test]
fn caps_hold_and_no_job_is_lost_or_doubled_over_three_slurms() -> anyhow::Result<()> {
    let count = std::env::var(JOBS_VARIABLE).ok();
    let count = count.map_or(Ok(JOBS), |count| count.parse())?;
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let Some(mut clusters) = clusters(folder)? else {
        return Ok(());
    };
    let line = |number: usize| {
        let group = GROUPS[number % GROUPS.len()];
        format!("{{\"key\":\"j{number}\",\"account\":\"/{group}\",\"run\":\"{group}\"}}\n")
    };
    fs::write(
        folder.join("jobs.jsonl"),
        (0..count).map(line).collect::<String>(),
    )?;
    let caps = GROUPS.map(|group| format!("\"/{group}\" = {{ cpu = \"25%+\" }}\n"));
    fs::write(folder.join("sla.toml"), format!("[sla]\n{}", caps.concat()))?;

    let socket = clusters[0].socket.clone();
    let mut running = manager(folder, &socket)?;
    let (mut kills, mut words) = (0, 0);
    loop {
        // Each wait is for something new, so that more jobs may take longer.
        let mut status = None;
        await_that("a word of the manager", || {
            status = running.0.try_wait()?;
            Ok(status.is_some() || said(folder).len() > words)
        })
        .with_context(|| said(folder))?;
        if let Some(status) = status {
            ensure!(status.success(), "{status}: {}", said(folder));
            break;
        }
        words = said(folder).len();
        clusters.iter_mut().try_for_each(Cluster::look)?;
        let ended = ended_well(&clusters).len();
        // In the first half of the jobs: on a busy machine the last of them may end between two words.
        if kills < KILLS && ended > kills * count / (2 * KILLS) {
            running.0.kill()?;
            running.0.wait()?;
            running = manager(folder, &socket)?;
            kills += 1;
        } else if kills == KILLS && clusters[2].slurm.is_some() {
            // Behind the kills, as all other jobs may end while it stops; and at the new manager's first word, as they may
            // between any two that come later.
            clusters[2].stop(folder)?;
        }
    }
    clusters.iter_mut().try_for_each(Cluster::look)?;

    ensure!(kills == KILLS, "{kills} kills");
    ensure!(clusters[2].slurm.is_none(), "{STOPPED} was stopped");
    let mut wanted: Vec<String> = (0..count).map(|number| format!("j{number}")).collect();
    wanted.sort_unstable();
    let ended = ended_well(&clusters);
    ensure!(
        ended == wanted,
        "lost or doubled: {ended:?}\n{}",
        said(folder)
    );
    let mut sent: Vec<&str> = Vec::new();
    for cluster in &clusters {
        println!("{}: {} attempts", cluster.name, cluster.jobs.len());
        ensure!(!cluster.jobs.is_empty(), "nothing ran at {}", cluster.name);
        sent.extend(cluster.jobs.values().map(|of| of.name.as_str()));
    }
    let attempts = sent.len();
    sent.sort_unstable();
    sent.dedup();
    ensure!(sent.len() == attempts, "an attempt was submitted twice");
    for group in GROUPS {
        let most = most_at_once(&clusters, group);
        println!("{group}: {most} of {CAP} at once");
        ensure!(most <= CAP, "{group} had {most} of {CAP}\n{}", said(folder));
        ensure!(
            most > CAP / 2,
            "{group} never had more than {most} of {CAP}"
        );
    }
    Ok(())
}

/// What the managers have said.
fn said(folder: &Path) -> String {
    fs::read_to_string(folder.join("queue.log")).unwrap_or_default()
}
