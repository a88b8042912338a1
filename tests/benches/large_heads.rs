//! Ten members that each publish 150,000 made-up accounts and change one of them a second, all within their capacity or
//! all beyond it: how long `/v1/priority` takes at an honest node, what the node holds in memory, and how long a report
//! takes to an honest node elsewhere. `cargo bench -p fairmesh-tests --bench large_heads [-- SECONDS]`; a minute of each
//! load unless told otherwise, after the heads have been counted.
//!
//! Goals: 99 % of answers within 50 ms; three times the memory of before; a report elsewhere within 3 s.
//!
//! The members that lie have no node: each signs, publishes, and answers what it is asked, all in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use fairmesh_gossip::{Gossip, Head, Intervals, Kinds, PART_BYTES_MAX, PartKey, Replica, Shared};
use fairmesh_model::{
    AccountPath, ContentHash, Counters, Incarnation, Millis, MonoTime, Now, SigningKey, SiteId,
    Span, VoId, WallTime, WindowLength,
};
use fairmesh_node::network::{self, NetworkCommand, NetworkConfig, NetworkEvent};
use fairmesh_tests::{Node, Site, Vo, records};
use fairmesh_usage::{cut, named_cells};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// Members that lie, and accounts that each makes up.
const LIARS: u8 = 10;
const ACCOUNTS: usize = 150_000;

/// Between two changes of a liar, two questions, and two reports.
const CHANGES: Duration = Duration::from_secs(1);
const QUESTIONS: Duration = Duration::from_millis(10);
const REPORTS: Duration = Duration::from_secs(4);

/// How long until the first heads are counted, at the most.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> anyhow::Result<()> {
    let seconds = std::env::args().find_map(|word| word.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(60));
    println!(
        "| load | `/v1/priority` middle | 99 % | longest | memory | report elsewhere within | heads taken |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (load, cores) in [("within capacity", 100_000), ("beyond capacity", 1)] {
        let mesh = Mesh::start(cores)?;
        // The first report may come before there are streams for it.
        mesh.spread(0)?;
        let quiet = mesh.measure(time.min(Duration::from_secs(20)))?;
        println!("| none | {quiet}");
        let done = Arc::new(AtomicBool::new(false));
        let liars = mesh.lie(&done);
        mesh.until_counted()?;
        let loaded = mesh.measure(time)?;
        println!("| {load} | {loaded}");
        println!(
            "memory: {:.1} times that of before",
            loaded.memory_kib as f64 / quiet.memory_kib as f64
        );
        done.store(true, Ordering::Relaxed);
        for liar in liars {
            liar.join().expect("it does not panic")?;
        }
    }
    Ok(())
}

/// Two honest nodes, and keys of members that lie.
struct Mesh {
    vo: Vo,
    nodes: [(Site, Node); 2],
    _folder: tempfile::TempDir,
}

/// What a load does to an honest node.
struct Harm {
    took: Vec<Duration>,
    memory_kib: u64,
    spread: Duration,
    heads: u64,
}

impl std::fmt::Display for Harm {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = |share: usize| self.took[self.took.len() - 1 - self.took.len() / share];
        write!(
            out,
            "{:.1?} | {:.1?} | {:.1?} | {} MiB | {:.1?} | {} |",
            at(2),
            at(100),
            self.took[self.took.len() - 1],
            self.memory_kib >> 10,
            self.spread,
            self.heads
        )
    }
}

fn key(liar: u8) -> SigningKey {
    SigningKey::from_secret(&[100 + liar; 32])
}

