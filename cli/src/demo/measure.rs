//! What a demonstration measures: how fast changes travel, and whether the nodes agree.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use fairmesh_fairshare::Target;
use fairmesh_model::{
    AccountPath, ContentHash, Counters, IncarnationId, Seq, SiteId, VoId, Weight,
};
use fairmesh_node::driver::Observation;
use fairmesh_site::HeadId;
use serde::{Serialize, Serializer};
use tokio::sync::mpsc;

use super::grid::Grid;
use super::plan::Plan;

/// From "durable where it was signed" to "durable everywhere", head by head.
#[derive(Default)]
pub(super) struct Propagation {
    under_way: HashMap<(HeadId, Seq), (Instant, BTreeSet<SiteId>)>,
    millis: Vec<u64>,
}

impl Propagation {
    /// Takes in what has been observed since the last time. `cut` heads do not count: they wait
    /// for the mesh to heal.
    pub(super) fn take(
        &mut self,
        observations: &mut mpsc::UnboundedReceiver<Observation>,
        nodes: usize,
        cut: bool,
    ) {
        while let Ok(Observation { node, head, at }) = observations.try_recv() {
            let (first, holders) = self
                .under_way
                .entry(head)
                .or_insert_with(|| (at, BTreeSet::new()));
            holders.insert(node);
            if holders.len() == nodes {
                let took = at.saturating_duration_since(*first);
                self.under_way.remove(&head);
                self.millis
                    .push(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            }
        }
        if cut {
            self.under_way.clear();
        }
    }

    /// The quantile of `permille` among all heads that reached everybody.
    pub(super) fn quantile(&self, permille: usize) -> u64 {
        let mut sorted = self.millis.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get(last * permille / 1_000).copied().unwrap_or(0)
    }

    /// How many heads reached everybody.
    pub(super) fn count(&self) -> usize {
        self.millis.len()
    }
}

/// What one node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeState {
    /// Everything that it holds, as one hash.
    pub(super) holdings: ContentHash,
    /// Ages of what it holds of the others, in its own (fast) time.
    pub(super) oldest_ms: u64,
    pub(super) known: u32,
    pub(super) connected: usize,
}

/// Asks all nodes what they hold; nothing of one that is stopped.
pub(super) async fn states(grid: &Grid) -> anyhow::Result<Vec<Option<NodeState>>> {
    let mut states = Vec::new();
    for (index, node) in grid.nodes.iter().enumerate() {
        if !grid.is_up(index) {
            states.push(None);
            continue;
        }
        let own = node.id;
        let state = node.handle.ask(move |site, now| {
            let coverage = site.coverage();
            let others = coverage.signed_at.iter().filter(|(id, _)| **id != own);
            NodeState {
                holdings: site.holdings(),
                oldest_ms: others
                    .map(|(_, at)| now.wall.since(*at).0)
                    .max()
                    .unwrap_or(0),
                known: coverage.sites_known,
                connected: site.peers().iter().filter(|peer| peer.connected).count(),
            }
        });
        states.push(Some(state.await?));
    }
    Ok(states)
}

/// How many different holdings there are among the nodes: 1 when all agree.
pub(super) fn distinct(states: &[Option<NodeState>]) -> usize {
    states
        .iter()
        .flatten()
        .map(|state| state.holdings)
        .collect::<BTreeSet<_>>()
        .len()
}

/// The newest head of each site's start that any node holds.
pub(super) async fn join_of_vectors(
    grid: &Grid,
) -> anyhow::Result<BTreeMap<(VoId, IncarnationId), Seq>> {
    let mut join = BTreeMap::new();
    for node in grid.up() {
        for (vo, vector) in node.handle.ask(|site, _| site.vectors()).await? {
            for (stream, seq) in vector {
                let known: &mut Seq = join.entry((vo, stream)).or_default();
                *known = seq.max(*known);
            }
        }
    }
    Ok(join)
}

