//! Priorities from each site's own node, in a calm world with real gossip.
//!
//! **Age of a view.** Every `view_age`, at the same moment at all sites, a site's feed lists the jobs
//! that run, behind a report of those that have ended since the last time. A millisecond later the
//! node signs it all as one head per VO, which the others hold within a tenth of a second. Until the
//! next time nothing changes: a scheduler sees what was used until 0 to `view_age` ago, at its own
//! site as at others. In a VO that counts finished jobs alone the list is for the site's own level,
//! which is active whatever the VO's mode.
//!
//! Invariant: nothing but reports goes into a node and nothing but its view comes out; the expected
//! ends of running jobs are their starts plus the requested times.
//!
//! Deliberately not here: faults. FSGrid paper, section 5.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use fairmesh_cluster::{AccountKey, Cluster, Finished, Job, Seed, paper};
use fairmesh_fairshare::EntryId;
use fairmesh_model::{
    AccountPath, ChargingRule, Distance, JobKey, Millis, MonoTime, Origin, RunningJob, Share,
    UsageRecord, VoId, WallTime,
};
use fairmesh_policy::{SiteEntry, SitePolicy};
use fairmesh_site::{IdentityMap, Pattern, Reported, Rule, SiteConfig, Timing};

use super::served::{Given, Served};
use super::{GridSpec, HISTORY, LEAD, UsageSource, UsageTable, WINDOW};
use simnet::vo::{START, Vo, VoSpec, path, site_id};
use simnet::world::{World, WorldSpec};

/// A silent site's sheet counts for so many refreshes, and peers are probed each time so many have
/// passed: nothing is lost here that a probe would bring back.
const REFRESHES: u64 = 10;

/// Nodes and their clusters' feeds.
pub struct Gossip {
    world: World,
    /// Jobs that have ended and were not reported yet, by site.
    ended: Vec<Vec<UsageRecord>>,
    accounts: Vec<AccountKey>,
    served: Served,
    /// By site.
    given: Vec<Given>,
}

impl Gossip {
    /// The nodes of a Grid, each holding the paper's policy; members of both VOs.
    pub fn new(spec: &GridSpec, seed: Seed) -> Self {
        let vos: Vec<Vo> = (0..paper::VOS.len()).map(|vo| found(vo, spec)).collect();
        let config = site_config(&vos, spec);
        let mut world_spec = WorldSpec::new(vec![config; spec.sites]);
        // Ticks are where batches are signed: see the module's comment.
        world_spec.tick = spec.view_age;
        world_spec.log_entries = 16;
        let mut world = World::founded(seed, world_spec, &vos);
        if !spec.is_shared {
            let alone: Vec<Vec<usize>> = (0..spec.sites).map(|site| vec![site]).collect();
            world.partition(&alone);
        }
        Self {
            world,
            ended: vec![Vec::new(); spec.sites],
            accounts: spec.loads.iter().map(|load| load.account.clone()).collect(),
            served: spec.served,
            given: vec![Given::default(); spec.sites],
        }
    }

    /// The world, to see what its nodes hold.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The world, to ask its nodes more than usage.
    pub(crate) fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// A job that wants to run at a site from now on, for as long as it asks to.
    pub(crate) fn asks(site: usize, now: WallTime, job: &Job) -> UsageRecord {
        record(site, job, (now, now.after(job.requested)), false)
    }

    fn must_count(reported: Option<Reported>) {
        let reported = reported.expect("no node ever stops here");
        assert!(reported.refused.is_empty(), "{:?}", reported.refused);
        assert_eq!(reported.unmapped, 0, "every account has a rule");
    }
}

impl UsageSource for Gossip {
    fn advance(&mut self, now: WallTime) {
        self.world.run_until(MonoTime(now.since(START).0));
    }

    fn finished(&mut self, site: usize, job: &Finished) {
        let record = record(site, &job.job, (job.start, job.end), false);
        // Beside the last list, which still expects it, it would count twice.
        self.ended[site].push(record);
    }

    fn refresh(&mut self, now: WallTime, _used: &UsageTable, clusters: &[Cluster]) {
        for (site, cluster) in clusters.iter().enumerate() {
            let ended = mem::take(&mut self.ended[site]);
            if !ended.is_empty() {
                Self::must_count(self.world.report(site, ended));
            }
            let running = cluster.running().map(|started| RunningJob {
                record: record(site, &started.job, (started.start, now), true),
                expected_end: started.start.after(started.job.requested),
            });
            let running = running.collect();
            Self::must_count(self.world.running(site, running));
        }
    }

