//! Nodes of one VO in one process, each with a store, a swarm and sockets of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use fairmesh_model::{
    AccountPath, ChargingRule, Charter, Distance, HistoryRule, IncarnationId, JobKey, MemberSite,
    Millis, Origin, Placement, Role, Seq, ShareEntry, SharePolicy, Signed, SigningKey, SiteId,
    UsageMode, UsageRecord, VoId, Weight, WindowLength,
};
use fairmesh_node::driver::{Clock, NodeHandle, NodeOptions, SystemClock, start};
use fairmesh_node::network::{Multiaddr, NetworkConfig};
use fairmesh_policy::{SiteEntry, SitePolicy};
use fairmesh_site::{IdentityMap, Pattern, Rule, SiteConfig, Timing};
use tempfile::TempDir;

/// Accounts of the VO.
const ACCOUNTS: usize = 200;

/// Sums over all nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Totals {
    pub(super) received: u64,
    pub(super) published: u64,
    pub(super) probes: u64,
    pub(super) heads: u64,
}

impl Totals {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            received: self.received - before.received,
            published: self.published - before.published,
            probes: self.probes - before.probes,
            heads: self.heads - before.heads,
        }
    }
}

/// The nodes.
pub(super) struct Mesh {
    nodes: Vec<NodeHandle>,
    clock: Arc<SystemClock>,
    sites: Vec<SiteId>,
    vo: VoId,
    _folder: TempDir,
}

