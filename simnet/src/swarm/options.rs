//! What one run is made from, as plain numbers that a person can read and change.
//!
//! Invariant: every number is a count, a thousandth, or a time with its unit in its name; there is
//! no chance here. Deliberately not here: which numbers are drawn (`draw`).

pub(super) mod credit;
pub(super) mod lines;
mod rules;

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{
    AccountPath, ChargingRule, Discounts, Distance, Factor, HistoryRule, Millis, PolicyMount,
    Scope, Share, UsageMode, VoId, Weight, WindowLength,
};
use fairmesh_site::{AdvertRules, Charging, Timing};
use serde::{Deserialize, Serialize};

use self::credit::QuotaOptions;
use self::lines::{OTHERS, WeightsOption, start_day};
use crate::liar::{LIAR_CORES, Liar};
use crate::network::{LinkSpec, NetworkSpec};
use crate::oracle::Reach;
use crate::vo::{DAY, OwnerSpec, VALIDITY, Vo, VoSpec};
use crate::world::{Planned, WorldSpec};

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Sites.
    pub sites: usize,
    /// Length of the safety phase, simulated minutes.
    pub minutes: u64,
    /// How much slower everything is than in a Grid of hours: intervals, load, and how long faults last.
    #[serde(default = "one")]
    pub stretch: u64,
    /// Whether the clocks of some batch systems are wrong.
    #[serde(default)]
    pub batch_clocks: bool,
    /// Whether batch systems run on their nodes' machines, and go by the same clock.
    #[serde(default)]
    pub one_clock: bool,
    /// Whether feeds may tell the end of a job before the next list lacks it.
    #[serde(default)]
    pub ends_first: bool,
    /// Hours that every history reaches back; 0 for longer than any run and any wrong clock.
    #[serde(default)]
    pub history_hours: u64,
    /// Reports of finished jobs that each site's feed makes in an hour.
    pub reports_per_hour: u64,
    /// Reports of a thousand that repeat an earlier one.
    pub repeat_permille: u64,
    /// Jobs of a thousand that are reported days after they ended.
    pub late_permille: u64,
    /// Seconds between two lists of running jobs; 0 where there are none.
    pub running_s: u64,
    /// Whether side files keep recent changes of the ledger.
    pub keeps_journal: bool,
    /// Windows of the sites' own accounts, seconds.
    pub local_window_s: u64,
    /// How the sites' own accounts are weighed and charged.
    #[serde(default)]
    pub local: LocalOptions,
    /// Entries of the share tree that a site recomputes in one step.
    #[serde(default = "all_at_once")]
    pub sweep_entries: usize,
    /// Entries of a share tree that a site builds at once.
    #[serde(default = "all_at_once")]
    pub build_entries: usize,
    /// Whether VOs learn of free CPUs.
    #[serde(default)]
    pub adverts: bool,
    /// Connections that a site holds at most; 0 for the network's default.
    pub degree: usize,
    /// Intervals.
    pub timing: TimingOptions,
    /// What jobs are like.
    #[serde(default)]
    pub load: LoadOptions,
    /// What links do while the Grid is not healed.
    pub link: LinkOptions,
    /// What goes wrong beside that.
    pub faults: FaultOptions,
    /// The VOs.
    pub vos: Vec<VoOptions>,
    /// What is granted, and who asks for it, where there are quotas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quotas: Option<QuotaOptions>,
    /// Members that lie.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub liars: Vec<Liar>,
    /// What goes wrong when, instead of what the seed draws from `faults`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Vec<Planned>>,
}

/// Intervals of all sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct TimingOptions {
    pub publish_s: u64,
    pub heartbeat_s: u64,
    pub sync_s: u64,
    pub request_timeout_s: u64,
    /// Shortest time between two ticks of one node.
    pub tick_ms: u64,
}

/// What links do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct LinkOptions {
    pub latency_ms: u64,
    pub jitter_ms: u64,
    pub loss_permille: u64,
    pub duplicate_permille: u64,
    pub reorder_permille: u64,
    pub replay_permille: u64,
    /// Messages of a thousand whose bytes are broken when they arrive.
    pub garbage_permille: u64,
}

