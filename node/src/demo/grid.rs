//! The mesh of a demonstration: real nodes with keys, stores, swarms and sockets of their own, and
//! the VOs that they are members of.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use fairmesh_cluster::AccountKey;
use fairmesh_model::{
    AccountPath, ChargingRule, Charter, Distance, HistoryRule, MemberSite, Millis, Role,
    ShareEntry, SharePolicy, Signed, SigningKey, SiteId, VoId, WallTime, WindowLength,
};
use fairmesh_policy::{SiteEntry, SitePolicy};
use fairmesh_site::{IdentityMap, Pattern, Rule, SiteConfig, Timing};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::broker::advert_rules;
use super::plan::{Load, Plan, PlanVo};
use crate::config::PageSettings;
use crate::control::{ControlLimits, ControlOptions, ControlSettings, Shared};
use crate::driver::{Clock, FastClock, NodeHandle, NodeOptions, Observation, Running, start};
use crate::emulate::ProjectionName;
use crate::lookup::{LookupConfig, LookupServer, LookupStats};
use crate::network::{Multiaddr, NetworkConfig};
use crate::page::PageServer;
use crate::serve::Serving;
use crate::store::StoreError;

/// Between two probes of a node: what "within three sync intervals" is counted in.
pub(super) const SYNC: Duration = Duration::from_millis(1_000);

/// Between two heads of a site in a VO, where schedulers wait for them: 100 ms are minutes of fast time.
const PUBLISH_SCHEDULING: Millis = Millis(100);

/// Between two heads of a site in a VO, where jobs run when a log says so.
const PUBLISH_REPLAYING: Millis = Millis(500);

/// One node.
pub(super) struct DemoNode {
    pub(super) name: String,
    pub(super) id: SiteId,
    pub(super) handle: NodeHandle,
    pub(super) lookup_socket: PathBuf,
    driver: JoinHandle<Result<(), StoreError>>,
    servers: Vec<JoinHandle<()>>,
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
    stop_servers: watch::Sender<bool>,
    _folder: TempDir,
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
        let clock = Arc::new(FastClock::new(plan.start, factor_permille));
        let (observer, observations) = mpsc::unbounded_channel();
        let (stop_servers, stop) = watch::channel(false);
        let members = members(plan.cores.len())?;
        let ids: BTreeSet<SiteId> = members.iter().map(|member| member.id).collect();
        let timing = timing(plan, factor_permille);
        let mut nodes: Vec<DemoNode> = Vec::new();
        let mut addresses: Vec<Vec<Multiaddr>> = Vec::new();
        let mut page = page_at;
        for member in &members {
            // The first node is the only address that the others know: the rest is in the charter.
            let introducer = nodes.first().map(|first| (first.id, addresses[0].clone()));
            let options = NodeOptions {
                site: site_config(plan, &[], ids.clone(), timing)?,
                secret: member.secret,
                network: network_config(introducer.into_iter().collect())?,
                data_dir: folder.path().join(&member.name),
                clock: clock.clone() as Arc<dyn Clock>,
                observer: Some(observer.clone()),
                random: random()?,
            };
            let running = start(options).await?;
            let lookup_socket = folder.path().join(&member.name).join("lookup.sock");
            let projection = ProjectionName::default;
            let source = Serving::start(running.handle.clone(), projection).await?;
            let server =
                LookupServer::bind(&lookup_socket, source.clone(), LookupConfig::default()).await?;
            let lookups = server.stats();
            let mut servers = vec![tokio::spawn(server.run(stop.clone()))];
            if nodes.is_empty() {
                let bound = page_of(page_at, member, &running, (source, lookups), timing).await?;
                page = bound.address()?;
                servers.push(tokio::spawn(bound.run(stop.clone())));
            }
            addresses.push(running.listening);
            nodes.push(DemoNode {
                name: member.name.clone(),
                id: member.id,
                handle: running.handle,
                lookup_socket,
                driver: running.driver,
                servers,
            });
        }
        let mut grid = Self {
            nodes,
            vos: Vec::new(),
            vo_name: plan.vos[0].name.clone(),
            authority: SigningKey::from_secret(&secret()?),
            clock,
            observations,
            page,
            stop_servers,
            _folder: folder,
        };
        grid.found(plan, &members, &addresses, &ids, timing).await?;
        Ok(grid)
    }

    /// Signs charters and share policies, and hands them to the first node: the mesh does the rest.
    async fn found(
        &mut self,
        plan: &Plan,
        members: &[Member],
        addresses: &[Vec<Multiaddr>],
        ids: &BTreeSet<SiteId>,
        timing: Timing,
    ) -> anyhow::Result<()> {
        let authority = SigningKey::from_secret(&self.authority.to_secret());
        let mut documents = Vec::new();
        for vo in &plan.vos {
            let charter = Signed::sign(
                charter(plan, vo, members, addresses, &authority),
                &[&authority],
            )?;
            let id = charter.vo();
            let policy = Signed::sign(share_policy(plan, vo, id), &[&authority])?;
            documents.extend([charter.bytes().to_vec(), policy.bytes().to_vec()]);
            self.vos.push(id);
        }
        for node in &self.nodes {
            let config = site_config(plan, &self.vos, ids.clone(), timing)?;
            node.handle.reconfigure(config).await?;
        }
        for document in documents {
            self.nodes[0]
                .handle
                .publish(document, "the demonstration")
                .await?
                .map_err(|why| anyhow!(why))?;
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
    pub(super) async fn partition(&self, cut: bool) -> anyhow::Result<()> {
        let (left, right) = self.nodes.split_at(self.nodes.len() / 2);
        for (half, others) in [(left, right), (right, left)] {
            for node in half {
                let blocked = others.iter().map(|other| other.id).filter(|_| cut);
                node.handle.block(blocked.collect::<Vec<_>>()).await?;
            }
        }
        Ok(())
    }

    /// Stops all nodes.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.stop_servers.send_replace(true);
        for node in self.nodes {
            node.handle.stop().await;
            node.driver.await??;
            for server in node.servers {
                server.await?;
            }
        }
        Ok(())
    }
}

