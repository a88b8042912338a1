//! The mesh of a demonstration: real nodes with keys, stores, swarms and sockets of their own, and
//! the VOs that they are members of.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use fairmesh_model::{
    AccountPath, ChargingRule, Charter, Distance, HistoryRule, JobKey, MemberSite, Millis, Origin,
    Placement, Role, ShareEntry, SharePolicy, Signed, SigningKey, SiteId, UsageRecord, VoId,
    WallTime, WindowLength,
};
use fairmesh_node::config::PageSettings;
use fairmesh_node::control::{self, ControlLimits, ControlOptions, ControlSettings};
use fairmesh_node::driver::{
    Clock, FastClock, NodeHandle, NodeOptions, NodeTask, Observation, start,
};
use fairmesh_node::lookup::{LookupConfig, LookupServer};
use fairmesh_node::network::{Multiaddr, NetworkConfig};
use fairmesh_node::page::PageServer;
use fairmesh_node::projection::ProjectionName;
use fairmesh_node::refused::Refused;
use fairmesh_node::serve::Serving;
use fairmesh_policy::{SiteEntry, SitePolicy};
use fairmesh_site::{IdentityMap, Pattern, Rule, SiteConfig, Timing};
use futures::FutureExt as _;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::broker::advert_rules;
use super::plan::{Load, Plan, PlanVo};

/// Between two probes of a node: what "within three sync intervals" is counted in.
pub(super) const SYNC: Duration = Duration::from_millis(1_000);

/// Between two heads of a site in a VO: a hundred a minute, of which none is one too many for its peers
/// (`HEADS_A_MINUTE_MAX` of gossip).
const PUBLISH: Millis = Millis(600);

/// One node, or the place of one that is stopped.
pub(super) struct DemoNode {
    pub(super) name: String,
    pub(super) id: SiteId,
    /// The way to its newest start.
    pub(super) handle: NodeHandle,
    pub(super) lookup_socket: PathBuf,
    /// The same for whoever has to know that it is away.
    pub(super) newest: watch::Sender<Option<NodeHandle>>,
    up: Option<Up>,
}

/// What runs of a node.
struct Up {
    driver: NodeTask,
    servers: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

/// All nodes, and what they have in common.
pub(super) struct Grid {
    pub(super) nodes: Vec<DemoNode>,
    pub(super) vos: Vec<VoId>,
    /// Name of the first of them, and the batch account of its jobs.
    pub(super) vo_name: String,
    /// Who signs for all of them.
    pub(super) authority: SigningKey,
    pub(super) clock: Arc<FastClock>,
    pub(super) observations: mpsc::UnboundedReceiver<Observation>,
    /// Where the first node's share page is.
    pub(super) page: SocketAddr,
    /// The share policy of each VO that is in force.
    policies: Vec<Signed<SharePolicy>>,
    members: Vec<Member>,
    /// What every owner has decided.
    config: SiteConfig,
    /// The only address that the others know: the rest is in the charters.
    introducer: Vec<(SiteId, Vec<Multiaddr>)>,
    observer: mpsc::UnboundedSender<Observation>,
    is_cut: bool,
    folder: TempDir,
}

struct Member {
    secret: [u8; 32],
    id: SiteId,
    name: String,
}

impl Grid {
    /// Starts the nodes and founds the VOs; returns when every node holds every document.
    pub(super) async fn start(
        plan: &Plan,
        factor_permille: u64,
        page_at: SocketAddr,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("fairmesh-demo-")
            .tempdir()
            .context("no room for temporary files")?;
        let (observer, observations) = mpsc::unbounded_channel();
        let members = members(plan.cores.len())?;
        let ids: BTreeSet<SiteId> = members.iter().map(|member| member.id).collect();
        let mut grid = Self {
            nodes: Vec::new(),
            vos: Vec::new(),
            vo_name: plan.vos[0].name.clone(),
            authority: SigningKey::from_secret(&random()?),
            clock: Arc::new(FastClock::new(plan.start, factor_permille)),
            observations,
            page: page_at,
            policies: Vec::new(),
            members,
            config: site_config(plan, &[], ids, timing(plan, factor_permille))?,
            introducer: Vec::new(),
            observer,
            is_cut: false,
            folder,
        };
        let mut addresses: Vec<Vec<Multiaddr>> = Vec::new();
        for index in 0..grid.members.len() {
            let (node, listening) = grid.start_node(index).await?;
            grid.nodes.push(node);
            if index == 0 {
                grid.introducer = vec![(grid.members[0].id, listening.clone())];
            }
            addresses.push(listening);
        }
        grid.found(plan, &addresses).await?;
        Ok(grid)
    }

