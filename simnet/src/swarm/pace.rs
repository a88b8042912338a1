//! How fast a Grid lives: hours full of events, or months with as many.
//!
//! In a slow Grid every interval is longer and everything happens later by one factor, so that a seed
//! of months costs what a seed of hours does. Days give way to merged days then, records come weeks
//! after their jobs, and documents expire.
//!
//! Invariant: what is drawn here shifts nothing of what is drawn elsewhere. Deliberately not here:
//! histories that are shorter than a run (stories tell of those).

use fairmesh_cluster::Seed;

use super::Options;
use super::draw::SWEEP_OF_MANY;

/// The factors, and of how many seeds in twenty each is drawn.
const STRETCHES: [(u64, u64); 4] = [(1, 12), (10, 4), (40, 2), (150, 2)];

/// Longest unstretched safety phase of a slow Grid, minutes.
const MINUTES_MAX: u64 = 12 * 60;

/// Of so many batch systems the clock of one is wrong, where any is.
const WRONG_CLOCKS: usize = 3;

impl Options {
    /// With a pace of its own, documents that may expire, and batch systems whose clocks may be wrong.
    pub fn with_pace(mut self, seed: Seed) -> Self {
        if self.stretch > 1 {
            return self;
        }
        let mut random = seed.stream("swarm pace");
        let mut draw = random.below(20);
        let drawn = STRETCHES.iter().find(|(_, seeds)| {
            let is_it = draw < *seeds;
            draw = draw.saturating_sub(*seeds);
            is_it
        });
        self.stretch = drawn.map_or(1, |(stretch, _)| *stretch);
        if self.stretch > 1 {
            self.minutes = self.minutes.min(MINUTES_MAX) * self.stretch;
        }
        let days = self.minutes / (24 * 60);
        let expires = random.below(2) == 1 && days >= 2;
        for vo in &mut self.vos {
            vo.expires_hours = if expires { days * 12 } else { 0 };
        }
        self.batch_clocks = random.below(3) == 0 && !self.one_clock;
        if self.stretch > 1 {
            self.sweep_entries = self.sweep_entries.max(SWEEP_OF_MANY);
            self = self.with_long_histories();
        }
        self
    }

    /// By how much the clock of a site's batch system is ahead, in milliseconds: of most by nothing.
    pub(crate) fn batch_clock_ms(&self, seed: Seed, site: usize) -> i64 {
        let mut random = seed.stream(&format!("batch clock {site}"));
        let most = [600_000, 3_600_000, 5 * 86_400_000][random.index(3)];
        let by = i64::try_from(random.below(most)).unwrap_or(0);
        let is_wrong = self.batch_clocks && random.index(WRONG_CLOCKS) == 0;
        match (is_wrong, random.below(3)) {
            (false, _) => 0,
            (true, 0) => by,
            (true, _) => -by,
        }
    }
}
