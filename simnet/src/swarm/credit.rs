//! Credit in a swarm: what authorities grant, and how often jobs ask for it.
//!
//! Invariant: what is drawn here comes from streams of its own, so that it shifts nothing of what a seed draws
//! beside it. Deliberately not here: doing it (`check::credit`).

use fairmesh_cluster::{Seed, Stream};
use serde::{Deserialize, Serialize};

use super::Options;

/// What authorities and jobs do about quotas in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaOptions {
    /// Allocations that are granted.
    pub grants: u64,
    /// Core-hours of each, for every site.
    pub core_hours: u64,
    /// Minutes of a slice; each has one to three.
    pub slice_minutes: u64,
    /// Jobs that ask at each site in an hour.
    pub holds_per_hour: u64,
    /// Allocations that end sooner than was granted.
    pub revocations: u64,
    /// How often a site sends all that it has to the others.
    pub drains: u64,
    /// Parts that leaders pass on; where there are none, nobody is named as a leader.
    #[serde(default)]
    pub parts: u64,
    /// Whether what a site may have of a slice is bounded.
    #[serde(default)]
    pub bounds: bool,
}

impl QuotaOptions {
    /// What a seed draws: one of three has quotas.
    pub(super) fn draw(seed: Seed, minutes: u64) -> Option<Self> {
        let mut random = seed.stream("swarm quotas");
        (random.below(3) == 0).then(|| Self::of(seed, &mut random, minutes))
    }

    /// Quotas of a run of so many minutes.
    fn of(seed: Seed, random: &mut Stream, minutes: u64) -> Self {
        let mut of_parts = seed.stream("swarm parts of quotas");
        Self {
            grants: random.between(1, 3),
            core_hours: [20, 200, 2_000][random.index(3)],
            slice_minutes: random.between(minutes.div_ceil(4), minutes),
            holds_per_hour: random.between(1, 12).min(2 + 2_000 / minutes.max(1)),
            revocations: random.below(2),
            drains: random.below(3),
            parts: of_parts.below(2) * of_parts.between(1, 6),
            bounds: of_parts.below(2) == 1,
        }
    }
}

impl Options {
    /// With quotas, whatever the seed draws.
    #[must_use]
    pub fn with_quotas(mut self, seed: Seed) -> Self {
        let mut random = seed.stream("swarm quotas");
        let drawn = || QuotaOptions::of(seed, &mut random, self.minutes);
        self.quotas = Some(self.quotas.unwrap_or_else(drawn));
        self
    }
}

/// Something that an authority, a batch system or an operator does about quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotaStep {
    /// An authority grants credit.
    Grant,
    /// It takes back what is not used.
    Revoke,
    /// A job asks at a site, and some that have asked end.
    Jobs(usize),
    /// A site sends away what it has.
    Drain(usize),
    /// Leaders pass a part on.
    Pass,
}

/// What happens when, in a run of `ms` at so many sites.
pub(crate) fn plan_credit(
    seed: Seed,
    options: &QuotaOptions,
    sites: usize,
    ms: u64,
) -> Vec<(u64, QuotaStep)> {
    let mut random = seed.stream("swarm quota times");
    let mut planned = Vec::new();
    for _ in 0..options.grants {
        planned.push((random.below(ms / 2), QuotaStep::Grant));
    }
    for _ in 0..options.revocations {
        planned.push((random.between(ms / 4, ms), QuotaStep::Revoke));
    }
    for _ in 0..options.drains {
        planned.push((random.below(ms), QuotaStep::Drain(random.index(sites))));
    }
    let jobs = ms * options.holds_per_hour / 3_600_000;
    for site in 0..sites {
        for _ in 0..jobs {
            planned.push((random.below(ms), QuotaStep::Jobs(site)));
        }
    }
    let mut random = seed.stream("swarm part times");
    for _ in 0..options.parts {
        planned.push((random.between(ms / 8, ms), QuotaStep::Pass));
    }
    planned
}