    /// Starts the node of the site at `index`, for the first time or on the folder that it left. The first one serves
    /// the share page, too.
    async fn start_node(&mut self, index: usize) -> anyhow::Result<(DemoNode, Vec<Multiaddr>)> {
        let member = &self.members[index];
        let running = start(NodeOptions {
            site: self.config.clone(),
            secret: member.secret,
            takes_over: None,
            network: network_config(self.introducer.clone())?,
            data_dir: self.folder.path().join(&member.name),
            clock: self.clock.clone() as Arc<dyn Clock>,
            observer: Some(self.observer.clone()),
            random: u64::from_be_bytes(random()?),
        })
        .await?;
        let lookup_socket = self.socket(index, "lookup");
        let projection = ProjectionName::default;
        let serving = Serving::start(running.handle.clone(), projection, control::rests_on).await?;
        let lookup =
            LookupServer::bind(&lookup_socket, serving.clone(), LookupConfig::default()).await?;
        let (_, settings) = watch::channel(ControlSettings {
            name: member.name.clone(),
            timing: self.config.timing,
            ..ControlSettings::default()
        });
        let options = ControlOptions {
            node: running.handle.clone(),
            serving,
            site: member.id,
            listening: running.listening.iter().map(ToString::to_string).collect(),
            settings,
            lookups: Some(lookup.stats()),
            records: None,
            refused: Arc::new(Refused::in_memory()?),
            limits: ControlLimits::default(),
        };
        let control = control::bind(&self.socket(index, "control"), options).await?;
        let (stop, stopped) = watch::channel(false);
        let mut servers = vec![tokio::spawn(lookup.run(stopped.clone()).boxed())];
        if index == 0 {
            let listen = self.page;
            let page = PageSettings {
                listen,
                hosts: Vec::new(),
            };
            let page = PageServer::bind(&page, &control).await;
            let page = page.with_context(|| format!("--page {listen}"))?;
            self.page = page.address()?;
            servers.push(tokio::spawn(page.run(stopped.clone()).boxed()));
        }
        servers.push(tokio::spawn(control.run(stopped).boxed()));
        let node = DemoNode {
            name: self.members[index].name.clone(),
            id: self.members[index].id,
            newest: watch::Sender::new(Some(running.handle.clone())),
            handle: running.handle,
            lookup_socket,
            up: Some(Up {
                driver: running.driver,
                servers,
                stop,
            }),
        };
        Ok((node, running.listening))
    }

    /// A socket of the node at `index`: `lookup` or `control`.
    pub(super) fn socket(&self, index: usize, name: &str) -> PathBuf {
        let folder = self.folder.path().join(&self.members[index].name);
        folder.join(format!("{name}.sock"))
    }

    /// The nodes that run.
    pub(super) fn up(&self) -> impl Iterator<Item = &DemoNode> {
        self.nodes.iter().filter(|node| node.up.is_some())
    }

    /// Whether the node at `index` runs.
    pub(super) fn is_up(&self, index: usize) -> bool {
        self.nodes[index].up.is_some()
    }

    /// Stops the node at `index`, or starts it again.
    pub(super) async fn toggle(&mut self, index: usize) -> anyhow::Result<()> {
        if self.is_up(index) {
            return self.nodes[index].stop().await;
        }
        let (node, _) = self.start_node(index).await?;
        let before = std::mem::replace(&mut self.nodes[index], node);
        // Whoever followed the node before follows this one.
        let node = &mut self.nodes[index];
        node.newest = before.newest;
        node.newest.send_replace(Some(node.handle.clone()));
        self.partition(self.is_cut).await
    }

