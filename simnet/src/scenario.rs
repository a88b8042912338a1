//! Scenario files: a Grid, its load, what happens to it when, and what must hold then.
//!
//! A scenario is a story in TOML. `title` names it and `shows` says in one sentence what it proves;
//! `[grid]`, `[[vo]]` and `[[load]]` describe the Grid; each `[[step]]` has a time `at` and either a
//! `do` or an `expect`, with that step's arguments beside it (`configs/scenarios/README.md` lists them all).
//!
//! Invariant: a file and a seed decide everything; a file that is not understood in full is refused
//! with its name, the line and the key.
//!
//! Deliberately not here: drawing scenarios by chance (the swarm).

mod act;
mod args;
mod condition;
mod error;
mod expect;
mod feed;
mod flood;
mod invariants;
mod judge;
mod length;
mod raw;
mod read;
mod run;
mod show;
mod task;
mod words;

pub use condition::{Acknowledged, CalmEnd, Condition};
pub use error::ScenarioError;
pub use expect::Expect;
pub use invariants::Invariants;
pub use length::{Length, length};
pub use run::{Line, Outcome, Plan, Verdict, run};
pub use task::{LinkChange, NodeTask, Task};
pub use words::fault_word;

use fairmesh_model::Millis;
use fairmesh_site::Timing;

use crate::network::NetworkSpec;
use crate::vo::VoSpec;

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

/// The sites, their network and their owners' decisions.
#[derive(Debug, Clone)]
pub struct Grid {
    /// How many sites there are.
    pub sites: usize,
    /// Sites that a step starts later.
    pub late: Vec<usize>,
    /// How often sites do what.
    pub timing: Timing,
    /// Shortest time between two ticks of one site.
    pub tick: Millis,
    /// Whether side files keep recent changes of the ledger.
    pub keeps_journal: bool,
    /// The network.
    pub network: NetworkSpec,
}

/// Jobs that end at sites and are reported there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// At which sites.
    pub sites: Vec<usize>,
    /// Whose: the name of a VO, or `local`.
    pub account: String,
    /// Mean time between two jobs that end at one site.
    pub every: Millis,
    /// Fewest and most cores of a job.
    pub cores: (u32, u32),
    /// Shortest and longest run.
    pub run: (Millis, Millis),
    /// When the first jobs end, at the earliest.
    pub from: Millis,
    /// When the last have ended.
    pub until: Millis,
    /// Whether the jobs' times are those of the site's own clock, right or wrong.
    pub by_own_clock: bool,
}

/// One line of the story.
#[derive(Debug, Clone)]
pub struct Step {
    /// When.
    pub at: Millis,
    /// Where it stands in the file.
    pub line: usize,
    /// What.
    pub what: What,
}

/// What a step is.
#[derive(Debug, Clone)]
pub enum What {
    /// Something happens.
    Do(Task),
    /// Something must hold.
    Expect(Expect),
}
