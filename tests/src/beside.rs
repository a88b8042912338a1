//! A node beside a batch system that has the commands of every such system.
//!
//! Invariant: each account of the system is a user of the node's one VO, physics, in which xavier and yvonne have equal shares.
//! Deliberately not here: the systems (`condor`, `gridengine`), and Slurm, whose nodes come in pairs (`twins`).

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::{Node, Site, Vo};

/// The node, and the table of its configuration that the system has.
#[derive(Debug)]
pub struct Beside {
    /// The running node.
    pub node: Node,
    site: Site,
    program: &'static str,
    system: &'static str,
}

impl Beside {
    /// Starts a node; `keys` are the system's own in its table.
    pub fn start(
        program: &'static str,
        folder: &Path,
        system: &'static str,
        keys: &str,
    ) -> anyhow::Result<Self> {
        let site = Site::init(program, &folder.join("site"), "c")?;
        let vo = Vo::found("physics", &[(site.id, "c")], &["xavier", "yvonne"])?;
        let text = format!(
            "[site]\nname = \"c\"\n\
             [network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
             [vos]\nphysics = \"{}\"\n\
             [[identity]]\naccount = \"*\"\nvo = \"physics\"\npath = \"/{{account}}\"\n\
             [shares]\n\"/physics\" = {{ share = 100, mount = \"physics\" }}\n\
             [{system}]\n{keys}interval = \"300ms\"\nfeed_interval = \"300ms\"\n",
            vo.id(),
        );
        std::fs::write(site.config(), text)?;
        let node = site.start()?;
        vo.publish(&node)?;
        Ok(Self {
            node,
            site,
            program,
            system,
        })
    }

    /// A command of `fairmesh SYSTEM`: whether it was content, and its words.
    pub fn run(&self, what: &[&str]) -> anyhow::Result<(bool, String)> {
        let mut command = Command::new(self.program);
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
