//! Where a replay's schedulers get the order of accounts from: each its own node in a Grid that
//! gossips, or one site that is told everything.
//!
//! On the Grid the policy to be tried is that of one VO, which every owner mounts as the root of the
//! site's tree; each cluster's node is a member, with the cluster's cores. So all usage is Grid-wide,
//! as it is for the one site that knows everything, and what differs is gossip.
//!
//! Invariant: nothing but reports of jobs that have ended goes in, and nothing but the order of a
//! view comes out. Simulated time begins where a world's does; windows end as they do in the log.
//!
//! Deliberately not here: when reports are made and orders are taken (the replay).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use fairmesh_cluster::{AccountKey, Seed, Trace};
use fairmesh_fairshare::EntryId;
use fairmesh_model::{
    AccountPath, ChargingRule, Distance, HistoryRule, Incarnation, Millis, MonoTime, Now, Origin,
    ShareRule, UsageMode, UsageRecord, VoId, WallTime, Weight, WindowLength,
};
use fairmesh_policy::{SiteEntry, SitePolicy};
use fairmesh_site::{Event, IdentityMap, Pattern, Rule, Site, SiteConfig, Timing, View};

use crate::grid::{rank, timing};
use simnet::vo::{HOUR, START, Vo, VoSpec, site_id, site_key};
use simnet::world::{World, WorldSpec};

/// How often schedulers are given new priorities.
pub(super) const REFRESH: Millis = Millis(60_000);

/// The alias of the VO whose policy is tried.
const ALIAS: &str = "trace";

/// Who tells schedulers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// Each cluster's own node, by gossip.
    Grid,
    /// One site, which is told of every job anywhere.
    AllKnowing,
}

/// The accounts' places in a scheduler's order: the greater is served first.
pub(super) type Order = Rc<BTreeMap<AccountKey, u64>>;

/// See the module's comment.
pub(super) trait Source {
    /// Lets time pass.
    fn advance(&mut self, now: WallTime);

    /// Takes in what has ended since the last time, by node.
    fn tell(&mut self, now: WallTime, ended: Vec<Vec<UsageRecord>>);

    /// The order for the scheduler of `node`.
    fn order(&mut self, node: usize) -> Order;
}

/// The source for a trace that begins at `first`.
pub(super) fn source<'a>(
    knowledge: Knowledge,
    trace: &'a Trace,
    policy: &SitePolicy,
    cores: &[u32],
    first: WallTime,
) -> Box<dyn Source + 'a> {
    match knowledge {
        Knowledge::Grid => Box::new(Grid::new(trace, policy, cores, first)),
        Knowledge::AllKnowing => Box::new(AllKnowing::new(trace, policy, first)),
    }
}

/// A view, and where the trace's accounts are in it.
struct Places {
    view: Arc<View>,
    entries: Vec<(AccountKey, EntryId)>,
}

impl Places {
    fn new(trace: &Trace, view: Arc<View>) -> Self {
        let entry = |account: AccountKey| {
            let entry = view.resolve(&origin(trace, &account));
            (account, entry.expect("one rule is for everybody"))
        };
        let entries = trace.accounts().into_iter().map(entry).collect();
        Self { view, entries }
    }

    fn order(&self) -> Order {
        Rc::new(rank(self.view.reader(), self.entries.iter().cloned()))
    }
}

struct AllKnowing {
    first: WallTime,
    site: Site,
    places: Places,
    order: Order,
}

impl AllKnowing {
    fn new(trace: &Trace, policy: &SitePolicy, first: WallTime) -> Self {
        let now = Now {
            mono: MonoTime(0),
            wall: first,
        };
        let config = SiteConfig {
            share_rule: ShareRule::Weights,
            policy: policy.clone(),
            vos: BTreeMap::new(),
            identity: everybody(None),
            introducers: BTreeSet::new(),
            advert: None,
            forward: None,
            quotas: Default::default(),
            local_history: HistoryRule::default(),
            local_window: WindowLength::HOUR,
            charging: fairmesh_site::Charging::default(),
            timing: Timing::default(),
        };
        let mut site = Site::new(config, site_key(0), Incarnation(1), 1, now);
        site.handle(now, Event::Tick);
        let places = Places::new(trace, site.view());
        Self {
            first,
            site,
            order: places.order(),
            places,
        }
    }
}

impl Source for AllKnowing {
    fn advance(&mut self, _now: WallTime) {}

    fn tell(&mut self, now: WallTime, ended: Vec<Vec<UsageRecord>>) {
        let at = Now {
            mono: MonoTime(now.since(self.first).0),
            wall: now,
        };
        let records = ended.into_iter().flatten().map(|record| (record, None));
        let (ticket, records) = (0, records.collect());
        // Nothing is kept: this site never starts again.
        self.site.handle(at, Event::Report { ticket, records });
        self.order = self.places.order();
    }

    fn order(&mut self, _node: usize) -> Order {
        Rc::clone(&self.order)
    }
}

