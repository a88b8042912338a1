//! A site's folder, and the process that runs on it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use fairmesh_model::SiteId;

use crate::http::{Answer, request};

/// How long a node may take to start, or a state to be reached.
const PATIENCE: Duration = Duration::from_secs(120);

/// A site's folder: key, configuration, state.
#[derive(Debug)]
pub struct Site {
    program: PathBuf,
    folder: PathBuf,
    /// The network namespace that its node runs in, where that is not this one.
    namespace: Option<String>,
    /// Its identity.
    pub id: SiteId,
}

/// A running node. Killed when dropped.
#[derive(Debug)]
pub struct Node {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
    /// Where it listens, as a multiaddress.
    pub address: String,
}

impl Site {
    /// Makes a folder with `fairmesh init`.
    pub fn init(program: &str, folder: &Path, name: &str) -> anyhow::Result<Self> {
        let output = Command::new(program)
            .arg("init")
            .arg(folder)
            .args(["--name", name, "--cores", "1"])
            .output()?;
        anyhow::ensure!(
            output.status.success(),
            "init failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self::at(program, folder)
    }

    /// A folder that is there.
    pub fn at(program: &str, folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            program: program.into(),
            folder: folder.to_owned(),
            namespace: None,
            id: fairmesh::init::load_key(&folder.join("site.key"))?.site_id(),
        })
    }

    /// The same with its node in a network namespace.
    pub fn within(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The program that its node runs.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Its configuration.
    pub fn config(&self) -> PathBuf {
        self.folder.join("fairmesh.toml")
    }

    /// The folder of the node's state.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The control socket, as the configuration says.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn socket(&self) -> anyhow::Result<PathBuf> {
        let text = std::fs::read_to_string(self.config())?;
        let mut lines = text.lines();
        let given = lines.find_map(|line| line.strip_prefix("control = \"")?.strip_suffix('"'));
        let given = given.map(|given| self.folder.join(given));
        Ok(given.unwrap_or_else(|| self.data().join("run/control.sock")))
    }

    /// Writes the configuration: peers, VOs by alias, and rules that map every batch account of a
    /// VO's name to `/{user}` in it.
    pub fn configure(
        &self,
        name: &str,
        peers: &[(SiteId, &str)],
        vos: &[(&str, String)],
    ) -> anyhow::Result<()> {
        let peers: Vec<String> = peers
            .iter()
            .map(|(site, address)| format!("\"{site}@{address}\""))
            .collect();
        let mut text = format!(
            "[site]\nname = \"{name}\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\npeers = [{}]\n\
             [timing]\npublish = \"100ms\"\nsync = \"300ms\"\nheartbeat = \"2s\"\n[vos]\n",
            peers.join(", ")
        );
        let mut rules = String::new();
        let mut shares = String::new();
        for (alias, id) in vos {
            text.push_str(&format!("{alias} = \"{id}\"\n"));
            rules.push_str(&format!(
                "[[identity]]\naccount = \"{alias}\"\nvo = \"{alias}\"\npath = \"/{{user}}\"\n"
            ));
            shares.push_str(&format!(
                "\"/{alias}\" = {{ share = 50, mount = \"{alias}\" }}\n"
            ));
        }
        std::fs::write(
            self.folder.join("fairmesh.toml"),
            format!("{text}{rules}[shares]\n{shares}"),
        )?;
        Ok(())
    }

    /// Starts the node and waits until it says where it listens.
    pub fn start(&self) -> anyhow::Result<Node> {
        self.start_by(self.command())
    }

    /// The same with more words for `fairmesh run`.
    pub fn start_with(&self, words: &[&str]) -> anyhow::Result<Node> {
        self.start_command(self.command(), words, self.log()?)
    }

    fn command(&self) -> Command {
        match &self.namespace {
            // `ip` becomes the node.
            Some(namespace) => {
                let mut ip = Command::new("ip");
                ip.args(["netns", "exec", namespace]).arg(&self.program);
                ip
            }
            None => Command::new(&self.program),
        }
    }

    /// The same by a command that becomes the node, with what the node is told behind its own words.
    pub fn start_by(&self, command: Command) -> anyhow::Result<Node> {
        self.start_command(command, &[], self.log()?)
    }

    /// The same with another standard error.
    pub fn start_with_log(&self, command: Command, log: Stdio) -> anyhow::Result<Node> {
        self.start_command(command, &[], log)
    }

    fn log(&self) -> anyhow::Result<Stdio> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))?;
        Ok(log.into())
    }

    fn start_command(
        &self,
        mut command: Command,
        words: &[&str],
        log: Stdio,
    ) -> anyhow::Result<Node> {
        let mut child = command
            .arg("run")
            .arg("--config")
            .arg(self.folder.join("fairmesh.toml"))
            .args(words)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("piped")?).read_line(&mut line)?;
        let Some((_, address)) = line.trim_end_matches('\n').split_once("listens on ") else {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let _ = child.kill();
            bail!("the node did not start: {line}{log}");
        };
        Ok(Node {
            child,
            socket: self.socket()?,
            log: self.folder.join("log"),
            address: address.to_owned(),
        })
    }
}

impl Node {
    /// Sends a request to `control.sock`.
    pub fn http(&self, method: &str, target: &str, body: &[u8]) -> anyhow::Result<Answer> {
        request(&self.socket, method, target, body)
    }

    /// The control socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// kill -9.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and the wait for a graceful end.
    pub fn stop(mut self) -> anyhow::Result<std::process::ExitStatus> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status()?;
        Ok(self.child.wait()?)
    }

    /// SIGHUP.
    pub fn reload(&self) -> anyhow::Result<()> {
        Command::new("kill")
            .args(["-HUP", &self.child.id().to_string()])
            .status()?;
        Ok(())
    }

    /// Raw core-milliseconds that this node knows of a user of a VO, over all sites.
    pub fn usage(&self, alias: &str, user: &str) -> anyhow::Result<u64> {
        let answer = self.http("GET", &format!("/v1/usage?vo={alias}&path=/{user}"), b"")?;
        anyhow::ensure!(answer.status == 200, "{answer:?}");
        let ledgers = answer.body["ledgers"].as_array().context("no ledgers")?;
        let amounts = ledgers
            .iter()
            .filter_map(|ledger| ledger["total"]["cpu_core_ms"].as_str());
        Ok(amounts.map(str::parse::<u64>).sum::<Result<u64, _>>()?)
    }

    /// Waits until this node knows exactly `expected` of a user's usage.
    pub fn await_usage(&self, alias: &str, user: &str, expected: u64) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            // A node that has lost its disk does not know the VO until a peer has told it.
            let known = self.usage(alias, user);
            if known.as_ref().is_ok_and(|known| *known == expected) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                bail!(
                    "usage of {user} is {known:?} core-ms, not {expected}; the node's log:\n{log}"
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have been killed already, which is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
