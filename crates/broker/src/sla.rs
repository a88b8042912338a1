//! Usage SLAs: what a consumer may have at a site, as one line an entry.
//!
//! ```toml
//! [sla]
//! "/VO-A"      = { cpu = "10% / 30d, burst 40% / 1d", disk = "2TiB", extensible = true }
//! "/VO-A/P-A1" = { cpu = "25%+", at_most = "150cpus" }
//! "/VO-B"      = { cpu = "5%-" }
//! ```
//!
//! A share is percent of the parent's, or CPUs. Without a sign it is a target, with `+` an upper limit,
//! with `-` a guarantee; the signs are those of the Maui scheduler. An entry of a VO at a site is of the site; an entry
//! below it, or below the root of a VO's own document, is of what the VO has.
//!
//! Invariant: what is written is what is read; shares are exact decimals; guarantees of siblings never add
//! up to more than their parent.
//! Deliberately not here: who may sign an SLA, and what batch systems are configured to do.
//! Sources: GRUBER (Euro-Par 2005), section 2.

mod entitlement;
mod grant;
mod read;
mod standing;

use std::collections::BTreeMap;
use std::fmt::Write;

use fairmesh_model::{AccountPath, Share, mutant};
use serde::Deserialize;

pub use entitlement::Oversubscribed;
pub use grant::{Amount, BURST, Bound, EPOCH, Grant, GrantError, Resource, Sign};
pub use read::SlaError;
pub use standing::{Standing, part_of};

use crate::disk::DiskRoom;

/// Most entries of one document: bounds what a site publishes, and the work of reading it.
pub const ENTRIES_MAX: usize = 10_000;

/// What is agreed for consumers, by path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sla {
    /// Entries by path in the VO.
    pub entries: BTreeMap<AccountPath, SlaEntry>,
}

/// What is agreed for one consumer. All of it may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a table such as { cpu = \"10%\" }"
)]
pub struct SlaEntry {
    /// The grant of CPUs; `None` for no rule.
    #[serde(deserialize_with = "read::cpu")]
    pub cpu: Option<Grant>,
    /// The grant of disk space; `None` for no rule.
    #[serde(deserialize_with = "read::disk")]
    pub disk: Option<Grant>,
    /// The grant of network bandwidth; `None` for no rule.
    #[serde(deserialize_with = "read::net")]
    pub net: Option<Grant>,
    /// CPUs that may never be passed, whatever the shares come to.
    #[serde(deserialize_with = "read::at_most")]
    pub at_most: Option<u64>,
    /// Whether the burst share does not bind where the site has no use for the CPUs.
    pub extensible: bool,
    /// Whether the burst share bounds the mean over its interval instead of what is held now.
    pub mean: bool,
}

/// What a consumer has had at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Had {
    /// Part of the site's CPU-time in the epoch, in units of 10⁻⁹.
    pub epoch: u64,
    /// CPUs: held now, or the mean over the burst interval where the entry says so.
    pub burst: u64,
    /// CPUs that its waiting jobs ask for.
    pub waiting: u64,
}

impl SlaEntry {
    /// What an engine looks at, at a site of `total` CPUs. What is left out does not bind.
    pub fn standing(&self, total: u64, had: Had) -> Standing {
        let cpu = self.cpu.unwrap_or_default();
        let epoch_share = cpu.share.map_or(Share::WHOLE, |bound| match bound.amount {
            Amount::Percent(share) => share,
            Amount::Units(cpus) => Share::from_ratio(cpus, total),
        });
        let burst = cpu.burst.map_or(total, |bound| match bound.amount {
            Amount::Percent(share) => mutant!(
                BurstRoundedUp,
                part_of(total, share),
                part_of(total, share) + 1
            ),
            Amount::Units(cpus) => cpus,
        });
        Standing {
            epoch_used: had.epoch,
            epoch_share,
            sign: cpu.sign,
            burst_used: had.burst,
            burst_limit: self.at_most.map_or(burst, |most| burst.min(most)),
            extensible: self.extensible,
            waiting: had.waiting,
            over_for: None,
            disk: DiskRoom::default(),
        }
    }

    /// Disk for the consumer's files at a site that has so much in all, of which it has staged so much. A percentage of
    /// what is not known bounds nothing.
    pub fn disk_room(&self, whole_mib: Option<u64>, staged_mib: u64) -> DiskRoom {
        let share = self.disk.and_then(|grant| grant.share);
        let share_mib = share.and_then(|bound| match bound.amount {
            Amount::Percent(share) => Some(part_of(whole_mib?, share)),
            Amount::Units(bytes) => Some(bytes >> 20),
        });
        DiskRoom {
            share_mib,
            staged_mib,
            ..DiskRoom::default()
        }
    }
}

impl Sla {
    /// Reads a document. `file_name` is for error messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place and what to write.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, SlaError> {
        read::parse(text, file_name)
    }

    /// The document as [`Sla::parse`] reads it: one line an entry, sorted by path.
    pub fn to_toml(&self) -> String {
        let mut text = "[sla]\n".to_owned();
        for (path, entry) in &self.entries {
            let key = path.as_str().replace('\\', "\\\\").replace('"', "\\\"");
            writeln!(text, "\"{key}\" = {}", entry.to_toml()).expect("a string takes all text");
        }
        text
    }
}

impl SlaEntry {
    fn to_toml(&self) -> String {
        let grant = |name: &str, resource, grant: Option<Grant>| {
            grant.map(|grant| format!("{name} = \"{}\"", grant.to_text(resource)))
        };
        let parts = [
            grant("cpu", Resource::Cpu, self.cpu),
            grant("disk", Resource::Disk, self.disk),
            grant("net", Resource::Net, self.net),
            self.at_most.map(|cpus| format!("at_most = \"{cpus}cpus\"")),
            self.extensible.then(|| "extensible = true".to_owned()),
            self.mean.then(|| "mean = true".to_owned()),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        match parts.is_empty() {
            true => "{}".to_owned(),
            false => format!("{{ {} }}", parts.join(", ")),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
