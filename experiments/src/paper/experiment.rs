//! The runs of the evaluation: which load, which usage mode, how old views are, and who knows what.
//!
//! Invariant: experiments that are compared have the same load, job by job: it comes from the seed
//! and the case alone.
//!
//! Deliberately not here: what is measured of them.

use std::fmt;

use fairmesh_cluster::{Broker, LeafLoad, Seed, WorkloadError, paper};
use fairmesh_model::{Millis, UsageMode};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::central::Central;
use crate::grid::{Gossip, GridSpec, Served, UsageSeries, UsageSource, run};
use simnet::vo::START;

/// The leaf that runs out of work.
pub const IDLE_LEAF: &str = "U-B12";

/// The leaves that half of the sites know.
pub const HALF_LEAVES: [&str; 2] = ["P-A2", "P-A3"];

/// When the last job of the leaf that runs out of work is submitted. It submits one every 15 s and
/// is served 12.6 percent of the Grid, one every 48 s: three days of work come in this time.
const IDLE_SUBMITS_FOR: Millis = Millis::from_secs(81_648);

/// When it is where the paper's figures 13 and 14 need it: with what waits then it has run out of work
/// after two hours.
const IDLE_EARLY_SUBMITS_FOR: Millis = Millis::from_secs(3_400);

/// Who submits what, where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Case {
    /// Everybody has work for ever, everywhere.
    Steady,
    /// P-A2 and P-A3 submit to the first half of the sites only.
    Half,
    /// U-B12 runs out of work on the third day.
    Idle,
    /// U-B12 runs out of work in the second hour.
    IdleEarly,
}

/// Who tells a scheduler what was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Knowledge {
    /// The site's own node, by gossip; views get so many seconds old.
    Gossip(u64),
    /// The site's own node, which hears nobody; views get so many seconds old.
    OwnSite(u64),
    /// One table for all sites, with the same feeds as the nodes have each so many seconds.
    Table(u64),
    /// A scheduler that knows everything at once.
    Central,
}

/// One run for each seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Experiment {
    /// Who submits what, where.
    pub case: Case,
    /// What running jobs count for; the order of [`MODES`].
    mode: usize,
    /// Who tells schedulers.
    pub knowledge: Knowledge,
    /// What schedulers are given of what their nodes know.
    pub served: Served,
}

/// The usage modes, from what knows least to what knows most.
pub const MODES: [UsageMode; 3] = [
    UsageMode::Historical,
    UsageMode::Active,
    UsageMode::Predictive,
];

/// Their names.
pub const MODE_NAMES: [&str; 3] = ["historical", "active", "predictive"];

/// What schedulers go by where the figures are as printed, and its name.
pub const SERVED: [(Served, &str); 3] = [
    (Served::Exact, "exact rank"),
    (Served::Slurm, "as Slurm gets it"),
    (Served::Base200, "base 200, in Slurm"),
];

/// Ages of views that the paper looks at.
pub const AGES_S: [u64; 2] = [60, 300];

/// The Grid's size and the time that is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Sites.
    pub sites: usize,
    /// Simulated time.
    pub duration: Millis,
}

impl Extent {
    /// The paper's Grid for so many days.
    pub fn days(days: u64) -> Self {
        Self {
            sites: paper::SITES,
            duration: simnet::vo::DAY.times(days),
        }
    }
}

impl Experiment {
    /// An experiment.
    pub fn new(case: Case, mode: UsageMode, knowledge: Knowledge) -> Self {
        let mode = MODES.iter().position(|of| *of == mode);
        Self {
            case,
            mode: mode.expect("all modes are listed"),
            knowledge,
            served: Served::Exact,
        }
    }

    /// What the figures as printed need, under the exact order and as Slurm gets it by rank and in base 200.
    pub fn printed() -> Vec<Self> {
        let gossip = Knowledge::Gossip(AGES_S[0]);
        let runs = [
            (Case::Steady, gossip),
            (Case::Half, Knowledge::OwnSite(AGES_S[0])),
            (Case::Half, gossip),
            (Case::IdleEarly, gossip),
        ];
        let mut all = Vec::new();
        for (case, knowledge) in runs {
            for mode in MODES {
                let exact = Self::new(case, mode, knowledge);
                all.extend(SERVED.map(|(served, _)| exact.as_served(served)));
            }
        }
        all
    }

