//! Questions where a job should run, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A job that asks for a place.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlaceAsk {
    /// The VO by name or id; that which the job is charged to, where it is not said.
    pub vo: Option<String>,
    /// Local user name.
    pub user: Option<String>,
    /// Batch account or project.
    pub account: Option<String>,
    /// Local group.
    pub group: Option<String>,
    /// Grid identity.
    pub subject: Option<String>,
    /// CPUs, of all nodes together.
    pub cpus: u32,
    /// Nodes that these are spread over evenly; 0 is read as 1.
    pub nodes: u32,
    /// GPUs.
    pub gpus: u32,
    /// Memory, MiB.
    pub mem_mib: u64,
    /// Scratch disk, MiB.
    pub disk_mib: u64,
    /// Input and output that are staged, MiB.
    pub staged_mib: u64,
    /// How long it may run, in seconds; 0: not said.
    pub wall_s: u64,
    /// Its queue.
    pub queue: Option<String>,
    /// What it needs of machines by name.
    pub properties: Vec<String>,
    /// What it wishes.
    pub require: Vec<RequireAsk>,
    /// Whether small weights do not shrink its utilities.
    pub normalised: bool,
    /// Which engine decides; `sound` where it is not said.
    pub engine: Option<String>,
    /// How sites are ordered; `utility` for a job with wishes, `lu` for others, where it is not said.
    pub selector: Option<String>,
    /// What chance goes by.
    pub seed: u64,
    /// At most so many sites that may have it; 0 for all.
    pub top: usize,
    /// Whether the best site is asked itself, and the next one where that says no.
    pub confirm: bool,
}

/// One wish.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequireAsk {
    /// `os`, `arch`, `tag`, `cpus`, `memory`, `disk`, `speed` or `time`.
    pub kind: String,
    /// Ways to meet it, each with its value in millionths.
    pub options: Vec<(String, u32)>,
    /// How much it matters, in millionths.
    pub weight: u32,
}

/// `fairmesh.place/1`, as of `fairmesh place --grid`, and more.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlaceBody {
    /// The VO.
    pub vo: String,
    /// Its name.
    pub vo_name: Option<String>,
    /// CPUs asked for.
    pub cpus: u64,
    /// Which engine decided.
    pub engine: String,
    /// How sites are ordered.
    pub selector: String,
    /// What chance went by.
    pub seed: u64,
    /// Whose job it is, as the site's tree has it, where it is said and known.
    pub standing: Option<StandingBody>,
    /// How many sites may have it, listed or not.
    pub sites_total: usize,
    /// Those that may have it, the best first.
    pub sites: Vec<PlacedBody>,
    /// Those that may not, by name.
    pub refused: Vec<RefusedBody>,
}

/// How the submitter stands: at every site by the VO's shares, and here by the owner's as well.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StandingBody {
    /// The entry of this site's tree that the job counts at.
    pub entry: String,
    /// From 0 to 1: the higher, the sooner.
    pub factor: String,
    /// The place in the order, from 1.
    pub rank: u32,
    /// Places.
    pub ranks: u32,
}

/// A site that may have the job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlacedBody {
    /// Its name.
    pub name: String,
    /// Its id.
    pub site: String,
    /// `now` or `wait`.
    pub verdict: String,
    /// Whether it lies beyond the VO's share of the epoch.
    pub beyond: bool,
    /// CPUs that are free for such a job.
    pub free: u64,
    /// All others.
    pub used: u64,
    /// CPUs of all machines.
    pub total: u64,
    /// CPUs that others wait for.
    pub waiting: u64,
    /// How long it would wait, if that is known.
    pub wait_s: Option<u64>,
    /// How old what is known of it is.
    pub age_s: Option<u64>,
    /// Why.
    pub reason: String,
    /// Whether the site has said so itself just now.
    pub confirmed: bool,
    /// What the VO may have there, and has.
    pub sla: Option<SlaBody>,
    /// What it costs there, core-milliseconds.
    pub charge_core_ms: Option<String>,
    /// Why nobody can say what it costs.
    pub charge_why_not: Option<String>,
    /// What the site's best class of machines is worth to the job, 0 to 1, where it wishes anything.
    pub utility: Option<String>,
    /// That class.
    pub class: Option<String>,
    /// The option of each wish that is met there.
    pub met: Vec<MetBody>,
}

