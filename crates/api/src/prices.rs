//! Answers about what machines and queues cost.

use serde::{Deserialize, Serialize};

/// `fairmesh.prices/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PricesBody {
    /// What each site has told the members of each VO.
    pub sites: Vec<SitePricesBody>,
}

/// What one site has told the members of one VO.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SitePricesBody {
    /// The VO.
    pub vo: String,
    /// Its name.
    pub vo_name: Option<String>,
    /// The site.
    pub site: String,
    /// Its name in a charter.
    pub name: Option<String>,
    /// When the site last signed anything, by its own clock.
    pub signed_ms: u64,
    /// Machine classes, by name.
    pub machines: Vec<MachineBody>,
    /// Queues that cost more or less than 1.
    pub queues: Vec<QueueBody>,
    /// Qualities of service that do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qos: Vec<QosBody>,
    /// Which class a machine is of; the first that holds decides.
    pub hosts: Vec<HostsBody>,
}

/// Machines of one kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MachineBody {
    /// The class.
    pub class: String,
    /// How many there are.
    pub count: u32,
    /// CPUs of one.
    pub cpus: u32,
    /// Memory of one, MiB.
    pub mem_mib: u64,
    /// GPUs of one.
    pub gpus: u32,
    /// Scratch disk of one, MiB.
    pub disk_mib: u64,
    /// Speed relative to the VO's reference machine, a decimal.
    pub spec: String,
    /// What jobs may ask of it by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<String>,
    /// The queues whose jobs it runs; of all, where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
}

/// What a queue costs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QueueBody {
    /// The queue.
    pub queue: String,
    /// Times the charge elsewhere, a decimal.
    pub cost: String,
}

/// What a quality of service costs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QosBody {
    /// The quality of service.
    pub qos: String,
    /// Times the charge elsewhere, a decimal.
    pub cost: String,
}

/// Machines that are of a class.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostsBody {
    /// A name, or the beginning of names and `*`.
    pub hosts: String,
    /// Their class.
    pub class: String,
}