/// What owners decide alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalOptions {
    /// How usage of this site is weighed by its age.
    pub history: HistoryOption,
    /// Hours that this history reaches back; 0 as long as all histories of the Grid.
    pub history_hours: u64,
    /// What jobs of the site's own accounts are charged.
    pub charging: ChargingOption,
    /// Classes of machines that sites have, at most three.
    pub machine_classes: usize,
    /// Whether each VO may have a quarter more than its share at most.
    pub limits: bool,
    /// Whether VOs are mounted below one entry, by which each is measured by what it used at all members.
    pub together: bool,
    /// Whether entries are measured by a mixed distance.
    pub mixes: bool,
    /// Whether VOs are weighed and capped.
    pub weighs: bool,
    /// Whether the share of the site's own accounts is divided among some of them.
    pub divides: bool,
    /// Whether accounts without a line have a share.
    pub others: bool,
    /// Whether entries had other paths before.
    pub renamed: bool,
    /// Whether usage counts from a certain day on.
    pub periods: bool,
    /// Whether the site's own accounts have no share.
    pub own_last: bool,
    /// Whether a charging rule of weights weighs energy.
    pub weighs_energy: bool,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            history: HistoryOption::None,
            history_hours: 0,
            charging: ChargingOption::CpuTime,
            machine_classes: 0,
            limits: false,
            together: false,
            mixes: false,
            weighs: false,
            divides: false,
            others: false,
            renamed: false,
            periods: false,
            own_last: false,
            weighs_energy: false,
        }
    }
}

/// Jobs of a thousand that are out of the ordinary, and how often who is who changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadOptions {
    /// They have GPUs.
    pub gpu_permille: u64,
    /// They ask for much more memory than their cores' part.
    pub memory_permille: u64,
    /// They are spread over nodes, and have scratch disk.
    pub nodes_permille: u64,
    /// They ran at a lower price.
    pub discount_permille: u64,
    /// No machine could run them.
    pub too_large_permille: u64,
    /// They were requeued and ran again.
    pub requeue_permille: u64,
    /// They are told of in instalments.
    pub instalment_permille: u64,
    /// Reports that say what they say in the wrong order.
    pub disorder_permille: u64,
    /// Running jobs that are cancelled before the next list.
    pub cancel_permille: u64,
    /// Running jobs that are suspended, or go on, at a list.
    pub suspend_permille: u64,
    /// How often a site's identity rules change in the run.
    pub identity_changes: u64,
    /// Reports behind which a job that was counted is taken back.
    pub correct_permille: u64,
    /// Their final records contradict their instalments, if there are any.
    pub contradict_permille: u64,
    /// They report the energy that they used.
    pub energy_permille: u64,
    /// Accounts of which jobs are reported at once, at one time in the run and one site.
    pub crowd: u64,
}

/// How often each kind of fault happens in the run, at nodes and times that the seed draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct FaultOptions {
    pub partitions: u64,
    pub islands: u64,
    pub bridges: u64,
    pub one_way_cuts: u64,
    pub clogged_links: u64,
    pub crashes: u64,
    /// A process ends between two effects of one event.
    pub crashes_within: u64,
    pub graceful_stops: u64,
    pub wipes: u64,
    /// The side file goes, too.
    pub wipes_with_side: u64,
    pub backups_restored: u64,
    /// A backup is put back beside the journal of a store that was begun since.
    pub stores_replaced: u64,
    pub bit_flips: u64,
    /// Marks of jobs that have ended cannot be read any more.
    pub bad_marks: u64,
    pub full_disks: u64,
    pub clock_jumps: u64,
    /// A clock shows next year for a while.
    pub clock_years: u64,
    pub clock_drifts: u64,
    pub garbage_documents: u64,
    pub policies: u64,
    pub charters: u64,
    /// A charter without a site, and later one with it.
    pub removals: u64,
    /// Other intervals and shares.
    pub reconfigurations: u64,
    /// A site leaves a VO for a while.
    pub departures: u64,
    /// A site declares other machines and prices, or none.
    pub descriptions: u64,
    /// A VO that mounts another's policy is no reader of it for a while, in which the policy changes.
    pub unread: u64,
}

