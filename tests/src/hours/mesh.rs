//! Twelve real nodes of one VO with the default timing, each in a network namespace, and a thirteenth machine.
//!
//! | sites | how they are connected |
//! |---|---|
//! | s00 | the hub: listens, and the charter has its host name |
//! | s01 to s07 | listen at an address of the charter |
//! | s08, s09 | call out only |
//! | s10, s11 | call out only, and their network lets them reach the hub alone |
//!
//! s01 has a Slurm made of scripts and its feed; s02 and s03 have `report --follow`; the others get records over the
//! socket. The thirteenth machine is no member: a fault may start a node on it.
//!
//! Invariant: each site gets a new job every [`JOB_EVERY`] for as long as [`Mesh::tick`] is called, unless it is away.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::disk::Disk;
use crate::namespaces::{Namespaces, host, with_files};
use crate::{Node, Site, Vo, records_of_now, scripted};

/// Members of the mesh.
pub(super) const SITES: usize = 12;
/// The site that others reach each other through.
pub(super) const HUB: usize = 0;
/// The site beside a Slurm.
pub(super) const SLURM: usize = 1;
/// A site with `report --follow`, whose data folder is a disk of its own.
pub(super) const FOLLOWS: usize = 2;
/// The site whose log is on a disk of its own.
pub(super) const LOGS: usize = 6;
/// The thirteenth machine.
pub(super) const STRANGER: usize = SITES;

/// The first site that only calls out, and the first that reaches the hub alone.
const CALLS_OUT: usize = 8;
const BY_HUB: usize = 10;

const HUB_NAME: &str = "hub.grid.test";
const USERS: [&str; 3] = ["ann", "bob", "cat"];

/// Users that have jobs only when a fault needs a large head.
pub(super) const CROWD: u64 = 1_000;

const JOB_EVERY: Duration = Duration::from_secs(15);

