//! Two Slurms with a node each, and one VO in which the accounts `xavier` and `yvonne` have equal
//! shares of the Grid.
//!
//! Invariant: at first neither node knows the other's address, so the mesh is cut until it is healed.
//! What is dropped is stopped. Deliberately not here: what happens on them (`story`, and the tests).

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use fairmesh_model::SiteId;

use crate::beside;
use crate::process::{Node, Site};
use crate::slurm::{Accounts, Kind, Plugin, Slurm};
use crate::vo::Vo;

/// Points of the highest factor, where the plug-in gives them.
const WEIGHT: u32 = 1_000_000_000;

/// Two of everything.
#[derive(Debug)]
pub struct Twins {
    /// The cluster that is busy.
    pub a: Side,
    /// The one that is not.
    pub b: Side,
    /// What both belong to.
    pub vo: Vo,
    _folder: tempfile::TempDir,
}

/// A cluster and its site.
#[derive(Debug)]
pub struct Side {
    /// The feed, where it is a process of its own.
    pub feed: Option<Feed>,
    node: Option<Node>,
    /// The site's folder.
    pub site: Site,
    /// The cluster.
    pub slurm: Slurm,
    name: &'static str,
    apart: bool,
    quota: bool,
}

/// `fairmesh slurm feed` as a process of its own. Killed when dropped.
#[derive(Debug)]
pub struct Feed {
    child: Child,
}

/// How two of everything are made.
#[derive(Debug, Clone, Copy)]
pub struct Make<'a> {
    /// The program.
    pub program: &'a str,
    /// Where the Slurms write what has finished.
    pub accounts: Accounts<'a>,
    /// The plug-in that sets priorities; none where the node does.
    pub plugin: Option<&'a Plugin>,
    /// Cores of A and of B.
    pub cpus: [u32; 2],
    /// Whether B's feed is a process of its own; with the plug-in both are.
    pub feed_apart: bool,
    /// Whether jobs are held to quotas.
    pub quota: bool,
}

impl Twins {
    /// Makes them; none where the machine has no Slurm.
    pub fn start(make: Make<'_>) -> anyhow::Result<Option<Self>> {
        let folder = tempfile::tempdir()?;
        let (Some(mut a), Some(mut b)) = (
            Side::make(folder.path(), "a", make.cpus[0], make)?,
            Side::make(folder.path(), "b", make.cpus[1], make)?,
        ) else {
            return Ok(None);
        };
        b.apart |= make.feed_apart;
        let sites = [(a.site.id, "a"), (b.site.id, "b")];
        let vo = Vo::found("physics", &sites, &["xavier", "yvonne"])?;
        for side in [&mut a, &mut b] {
            side.configure(&[], &vo)?;
            side.start_node()?;
            vo.publish(side.node()?)?;
            side.start_feed()?;
        }
        Ok(Some(Self {
            a,
            b,
            vo,
            _folder: folder,
        }))
    }

    /// A comes back with B's address; B, where jobs wait, just goes on.
    pub fn heal(&mut self) -> anyhow::Result<()> {
        let address = self.b.node()?.address.clone();
        self.join(&address)
    }

    /// A comes back with an address at which it reaches B.
    pub fn join(&mut self, address: &str) -> anyhow::Result<()> {
        self.a.stop_node()?;
        let b = (self.b.site.id, address);
        self.a.configure(&[b], &self.vo)?;
        self.a.start_node()
    }
}

impl Side {
    fn make(
        folder: &Path,
        name: &'static str,
        cpus: u32,
        make: Make<'_>,
    ) -> anyhow::Result<Option<Self>> {
        let site = Site::init(make.program, &folder.join(name), name)?;
        let socket = site.data().join("run/lookup.sock");
        let parameters = format!("socket={},weight={WEIGHT},interval=1", socket.display());
        let conf = make.plugin.map(|plugin| plugin.conf(&parameters));
        let kind = Kind {
            name,
            cpus,
            nodes: if make.quota { 2 } else { 1 },
            accounts: make.accounts,
            conf: conf.as_deref().unwrap_or_default(),
            plugins: make.plugin.map(|plugin| plugin.folder.as_path()),
        };
        let Some(slurm) = Slurm::start(&folder.join(format!("slurm-{name}")), kind)? else {
            return Ok(None);
        };
        if make.accounts == Accounts::Slurmdbd {
            introduce(&slurm)?;
        }
        Ok(Some(Self {
            feed: None,
            node: None,
            site,
            slurm,
            name,
            apart: make.plugin.is_some(),
            quota: make.quota,
        }))
    }

    fn configure(&self, peers: &[(SiteId, &str)], vo: &Vo) -> anyhow::Result<()> {
        let spool = self.site.folder().join("spool");
        fs::create_dir_all(&spool)?;
        let more = format!(
            "with_node = {}\nquota = {}\nspool = \"{}\"\n",
            !self.apart,
            self.quota,
            spool.display()
        );
        configure(&self.site, self.name, peers, vo, &self.slurm, &more)
    }

    /// The node, which runs.
    pub fn node(&self) -> anyhow::Result<&Node> {
        self.node.as_ref().context("it runs")
    }

    /// Starts the node.
    pub fn start_node(&mut self) -> anyhow::Result<()> {
        self.node = Some(self.site.start()?);
        Ok(())
    }

    /// Lets the node end gracefully.
    pub fn stop_node(&mut self) -> anyhow::Result<()> {
        let node = self.node.take().context("it runs")?;
        ensure!(node.stop()?.success());
        Ok(())
    }

    /// kill -9 of the node.
    pub fn kill_node(&mut self) -> anyhow::Result<()> {
        self.node.take().context("it runs")?.kill()
    }

    /// Starts the feed, where that is a process of its own.
    pub fn start_feed(&mut self) -> anyhow::Result<()> {
        if self.apart {
            self.feed = Some(self.site.feed()?);
        }
        Ok(())
    }

    /// Where the feed notes how far it has come.
    pub fn cursor(&self) -> std::path::PathBuf {
        self.site.data().join("slurm-feed.json")
    }
}

impl Site {
    fn feed(&self) -> anyhow::Result<Feed> {
        let log = self.folder().join("log");
        let log = File::options().create(true).append(true).open(log)?;
        let child = Command::new(self.program())
            .args(["slurm", "feed", "--config"])
            .arg(self.config())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok(Feed { child })
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // It may have ended already, which is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// slurmdbd has to know an account before a job may name it.
pub fn introduce(slurm: &Slurm) -> anyhow::Result<()> {
    let accounts = ["-i", "add", "account", "xavier,yvonne"];
    slurm.run("sacctmgr", &accounts)?;
    let user = ["-i", "add", "user", "root", "account=xavier,yvonne"];
    slurm.run("sacctmgr", &user)?;
    Ok(())
}

/// A node beside a Slurm: every account of the cluster is an entry of the VO. `more` are lines of
/// `[slurm]`.
pub fn configure(
    site: &Site,
    name: &str,
    peers: &[(SiteId, &str)],
    vo: &Vo,
    slurm: &Slurm,
    more: &str,
) -> anyhow::Result<()> {
    let keys = format!("slurm_conf = \"{}\"\n{more}", slurm.conf().display());
    beside::configure(site, name, peers, vo, "slurm", &keys)
}