/// The share page of a node.
async fn page_of(
    listen: SocketAddr,
    member: &Member,
    running: &Running,
    (serving, lookups): (Arc<Serving>, Arc<LookupStats>),
    timing: Timing,
) -> anyhow::Result<PageServer> {
    let (_, settings) = watch::channel(ControlSettings {
        name: member.name.clone(),
        timing,
        ..ControlSettings::default()
    });
    let shared = Shared::new(ControlOptions {
        node: running.handle.clone(),
        serving,
        site: member.id,
        listening: running.listening.iter().map(ToString::to_string).collect(),
        settings,
        lookups: Some(lookups),
        records: None,
        limits: ControlLimits::default(),
    });
    let hosts = Vec::new();
    let bound = PageServer::bind(&PageSettings { listen, hosts }, Arc::new(shared)).await;
    bound.with_context(|| format!("--page {listen}"))
}

fn members(count: usize) -> anyhow::Result<Vec<Member>> {
    let member = |index: usize| {
        let secret = secret()?;
        let id = SigningKey::from_secret(&secret).site_id();
        Ok(Member {
            secret,
            id,
            name: format!("site-{}", index + 1),
        })
    };
    (0..count).map(member).collect()
}

fn secret() -> anyhow::Result<[u8; 32]> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| anyhow!("no randomness: {error}"))?;
    Ok(secret)
}

fn random() -> anyhow::Result<u64> {
    let secret = secret()?;
    Ok(u64::from_be_bytes(
        *secret.first_chunk().expect("32 bytes hold eight"),
    ))
}

/// Intervals of the nodes. Those that are measured in the sites' own time follow the clock's pace.
fn timing(plan: &Plan, factor_permille: u64) -> Timing {
    let paced = |real: u64| Millis(real.saturating_mul(factor_permille.max(1_000)) / 1_000);
    Timing {
        publish: if plan.end.is_some() {
            PUBLISH_REPLAYING
        } else {
            PUBLISH_SCHEDULING
        },
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

/// The batch system's words for an account: user and batch account.
pub(super) fn origin(plan: &Plan, account: &AccountKey) -> (String, String) {
    let user = account.path.name().unwrap_or_default().to_owned();
    (user, plan.vos[account.vo].name.clone())
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

fn share_policy(plan: &Plan, vo: &PlanVo, id: VoId) -> SharePolicy {
    SharePolicy {
        vo: id,
        path: AccountPath::root(),
        version: 1,
        previous: None,
        issued: plan.start,
        expires: far_future(plan.start),
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