/// A VO.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VoOptions {
    /// Its member sites.
    pub members: Vec<usize>,
    /// Groups of its share tree.
    pub groups: usize,
    /// Users of each group.
    pub users: usize,
    /// Windows, seconds.
    pub window_s: u64,
    /// How usage is weighed by its age.
    pub history: HistoryOption,
    /// Hours that its history reaches back; 0 as long as all histories of the Grid.
    #[serde(default)]
    pub history_hours: u64,
    /// Cores that its charter declares for each site; 0 for far more than the load can hold.
    #[serde(default)]
    pub cores: u32,
    /// GPUs that it declares for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Memory that it declares for each, GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_gib: Option<u32>,
    /// What running jobs count for.
    pub mode: ModeOption,
    /// Whether every other entry may have a quarter more than its share at most.
    #[serde(default)]
    pub limits: bool,
    /// Which levels count usage of the site that answers alone.
    #[serde(default)]
    pub local_levels: LocalLevels,
    /// Whether entries say how far those below them are from their targets.
    #[serde(default)]
    pub distances: bool,
    /// What entries weigh.
    #[serde(default)]
    pub weights: WeightsOption,
    /// Whether accounts without a line have a share, at every other level.
    #[serde(default)]
    pub others: bool,
    /// Whether the last user of each group has no line.
    #[serde(default)]
    pub unlisted: bool,
    /// Whether the first user of each group had another path before.
    #[serde(default)]
    pub renamed: bool,
    /// Whether usage of some entries counts from a certain day on.
    #[serde(default)]
    pub periods: bool,
    /// Whether somebody else divides the share of the first group.
    #[serde(default)]
    pub delegates: bool,
    /// Whether an online key signs what is in force, after each change.
    #[serde(default)]
    pub snapshots: bool,
    /// Whether the policy of the next VO divides the share of the last group.
    #[serde(default)]
    pub mounts_next: bool,
    /// Whether the VO before may mount this one's policy.
    #[serde(default)]
    pub may_be_read: bool,
    /// What jobs are charged.
    #[serde(default)]
    pub charging: ChargingOption,
    /// Whether a charging rule of weights weighs energy.
    #[serde(default)]
    pub weighs_energy: bool,
    /// Hours after the start at which the first documents expire; never in a run where 0. What has
    /// expired stays in force.
    #[serde(default)]
    pub expires_hours: u64,
    /// Whether three keys sign its documents, and charters change how many of them must.
    #[serde(default)]
    pub thresholds: bool,
    /// What preemptible jobs are charged, of a hundred.
    #[serde(default = "in_full")]
    pub preemptible_percent: u32,
}

/// Levels of a VO's tree that count usage of the site that answers alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum LocalLevels {
    #[default]
    Unsaid,
    All,
    OfFirstGroup,
    AllButOfFirstGroup,
}

/// Kinds of charging rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ChargingOption {
    #[default]
    CpuTime,
    WeightsSum,
    WeightsMax,
    Penalty,
    NormalisedTime,
    WeightsNormalised,
    PenaltyGpusBeside,
}

/// Kinds of history rules. Unless they are to be short all reach back further than a run and a wrong clock do;
/// where only running jobs count usage is kept for some weeks, so it is not drawn where runs or wrong clocks are
/// longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum HistoryOption {
    Windows,
    HalfLife,
    None,
    RunningOnly,
}

/// Usage modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ModeOption {
    Historical,
    Active,
    Predictive,
}

/// Seconds after which running jobs of a silent site do not count: the default of sites.
const SILENCE_S: u64 = 600;

fn one() -> u64 {
    1
}

/// Days that histories reach back unless they are short: no clock is wrong by more, so nothing is forgotten.
const HISTORY_DAYS: u64 = 450;

/// A distance between absolute and relative.
const MIXED: Distance = Distance::Mix {
    k: match Share::from_percent(25) {
        Some(k) => k,
        None => Share::ZERO,
    },
};

/// Cores of each site in the charters: far more than the load can hold.
const CORES: u32 = 1_000_000;