/// What a VO may have at a site, and has.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SlaBody {
    /// Of the epoch, percent.
    pub epoch_used: String,
    /// What it may use, percent.
    pub epoch_share: String,
    /// `target`, `at-most` or `at-least`.
    pub sign: String,
    /// CPUs that it holds.
    pub held: u64,
    /// CPUs that it may hold.
    pub limit: u64,
    /// Whether that does not bind where nobody else waits.
    pub extensible: bool,
}

/// A wish that is met.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MetBody {
    /// Its kind.
    pub kind: String,
    /// The option that was taken; none where it is not met.
    pub option: Option<String>,
}

/// A site that may not have the job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RefusedBody {
    /// Its name.
    pub name: String,
    /// Its id.
    pub site: String,
    /// One word for programs.
    pub code: String,
    /// How old what is known of it is.
    pub age_s: Option<u64>,
    /// Why.
    pub reason: String,
}

/// What a scheduler tells of itself, beside its list of running jobs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OccupancyAsk {
    /// CPUs of all machines that are up.
    pub total: Option<u32>,
    /// CPUs that nobody holds.
    pub free: Option<u32>,
    /// How long a job would wait now.
    pub wait_s: Option<u64>,
    /// CPUs that waiting jobs ask for.
    pub waiting: Vec<WaitingAsk>,
    /// Files on the site's disk; as it was told before, where it is left out.
    pub staged: Option<Vec<StagedAsk>>,
}

/// Files of one account on the site's disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StagedAsk {
    /// Whose.
    #[serde(flatten)]
    pub origin: fairmesh_model::Origin,
    /// MiB.
    pub mib: u64,
}

/// CPUs that waiting jobs of one account ask for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WaitingAsk {
    /// Whose.
    #[serde(flatten)]
    pub origin: fairmesh_model::Origin,
    /// CPUs.
    pub cpus: u64,
}

/// `fairmesh.occupancy/1`: it is known.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OccupancyBody {
    /// Whether anybody else is told (`[advert]`).
    pub is_told: bool,
}

/// What a number with decimals is in a schema.
#[cfg(test)]
type Number = f64;

/// `fairmesh.sites/1`: how the sites of a VO stand by what the node knows, in the form of a GRID.json (percentages are
/// numbers there). Sites that say nothing of themselves are left out.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SitesBody {
    /// After which a site of which nothing was heard is not believed.
    pub silence_s: u64,
    /// The sites.
    pub sites: Vec<GridSiteBody>,
}

/// How a site stands.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GridSiteBody {
    /// Its name.
    pub name: String,
    /// CPUs of all machines.
    pub total: u64,
    /// CPUs that nobody holds.
    pub free: Option<u64>,
    /// CPUs that jobs wait for.
    pub waiting: u64,
    /// How the VO stands there, by the name that it was asked by.
    pub vos: std::collections::BTreeMap<String, GridStandingBody>,
    /// How long a job would wait, if that is told.
    pub wait_s: Option<u64>,
    /// Speed of its slowest machines.
    #[cfg_attr(test, schemars(with = "Number"))]
    pub spec: Box<RawValue>,
    /// How old this is, rounded up.
    pub age_s: Option<u64>,
}

/// How a VO stands at a site.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GridStandingBody {
    /// Percent of the epoch.
    #[cfg_attr(test, schemars(with = "Number"))]
    pub epoch_used: Box<RawValue>,
    /// Percent of it that it may use.
    #[cfg_attr(test, schemars(with = "Number"))]
    pub epoch_share: Box<RawValue>,
    /// CPUs that it holds.
    pub burst_used: u64,
    /// CPUs that it may hold.
    pub burst_limit: u64,
    /// Whether that does not bind where nobody else waits.
    pub extensible: bool,
    /// `limit`, `target` or `guarantee`.
    pub sign: &'static str,
    /// CPUs that its jobs wait for.
    pub waiting: u64,
    /// For how long it had been over what it may have when this was so; absent where it was not.
    pub over_s: Option<u64>,
    /// Disk for its files; absent where nothing is said of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<GridDiskBody>,
}

/// Disk for a VO's files at a site.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GridDiskBody {
    /// MiB that the user may have there.
    pub quota_mib: Option<u64>,
    /// MiB that the VO may have there.
    pub share_mib: Option<u64>,
    /// MiB of its files there.
    #[serde(default)]
    pub staged_mib: u64,
}
