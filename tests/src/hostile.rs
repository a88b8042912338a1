//! A VO whose sites are in network namespaces of their own, of which one or most are hostile; and what that does to the others.
//!
//! A hostile member is a program (`src/bin/hostile.rs`) with the key of a member: it speaks the protocols through the
//! node's own network code, and means harm. Nothing leaves the namespaces. Invariant: what is made here goes when it is
//! dropped. Deliberately not here: members that are slow on single streams, which need their own protocol
//! (`node/src/network/tests/slow.rs`), and lies in signed heads (`simnet`).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use fairmesh_client::{Client, Who};
use fairmesh_model::{SiteId, VoId};
use fairmesh_node::network::{self, Multiaddr, NetworkCommand, NetworkConfig, NetworkEvent};

use crate::greedy::{self, Greedy};
use crate::namespaces::{Namespaces, host};
use crate::process::{Node, Site};
use crate::vo::{Vo, records};

/// Sites of the VO that are honest.
const HONEST: usize = 4;

/// What each of the other sites does when all do something: there are more of them than of the honest.
const CROWD: [Attack; 5] = [
    Attack::Asks,
    Attack::Lies,
    Attack::Silent,
    Attack::Comes,
    Attack::Lies,
];

/// Sites of the VO; the honest ones come first.
const SITES: usize = HONEST + CROWD.len();

/// How long something honest may take beside an attack.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is done to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// Nothing, for comparison: only honest members are there.
    Quiet,
    /// A member asks nonsense, 100 kB each time, as fast as it is answered.
    Asks,
    /// A member publishes nonsense, a thousand times a second.
    Lies,
    /// A member takes all that is said and passes nothing on, and answers nothing.
    Silent,
    /// A member connects and is gone, again and again.
    Comes,
    /// A stranger opens connections and leaves the handshakes.
    Knocks,
    /// Sixteen users of the first site's machine ask for all usage on forty connections of each socket.
    Users,
    /// Five members, more than there are honest ones, do what members do above, all at once.
    Crowd,
}

impl Attack {
    /// All of them, the quiet one first.
    pub const ALL: [Self; 8] = [
        Self::Quiet,
        Self::Asks,
        Self::Lies,
        Self::Silent,
        Self::Comes,
        Self::Knocks,
        Self::Users,
        Self::Crowd,
    ];

    /// Its word on the command line of the program.
    pub fn word(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Asks => "asks",
            Self::Lies => "lies",
            Self::Silent => "silent",
            Self::Comes => "comes",
            Self::Knocks => "knocks",
            Self::Users => "users",
            Self::Crowd => "crowd",
        }
    }
}

/// Honest nodes that run, and sites whose keys hostile programs have.
#[derive(Debug)]
pub struct World {
    nodes: Vec<(Site, Node)>,
    hostile: Vec<Site>,
    vo: String,
    job: u64,
    namespaces: Namespaces,
    folder: tempfile::TempDir,
}

/// What an attack did to the first node.
#[derive(Debug, Clone, Default)]
pub struct Harm {
    /// Look-ups that were made, one after the other.
    pub lookups: usize,
    /// The middle one.
    pub middle: Duration,
    /// The slowest of a hundred.
    pub p99: Duration,
    /// How long what one honest site counted took to all others, at most.
    pub spread: Duration,
    /// Memory that the node has.
    pub memory_kib: u64,
    /// Its log.
    pub log_bytes: u64,
    /// Its data folder.
    pub data_bytes: u64,
    /// Files and sockets that it has open.
    pub files: usize,
}