impl Mesh {
    /// Starts them; returns when every node is connected with every other and holds the documents.
    pub(super) async fn start(count: usize, timing: Timing) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let clock = Arc::new(SystemClock::start());
        let secrets: Vec<[u8; 32]> = (1..=count).map(secret).collect();
        let sites: Vec<SiteId> = secrets
            .iter()
            .map(|secret| SigningKey::from_secret(secret).site_id())
            .collect();
        let charter = charter(&sites, clock.now().wall);
        let authority = authority();
        let charter = Signed::sign(charter, &[&authority])?;
        let vo = charter.vo();
        let policy = Signed::sign(policy(vo, clock.now().wall)?, &[&authority])?;
        let mut nodes = Vec::new();
        let mut peers: Vec<(SiteId, Vec<Multiaddr>)> = Vec::new();
        for (index, secret) in secrets.into_iter().enumerate() {
            let options = NodeOptions {
                site: config(vo, sites.iter().copied().collect(), timing)?,
                secret,
                takes_over: None,
                network: NetworkConfig {
                    listen: vec!["/ip4/127.0.0.1/tcp/0".parse()?],
                    peers: peers.clone(),
                    allow_private: true,
                    ..NetworkConfig::default()
                },
                data_dir: folder.path().join(index.to_string()),
                clock: clock.clone() as Arc<dyn Clock>,
                observer: None,
                random: index as u64,
            };
            let running = start(options).await?;
            peers.push((sites[index], running.listening));
            if index == 0 {
                // The others ask for them as they connect. A push may come before there are streams for it, and what
                // it does not bring a probe would, which a timing may leave out.
                for bytes in [charter.bytes(), policy.bytes()] {
                    let published = running.handle.publish(bytes.to_vec(), "a bench").await?;
                    published.map_err(|why| anyhow!(why))?;
                }
            }
            nodes.push(running.handle);
        }
        let mesh = Self {
            nodes,
            clock,
            sites,
            vo,
            _folder: folder,
        };
        mesh.until_connected().await?;
        Ok(mesh)
    }

    /// The first node.
    pub(super) fn node(&self) -> &NodeHandle {
        &self.nodes[0]
    }

    /// The VO.
    pub(super) fn vo(&self) -> VoId {
        self.vo
    }

    /// Its members.
    pub(super) fn sites(&self) -> impl Iterator<Item = SiteId> {
        self.sites.iter().copied()
    }

    /// What the clock says.
    pub(super) fn now(&self) -> fairmesh_model::WallTime {
        self.clock.now().wall
    }

    async fn until_connected(&self) -> anyhow::Result<()> {
        let others = self.nodes.len() - 1;
        for round in 0.. {
            let mut lacking = Vec::new();
            for (index, node) in self.nodes.iter().enumerate() {
                let (connected, entries) = node
                    .ask(|site, _| {
                        let connected = site.peers().iter().filter(|peer| peer.connected).count();
                        (connected, site.compiled().entries.len())
                    })
                    .await?;
                if connected < others || entries <= ACCOUNTS {
                    lacking.push(format!("{index} has {connected} peers, {entries} entries"));
                }
            }
            if lacking.is_empty() {
                break;
            }
            ensure!(round < 1_200, "the mesh did not come together: {lacking:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Has a node report jobs of so many accounts. Different ones report from change to change.
    pub(super) async fn report(&self, change: u64, cells: usize) -> anyhow::Result<()> {
        let now = self.clock.now().wall;
        let record = |account: usize| UsageRecord {
            key: JobKey {
                cluster: "bench".to_owned(),
                job: format!("{cells} {change} {account}"),
                instance: 0,
            },
            origin: Origin {
                user: Some(format!("user{account:04}")),
                account: Some("grid".to_owned()),
                ..Origin::default()
            },
            start: now.before(ran(change, account)),
            end: now,
            cores: 4,
            gpus: 0,
            mem_mib: 0,
            placement: Placement::default(),
            running: false,
        };
        let records: Vec<UsageRecord> = (0..cells).map(record).collect();
        let node = usize::try_from(change)? % self.nodes.len();
        let reported = self.nodes[node].report(records).await?;
        ensure!(reported.counted == cells as u64, "{reported:?}");
        Ok(())
    }

    /// What all nodes have received and done so far.
    pub(super) async fn totals(&self) -> anyhow::Result<Totals> {
        let mut totals = Totals {
            received: 0,
            published: 0,
            probes: 0,
            heads: 0,
        };
        for node in &self.nodes {
            let stats = node.network_stats();
            totals.received += stats.wire_received_bytes;
            totals.published += stats.gossip_published_bytes;
            let (probes, heads) = node
                .ask(|site, _| (site.gossip_stats().probes, site.stats().heads_published))
                .await?;
            totals.probes += probes;
            totals.heads += heads;
        }
        Ok(totals)
    }

    /// Whether all hold the same. Says who holds other heads than most.
    pub(super) async fn hold_the_same(&self) -> anyhow::Result<bool> {
        let vo = self.vo;
        let mut newest = BTreeMap::new();
        let mut held = Vec::new();
        for node in &self.nodes {
            let all = node.ask(move |site, _| (site.vectors().remove(&vo), site.gossip_stats()));
            let (vector, stats) = all.await?;
            let vector = vector.unwrap_or_default();
            for (stream, seq) in &vector {
                let most = newest.entry(*stream).or_insert(*seq);
                *most = (*most).max(*seq);
            }
            held.push((vector, stats));
        }
        for (index, (vector, stats)) in held.iter().enumerate().filter(|(_, held)| held.0 != newest)
        {
            let differs = |(stream, seq): &(_, _)| vector.get(*stream) != Some(*seq);
            let lacks: Vec<_> = newest.iter().filter(differs).collect();
            println!("node {index} lacks {lacks:?}; {stats:?}");
        }
        Ok(held.iter().all(|(vector, _)| *vector == newest))
    }

    /// The numbers of the newest heads that each node holds, by stream.
    pub(super) async fn vectors(&self) -> anyhow::Result<Vec<BTreeMap<IncarnationId, Seq>>> {
        let vo = self.vo;
        let mut all = Vec::new();
        for node in &self.nodes {
            let vector = node.ask(move |site, _| site.vectors().remove(&vo)).await?;
            all.push(vector.unwrap_or_default());
        }
        Ok(all)
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        for node in &self.nodes {
            node.stop().await;
        }
        Ok(())
    }
}

/// How long a job ran: something between a second and an hour, told to the millisecond.
pub(super) fn ran(change: u64, account: usize) -> Millis {
    let mixed = (change * 1_000 + account as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Millis(1_000 + (mixed >> 20) % 3_599_000)
}

fn secret(number: usize) -> [u8; 32] {
    let mut secret = [0x11; 32];
    secret[..8].copy_from_slice(&(number as u64).to_be_bytes());
    secret
}

pub(super) fn authority() -> SigningKey {
    SigningKey::from_secret(&[0xA5; 32])
}

fn charter(sites: &[SiteId], now: fairmesh_model::WallTime) -> Charter {
    let member = |(index, site): (usize, &SiteId)| MemberSite {
        site: *site,
        name: format!("site-{index}"),
        cores: 100_000,
        gpus: None,
        mem_gib: None,
        addresses: Vec::new(),
    };
    let role = Role::single(authority().key_id());
    Charter {
        version: 1,
        vo: None,
        previous: None,
        name: "grid".to_owned(),
        issued: now,
        expires: now.after(Millis::from_secs(86_400 * 365)),
        authority: role.clone(),
        policy: role,
        sites: sites.iter().enumerate().map(member).collect(),
        window: WindowLength::HOUR,
        history: HistoryRule::default(),
        usage_mode: UsageMode::Active,
        charging: ChargingRule::CpuTime,
        discounts: fairmesh_model::Discounts::NONE,
        distance: Distance::Absolute,
        readers: Default::default(),
        snapshot: None,
    }
}

fn policy(vo: VoId, now: fairmesh_model::WallTime) -> anyhow::Result<SharePolicy> {
    let entry = |account: usize| -> anyhow::Result<(AccountPath, ShareEntry)> {
        let share = ShareEntry::of(Weight::whole(1));
        Ok((AccountPath::parse(&format!("/user{account:04}"))?, share))
    };
    Ok(SharePolicy {
        vo,
        path: AccountPath::root(),
        version: 1,
        previous: None,
        issued: now,
        expires: now.after(Millis::from_secs(86_400 * 365)),
        usage: None,
        distance: None,
        shares: (0..ACCOUNTS).map(entry).collect::<Result<_, _>>()?,
    })
}

fn config(vo: VoId, introducers: BTreeSet<SiteId>, timing: Timing) -> anyhow::Result<SiteConfig> {
    let mount = SiteEntry::mounted(Weight::whole(1), "grid");
    let entries = BTreeMap::from([(AccountPath::parse("/grid")?, mount)]);
    let rule = Rule {
        account: Some(Pattern::parse("grid")),
        vo: Some(vo),
        path: "/{user}".to_owned(),
        ..Rule::default()
    };
    Ok(SiteConfig {
        policy: SitePolicy::new(entries)?,
        share_rule: fairmesh_model::ShareRule::Weights,
        vos: BTreeMap::from([("grid".to_owned(), vo)]),
        identity: IdentityMap::new(vec![rule]),
        introducers,
        advert: None,
        forward: None,
        quotas: Default::default(),
        local_history: HistoryRule::default(),
        local_window: WindowLength::HOUR,
        charging: fairmesh_site::Charging::default(),
        timing,
    })
}