    /// All that the evaluation's checks and own figures need, those that take longest first.
    pub fn all() -> Vec<Self> {
        let steady = |mode, knowledge| Self::new(Case::Steady, mode, knowledge);
        let predictive = |case, knowledge| Self::new(case, UsageMode::Predictive, knowledge);
        let mut all = Vec::new();
        for case in [Case::Half, Case::Idle] {
            all.push(predictive(case, Knowledge::Gossip(AGES_S[0])));
        }
        all.push(predictive(Case::Half, Knowledge::OwnSite(AGES_S[0])));
        for mode in MODES.into_iter().rev() {
            let ages = AGES_S.map(|age| steady(mode, Knowledge::Gossip(age)));
            all.extend(ages);
        }
        all.extend(MODES.map(|mode| steady(mode, Knowledge::Table(AGES_S[0]))));
        all.extend(MODES.map(|mode| steady(mode, Knowledge::Central)));
        for case in [Case::Half, Case::Idle] {
            all.push(predictive(case, Knowledge::Central));
        }
        all
    }

    /// What running jobs count for.
    pub fn mode(&self) -> UsageMode {
        MODES[self.mode]
    }

    /// The mode's name.
    pub fn mode_name(&self) -> &'static str {
        MODE_NAMES[self.mode]
    }

    /// The same load and mode under the all-knowing scheduler.
    pub fn central(self) -> Self {
        self.under(Knowledge::Central)
    }

    /// The same, where schedulers are given something else.
    pub fn as_served(self, served: Served) -> Self {
        Self { served, ..self }
    }

    /// The same mode and knowledge, where everybody has work everywhere.
    pub fn steady(self) -> Self {
        let case = Case::Steady;
        Self { case, ..self }
    }

    /// The same load and mode under other knowledge.
    pub fn under(self, knowledge: Knowledge) -> Self {
        Self { knowledge, ..self }
    }

    /// Runs it with one seed.
    pub fn run(
        &self,
        extent: Extent,
        seed: Seed,
        on_day: &dyn Fn(),
    ) -> Result<UsageSeries, WorkloadError> {
        let spec = self.spec(extent);
        let mode = spec.usage_mode;
        let mut source: Box<dyn UsageSource> = match self.knowledge {
            Knowledge::Central => Box::new(Central::new(mode, false)),
            Knowledge::Table(_) => Box::new(Central::new(mode, true)),
            _ => Box::new(Gossip::new(&spec, seed)),
        };
        run(&spec, seed, &mut *source, on_day)
    }

    /// The Grid that it runs on.
    pub fn spec(&self, extent: Extent) -> GridSpec {
        let age = match self.knowledge {
            Knowledge::Gossip(seconds)
            | Knowledge::OwnSite(seconds)
            | Knowledge::Table(seconds) => seconds,
            Knowledge::Central => AGES_S[0],
        };
        let mut spec = GridSpec::paper(self.mode(), Millis::from_secs(age), extent.duration);
        spec.sites = extent.sites;
        spec.is_shared = !matches!(self.knowledge, Knowledge::OwnSite(_));
        spec.served = self.served;
        self.change_loads(&mut spec.loads, extent.sites);
        spec
    }

    fn change_loads(&self, loads: &mut [LeafLoad], sites: usize) {
        let named = |load: &LeafLoad, names: &[&str]| {
            let name = load.account.path.name();
            name.is_some_and(|name| names.contains(&name))
        };
        for load in loads {
            if self.case == Case::Half && named(load, &HALF_LEAVES) {
                load.broker = Broker::Restricted((0..sites.div_ceil(2)).collect());
            }
            let submits_for = match self.case {
                Case::Idle => IDLE_SUBMITS_FOR,
                Case::IdleEarly => IDLE_EARLY_SUBMITS_FOR,
                _ => continue,
            };
            if named(load, &[IDLE_LEAF]) {
                load.until_excluded = Some(START.after(submits_for));
            }
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = self.mode_name();
        match self.knowledge {
            Knowledge::Gossip(age) => write!(f, "{mode} {age} s"),
            Knowledge::OwnSite(age) => write!(f, "{mode} {age} s, own site only"),
            Knowledge::Table(age) => write!(f, "{mode} {age} s, all-knowing with the same feeds"),
            Knowledge::Central => write!(f, "{mode}, all-knowing"),
        }?;
        match self.case {
            Case::Steady => Ok(()),
            Case::Half => f.write_str(", half of the sites"),
            Case::Idle => f.write_str(", U-B12 idle"),
            Case::IdleEarly => f.write_str(", U-B12 idle from hour two"),
        }?;
        f.write_str(match self.served {
            Served::Exact => "",
            Served::Slurm => ", as Slurm gets it",
            Served::Bits => ", as Slurm gets it by bits",
            Served::Base200 => ", as Slurm gets it in base 200",
        })
    }
}

impl<'de> Deserialize<'de> for Experiment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let mut all = Self::all().into_iter().chain(Self::printed());
        let named = all.find(|experiment| experiment.to_string() == name);
        named.ok_or_else(|| D::Error::custom(format!("there is no experiment `{name}`")))
    }
}

impl Serialize for Experiment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