impl Options {
    /// As TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("plain numbers and words")
    }

    /// From TOML.
    pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    pub(crate) fn timing(&self) -> Timing {
        let timing = self.timing;
        let slow = |seconds| Millis::from_secs(seconds * self.stretch);
        Timing {
            publish: slow(timing.publish_s),
            heartbeat: slow(timing.heartbeat_s),
            sync: slow(timing.sync_s),
            silence: slow(SILENCE_S),
            request_timeout: Millis::from_secs(timing.request_timeout_s),
            sweep_entries: self.sweep_entries,
            build_entries: self.build_entries,
            ..Timing::default()
        }
    }

    /// What all owners decide.
    pub(crate) fn owner(&self) -> OwnerSpec {
        let horizon = self.windows_kept(self.local_window_s, self.local.history_hours);
        OwnerSpec {
            timing: self.timing(),
            local_window: window(self.local_window_s),
            local_history: self.local.history.rule(horizon),
            charging: Charging {
                local_rule: self.local.charging.rule(self.local.weighs_energy),
                ..Charging::default()
            },
            machine_classes: self.local.machine_classes,
            limits: self.local.limits,
            together: self.local.together,
            distance: self.local.mixes.then_some(MIXED),
            weighs: self.local.weighs,
            divides: self.local.divides,
            others: self.local.others.then_some(OTHERS),
            renamed: self.local.renamed,
            since: self.local.periods.then(|| start_day(0)),
            advert: self.adverts.then(|| AdvertRules {
                interval: AdvertRules::default().interval.times(self.stretch),
                ..AdvertRules::default()
            }),
            bands: self.quotas.is_some_and(|quotas| quotas.bands),
            local_share: match self.local.own_last {
                true => Weight::ZERO,
                false => OwnerSpec::default().local_share,
            },
            ..OwnerSpec::default()
        }
    }

    /// The VOs, with their first documents.
    pub(crate) fn found(&self) -> Vec<Vo> {
        let found = |(index, vo): (usize, &VoOptions)| {
            let mut spec = vo.spec(index, self.windows_kept(vo.window_s, vo.history_hours));
            spec.alone = self.quotas.is_some_and(|quotas| quotas.alone);
            for (site, cores) in &mut spec.members {
                if self.liars.iter().any(|liar| liar.site == *site) {
                    *cores = LIAR_CORES;
                }
            }
            spec
        };
        let mut specs: Vec<VoSpec> = self.vos.iter().enumerate().map(found).collect();
        let founded =
            |index, spec: &VoSpec| Vo::found(index, spec.clone()).expect("options make valid VOs");
        // A charter names its readers and a policy what it mounts, so the one that is mounted comes last.
        let mut before = None;
        for ((index, spec), vo) in specs.iter_mut().enumerate().zip(&self.vos) {
            if vo.may_be_read {
                spec.readers = before.into_iter().collect::<BTreeSet<_>>();
            }
            before = Some(founded(index, spec).id);
        }
        for index in 1..specs.len() {
            let of = &self.vos[index - 1];
            if of.mounts_next && of.groups > 1 {
                let mount = PolicyMount {
                    vo: founded(index, &specs[index]).id,
                    path: AccountPath::parse("/g0").expect("a path"),
                };
                specs[index - 1].mounts = Some((format!("/g{}", of.groups - 1), mount));
            }
        }
        let all = specs.iter().enumerate();
        all.map(|(index, spec)| founded(index, spec)).collect()
    }

    /// Windows of so many seconds that a history of its own `hours`, or of those of the Grid, reaches back.
    fn windows_kept(&self, window_s: u64, hours: u64) -> u32 {
        let history_s = match (hours, self.history_hours) {
            (0, 0) => HISTORY_DAYS * 86_400,
            (0, hours) | (hours, _) => hours * 3_600,
        };
        u32::try_from((history_s / window_s).max(1)).unwrap_or(u32::MAX)
    }

    /// The histories that may end within a run.
    pub(crate) fn short_histories(&self, vos: &[Vo]) -> BTreeMap<Option<VoId>, Reach> {
        let of_vos = vos.iter().zip(&self.vos);
        let of_vos = of_vos.map(|(vo, of)| (Some(vo.id), of.window_s, of.history_hours));
        let local = (None, self.local_window_s, self.local.history_hours);
        let reach = |(vo, window_s, hours): (Option<VoId>, u64, u64)| {
            let window = Millis::from_secs(window_s);
            let windows = self.windows_kept(window_s, hours).into();
            let history = window.times(windows);
            (vo, Reach { history, window })
        };
        let all = of_vos.chain([local]);
        let short = all.filter(|(.., hours)| hours + self.history_hours > 0);
        short.map(reach).collect()
    }

    /// Whether sites recompute fewer entries in a step than a tree may have.
    pub(crate) fn counts_in_steps(&self) -> bool {
        self.sweep_entries < all_at_once()
    }

    /// Shortest time between two ticks of one node.
    pub(crate) fn tick(&self) -> Millis {
        Millis(self.timing.tick_ms * self.stretch)
    }

    /// The world that the sites live in.
    pub(crate) fn world(&self, vos: &[Vo]) -> WorldSpec {
        let mut spec = WorldSpec::of_vos(self.sites, vos, &self.owner());
        spec.tick = self.tick();
        spec.keeps_journal = self.keeps_journal;
        spec.is_busy = true;
        spec.network = NetworkSpec {
            degree: (self.degree > 0).then_some(self.degree),
            // The driver gives a request up no later than the site does.
            request_timeout_ms: self.timing.request_timeout_s * 1_000,
            ..NetworkSpec::default()
        };
        spec
    }
}

impl LinkOptions {
    pub(crate) fn spec(self) -> LinkSpec {
        LinkSpec {
            latency_ms: self.latency_ms,
            jitter_ms: self.jitter_ms,
            loss_permille: self.loss_permille,
            duplicate_permille: self.duplicate_permille,
            reorder_permille: self.reorder_permille,
            reorder_ms_max: 5_000,
            replay_permille: self.replay_permille,
            replay_ms_max: 6 * 3_600_000,
            ..LinkSpec::CALM
        }
    }
}

impl VoOptions {
    /// The VO's name, and the batch account of its jobs.
    pub(crate) fn name(index: usize) -> String {
        format!("vo-{index}")
    }
}

fn in_full() -> u32 {
    100
}

fn percent(percent: u32) -> Share {
    Share::from_percent(percent.min(100)).expect("at most 100")
}

fn window(seconds: u64) -> WindowLength {
    WindowLength::from_millis(seconds * 1_000).expect("it divides a day")
}

/// More entries than any tree of a swarm has.
pub(super) fn all_at_once() -> usize {
    8_192
}