/// Waits until every node holds everything in `all`: from then on the views of that moment are one.
/// `None` if they do not within `limit`.
pub(super) async fn await_held(
    grid: &Grid,
    all: &BTreeMap<(VoId, IncarnationId), Seq>,
    limit: Duration,
) -> anyhow::Result<Option<Duration>> {
    let began = Instant::now();
    for node in grid.up() {
        loop {
            let held = node.handle.ask(|site, _| site.vectors()).await?;
            let lacks = |((vo, stream), seq): (&(VoId, IncarnationId), &Seq)| {
                held.get(vo)
                    .and_then(|vector| vector.get(stream))
                    .is_none_or(|have| have < seq)
            };
            if !all.iter().any(lacks) {
                break;
            }
            if began.elapsed() > limit {
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(Some(began.elapsed()))
}

/// Waits until all nodes compute the same views; the digests then, or the last ones within `limit`.
pub(super) async fn await_identical(
    grid: &Grid,
    limit: Duration,
) -> anyhow::Result<Vec<ContentHash>> {
    let began = Instant::now();
    loop {
        let digests = view_digests(grid).await?;
        if digests.iter().all(|digest| *digest == digests[0]) || began.elapsed() > limit {
            return Ok(digests);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The digest of all VO views of each node: every weighted sum, as seen from one window.
async fn view_digests(grid: &Grid) -> anyhow::Result<Vec<ContentHash>> {
    let mut digests = Vec::new();
    for node in &grid.nodes {
        let vos = grid.vos.clone();
        let digest = node.handle.ask(move |site, _| {
            let views = vos.iter().filter_map(|vo| site.view_digest(*vo));
            let bytes: Vec<u8> = views.flat_map(|digest| *digest.as_bytes()).collect();
            ContentHash::of(&bytes)
        });
        digests.push(digest.await?);
    }
    Ok(digests)
}

/// Raw usage of every entry that was used, as the first node knows it, by path in the site's tree.
pub(super) async fn usage(
    grid: &Grid,
    plan: &Plan,
) -> anyhow::Result<BTreeMap<AccountPath, Counters>> {
    let mut usage = BTreeMap::new();
    for (vo, id) in plan.vos.iter().zip(&grid.vos) {
        let id = *id;
        let mount = AccountPath::root().child(&vo.name)?;
        let accounts = grid.nodes[0]
            .handle
            .ask(move |site, _| site.usage_by_account(Some(id)))
            .await?;
        for (path, counters) in accounts {
            usage.insert(mount.join(&path)?, counters);
        }
    }
    Ok(usage)
}

/// One line of the table of promises.
#[derive(Debug, Serialize)]
pub(super) struct ShareLine {
    pub(super) path: AccountPath,
    /// Percent of the parent, as promised.
    pub(super) target: String,
    /// Thousandths of a percent of the parent's usage; as JSON, percent.
    #[serde(rename = "actual", serialize_with = "as_percent")]
    pub(super) actual_milli_percent: u64,
    #[serde(skip)]
    pub(super) usage_ms: u64,
}

fn as_percent<S: Serializer>(milli: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}.{:03}", milli / 1_000, milli % 1_000))
}

/// Promised and delivered, entry by entry.
pub(super) fn share_lines(plan: &Plan, usage: &BTreeMap<AccountPath, Counters>) -> Vec<ShareLine> {
    let mut sums: BTreeMap<AccountPath, u64> = BTreeMap::new();
    for (path, counters) in usage {
        for ancestor in path.ancestors() {
            *sums.entry(ancestor).or_default() += counters.charge;
        }
    }
    let mut promised: Vec<(AccountPath, Weight)> = Vec::new();
    for vo in &plan.vos {
        let mount = AccountPath::root()
            .child(&vo.name)
            .expect("a VO's name is a name");
        promised.push((mount.clone(), vo.share));
        for (path, share) in &vo.entries {
            promised.push((mount.join(path).expect("short"), *share));
        }
    }
    let mut totals: BTreeMap<Option<AccountPath>, u64> = BTreeMap::new();
    for (path, share) in &promised {
        *totals.entry(path.parent()).or_default() += share.units();
    }
    let line = |(path, share): (AccountPath, Weight)| {
        let total = totals[&path.parent()];
        let target = Target::of_siblings(share.units(), total).rounded();
        let of = |path: &AccountPath| sums.get(path).copied().unwrap_or(0);
        let usage_ms = of(&path);
        let parent = path.parent().map_or(0, |parent| of(&parent));
        let milli = u128::from(usage_ms) * 100_000 / u128::from(parent.max(1));
        ShareLine {
            path,
            target: target.to_string(),
            actual_milli_percent: u64::try_from(milli).unwrap_or(0),
            usage_ms,
        }
    };
    promised.into_iter().map(line).collect()
}
