//! Jobs that members pass on to each other: handed in, listed, and taken by who submits them.

use serde::{Deserialize, Serialize};

use super::PlaceAsk;

/// A job for the mesh.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardAsk {
    /// Its user's name for it, which never means another job of his; a new one, where it is not said.
    pub key: Option<String>,
    /// Anything, for the submit command of the site that it goes to.
    pub run: Option<String>,
    /// How often it may be passed on.
    pub ttl: Option<u8>,
    /// What it asks for. How sites are ordered is the mesh's to say.
    pub job: PlaceAsk,
}

/// `fairmesh.forward/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ForwardBody {
    /// Jobs that were handed in or taken here, and are remembered, those that were handed in first; 4,096 at most.
    pub jobs: Vec<ForwardedBody>,
}

/// A job, and where it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ForwardedBody {
    /// Its name in the mesh.
    pub job: String,
    /// Its user's name for it.
    pub key: String,
    /// Whose it is.
    pub user: String,
    /// The VO.
    pub vo: String,
    /// CPUs that it asks for.
    pub cpus: u32,
    /// The sites that have sent it here; of one that was handed in here those from which it came back.
    pub from: Vec<String>,
    /// `here`: it waits to be handed to the batch system. `sent`: not acknowledged yet. `taken`: a site has it.
    /// `submitted`: a batch system has it. `failed`: it runs nowhere, or that is not known.
    pub state: String,
    /// The site that it was sent to, that has taken it, or whose batch system has it.
    pub site: Option<String>,
    /// The batch system's name for it.
    pub batch: Option<String>,
    /// Why it has failed.
    pub why: Option<String>,
    /// Of one that has failed: the sites that it has been to or that have declined it, in order.
    pub tried: Vec<TriedBody>,
    /// Whether its user takes it back: `wanted`, as long as it is not known what comes of it, then `answered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawal: Option<String>,
}

/// A job that its user takes back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WithdrawAsk {
    /// Its name in the mesh.
    pub job: String,
}

/// What came of a job at a site.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TriedBody {
    /// The site.
    pub site: String,
    /// Why it did not take the job; none, where it sent the job on.
    pub said: Option<String>,
}

/// `fairmesh.forward-here/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HereBody {
    /// Jobs that wait to be handed to the batch system here.
    pub jobs: Vec<HereJobBody>,
    /// Jobs that the batch system here has, and whose users take them back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withdrawn: Vec<WithdrawnBody>,
}

/// A job that the batch system has, and whose user takes it back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WithdrawnBody {
    /// Its name in the mesh.
    pub job: String,
    /// A number that tells its visits to this site apart.
    pub visit: u8,
    /// Its user's name for it.
    pub key: String,
    /// Whose it is.
    pub user: String,
    /// The batch system's name for it.
    pub batch: String,
}

/// A job that is to be handed to the batch system.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HereJobBody {
    /// Its name in the mesh.
    pub job: String,
    /// A number that tells its visits to this site apart.
    pub visit: u8,
    /// The class of machines that it was assigned to; empty where it wishes nothing.
    pub class: String,
    /// The VO as the owner calls it, or its id.
    pub vo: String,
    /// The site that answers for it, by its id.
    pub origin: String,
    /// Its name in a charter.
    pub origin_name: String,
    /// Its user's name for it.
    pub key: String,
    /// Whose it is, by the origin's word.
    pub user: String,
    /// Who pays, in the VO.
    pub path: String,
    /// CPUs that it asks for.
    pub cpus: u32,
    /// Nodes.
    pub nodes: u32,
    /// GPUs.
    pub gpus: u32,
    /// MiB of memory.
    pub mem_mib: u64,
    /// MiB of scratch disk.
    pub disk_mib: u64,
    /// Seconds that it may run, on the reference machine.
    pub wall_s: u64,
    /// A queue.
    pub queue: Option<String>,
    /// What machines must have.
    pub properties: Vec<String>,
    /// Anything, for the submit command.
    pub run: String,
    /// Its user takes it back, or it has waited for more than a day: it is not to be submitted any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
}

/// What came of handing a job to the batch system, or of withdrawing it from there; one of the words.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SettledAsk {
    /// The job's name in the mesh.
    pub job: String,
    /// It has it, under this name of its own.
    pub submitted: Option<String>,
    /// It has refused it, and why.
    pub refused: Option<String>,
    /// It is not known whether it has it, and why.
    pub in_doubt: Option<String>,
    /// Whether it was withdrawn from it.
    pub withdrew: Option<bool>,
}

/// `fairmesh.forward-settled/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ForwardSettledBody {}