    /// Signs charters and share policies, and hands them to the first node: the mesh does the rest.
    async fn found(&mut self, plan: &Plan, addresses: &[Vec<Multiaddr>]) -> anyhow::Result<()> {
        let mut charters = Vec::new();
        for vo in &plan.vos {
            let charter = charter(plan, vo, &self.members, addresses, &self.authority);
            let charter = Signed::sign(charter, &[&self.authority])?;
            let policy = share_policy(vo, charter.vo(), plan.start, None);
            self.vos.push(charter.vo());
            self.policies
                .push(Signed::sign(policy, &[&self.authority])?);
            charters.push(charter.bytes().to_vec());
        }
        let timing = self.config.timing;
        let ids = std::mem::take(&mut self.config.introducers);
        self.config = site_config(plan, &self.vos, ids, timing)?;
        for node in &self.nodes {
            node.handle.reconfigure(self.config.clone()).await?;
        }
        for (charter, policy) in charters.into_iter().zip(&self.policies) {
            self.publish(charter).await?;
            self.publish(policy.bytes().to_vec()).await?;
        }
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while !self.all_founded(plan).await? {
            anyhow::ensure!(
                tokio::time::Instant::now() < deadline,
                "the mesh did not come together in a minute"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Signs the shares that `plan` has now for its VO at `vo`, and publishes them at the first site.
    pub(super) async fn publish_shares(&mut self, plan: &Plan, vo: usize) -> anyhow::Result<()> {
        let now = self.clock.now().wall;
        let policy = share_policy(&plan.vos[vo], self.vos[vo], now, Some(&self.policies[vo]));
        let policy = Signed::sign(policy, &[&self.authority])?;
        self.publish(policy.bytes().to_vec()).await?;
        self.policies[vo] = policy;
        Ok(())
    }

    async fn publish(&self, document: Vec<u8>) -> anyhow::Result<()> {
        let published = self.nodes[0].handle.publish(document, "the demonstration");
        published.await?.map_err(|why| anyhow!(why))?;
        Ok(())
    }

    async fn all_founded(&self, plan: &Plan) -> anyhow::Result<bool> {
        let peers = self.nodes.len() - 1;
        let entries: usize = plan.vos.iter().map(|vo| vo.entries.len() + 1).sum();
        for node in &self.nodes {
            let ready = node.handle.ask(move |site, _| {
                let connected = site.peers().iter().filter(|peer| peer.connected).count();
                site.compiled().entries.len() == entries && connected == peers
            });
            if !ready.await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Cuts the mesh in two halves, or heals it.
    pub(super) async fn partition(&mut self, cut: bool) -> anyhow::Result<()> {
        self.is_cut = cut;
        let (left, right) = self.nodes.split_at(self.nodes.len() / 2);
        for (half, others) in [(left, right), (right, left)] {
            for node in half.iter().filter(|node| node.up.is_some()) {
                let blocked = others.iter().map(|other| other.id).filter(|_| cut);
                node.handle.block(blocked.collect::<Vec<_>>()).await?;
            }
        }
        Ok(())
    }

    /// Stops all nodes.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        for node in &mut self.nodes {
            node.stop().await?;
        }
        Ok(())
    }
}

impl DemoNode {
    /// Stops it, if it runs. Its folder stays.
    async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(up) = self.up.take() else {
            return Ok(());
        };
        self.newest.send_replace(None);
        up.stop.send_replace(true);
        self.handle.stop().await;
        up.driver.await??;
        for server in up.servers {
            server.await?;
        }
        Ok(())
    }
}

fn members(count: usize) -> anyhow::Result<Vec<Member>> {
    let member = |index: usize| {
        let secret = random()?;
        let id = SigningKey::from_secret(&secret).site_id();
        Ok(Member {
            secret,
            id,
            name: format!("site-{}", index + 1),
        })
    };
    (0..count).map(member).collect()
}

fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("no randomness: {error}"))?;
    Ok(bytes)
}

/// Intervals of the nodes. Those that are measured in the sites' own time follow the clock's pace.
fn timing(plan: &Plan, factor_permille: u64) -> Timing {
    let paced = |real: u64| Millis(real.saturating_mul(factor_permille.max(1_000)) / 1_000);
    Timing {
        publish: PUBLISH,
        heartbeat: Millis(2_000),
        sync: Millis(u64::try_from(SYNC.as_millis()).expect("a second")),
        request_timeout: Millis(5_000),
        // Peers' clocks are reckoned on at the machine's pace between two probes.
        clock_tolerance: paced(60_000).max(Timing::default().clock_tolerance),
        // Of a site that a broker asks for a place nothing may be unknown for long.
        silence: paced(match plan.load {
            Load::Broker => 2_500,
            _ => 30_000,
        }),
        ..Timing::default()
    }
}

fn network_config(peers: Vec<(SiteId, Vec<Multiaddr>)>) -> anyhow::Result<NetworkConfig> {
    Ok(NetworkConfig {
        listen: vec!["/ip4/127.0.0.1/tcp/0".parse()?],
        peers,
        allow_private: true,
        gossip_heartbeat: Duration::from_millis(250),
        redial_min: Duration::from_millis(100),
        redial_max: Duration::from_millis(500),
        request_timeout: Duration::from_secs(5),
        ..NetworkConfig::default()
    })
}

/// What a site's owner decides: every VO mounted under its name, with the promised share.
fn site_config(
    plan: &Plan,
    vos: &[VoId],
    introducers: BTreeSet<SiteId>,
    timing: Timing,
) -> anyhow::Result<SiteConfig> {
    let mut entries = BTreeMap::new();
    let mut rules = Vec::new();
    let founded = plan.vos.iter().zip(vos);
    for (vo, id) in founded.clone() {
        entries.insert(
            AccountPath::root().child(&vo.name)?,
            SiteEntry::mounted(vo.share, &vo.name),
        );
        rules.extend(vo.entries.keys().map(|path| rule(vo, *id, path)));
    }
    Ok(SiteConfig {
        share_rule: fairmesh_model::ShareRule::Weights,
        policy: SitePolicy::new(entries)?,
        vos: founded.map(|(vo, id)| (vo.name.clone(), *id)).collect(),
        identity: IdentityMap::new(rules),
        introducers,
        advert: match plan.load {
            Load::Broker => Some(advert_rules()?),
            _ => None,
        },
        forward: None,
        quotas: Default::default(),
        local_history: HistoryRule::default(),
        local_window: WindowLength::HOUR,
        charging: fairmesh_site::Charging::default(),
        timing,
    })
}

/// Jobs of user `name` and batch account `VO` go to the entry of that name.
fn rule(vo: &PlanVo, id: VoId, path: &AccountPath) -> Rule {
    Rule {
        user: path.name().map(|name| Pattern::Exact(name.to_owned())),
        account: Some(Pattern::Exact(vo.name.clone())),
        vo: Some(id),
        path: path.to_string(),
        ..Rule::default()
    }
}

/// The batch system's words for the jobs at `path` of a VO: user and batch account.
pub(super) fn origin(path: &AccountPath, vo: &str) -> Origin {
    Origin {
        user: path.name().map(str::to_owned),
        account: Some(vo.to_owned()),
        ..Origin::default()
    }
}

/// A job that has ended, as the feed of a site reports it.
pub(super) fn ended(
    site: &str,
    job: String,
    origin: Origin,
    cores: u32,
    [start, end]: [WallTime; 2],
) -> UsageRecord {
    UsageRecord {
        key: JobKey {
            cluster: site.to_owned(),
            job,
            instance: 0,
        },
        origin,
        start,
        end,
        cores,
        gpus: 0,
        mem_mib: 0,
        placement: Placement::default(),
        running: false,
    }
}

fn charter(
    plan: &Plan,
    vo: &PlanVo,
    members: &[Member],
    addresses: &[Vec<Multiaddr>],
    authority: &SigningKey,
) -> Charter {
    let sites =
        members
            .iter()
            .zip(addresses)
            .zip(&plan.cores)
            .map(|((member, addresses), cores)| MemberSite {
                site: member.id,
                name: member.name.clone(),
                cores: *cores,
                gpus: None,
                mem_gib: None,
                addresses: addresses.iter().map(ToString::to_string).collect(),
            });
    Charter {
        version: 1,
        vo: None,
        previous: None,
        name: vo.name.clone(),
        issued: plan.start,
        expires: far_future(plan.start),
        authority: Role::single(authority.key_id()),
        policy: Role::single(authority.key_id()),
        sites: sites.collect(),
        window: WindowLength::HOUR,
        history: HistoryRule::default(),
        usage_mode: plan.usage_mode,
        charging: ChargingRule::CpuTime,
        discounts: fairmesh_model::Discounts::NONE,
        distance: Distance::Absolute,
        readers: Default::default(),
        snapshot: None,
    }
}

/// Shares of a VO, issued at `now`; `before` are those that they take the place of.
fn share_policy(
    vo: &PlanVo,
    id: VoId,
    now: WallTime,
    before: Option<&Signed<SharePolicy>>,
) -> SharePolicy {
    SharePolicy {
        vo: id,
        path: AccountPath::root(),
        version: before.map_or(1, |before| before.claimed().version + 1),
        previous: before.map(Signed::hash),
        issued: now,
        expires: far_future(now),
        usage: None,
        distance: None,
        shares: vo
            .entries
            .iter()
            .map(|(path, share)| (path.clone(), ShareEntry::of(*share)))
            .collect(),
    }
}

/// Ten years on: longer than any demonstration.
fn far_future(start: WallTime) -> WallTime {
    start.after(Millis::from_secs(10 * 365 * 86_400))
}