/// A process that is killed when dropped.
#[derive(Debug)]
pub(super) struct Process(pub(super) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The mesh.
#[derive(Debug)]
pub(super) struct Mesh {
    // Processes end before the disks and namespaces that they use.
    pub(super) nodes: Vec<Option<Node>>,
    pub(super) feed: Option<Process>,
    follows: Vec<Process>,
    /// Nodes that cannot answer, because a fault keeps them from it.
    pub(super) away: BTreeSet<usize>,
    /// What a fault keeps until it is fixed: files, streams, a second machine.
    pub(super) twin: Option<Node>,
    pub(super) taken: Vec<std::os::unix::net::UnixStream>,
    pub(super) reader: Option<std::io::PipeReader>,
    pub(super) disks: Vec<Disk>,
    pub(super) sites: Vec<Site>,
    pub(super) vo: Vo,
    pub(super) namespaces: Namespaces,
    /// What a command of a fault has answered.
    pub(super) answer: String,
    pub(super) program: PathBuf,
    jobs: u64,
    due: Instant,
    pub(super) folder: tempfile::TempDir,
}

/// The name of a site.
pub(super) fn name(site: usize) -> String {
    format!("s{site:02}")
}

/// The name of a user of the crowd: such names do not shrink much when they are packed.
fn crowd(number: u64) -> String {
    format!("u{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn listen(site: usize) -> String {
    format!("/ip4/{}/tcp/7600", host(site))
}

fn named_hub() -> String {
    format!("/dns4/{HUB_NAME}/tcp/7600")
}

impl Mesh {
    /// Starts all nodes, loops included.
    pub(super) fn start(program: &Path) -> anyhow::Result<Self> {
        let namespaces = Namespaces::make(SITES + 1)?;
        let namespaces = namespaces.context("network namespaces need root")?;
        let folder = tempfile::tempdir()?;
        eprintln!("the mesh is in {}", folder.path().display());
        let text = program.to_str().context("the program's path")?;
        let site = |site: usize| {
            let made = Site::init(text, &folder.path().join(name(site)), &name(site))?;
            anyhow::Ok(made.within(&namespaces.of(site)))
        };
        let sites: Vec<Site> = (0..=SITES).map(site).collect::<anyhow::Result<_>>()?;
        let names: Vec<String> = (0..SITES).map(name).collect();
        let ids = sites.iter().map(|site| site.id);
        let members: Vec<_> = ids.zip(names.iter().map(String::as_str)).collect();
        let crowd: Vec<String> = (0..CROWD).map(crowd).collect();
        let users: Vec<&str> = USERS
            .into_iter()
            .chain(crowd.iter().map(String::as_str))
            .collect();
        let vo = Vo::found_with("physics", &members, &users, |charter| {
            for member in &mut charter.sites {
                let site = names.iter().position(|name| *name == member.name);
                member.addresses = match site {
                    Some(HUB) => vec![named_hub()],
                    Some(site) if site < CALLS_OUT => vec![listen(site)],
                    _ => Vec::new(),
                };
            }
        })?;
        let mut mesh = Self {
            nodes: (0..=SITES).map(|_| None).collect(),
            feed: None,
            follows: Vec::new(),
            away: BTreeSet::new(),
            twin: None,
            taken: Vec::new(),
            reader: None,
            disks: Vec::new(),
            sites,
            vo,
            namespaces,
            answer: String::new(),
            program: program.to_owned(),
            jobs: 0,
            due: Instant::now(),
            folder,
        };
        mesh.prepare()?;
        for site in 0..SITES {
            mesh.run(site)?;
        }
        let hub = mesh.nodes[HUB].as_ref().context("the hub")?;
        mesh.vo.publish(hub)?;
        mesh.start_loops()?;
        Ok(mesh)
    }

    /// Networks, disks and files, before any node runs.
    fn prepare(&mut self) -> anyhow::Result<()> {
        for site in BY_HUB..SITES {
            for other in (1..=SITES).filter(|other| *other != site) {
                self.namespaces.block(site, &host(other), true)?;
            }
        }
        self.set_hub_address(Some(&host(HUB)))?;
        fs::write(self.path("resolv.conf"), "")?;
        for site in 0..SITES {
            self.configure(site, &[HUB])?;
        }
        fs::create_dir_all(self.sites[FOLLOWS].data())?;
        let logs = self.sites[LOGS].folder().join("logs");
        fs::create_dir_all(&logs)?;
        for folder in [&self.sites[FOLLOWS].data(), &logs] {
            let disk = Disk::mount(folder)?.context("disks need root")?;
            self.disks.push(disk);
        }
        std::os::unix::fs::symlink(logs.join("log"), self.log(LOGS))?;
        Ok(())
    }

    /// Writes a site's configuration.
    pub(super) fn configure(&self, site: usize, peers: &[usize]) -> anyhow::Result<()> {
        let others = peers.iter().filter(|peer| **peer != site);
        let peers: Vec<String> = others
            .map(|peer| match *peer {
                HUB => format!("{}@{}", self.sites[HUB].id, named_hub()),
                peer => format!("{}@{}", self.sites[peer].id, listen(peer)),
            })
            .collect();
        let listens = match site {
            CALLS_OUT..SITES => Vec::new(),
            _ => vec![listen(site)],
        };
        let mut text = format!(
            "[site]\nname = \"{}\"\n[network]\nlisten = {listens:?}\npeers = {peers:?}\n\
             [sockets]\nlookup = \"s/lookup.sock\"\ncontrol = \"s/control.sock\"\n\
             [page]\nlisten = \"{PAGE}\"\n[vos]\nphysics = \"{}\"\n\
             [[identity]]\naccount = \"physics\"\nvo = \"physics\"\npath = \"/{{user}}\"\nshared_names = true\n\
             [shares]\n\"/physics\" = {{ share = 100, mount = \"physics\" }}\n",
            name(site),
            self.vo.id(),
        );
        if site == SLURM {
            let here = self.path("slurm");
            let here = here.display();
            text += &format!(
                "[[identity]]\naccount = \"ann\"\nvo = \"physics\"\npath = \"/ann\"\n\
                 [slurm]\nwith_node = false\nbin_dir = \"{here}\"\nstate_file = \"{here}/feed.json\"\n"
            );
        }
        Ok(fs::write(self.sites[site].config(), text)?)
    }

    /// What the hub's host name leads to, at every site.
    pub(super) fn set_hub_address(&self, address: Option<&str>) -> anyhow::Result<()> {
        let line = address.map(|address| format!("{address} {HUB_NAME}\n"));
        let text = format!("127.0.0.1 localhost\n{}", line.unwrap_or_default());
        Ok(fs::write(self.path("hosts"), text)?)
    }

    /// A file of the mesh.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The log of a site's node.
    pub(super) fn log(&self, site: usize) -> PathBuf {
        self.sites[site].folder().join("log")
    }

    /// A program in a site's network.
    pub(super) fn within(&self, site: usize, program: &Path) -> Command {
        let namespace = self.namespaces.of(site);
        with_files(
            &namespace,
            &self.path("resolv.conf"),
            &self.path("hosts"),
            program,
        )
    }

    /// Starts a site's node.
    pub(super) fn run(&mut self, site: usize) -> anyhow::Result<()> {
        let command = self.within(site, &self.program);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(site))?;
        self.run_by(site, command, log.into())
    }

    /// The same by another command, with another log.
    pub(super) fn run_by(
        &mut self,
        site: usize,
        command: Command,
        log: Stdio,
    ) -> anyhow::Result<()> {
        let node = self.sites[site].start_with_log(command, log);
        self.nodes[site] = Some(node.with_context(|| name(site))?);
        self.away.remove(&site);
        Ok(())
    }

    /// A site's node.
    pub(super) fn node(&self, site: usize) -> anyhow::Result<&Node> {
        let node = self.nodes[site].as_ref();
        node.with_context(|| format!("{} does not run", name(site)))
    }

    /// SIGTERM; the node does not run any more.
    pub(super) fn stop(&mut self, site: usize) -> anyhow::Result<()> {
        let node = self.nodes[site].take();
        let status = node.with_context(|| name(site))?.stop()?;
        ensure!(status.success(), "{}: {status}", name(site));
        Ok(())
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self, site: usize) -> anyhow::Result<()> {
        let node = self.nodes[site].take();
        node.with_context(|| name(site))?.kill()
    }

    /// Publishes all charters at a site, as its operator does who has them in files.
    pub(super) fn hand_in_charters(&self, site: usize) -> anyhow::Result<()> {
        for (number, charter) in self.vo.charters().enumerate() {
            let file = self.path(&format!("charter-{number}.cbor"));
            fs::write(&file, charter)?;
            let mut publish = self.command(site);
            let output = publish.args(["policy", "publish"]).arg(file).output()?;
            ensure!(output.status.success(), "{output:?}");
        }
        Ok(())
    }

    /// Nodes that can be asked.
    pub(super) fn awake(&self) -> impl Iterator<Item = (usize, &Node)> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(site, _)| !self.away.contains(site))
            .filter_map(|(site, node)| Some((site, node.as_ref()?)))
    }

    /// A command of the program that asks a node.
    pub(super) fn command(&self, site: usize) -> Command {
        let mut command = Command::new(&self.program);
        command.env(
            "FAIRMESH_SOCKET",
            self.sites[site].folder().join("s/control.sock"),
        );
        command
    }

    fn start_loops(&mut self) -> anyhow::Result<()> {
        let slurm = self.path("slurm");
        fs::create_dir_all(&slurm)?;
        scripted::write(&slurm)?;
        scripted::has(&slurm, "queue", 1)?;
        self.start_feed()?;
        for site in [FOLLOWS, FOLLOWS + 1] {
            fs::write(self.followed(site), "")?;
            let mut report = self.command(site);
            report.arg("report").arg(self.followed(site));
            report.args(["--follow", "--cluster", &name(site), "--format", "jsonl"]);
            let log = File::create(self.path(&format!("follow-{site}.log")))?;
            let child = report.stdout(Stdio::null()).stderr(log).spawn()?;
            self.follows.push(Process(child));
        }
        Ok(())
    }

    /// The file that a site's `report --follow` reads.
    pub(super) fn followed(&self, site: usize) -> PathBuf {
        self.path(&format!("jobs-{site}.jsonl"))
    }

    /// Starts the feed of the scripted Slurm.
    pub(super) fn start_feed(&mut self) -> anyhow::Result<()> {
        let mut feed = self.command(SLURM);
        feed.args(["slurm", "feed", "--config"]);
        feed.arg(self.sites[SLURM].config());
        let log = File::create(self.path("feed.log"))?;
        let child = feed.stdout(Stdio::null()).stderr(log).spawn()?;
        self.feed = Some(Process(child));
        Ok(())
    }

    /// Reports the jobs that are due.
    pub(super) fn tick(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        if now < self.due {
            return Ok(());
        }
        self.due = now + JOB_EVERY;
        self.jobs += 1;
        let user = USERS[usize::try_from(self.jobs % 3)?];
        let line = records_of_now("physics", user, self.jobs, 1);
        scripted::has(&self.path("slurm"), "ended", self.jobs)?;
        for site in [FOLLOWS, FOLLOWS + 1] {
            let mut file = File::options().append(true).open(self.followed(site))?;
            file.write_all(&line)?;
        }
        let others = self.awake();
        for (_, node) in others.filter(|(site, _)| !(SLURM..=FOLLOWS + 1).contains(site)) {
            // A fault may be why it is refused: the watch reads the reason.
            let _ = node.http("POST", "/v1/records", &line);
        }
        Ok(())
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, time: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < time {
            self.tick()?;
            std::thread::sleep(Duration::from_millis(500));
        }
        Ok(())
    }

    /// Reports a job of each user of the crowd at a site.
    pub(super) fn report_crowd(&mut self, site: usize) -> anyhow::Result<()> {
        self.jobs += 1;
        let first = self.jobs << 32;
        let job = |number| records_of_now("physics", &crowd(number), first + number, 1);
        let jobs: Vec<u8> = (0..CROWD).flat_map(job).collect();
        let answer = self.node(site)?.http("POST", "/v1/records", &jobs)?;
        ensure!(answer.body["counted"] == CROWD, "{answer:?}");
        Ok(())
    }
}

/// Where each node has its page, in its own network.
pub(super) const PAGE: &str = "127.0.0.1:7680";