impl World {
    /// `None` where this user may not make namespaces.
    pub fn start(program: &str) -> anyhow::Result<Option<Self>> {
        let Some(namespaces) = Namespaces::make(SITES)? else {
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        open(folder.path())?;
        let init = |site: usize| {
            let name = format!("s{site}");
            Site::init(program, &folder.path().join(&name), &name)
        };
        let sites: Vec<Site> = (0..SITES).map(init).collect::<anyhow::Result<_>>()?;
        let names: Vec<String> = (0..SITES).map(|site| format!("s{site}")).collect();
        let members: Vec<(SiteId, &str)> = sites
            .iter()
            .zip(&names)
            .map(|(site, name)| (site.id, name.as_str()))
            .collect();
        let vo = Vo::found("physics", &members, &["ann", "bob"])?;
        let first = format!("/ip4/{}/tcp/7600", host(0));
        let mut nodes = Vec::new();
        let mut sites = sites;
        let hostile = sites.split_off(HONEST);
        let first_id = sites[0].id;
        for (at, site) in sites.into_iter().enumerate() {
            let peers = [(first_id, first.as_str())];
            let peers = if at == 0 { &[][..] } else { &peers };
            site.configure(&format!("s{at}"), peers, &[("physics", vo.id())])?;
            let text = fs::read_to_string(site.config())?;
            let listen = format!("/ip4/{}/tcp/7600", host(at));
            fs::write(site.config(), text.replace("/ip4/127.0.0.1/tcp/0", &listen))?;
            open(site.folder())?;
            let site = site.within(&namespaces.of(at));
            let node = site.start()?;
            if at == 0 {
                vo.publish(&node)?;
            }
            nodes.push((site, node));
        }
        for (_, node) in &nodes {
            node.await_usage("physics", "ann", 0)?;
        }
        Ok(Some(Self {
            nodes,
            hostile,
            vo: vo.id(),
            job: 0,
            namespaces,
            folder,
        }))
    }

    /// Attacks for so long, and says what that did.
    pub fn attack(
        &mut self,
        attack: Attack,
        program: &str,
        time: Duration,
    ) -> anyhow::Result<Harm> {
        let _ends = self.begin(attack, program)?;
        let began = Instant::now();
        let mut client = Client::connect(self.run("lookup.sock"), PATIENCE)?;
        let who = [Who::user_account("ann", "physics")];
        let (mut took, mut harm) = (Vec::new(), Harm::default());
        let mut told = Instant::now();
        harm.spread = self.spread()?;
        while began.elapsed() < time {
            let asked = Instant::now();
            let known = client.lookup(&who)?.factor(0);
            took.push(asked.elapsed());
            ensure!(known.is_some(), "ann is nobody");
            if told.elapsed() > Duration::from_secs(5) {
                harm.spread = harm.spread.max(self.spread()?);
                told = Instant::now();
            }
        }
        took.sort_unstable();
        harm.lookups = took.len();
        harm.middle = took[took.len() / 2];
        harm.p99 = took[took.len() - 1 - took.len() / 100];
        let (site, node) = &self.nodes[0];
        let status = fs::read_to_string(format!("/proc/{}/status", node.pid()))?;
        let memory = status.lines().find(|line| line.starts_with("VmRSS"));
        let memory = memory.and_then(|line| line.split_whitespace().nth(1));
        harm.memory_kib = memory.context("its memory")?.parse()?;
        harm.files = fs::read_dir(format!("/proc/{}/fd", node.pid()))?.count();
        harm.log_bytes = fs::metadata(site.folder().join("log"))?.len();
        harm.data_bytes = bytes_below(&site.data())?;
        Ok(harm)
    }

    fn run(&self, name: &str) -> PathBuf {
        self.nodes[0].0.data().join("run").join(name)
    }

    fn begin(&self, attack: Attack, program: &str) -> anyhow::Result<(Vec<Ended>, Vec<Greedy>)> {
        match attack {
            Attack::Quiet => Ok((Vec::new(), Vec::new())),
            Attack::Users => {
                let ask = "GET /v1/usage HTTP/1.1\r\nhost: fairmesh\r\n\r\n";
                let sockets = [
                    (self.run("lookup.sock"), ""),
                    (self.run("control.sock"), ask),
                ];
                let users = greedy::USERS.flat_map(|uid| {
                    let both = sockets.iter();
                    let start =
                        move |(socket, ask): &(PathBuf, &str)| Greedy::start(uid, socket, ask);
                    both.map(start).collect::<Vec<_>>()
                });
                Ok((Vec::new(), users.collect::<anyhow::Result<_>>()?))
            }
            Attack::Crowd => {
                let crowd = CROWD.iter().enumerate();
                let crowd = crowd.map(|(of, attack)| self.begin_one(*attack, of, program));
                Ok((crowd.collect::<anyhow::Result<_>>()?, Vec::new()))
            }
            _ => Ok((vec![self.begin_one(attack, 0, program)?], Vec::new())),
        }
    }

    /// One of the hostile sites begins with what a member can do.
    fn begin_one(&self, attack: Attack, of: usize, program: &str) -> anyhow::Result<Ended> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespaces.of(HONEST + of), program]);
        command
            .arg(attack.word())
            .arg(self.hostile[of].folder().join("site.key"));
        command.arg(&self.vo);
        for (at, (site, _)) in self.nodes.iter().enumerate() {
            command.arg(format!("{}@/ip4/{}/tcp/7600", site.id, host(at)));
        }
        let log = fs::File::create(self.folder.path().join(format!("hostile-{of}.log")))?;
        Ok(Ended(command.stderr(log).stdin(Stdio::null()).spawn()?))
    }

    /// How long it takes until all honest sites know of a job that the second counts.
    fn spread(&mut self) -> anyhow::Result<Duration> {
        self.job += 1;
        let (_, node) = &self.nodes[1];
        let answer = node.http(
            "POST",
            "/v1/records",
            &records("physics", "bob", self.job, 1),
        )?;
        ensure!(answer.body["counted"] == 1, "{answer:?}");
        let began = Instant::now();
        for (_, node) in &self.nodes {
            node.await_usage("physics", "bob", 1_000 * self.job)?;
        }
        ensure!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        Ok(began.elapsed())
    }
}

