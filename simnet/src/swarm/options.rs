//! What one run is made from, as plain numbers that a person can read and change.
//!
//! Invariant: every number is a count, a thousandth, or a time with its unit in its name; there is
//! no chance here. Deliberately not here: which numbers are drawn (`draw`).

use fairmesh_model::{HistoryRule, Millis, Share, UsageMode, WindowLength};
use fairmesh_site::Timing;
use serde::{Deserialize, Serialize};

use crate::network::{LinkSpec, NetworkSpec};
use crate::vo::{OwnerSpec, Vo, VoSpec};
use crate::world::{Planned, WorldSpec};

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Sites.
    pub sites: usize,
    /// Length of the safety phase, simulated minutes.
    pub minutes: u64,
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
    /// Connections that a site holds at most; 0 for the network's default.
    pub degree: usize,
    /// Intervals.
    pub timing: TimingOptions,
    /// What links do while the Grid is not healed.
    pub link: LinkOptions,
    /// What goes wrong beside that.
    pub faults: FaultOptions,
    /// The VOs.
    pub vos: Vec<VoOptions>,
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
    pub bit_flips: u64,
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
    /// What running jobs count for.
    pub mode: ModeOption,
}

/// Kinds of history rules. All reach back further than a run and a wrong clock do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum HistoryOption {
    Windows,
    HalfLife,
    None,
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

/// Days that every history reaches back: no clock is wrong by more, so nothing is forgotten.
const HISTORY_DAYS: u64 = 450;

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

    /// The intervals.
    pub(crate) fn timing(&self) -> Timing {
        let timing = self.timing;
        Timing {
            publish: Millis::from_secs(timing.publish_s),
            heartbeat: Millis::from_secs(timing.heartbeat_s),
            sync: Millis::from_secs(timing.sync_s),
            request_timeout: Millis::from_secs(timing.request_timeout_s),
            ..Timing::default()
        }
    }

    /// What all owners decide.
    pub(crate) fn owner(&self) -> OwnerSpec {
        let horizon = HISTORY_DAYS * 86_400 / self.local_window_s;
        OwnerSpec {
            timing: self.timing(),
            local_window: window(self.local_window_s),
            local_history: HistoryRule::None {
                horizon: u32::try_from(horizon).unwrap_or(u32::MAX),
            },
            ..OwnerSpec::default()
        }
    }

    /// The VOs, with their first documents.
    pub(crate) fn found(&self) -> Vec<Vo> {
        let found = |(index, vo): (usize, &VoOptions)| {
            Vo::found(index, vo.spec(index)).expect("options make valid VOs")
        };
        self.vos.iter().enumerate().map(found).collect()
    }

    /// The world that the sites live in.
    pub(crate) fn world(&self, vos: &[Vo]) -> WorldSpec {
        let mut spec = WorldSpec::of_vos(self.sites, vos, &self.owner());
        spec.tick = Millis(self.timing.tick_ms);
        spec.keeps_journal = self.keeps_journal;
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
    /// The link.
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

    /// Its share tree.
    pub(crate) fn shares(&self) -> Vec<(String, Share)> {
        let share = |parts: usize| Share::from_ratio(1, parts as u64);
        let mut shares = Vec::new();
        for group in 0..self.groups {
            shares.push((format!("/g{group}"), share(self.groups)));
            let user = |user| (format!("/g{group}/u{user}"), share(self.users));
            shares.extend((0..self.users).map(user));
        }
        shares
    }

    fn spec(&self, index: usize) -> VoSpec {
        let windows = HISTORY_DAYS * 86_400 / self.window_s;
        let windows = u32::try_from(windows).expect("windows are a minute or more");
        VoSpec {
            members: self.members.iter().map(|site| (*site, CORES)).collect(),
            shares: self.shares(),
            history: self.history.rule(windows),
            usage_mode: self.mode.mode(),
            window: window(self.window_s),
            ..VoSpec::small(&Self::name(index), 0)
        }
    }
}

impl HistoryOption {
    /// The rule, over so many windows.
    pub(crate) fn rule(self, windows: u32) -> HistoryRule {
        match self {
            Self::Windows => HistoryRule::Windows {
                length: windows.div_ceil(64),
                count: 64,
                factor: Share::from_percent(90).expect("at most 100"),
            },
            Self::HalfLife => HistoryRule::HalfLife {
                windows: windows.div_ceil(60),
                horizon: windows,
            },
            Self::None => HistoryRule::None { horizon: windows },
        }
    }
}

impl ModeOption {
    /// The mode.
    pub(crate) fn mode(self) -> UsageMode {
        match self {
            Self::Historical => UsageMode::Historical,
            Self::Active => UsageMode::Active,
            Self::Predictive => UsageMode::Predictive,
        }
    }
}

fn window(seconds: u64) -> WindowLength {
    WindowLength::from_millis(seconds * 1_000).expect("it divides a day")
}
