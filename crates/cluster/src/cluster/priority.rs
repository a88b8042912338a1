//! A job's priority: the fairshare factor of its account and its age in the queue, weighed.
//!
//! Invariant: a priority is exact in the factor, so two accounts are never made equal by rounding;
//! and between jobs of one account it never rises with a later submission.
//!
//! Source: Slurm's multifactor priority (`priority_multifactor`): a weighted sum of factors from 0
//! to 1, of which age grows with the time in the queue until `PriorityMaxAge`. Here the unit is the
//! look-up's 2^32 − 1 instead of 1, and nothing is rounded to 32 bits.
//!
//! Deliberately not here: job size, partition and QOS, which say nothing about fairness.

use fairmesh_model::Millis;

/// The greatest fairshare factor that a look-up gives, and what a full age counts per weight.
const FACTOR_MAX: u128 = 0xffff_ffff;

/// How a scheduler weighs fairshare against age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobPriority {
    /// What a factor of 2^32 − 1 counts (Slurm's `PriorityWeightFairshare`).
    pub fairshare_weight: u32,
    /// What an age of `age_max` counts (Slurm's `PriorityWeightAge`).
    pub age_weight: u32,
    /// Jobs age no further than this (Slurm's `PriorityMaxAge`, a week unless changed). Zero lets
    /// all jobs be of full age at once.
    pub age_max: Millis,
}

impl JobPriority {
    /// The factor alone; jobs do not age.
    pub const FAIRSHARE_ONLY: Self = Self {
        fairshare_weight: 1,
        age_weight: 0,
        age_max: Millis(0),
    };

    /// The priority of a job of this age whose account has this factor, in units of 2^-32 of a
    /// weight. Factors are 32-bit numbers where they come from `lookup.sock`; greater ones weigh
    /// more than a full weight.
    pub fn of(&self, factor: u64, age: Millis) -> u128 {
        let fairshare = u128::from(self.fairshare_weight) * u128::from(factor);
        let full = u128::from(self.age_weight) * FACTOR_MAX;
        let by_age = match u128::from(self.age_max.0) {
            0 => full,
            age_max => full * u128::from(age.min(self.age_max).0) / age_max,
        };
        fairshare + by_age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEK: Millis = Millis::from_secs(604_800);

    #[test]
    fn priorities_are_the_weighted_sum() {
        let weights = JobPriority {
            fairshare_weight: 1_000,
            age_weight: 100,
            age_max: WEEK,
        };
        let rows = [
            ("nothing", 0, Millis(0), 0),
            ("all", 0xffff_ffff, WEEK, 1_100 * FACTOR_MAX),
            ("half of the age", 0, Millis(WEEK.0 / 2), 50 * FACTOR_MAX),
            ("no older than a week", 0, WEEK.times(9), 100 * FACTOR_MAX),
            ("half of the factor", 0x8000_0000, Millis(0), 1_000 << 31),
        ];
        for (name, factor, age, expected) in rows {
            assert_eq!(weights.of(factor, age), expected, "{name}");
        }
    }

    #[test]
    fn without_a_weight_for_age_the_factor_is_the_priority() {
        for factor in [0, 1, 0xffff_ffff, u64::MAX] {
            for age in [Millis(0), WEEK, Millis(u64::MAX)] {
                let priority = JobPriority::FAIRSHARE_ONLY.of(factor, age);
                assert_eq!(priority, u128::from(factor));
            }
        }
    }

    #[test]
    fn the_greatest_of_everything_does_not_overflow() {
        let weights = JobPriority {
            fairshare_weight: u32::MAX,
            age_weight: u32::MAX,
            age_max: Millis(u64::MAX),
        };
        let expected = u128::from(u32::MAX) * (u128::from(u64::MAX) + FACTOR_MAX);
        assert_eq!(weights.of(u64::MAX, Millis(u64::MAX)), expected);
    }
}