struct Grid<'a> {
    trace: &'a Trace,
    world: World,
    /// Log time that is simulated time [`START`].
    zero: WallTime,
    places: Vec<Option<Places>>,
}

impl<'a> Grid<'a> {
    fn new(trace: &'a Trace, policy: &SitePolicy, cores: &[u32], first: WallTime) -> Self {
        let vo = found(policy, cores);
        let config = SiteConfig {
            share_rule: ShareRule::Weights,
            policy: mounted_as_root(),
            vos: BTreeMap::from([(ALIAS.to_owned(), vo.id)]),
            identity: everybody(Some(vo.id)),
            introducers: (0..cores.len()).map(site_id).collect(),
            advert: None,
            forward: None,
            quotas: Default::default(),
            local_history: HistoryRule::default(),
            local_window: WindowLength::HOUR,
            charging: fairmesh_site::Charging::default(),
            timing: timing(REFRESH),
        };
        let mut spec = WorldSpec::new(vec![config; cores.len()]);
        spec.tick = REFRESH;
        spec.log_entries = 16;
        // Nobody draws anything here but the network.
        let world = World::founded(Seed(1), spec, std::slice::from_ref(&vo));
        // Before the first job there is an hour in which the mesh forms; so much more that hours
        // begin as in the log.
        let phase = (first.0 + HOUR.0 - START.0 % HOUR.0) % HOUR.0;
        Self {
            trace,
            world,
            zero: WallTime(first.0.saturating_sub(HOUR.0 + phase)),
            places: cores.iter().map(|_| None).collect(),
        }
    }

    /// A time of the log in the simulated world.
    fn at(&self, time: WallTime) -> WallTime {
        START.after(time.since(self.zero))
    }
}

impl Source for Grid<'_> {
    fn advance(&mut self, now: WallTime) {
        self.world.run_until(MonoTime(now.since(self.zero).0));
    }

    fn tell(&mut self, _now: WallTime, ended: Vec<Vec<UsageRecord>>) {
        for (node, mut records) in ended.into_iter().enumerate() {
            if records.is_empty() {
                continue;
            }
            for record in &mut records {
                (record.start, record.end) = (self.at(record.start), self.at(record.end));
            }
            let reported = self.world.report(node, records);
            let refused = reported.expect("no node ever stops here").refused;
            assert!(refused.is_empty(), "{refused:?}");
        }
    }

    fn order(&mut self, node: usize) -> Order {
        let view = self.world.node(node).view.as_ref().expect("it has started");
        let places = self.places[node].take_if(|places| Arc::ptr_eq(&places.view, view));
        let places = places.unwrap_or_else(|| Places::new(self.trace, Arc::clone(view)));
        self.places[node].insert(places).order()
    }
}

/// The VO whose policy is tried, with a member for each cluster.
fn found(policy: &SitePolicy, cores: &[u32]) -> Vo {
    let shares = policy.entries();
    let was = policy.entries().map(|(path, entry)| {
        let was = entry.was.iter().map(AccountPath::to_string);
        (path.to_string(), was.collect())
    });
    let spec = VoSpec {
        name: ALIAS.to_owned(),
        members: cores.iter().copied().enumerate().collect(),
        gpus: None,
        mem_gib: None,
        shares: shares
            .filter(|(path, _)| !path.is_root())
            .map(|(path, entry)| (path.to_string(), entry.share))
            .collect(),
        was: was.collect(),
        since: BTreeMap::new(),
        job_path: String::new(),
        history: HistoryRule::default(),
        usage_mode: UsageMode::Historical,
        window: WindowLength::HOUR,
        charging: ChargingRule::default(),
        discounts: fairmesh_model::Discounts::NONE,
        distance: Distance::default(),
        says: BTreeMap::new(),
        mounts: None,
        readers: BTreeSet::new(),
        limits: false,
        delegates: false,
        snapshots: false,
        alone: false,
        thresholds: false,
        issued: START,
        valid: simnet::vo::VALIDITY,
    };
    Vo::found(0, spec).expect("a policy that a site takes is one that a VO can sign")
}

fn mounted_as_root() -> SitePolicy {
    let entry = SiteEntry::mounted(Weight::HUNDRED, ALIAS);
    SitePolicy::new(BTreeMap::from([(AccountPath::root(), entry)])).expect("the root alone")
}

/// One rule for all: users below their groups.
fn everybody(vo: Option<VoId>) -> IdentityMap {
    let rule = Rule {
        account: Some(Pattern::parse("*")),
        vo,
        path: "/{account}/{user}".to_owned(),
        ..Rule::default()
    };
    IdentityMap::new(vec![rule])
}

/// The batch system's words for an account: user and batch account.
pub(super) fn origin(trace: &Trace, account: &AccountKey) -> Origin {
    Origin {
        user: account.path.name().map(str::to_owned),
        account: Some(trace.vos[account.vo].clone()),
        ..Origin::default()
    }
}
