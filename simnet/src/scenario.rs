//! Scenario files: a Grid, its load, what happens to it when, and what must hold then.
//!
//! A scenario is a story in TOML. `title` names it and `shows` says in one sentence what it proves;
//! `[grid]`, `[[vo]]` and `[[load]]` describe the Grid; each `[[step]]` has a time `at` and either a
//! `do`, which is an [`Action`], or an `expect`, which is an [`Expect`], with its arguments beside it
//! (`configs/scenarios/README.md` lists them all).
//!
//! Invariant: a file and a seed decide everything; a file that is not understood in full is refused
//! with its name, the line and the key.
//!
//! Deliberately not here: drawing scenarios by chance (the swarm).

mod condition;
mod error;
mod expect;
mod feed;
mod invariants;
mod judge;
mod read;
mod run;
mod steps;

pub use condition::{Acknowledged, CalmEnd, Condition};
pub use error::ScenarioError;
pub use expect::Expect;
pub use invariants::Invariants;
pub use run::{Line, Outcome, Plan, Verdict, run};

use fairmesh_model::Millis;
use fairmesh_site::Timing;
use serde::Deserialize;

use crate::network::{LinkSpec, NetworkSpec};
use crate::vo::VoSpec;
use crate::world::Action;

/// A scenario that was understood.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The name of its file, without folder and ending.
    pub name: String,
    /// What it is called.
    pub title: String,
    /// What it proves, in one sentence.
    pub shows: String,
    /// How long it lasts; later steps are refused.
    pub duration: Millis,
    /// The Grid.
    pub grid: Grid,
    /// Its VOs.
    pub vos: Vec<VoSpec>,
    /// Its load.
    pub loads: Vec<Load>,
    /// What happens, and what must hold, by time.
    pub steps: Vec<Step>,
}

/// The sites, their network and their owners' decisions; what is left out is as nodes have it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Grid {
    /// How many sites there are.
    pub sites: usize,
    /// Sites that a step starts later.
    #[serde(default)]
    pub late: Vec<usize>,
    #[serde(default, with = "crate::length")]
    pub publish: Option<Millis>,
    #[serde(default, with = "crate::length")]
    pub heartbeat: Option<Millis>,
    #[serde(default, with = "crate::length")]
    pub sync: Option<Millis>,
    #[serde(default, with = "crate::length")]
    pub clock_tolerance: Option<Millis>,
    /// Shortest time between two ticks of one site.
    #[serde(default, with = "crate::length")]
    pub tick: Option<Millis>,
    /// Whether side files keep recent changes of the ledger.
    #[serde(default)]
    pub keeps_journal: bool,
    /// What links do.
    #[serde(default)]
    pub link: LinkSpec,
    pub degree: Option<usize>,
    pub mesh_degree: Option<usize>,
}

impl Grid {
    /// How often sites do what.
    pub fn timing(&self) -> Timing {
        let usual = Timing::default();
        Timing {
            publish: self.publish.unwrap_or(usual.publish),
            heartbeat: self.heartbeat.unwrap_or(usual.heartbeat),
            sync: self.sync.unwrap_or(usual.sync),
            clock_tolerance: self.clock_tolerance.unwrap_or(usual.clock_tolerance),
            ..usual
        }
    }

    /// The network.
    pub fn network(&self) -> NetworkSpec {
        let usual = NetworkSpec::default();
        NetworkSpec {
            link: self.link,
            degree: self.degree,
            mesh_degree: self.mesh_degree.unwrap_or(usual.mesh_degree),
            ..usual
        }
    }
}

/// Jobs that end at sites and are reported there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// At which sites; at all members of the VO if none is named.
    #[serde(default)]
    pub sites: Vec<usize>,
    /// Whose: the name of a VO, or `local`; of the first VO if none is named.
    #[serde(default)]
    pub account: String,
    /// Mean time between two jobs that end at one site.
    #[serde(with = "crate::length")]
    pub every: Millis,
    /// Fewest and most cores of a job.
    #[serde(default = "usual_cores")]
    pub cores: (u32, u32),
    /// The shortest run.
    #[serde(default = "usual_shortest", with = "crate::length")]
    pub shortest: Millis,
    /// The longest run.
    #[serde(default = "usual_longest", with = "crate::length")]
    pub longest: Millis,
    /// When the first jobs end, at the earliest.
    #[serde(default, with = "crate::length")]
    pub from: Millis,
    /// When the last have ended; at the end of the scenario if that is not said.
    #[serde(default, with = "crate::length")]
    pub until: Option<Millis>,
    /// Whether the jobs' times are those of the site's own clock, right or wrong.
    #[serde(default)]
    pub by_own_clock: bool,
}

fn usual_cores() -> (u32, u32) {
    (1, 16)
}

fn usual_shortest() -> Millis {
    Millis(600_000)
}

fn usual_longest() -> Millis {
    Millis(4 * 3_600_000)
}

/// One line of the story.
#[derive(Debug, Clone)]
pub struct Step {
    /// When.
    pub at: Millis,
    /// Where it stands in the file.
    pub line: usize,
    /// Its word and arguments as they stand there.
    pub text: String,
    /// What.
    pub what: What,
}

/// What a step is.
#[derive(Debug, Clone)]
pub enum What {
    /// Something happens.
    Do(Action),
    /// Something must hold.
    Expect(Expect),
}
