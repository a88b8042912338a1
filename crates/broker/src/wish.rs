//! A class of machines by what a job can wish of it, and such a wish.
//!
//! Deliberately not here: what a wish is worth (`utility`), and which classes have what is wished (`machines`).

use std::collections::BTreeSet;

use fairmesh_model::{Factor, MachineClass, Millis};
use serde::{Deserialize, Serialize};

/// Machines of one kind, with what a job can wish of them. Its words lie where they were: thousands of classes are
/// looked at for one job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Class<'a> {
    /// Name of the class.
    pub name: &'a str,
    /// Operating system, compared as text.
    pub os: &'a str,
    /// Architecture, compared as text.
    pub arch: &'a str,
    /// Whatever else it has by name.
    pub tags: Option<&'a BTreeSet<String>>,
    /// CPUs of one machine.
    pub cpus: u64,
    /// Memory of one machine, MiB.
    pub mem_mib: u64,
    /// Disk of one machine, MiB.
    pub disk_mib: u64,
    /// Speed relative to the reference machine.
    pub spec: Factor,
    /// Number of machines of the class.
    pub count: u64,
    /// Machines that are free.
    pub free: u64,
    /// Jobs that wait for one.
    pub waiting: u64,
}

impl<'a> Class<'a> {
    /// A class of an owner's price list; the properties `os=…` and `arch=…` name its operating system and its
    /// architecture, and all others are tags.
    pub fn of(name: &'a str, class: &'a MachineClass, free: u64) -> Self {
        let (os, arch) = Self::names(class);
        Self {
            name,
            os,
            arch,
            tags: Some(&class.properties),
            cpus: class.cpus.into(),
            mem_mib: class.mem_mib,
            disk_mib: class.disk_mib,
            spec: class.spec,
            count: class.count.into(),
            free,
            waiting: 0,
        }
    }

    /// The operating system and the architecture of a class; empty where its properties do not say.
    fn names(class: &'a MachineClass) -> (&'a str, &'a str) {
        let (mut os, mut arch) = (None, None);
        for property in &class.properties {
            if let Some(value) = property.strip_prefix("os=") {
                os.get_or_insert(value);
            } else if let Some(value) = property.strip_prefix("arch=") {
                arch.get_or_insert(value);
            }
        }
        (os.unwrap_or_default(), arch.unwrap_or_default())
    }
}

/// What an option asks for. Names are equal or not; amounts are at least there; time is at most taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Wish {
    /// The machine must have this operating system.
    Os(String),
    /// The machine must have this architecture.
    Arch(String),
    /// Something else by name.
    Tag(String),
    /// CPUs of one machine.
    Cpus(u64),
    /// MiB of memory of one machine.
    MemMib(u64),
    /// MiB of disk of one machine.
    DiskMib(u64),
    /// The least speed, as a factor of the reference machine.
    Spec(Factor),
    /// The job's time on that machine.
    Time(Millis),
}