impl Mesh {
    /// Each liar has so many cores by the charter.
    fn start(cores: u32) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let site = |name: &str| Site::init(PROGRAM, &folder.path().join(name), name);
        let sites = [site("s0")?, site("s1")?];
        let names: Vec<String> = (0..LIARS).map(|liar| format!("liar{liar}")).collect();
        let liars = (0..LIARS)
            .map(|liar| key(liar).site_id())
            .zip(names.iter().map(String::as_str));
        let honest = [(sites[0].id, "s0"), (sites[1].id, "s1")];
        let all: Vec<(SiteId, &str)> = honest.into_iter().chain(liars).collect();
        let vo = Vo::found_with("physics", &all, &["ann", "bob"], |charter| {
            charter.sites[2..]
                .iter_mut()
                .for_each(|site| site.cores = cores);
        })?;
        let mut peer = None;
        let start = |site: Site| {
            let peers: Vec<(SiteId, &str)> = peer
                .iter()
                .map(|(id, at): &(SiteId, String)| (*id, at.as_str()))
                .collect();
            site.configure("site", &peers, &[("physics", vo.id())])?;
            // All intervals but that of publishing are the product's.
            let text = fs::read_to_string(site.config())?;
            let is_default = |line: &&str| {
                !["sync = ", "heartbeat = "]
                    .iter()
                    .any(|own| line.starts_with(own))
            };
            let lines = text.lines().filter(is_default);
            fs::write(site.config(), lines.collect::<Vec<_>>().join("\n"))?;
            let node = site.start()?;
            peer = Some((site.id, node.address.clone()));
            anyhow::Ok((site, node))
        };
        let nodes: Vec<(Site, Node)> = sites.into_iter().map(start).collect::<Result<_, _>>()?;
        let nodes = nodes.try_into().ok().context("two nodes")?;
        let mesh = Self {
            vo,
            nodes,
            _folder: folder,
        };
        mesh.vo.publish(&mesh.nodes[0].1)?;
        mesh.nodes[1].1.await_usage("physics", "ann", 0)?;
        Ok(mesh)
    }

    /// Starts the liars.
    fn lie(&self, done: &Arc<AtomicBool>) -> Vec<std::thread::JoinHandle<anyhow::Result<()>>> {
        let victims = || {
            self.nodes
                .iter()
                .map(|(site, node)| (site.id, node.address.clone()))
        };
        let start = |liar: u8| {
            let (vo, victims, done) = (self.vo.vo(), victims().collect(), Arc::clone(done));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(Liar::new(vo, key(liar)).run(victims, &done))
            })
        };
        (0..LIARS).map(start).collect()
    }

    /// Waits until an account of each liar counts.
    fn until_counted(&self) -> anyhow::Result<()> {
        let (began, node) = (Instant::now(), &self.nodes[0].1);
        for liar in 0..LIARS {
            while used(node, &account(liar, 0))? == 0 {
                ensure!(began.elapsed() < PATIENCE, "{liar} does not count");
                std::thread::sleep(QUESTIONS);
            }
        }
        println!("counted after {:.1?}", began.elapsed());
        Ok(())
    }

    /// Asks one node and reports at the other one for so long.
    fn measure(&self, time: Duration) -> anyhow::Result<Harm> {
        let node = &self.nodes[0].1;
        let (began, mut reported) = (Instant::now(), None);
        let mut harm = Harm {
            took: Vec::new(),
            memory_kib: 0,
            spread: Duration::ZERO,
            heads: 0,
        };
        let mut job = now().wall.0;
        while began.elapsed() < time {
            if reported.is_none_or(|at: Instant| at.elapsed() > REPORTS) {
                reported = Some(Instant::now());
                harm.spread = harm.spread.max(self.spread(job)?);
                harm.memory_kib = harm.memory_kib.max(memory_kib(node)?);
                job += 1;
            }
            let asked = Instant::now();
            let answer = node.http("GET", "/v1/priority?user=ann&account=physics", b"")?;
            ensure!(answer.status == 200, "{answer:?}");
            harm.took.push(asked.elapsed());
            std::thread::sleep(QUESTIONS);
        }
        harm.took.sort_unstable();
        let metrics = node.http("GET", "/v1/metrics", b"")?.text;
        let heads = metrics
            .lines()
            .find_map(|line| line.strip_prefix("fairmesh_heads_taken_total "));
        harm.heads = heads
            .and_then(|heads| heads.parse().ok())
            .unwrap_or_default();
        Ok(harm)
    }

    /// How long a report at the second node takes to the first one.
    fn spread(&self, job: u64) -> anyhow::Result<Duration> {
        let [(_, first), (_, second)] = &self.nodes;
        let before = used(first, "bob")?;
        let answer = second.http("POST", "/v1/records", &records("physics", "bob", job, 1))?;
        ensure!(answer.body["counted"] == 1, "{answer:?}");
        let began = Instant::now();
        while used(first, "bob")? == before {
            ensure!(began.elapsed() < PATIENCE, "bob's job does not come");
            std::thread::sleep(QUESTIONS);
        }
        Ok(began.elapsed())
    }
}

