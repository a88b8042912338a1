//! What a broker knows of a site: its size, who holds what of it, and how old that is.
//!
//! Invariant: a view is what somebody reported, and may be wrong or old; engines read it as it is. CPUs held
//! by nobody in the view (local groups) are known by `free` alone.
//! Deliberately not here: where a view comes from.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{Factor, Millis};

use crate::machines::Machines;
use crate::sla::Standing;

/// A site as a broker knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SiteView {
    /// Its name, by which ties are broken.
    pub name: String,
    /// CPUs of all machines (TOTAL).
    pub total: u64,
    /// CPUs that are free by the site's own word; `None`: what the VOs below do not hold.
    pub free: Option<u64>,
    /// CPUs that waiting jobs ask for, of those ahead of the request's. Where a site tells jobs only, each counts as one.
    pub waiting: u64,
    /// What each VO may have there and has. A VO without an entry may have nothing. Boxed, for most views have one, and a
    /// map has room for eleven.
    pub vos: BTreeMap<Arc<str>, Box<Standing>>,
    /// Its machines; `None`: not known, and every job up to `total` fits.
    pub machines: Option<Arc<Machines>>,
    /// What is free of each class of these, in their order ([`Machines::lay_out`]); empty: not known.
    pub classes: Arc<[u64]>,
    /// How long its batch system estimates that the request would wait, if it cannot start now.
    pub wait: Option<Millis>,
    /// Speed relative to the VO's reference machine.
    pub spec: Factor,
    /// The submitter's fairshare factor there, in millionths of 1.
    pub factor: Option<u32>,
    /// How old all this is; `None`: not known.
    pub age: Option<Millis>,
}

impl SiteView {
    /// CPUs that all VOs of the view hold.
    pub fn held(&self) -> u64 {
        let held = self.vos.values().map(|standing| standing.burst_used);
        held.fold(0, u64::saturating_add)
    }

    /// CPUs that nobody holds: the site's own word, and never more than the VOs leave.
    pub fn idle(&self) -> u64 {
        let left = self.total.saturating_sub(self.held());
        self.free.map_or(left, |free| free.min(left))
    }

    /// CPUs that `vo` may hold here at most.
    pub fn may_hold(&self, vo: &str) -> Option<u64> {
        let standing = self.vos.get(vo)?;
        Some(match standing.extensible {
            true => self.total,
            false => standing.burst_limit.min(self.total),
        })
    }

    /// CPUs kept for guarantees of other VOs than `vo`, which wait for them.
    pub fn reserved_for_others(&self, vo: &str) -> u64 {
        let others = self.vos.iter().filter(|(name, _)| &***name != vo);
        others.fold(0, |sum, (_, standing)| {
            sum.saturating_add(standing.owed(self.total))
        })
    }

    /// This view with what a broker has sent there since it was made: `cpus` more of `vo` are held.
    #[must_use]
    pub fn with_sent(mut self, vo: &str, cpus: u64) -> Self {
        // The site's own word goes down by as much, or the CPUs would be given twice.
        self.free = Some(self.idle().saturating_sub(cpus));
        if let Some(standing) = self.vos.get_mut(vo) {
            standing.burst_used = standing.burst_used.saturating_add(cpus);
        }
        self
    }

    /// This view with so much more disk kept for jobs of `vo`.
    #[must_use]
    pub fn with_reserved(mut self, vo: &str, mib: u64) -> Self {
        if let Some(standing) = self.vos.get_mut(vo) {
            standing.disk.reserved_mib = standing.disk.reserved_mib.saturating_add(mib);
        }
        self
    }
}