/// A process that is killed when dropped.
#[derive(Debug)]
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Everybody may reach the sockets, as in /run.
fn open(folder: &Path) -> anyhow::Result<()> {
    Ok(fs::set_permissions(
        folder,
        fs::Permissions::from_mode(0o755),
    )?)
}

fn bytes_below(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        bytes += match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => bytes_below(&path)?,
            Ok(found) => found.len(),
            Err(_) => 0,
        };
    }
    Ok(bytes)
}

/// The program: does what its arguments say until it is killed.
pub async fn run(words: &[String]) -> anyhow::Result<()> {
    let [attack, key, vo, victims @ ..] = words else {
        bail!("hostile ATTACK KEY VO SITE@ADDRESS…");
    };
    let attack = Attack::ALL.into_iter().find(|known| known.word() == attack);
    let attack = attack.context("there is no such attack")?;
    let secret = fairmesh::init::load_key(Path::new(key))?.to_secret();
    let vo: VoId = vo.parse()?;
    let victim = |word: &String| -> anyhow::Result<(SiteId, Vec<Multiaddr>)> {
        let (site, address) = word.split_once('@').context("SITE@ADDRESS")?;
        Ok((site.parse()?, vec![address.parse()?]))
    };
    let victims: Vec<_> = victims.iter().map(victim).collect::<anyhow::Result<_>>()?;
    if attack == Attack::Knocks {
        return knock(&victims).await;
    }
    loop {
        let config = NetworkConfig {
            peers: victims.clone(),
            redial_max: Duration::from_secs(1),
            ..NetworkConfig::default()
        };
        let (network, mut events) = network::start(config, secret)?;
        let members: BTreeSet<SiteId> = victims.iter().map(|(site, _)| *site).collect();
        network.send(NetworkCommand::Allow(members.clone())).await?;
        let topic = vo;
        network
            .send(NetworkCommand::Subscribe { topic, members })
            .await?;
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        let mut number = 0_u64;
        loop {
            tokio::select! {
                event = events.recv() => match event.context("the network ended")? {
                    NetworkEvent::Connected(_) if attack == Attack::Comes => break,
                    NetworkEvent::Connected(to) | NetworkEvent::Response { from: to, .. } if attack == Attack::Asks => {
                        number += 1;
                        let bytes = nonsense(number, 100_000);
                        network.send(NetworkCommand::Request { to, id: number, bytes }).await?;
                    }
                    NetworkEvent::Request { from: to, channel, .. } if attack != Attack::Silent => {
                        number += 1;
                        let bytes = nonsense(number, 1_000);
                        network.send(NetworkCommand::Respond { to, channel, bytes }).await?;
                    }
                    _ => {}
                },
                _ = pace.tick(), if attack == Attack::Lies => {
                    number += 1;
                    let bytes = nonsense(number, 1_000);
                    network.send(NetworkCommand::Publish { topic, bytes }).await?;
                }
            }
        }
        network.shutdown().await;
    }
}

/// Bytes that are no message, and other ones each time.
fn nonsense(number: u64, bytes: usize) -> Vec<u8> {
    let mut nonsense = number.to_be_bytes().to_vec();
    nonsense.resize(bytes, 0xA5);
    nonsense
}

/// Opens connections, says nothing, and comes again whenever it is turned away.
async fn knock(victims: &[(SiteId, Vec<Multiaddr>)]) -> anyhow::Result<()> {
    let mut held = tokio::task::JoinSet::new();
    for (_, addresses) in victims {
        let text = addresses[0].to_string();
        let host = text.split('/').nth(2).context("an address")?.to_owned();
        for _ in 0..100 {
            let host = host.clone();
            held.spawn(async move {
                loop {
                    if let Ok(mut stream) =
                        tokio::net::TcpStream::connect((host.as_str(), 7_600)).await
                    {
                        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }
    }
    while held.join_next().await.is_some() {}
    Ok(())
}
