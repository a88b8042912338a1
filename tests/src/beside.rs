//! A node beside a batch system that has the commands of every such system.
//!
//! Invariant: each account of the system is a user of the node's one VO, physics, in which xavier and yvonne have equal shares.
//! Deliberately not here: the systems (`condor`, `gridengine`, `slurm`), and nodes of Slurms that come in pairs (`twins`).

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use fairmesh_model::SiteId;

use crate::{Node, Site, Vo};

/// Who has shares.
pub const ACCOUNTS: [&str; 2] = ["xavier", "yvonne"];

/// The node, and the table of its configuration that the system has.
#[derive(Debug)]
pub struct Beside {
    /// The running node.
    pub node: Node,
    site: Site,
    system: &'static str,
}

impl Beside {
    /// Starts a node that is alone; `keys` are the system's own in its table.
    pub fn start(
        program: &'static str,
        folder: &Path,
        system: &'static str,
        keys: &str,
    ) -> anyhow::Result<Self> {
        let site = Site::init(program, &folder.join("site"), system)?;
        let vo = Vo::found("physics", &[(site.id, system)], &ACCOUNTS)?;
        Self::join(site, system, &vo, &[], keys)
    }

    /// Starts the node of a site of the VO that is called as its system, and knows where others are.
    pub fn join(
        site: Site,
        system: &'static str,
        vo: &Vo,
        peers: &[(SiteId, &str)],
        keys: &str,
    ) -> anyhow::Result<Self> {
        configure(&site, system, peers, vo, system, keys)?;
        let node = site.start()?;
        vo.publish(&node)?;
        Ok(Self { node, site, system })
    }

    /// The site, as others of its VO name it.
    pub fn id(&self) -> SiteId {
        self.site.id
    }

    /// A command of `fairmesh SYSTEM`: whether it was content, and its words.
    pub fn run(&self, what: &[&str]) -> anyhow::Result<(bool, String)> {
        let mut command = Command::new(self.site.program());
        command.arg(self.system).args(what);
        let output = command.arg("--config").arg(self.site.config()).output()?;
        let words = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8(words)?))
    }

    /// Priorities that the loop has set in the system, as the node's metrics count them.
    pub fn updates(&self) -> anyhow::Result<f64> {
        let text = self.node.http("GET", "/v1/metrics", b"")?.text;
        let name = format!("fairmesh_{}_updates_total{{outcome=\"set\"}} ", self.system);
        let mut counts = text.lines().filter_map(|line| line.strip_prefix(&name));
        let count = counts.next().context("no count of updates")?;
        Ok(count.parse()?)
    }
}

/// Writes the configuration of a node beside a system; `keys` are the system's own in its table, and tables of others.
pub fn configure(
    site: &Site,
    name: &str,
    peers: &[(SiteId, &str)],
    vo: &Vo,
    system: &str,
    keys: &str,
) -> anyhow::Result<()> {
    let peers: Vec<String> = peers
        .iter()
        .map(|(id, at)| format!("\"{id}@{at}\""))
        .collect();
    let text = format!(
        "[site]\nname = \"{name}\"\n\
         [network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\npeers = [{}]\n\
         [timing]\npublish = \"100ms\"\nsync = \"300ms\"\nheartbeat = \"2s\"\n\
         [vos]\nphysics = \"{}\"\n\
         [[identity]]\naccount = \"*\"\nvo = \"physics\"\npath = \"/{{account}}\"\n\
         [shares]\n\"/physics\" = {{ share = 100, mount = \"physics\" }}\n\
         [{system}]\ninterval = \"300ms\"\nfeed_interval = \"300ms\"\n{keys}",
        peers.join(", "),
        vo.id(),
    );
    std::fs::write(site.config(), text)?;
    Ok(())
}