/// What a user of the VO has used, as it is weighed; 0 of a user that is not known.
fn used(node: &Node, user: &str) -> anyhow::Result<u64> {
    let answer = node.http(
        "GET",
        &format!("/v1/priority?user={user}&account=physics"),
        b"",
    )?;
    let levels = answer.body["levels"].as_array().context("levels")?;
    // The VO's, the others', and the user's; or the user's below the VO's, where a share names it.
    let own = levels.last().filter(|level| {
        level["path"]
            .as_str()
            .is_some_and(|path| path.ends_with(user))
    });
    let used = own.and_then(|level| level["usage_core_ms"].as_str());
    Ok(used.map_or(Ok(0), str::parse)?)
}

fn memory_kib(node: &Node) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid()))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.context("its memory")?.parse()?)
}

fn now() -> Now {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let wall = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    Now {
        mono: MonoTime(wall),
        wall: WallTime(wall),
    }
}

fn account(liar: u8, nth: usize) -> String {
    format!("made-up-{liar}-{nth:06}")
}

/// A member that signs what it likes.
struct Liar {
    vo: VoId,
    key: SigningKey,
    held: BTreeMap<VoId, Held>,
    gossip: Gossip,
    tables: Vec<(PartKey, Vec<u8>)>,
    changes: usize,
}

/// What it holds: its own heads, and no documents.
struct Held(Replica);

impl Shared for Held {
    fn replica(&self) -> &Replica {
        &self.0
    }

    fn replica_mut(&mut self) -> &mut Replica {
        &mut self.0
    }

    fn documents_digest(&self) -> ContentHash {
        ContentHash::from_bytes([0; 32])
    }

    fn documents(&self) -> Vec<(ContentHash, Arc<[u8]>)> {
        Vec::new()
    }

    fn charters(&self) -> Vec<(ContentHash, Arc<[u8]>)> {
        Vec::new()
    }

    fn is_founded(&self) -> bool {
        true
    }

    fn is_former_member(&self, _: SiteId) -> bool {
        false
    }
}

struct Anything;

impl Kinds for Anything {
    fn check(&self, _: &Head, _: &PartKey, _: &[u8]) -> Result<u32, String> {
        Ok(0)
    }
}

impl Liar {
    fn new(vo: VoId, key: SigningKey) -> Self {
        let intervals = Intervals {
            sync: Millis::from_secs(10),
            request_timeout: Millis::from_secs(10),
        };
        Self {
            held: BTreeMap::from([(vo, Held(Replica::new(vo, key.site_id())))]),
            gossip: Gossip::new(intervals, 1),
            vo,
            key,
            tables: Vec::new(),
            changes: 0,
        }
    }

