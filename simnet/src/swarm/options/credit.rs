//! Credit in a swarm: what authorities grant, and how often jobs ask for it.
//!
//! Invariant: what is drawn here comes from streams of its own, so that it shifts nothing of what a seed draws
//! beside it. Deliberately not here: doing it (`check::credit`).

use fairmesh_cluster::{Seed, Stream};
use serde::{Deserialize, Serialize};

use super::Options;

/// Crowds come for so many hours at most.
const CROWD_HOURS_MAX: u64 = 6;

/// Longest time between a crowd and the moment at which one of it goes; those who wait do so for two seconds.
const CROWD_MS: u64 = 2_500;

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
    /// Whether allocations differ in more than their amounts: members, prices, holds, who settles what is owed.
    #[serde(default)]
    pub terms: bool,
    /// How often several jobs of one user ask at a site at once, which has enough for one of them.
    #[serde(default)]
    pub crowds: u64,
    /// How often an owner decides otherwise about quotas.
    #[serde(default)]
    pub owners: u64,
    /// Jobs that are held while a site's clock is a month behind: these holds reach their time in the run.
    #[serde(default)]
    pub aged: u64,
    /// Whether the first charter of each VO lists its first member alone, and the second one all.
    #[serde(default)]
    pub alone: bool,
    /// Whether owners let accounts with nothing left stand after all others.
    #[serde(default)]
    pub bands: bool,
}

impl QuotaOptions {
    /// What a seed draws: one of three has quotas.
    pub(in crate::swarm) fn draw(seed: Seed, minutes: u64) -> Option<Self> {
        let mut random = seed.stream("swarm quotas");
        (random.below(3) == 0).then(|| Self::of(seed, &mut random, minutes))
    }

    /// What stands apart, so that it shifts nothing of the rest.
    fn of_judge(random: &mut Stream, minutes: u64) -> Self {
        let hours = minutes.div_ceil(60).min(CROWD_HOURS_MAX);
        Self {
            grants: 0,
            core_hours: 0,
            slice_minutes: 0,
            holds_per_hour: 0,
            revocations: 0,
            drains: 0,
            parts: 0,
            bounds: false,
            terms: random.below(3) > 0,
            crowds: random.below(3) * hours,
            owners: random.below(2) * random.between(1, 4),
            // Clocks that were ever wrong excuse much.
            aged: u64::from(random.below(4) == 0) * random.between(1, 6),
            alone: random.below(3) == 0,
            bands: false,
        }
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
            bands: seed.stream("swarm bands").below(2) == 1,
            ..Self::of_judge(&mut seed.stream("swarm terms of quotas"), minutes)
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
    /// Several jobs of one user ask at a site at once.
    Crowd(usize),
    /// The first job of the last crowd does not run.
    Leave(usize),
    /// An owner decides otherwise.
    Owner(usize),
    /// A job is held by a clock that is a month behind.
    Age(usize),
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
    let mut random = seed.stream("swarm crowd times");
    for _ in 0..options.crowds {
        let (at, site) = (random.below(ms), random.index(sites));
        planned.push((at, QuotaStep::Crowd(site)));
        planned.push((at + random.below(CROWD_MS), QuotaStep::Leave(site)));
    }
    for _ in 0..options.owners {
        planned.push((random.below(ms), QuotaStep::Owner(random.index(sites))));
    }
    for _ in 0..options.aged {
        planned.push((random.below(ms), QuotaStep::Age(random.index(sites))));
    }
    planned
}
