//! A node, and a Slurm of one core beside it in which the plug-in sets the priorities.
//!
//! Invariant: what is dropped is stopped. Deliberately not here: what a test or a benchmark is about.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::process::{Node, Site};
use crate::slurm::{Accounts, Kind, Plugin, Slurm, await_that, plugin};
use crate::vo::Vo;

/// Users that every Debian has. They have equal shares of the VO `physics`.
pub const USERS: [&str; 3] = ["daemon", "games", "man"];

/// Points of the highest factor.
const WEIGHT: u64 = 1_000_000;

/// The plug-in, and a folder for what a test needs.
#[derive(Debug)]
pub struct Bench {
    program: PathBuf,
    folder: tempfile::TempDir,
    plugin: Plugin,
}

/// A Slurm with the plug-in, and jobs of many users.
#[derive(Debug)]
pub struct Cluster {
    /// The Slurm.
    pub slurm: Slurm,
    gate: PathBuf,
}

impl Bench {
    /// `None` where the machine has not what it takes.
    pub fn new(program: &str) -> anyhow::Result<Option<Self>> {
        let Some(plugin) = plugin(program)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            program: program.into(),
            folder: tempfile::tempdir()?,
            plugin,
        }))
    }

    /// A node of a VO of its own, in which the users have equal shares.
    pub fn node(&self) -> anyhow::Result<(Site, Node)> {
        let site = self.site()?;
        let vo = Vo::found("physics", &[(site.id, "site")], &USERS)?;
        site.configure("site", &[], &[("physics", vo.id())])?;
        let node = site.start()?;
        vo.publish(&node)?;
        Ok((site, node))
    }

    /// A site whose node has no configuration yet.
    pub fn site(&self) -> anyhow::Result<Site> {
        let program = self.program.to_str().context("UTF-8")?;
        Site::init(program, &self.folder.path().join("site"), "site")
    }

    /// The plug-in's parameters for the site's node.
    pub fn parameters(&self, site: &Site) -> String {
        let socket = site.data().join("run/lookup.sock");
        format!("socket={},weight={WEIGHT},interval=1", socket.display())
    }

    /// The file that jobs write themselves into as they run.
    pub fn order(&self) -> PathBuf {
        self.folder.path().join("order")
    }

    /// A cluster of one core, so that jobs start one behind the other.
    pub fn slurm(&self, parameters: &str) -> anyhow::Result<Cluster> {
        fs::write(self.order(), "")?;
        // The jobs' users are not the one who made the folder.
        let open = Permissions::from_mode(0o777);
        fs::set_permissions(self.folder.path(), open.clone())?;
        fs::set_permissions(self.order(), open)?;
        let conf = self.plugin.conf(parameters) + "MaxArraySize=20001\nMaxJobCount=20001\n";
        let kind = Kind {
            name: "mini",
            cpus: 1,
            nodes: 1,
            accounts: Accounts::None,
            conf: &conf,
            plugins: Some(&self.plugin.folder),
        };
        let slurm = Slurm::start(&self.folder.path().join("slurm"), kind)?;
        Ok(Cluster {
            slurm: slurm.context("a Slurm")?,
            gate: self.folder.path().join("gate"),
        })
    }
}

impl Cluster {
    /// Gives the job's id.
    pub fn submit(&self, user: &str, options: &[&str], script: &str) -> anyhow::Result<String> {
        let mut arguments = vec!["--parsable", "--account=physics", "--chdir=/"];
        let (uid, wrap) = (format!("--uid={user}"), format!("--wrap={script}"));
        arguments.extend(["--output=/dev/null", "--ntasks=1", &uid, &wrap]);
        arguments.extend(options);
        self.slurm.run("sbatch", &arguments)
    }

    /// Submits a job of one user.
    pub fn queue(&self, user: &str, script: &str) -> anyhow::Result<()> {
        self.submit(user, &[], script).map(|_| ())
    }

    /// Keeps the only core busy until somebody makes the file that this gives.
    pub fn close_gate(&self) -> anyhow::Result<&Path> {
        let wait = format!("until [ -e {} ]; do sleep 0.1; done", self.gate.display());
        let job = self.submit("root", &[], &wait)?;
        await_that("a gate that is closed", || {
            let state = self.slurm.run("squeue", &["-h", "-o", "%T", "-j", &job])?;
            Ok(state == "RUNNING")
        })?;
        Ok(&self.gate)
    }
}