    /// Publishes all accounts, and then changes of one, to the `victims`.
    async fn run(
        mut self,
        victims: Vec<(SiteId, String)>,
        done: &AtomicBool,
    ) -> anyhow::Result<()> {
        let members: BTreeSet<SiteId> = victims.iter().map(|(site, _)| *site).collect();
        let held = self.held.get_mut(&self.vo).context("its own")?;
        held.0.set_members(
            members
                .iter()
                .copied()
                .chain([self.key.site_id()])
                .collect(),
            Millis::from_secs(86_400),
        );
        let peers = victims
            .iter()
            .map(|(site, at)| Ok((*site, vec![at.parse()?])));
        let peers = peers.collect::<anyhow::Result<_>>()?;
        let config = NetworkConfig {
            peers,
            allow_private: true,
            ..NetworkConfig::default()
        };
        let (network, mut events) = network::start(config, self.key.to_secret())?;
        network.send(NetworkCommand::Allow(members.clone())).await?;
        let topic = self.vo;
        network
            .send(NetworkCommand::Subscribe { topic, members })
            .await?;
        let mut pace = tokio::time::interval(CHANGES);
        while !done.load(Ordering::Relaxed) {
            tokio::select! {
                event = events.recv() => match event.context("the network ended")? {
                    NetworkEvent::Connected(peer) => self.gossip.connected(peer),
                    NetworkEvent::Request { from, channel, bytes } => {
                        let answer = self.gossip.answer(now(), from, &bytes, &self.held);
                        let bytes = answer.to_bytes();
                        network.send(NetworkCommand::Respond { to: from, channel, bytes }).await?;
                    }
                    _ => {}
                },
                _ = pace.tick() => {
                    let bytes = self.publish();
                    network.send(NetworkCommand::Publish { topic, bytes }).await?;
                }
            }
        }
        network.shutdown().await;
        Ok(())
    }

    /// Signs the next head: all accounts, or one more millisecond of one.
    fn publish(&mut self) -> Vec<u8> {
        let window = WindowLength::HOUR.window_at(now().wall.before(Millis::from_secs(3_600)));
        let changes = match self.tables.is_empty() {
            true => {
                self.tables = self.all(Span::Window(window));
                self.tables.clone()
            }
            false => {
                self.changes += 1;
                let nth = self.changes % self.tables.len();
                let (name, bytes) = &mut self.tables[nth];
                *bytes = changed(bytes, u64::try_from(self.changes).unwrap_or(0));
                vec![(name.clone(), bytes.clone())]
            }
        };
        let changes = changes
            .into_iter()
            .map(|(name, bytes)| (name, Some(bytes)))
            .collect();
        let held = self.held.get_mut(&self.vo).expect("its own");
        held.0
            .publish(&Anything, &self.key, Incarnation(1), now().wall, changes)
            .1
    }

    fn all(&self, span: Span) -> Vec<(PartKey, Vec<u8>)> {
        let liar = (0..LIARS)
            .find(|liar| key(*liar).site_id() == self.key.site_id())
            .unwrap_or_default();
        let path = |nth| AccountPath::parse(&format!("/{}", account(liar, nth))).expect("a path");
        let paths: Vec<AccountPath> = (0..ACCOUNTS).map(path).collect();
        let cells = paths
            .iter()
            .map(|path| (path, Incarnation(1), counters(60_000)));
        let tables = cut(span, cells, PART_BYTES_MAX).into_iter();
        tables
            .map(|(slice, bytes)| (PartKey::new(1, &slice.to_bytes()), bytes))
            .collect()
    }
}

fn counters(charge: u64) -> Counters {
    Counters {
        charge,
        cpu_ms: charge,
        ..Counters::default()
    }
}

/// The bytes of a table in which one account has used a little more.
fn changed(bytes: &[u8], change: u64) -> Vec<u8> {
    let cells = named_cells(bytes, |path| AccountPath::parse(path).ok());
    let mut cells: Vec<(AccountPath, Counters)> = cells.map(|(_, path, of)| (path, of)).collect();
    cells.sort_by(|a, b| a.0.cmp(&b.0));
    if let Some((_, of)) = cells.first_mut() {
        *of = counters(of.charge + change);
    }
    let span = Span::Day(0);
    let rows = cells.iter().map(|(path, of)| (path, Incarnation(1), *of));
    // Of another span, as the span is in a table's name only.
    cut(span, rows, PART_BYTES_MAX)
        .pop()
        .map(|(_, bytes)| bytes)
        .unwrap_or_default()
}