    fn order(
        &mut self,
        site: usize,
        now: WallTime,
        _used: &UsageTable,
        accounts: &[AccountKey],
    ) -> BTreeMap<AccountKey, u64> {
        let view = self.world.node(site).view.as_ref().expect("it has started");
        let entry = |account: &AccountKey| -> EntryId {
            let entry = view.resolve(&origin(account));
            entry.expect("every account has a rule")
        };
        // Factors stay for a round, in which others may come to wait.
        let asked = match self.served {
            Served::Exact => accounts,
            _ => &self.accounts,
        };
        let entries: Vec<_> = asked.iter().map(|of| (of.clone(), entry(of))).collect();
        self.given[site].at(now, self.served, view, &entries)
    }
}

/// The batch system's words for an account: user and batch account.
fn origin(account: &AccountKey) -> Origin {
    Origin {
        user: account.path.name().map(str::to_owned),
        account: Some(paper::VOS[account.vo].to_owned()),
        ..Origin::default()
    }
}

fn record(
    site: usize,
    job: &Job,
    (start, end): (WallTime, WallTime),
    running: bool,
) -> UsageRecord {
    UsageRecord {
        key: JobKey {
            cluster: format!("site-{site}"),
            job: job.id.to_string(),
            instance: 0,
        },
        origin: origin(&job.account),
        start,
        end,
        cores: job.cores,
        gpus: 0,
        mem_mib: 0,
        placement: fairmesh_model::Placement::default(),
        running,
    }
}

fn found(vo: usize, spec: &GridSpec) -> Vo {
    let entries = paper::POLICY
        .iter()
        .filter(|entry| entry.vo == vo && entry.path != "/");
    let spec = VoSpec {
        name: paper::VOS[vo].to_owned(),
        members: (0..spec.sites).map(|site| (site, spec.cores)).collect(),
        gpus: None,
        mem_gib: None,
        shares: entries
            .map(|entry| (entry.path.to_owned(), entry.share().into()))
            .collect(),
        was: BTreeMap::new(),
        since: BTreeMap::new(),
        job_path: "/".to_owned(),
        history: HISTORY,
        usage_mode: spec.usage_mode,
        window: WINDOW,
        charging: ChargingRule::CpuTime,
        discounts: fairmesh_model::Discounts::NONE,
        distance: Distance::Absolute,
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
    Vo::found(vo, spec).expect("the paper's policy is valid")
}

/// What every owner decides: 30 percent of the site for VO-A, 70 for VO-B.
fn site_config(vos: &[Vo], spec: &GridSpec) -> SiteConfig {
    let share = |vo: usize| -> Share {
        let mut roots = paper::POLICY.iter().filter(|entry| entry.path == "/");
        roots
            .find(|entry| entry.vo == vo)
            .expect("each VO has one")
            .share()
    };
    let mount = |(index, vo): (usize, &Vo)| -> (AccountPath, SiteEntry) {
        let name = &vo.spec.name;
        (
            path(&format!("/{name}")),
            SiteEntry::mounted(share(index).into(), name),
        )
    };
    let entries = vos.iter().enumerate().map(mount).collect();
    let rules = paper::leaves();
    let rules = rules.iter().map(|(leaf, _)| rule(leaf, vos[leaf.vo].id));
    let introducers: BTreeSet<_> = (0..spec.sites).map(site_id).collect();
    SiteConfig {
        share_rule: fairmesh_model::ShareRule::Weights,
        policy: SitePolicy::new(entries).expect("one level below the root"),
        vos: vos.iter().map(|vo| (vo.spec.name.clone(), vo.id)).collect(),
        identity: IdentityMap::new(rules.collect()),
        introducers,
        advert: None,
        forward: None,
        quotas: Default::default(),
        local_history: HISTORY,
        local_window: WINDOW,
        charging: fairmesh_site::Charging::default(),
        timing: timing(spec.view_age),
    }
}

/// Everything at the pace of the refreshes; a batch goes out each time, whether there is news or not,
/// so that none is ever due between a refresh's two reports.
pub(crate) fn timing(view_age: Millis) -> Timing {
    debug_assert!(view_age > LEAD);
    Timing {
        publish: view_age,
        heartbeat: view_age,
        sync: view_age.times(REFRESHES),
        silence: view_age.times(REFRESHES),
        ..Timing::default()
    }
}

fn rule(leaf: &AccountKey, vo: VoId) -> Rule {
    Rule {
        user: leaf.path.name().map(|name| Pattern::Exact(name.to_owned())),
        account: Some(Pattern::Exact(paper::VOS[leaf.vo].to_owned())),
        vo: Some(vo),
        path: leaf.path.to_string(),
        ..Rule::default()
    }
}
