//! From a factor and a job's own importance to a scheduler's points: one formula for all who set priorities.
//!
//! Points are `range × factor`, and above them the last digit. Two accounts whose factors differ stand at
//! least the ranking's *step* apart, so the jobs of each have the room of `range × step` points to themselves;
//! the digit takes `importance` points of it, or what there is. A scheduler that subtracts a job's nice by
//! itself gets that back as far as it is the digit (−100 to 100), so it counts once; what lies beyond stays.
//!
//! Invariant: whatever the importances, nices from −100 to 100 and rounding, of two accounts with different
//! factors no job of the lower one comes before a job of the higher one; within one account more importance
//! never means fewer points. Where there is no room, importance and nice change nothing.
//! Deliberately not here: asking the node, and telling the scheduler.

use fairmesh_model::Importance;

use crate::protocol::FACTOR_MAX;

/// Most points of [`Scale::importance`]. Slurm adds site factors as numbers around 2^31: with a range of
/// 2,000,000,000 there is room for no more.
pub const IMPORTANCE_POINTS_MAX: u32 = 1_000_000;

/// The factor that stands for a job of whom the node knows no account: the middle, as of an entry on its target or in the
/// middle of the ranks. Its points put the job neither before nor after all others.
pub const FACTOR_NEUTRAL: u32 = FACTOR_MAX / 2;

/// How a scheduler's administrator wants factors to weigh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Points of the highest factor.
    pub range: u32,
    /// Points between the least and the most important of one account's jobs, where there is room for them;
    /// 0 leaves importance aside, and nice to the scheduler.
    pub importance: u32,
}

/// What a job says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Own {
    /// How important it is to its user.
    pub importance: Importance,
    /// Of the nice that the scheduler subtracts, what the importance stands for: −100 to 100.
    pub nice: i64,
}

impl Own {
    /// By a job's nice and its comment, which goes before.
    pub fn of(nice: i64, comment: &str) -> Self {
        let by_nice = Importance::of_nice(nice);
        Self {
            importance: Importance::in_comment(comment).unwrap_or(by_nice),
            nice: by_nice.nice(),
        }
    }
}

impl Scale {
    /// The points of an account's factor alone.
    pub fn account(&self, factor: u32) -> i64 {
        i64::from(self.range) * i64::from(factor.min(FACTOR_MAX)) / i64::from(FACTOR_MAX)
    }

    /// The points of a job without an account that the node knows. They are the same for all such jobs, whatever their
    /// importance: among these the scheduler's own order stays.
    pub fn neutral(&self) -> i64 {
        self.account(FACTOR_NEUTRAL)
    }

    /// The points that the last digit has, from its least value to its greatest, where different factors are
    /// at least `step` apart.
    pub fn room(&self, step: u32) -> i64 {
        (self.account(step) - 1).clamp(0, i64::from(self.importance))
    }

    /// The points of a job's last digit.
    pub fn digit(&self, step: u32, own: &Own) -> i64 {
        let number = i64::from(own.importance.get());
        self.room(step) * number / i64::from(Importance::MAX.get())
    }

    /// What the scheduler is to be given back of a job's nice.
    pub fn nice(&self, step: u32, own: &Own) -> i64 {
        if self.room(step) > 0 { own.nice } else { 0 }
    }

    /// All of it: what a scheduler that subtracts nice is told.
    pub fn job(&self, factor: u32, step: u32, own: &Own) -> i64 {
        self.account(factor) + self.digit(step, own) + self.nice(step, own)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scale(range: u32) -> Scale {
        Scale {
            range,
            importance: 200,
        }
    }

    /// A thousand entries: one of them is a thousandth above the next.
    const STEP: u32 = FACTOR_MAX / 1_000;

    #[test]
    fn the_digit_has_what_lies_between_two_accounts() {
        let plain = Own::default();
        let urgent = Own::of(0, "fairmesh:importance=200");
        for (range, expected) in [
            // 1,000 points apart: a point for each step of importance.
            (1_000_000, [500_000, 500_100, 500_200]),
            // 100 points apart: 99 for all of the digit.
            (100_000, [50_000, 50_049, 50_099]),
            // One point apart: none.
            (1_000, [500, 500, 500]),
            (10, [5, 5, 5]),
        ] {
            let least = Own::of(0, "fairmesh:importance=0");
            let points =
                [least, plain, urgent].map(|own| scale(range).job(FACTOR_MAX / 2, STEP, &own));
            assert_eq!(points, expected, "{range}");
        }
        // A node of an earlier release says no step.
        assert_eq!(scale(1_000_000).job(FACTOR_MAX, 0, &urgent), 1_000_000);
    }

    #[test]
    fn a_job_without_an_account_has_the_points_of_the_middle() {
        for (range, expected) in [(1_000_000_000, 500_000_000), (1_000, 500), (1, 0)] {
            assert_eq!(scale(range).neutral(), expected, "{range}");
        }
    }

    #[test]
    fn nice_counts_once() {
        let wide = scale(1_000_000);
        let told = |nice, comment| {
            let sum = wide.job(FACTOR_MAX, STEP, &Own::of(nice, comment));
            sum - nice - 1_000_000
        };
        // What Slurm makes of it, less the account's points.
        assert_eq!([told(0, ""), told(100, ""), told(-100, "")], [100, 0, 200]);
        assert_eq!(told(30, "fairmesh:importance=150"), 150);
        assert_eq!(told(-500, ""), 600, "what an operator adds beyond stays");
        assert_eq!(told(500, ""), -400, "and what a user gives up beyond, too");
        let narrow = scale(1_000);
        assert_eq!(
            narrow.job(FACTOR_MAX, STEP, &Own::of(70, "")),
            1_000,
            "Slurm's alone"
        );
        let off = Scale {
            importance: 0,
            ..wide
        };
        let own = Own::of(70, "fairmesh:importance=9");
        assert_eq!(off.job(FACTOR_MAX, STEP, &own), 1_000_000);
    }

    #[test]
    fn the_largest_range_leaves_room_in_32_bits() {
        let widest = Scale {
            range: 2_000_000_000,
            importance: IMPORTANCE_POINTS_MAX,
        };
        let most = widest.job(
            FACTOR_MAX,
            FACTOR_MAX,
            &Own::of(100, "fairmesh:importance=200"),
        );
        assert!(most < i64::from(i32::MAX), "{most}");
    }

    proptest! {
        /// Importance and the nice that stands for it order one account's jobs, never two accounts.
        #[test]
        fn importance_never_turns_two_accounts(
            range in prop_oneof![1u32..=100_000, 1u32..=2_000_000_000],
            importance in prop_oneof![0u32..=400, 0u32..=IMPORTANCE_POINTS_MAX],
            step in prop_oneof![0u32..=FACTOR_MAX, (1u32..=100_000).prop_map(|n| FACTOR_MAX / n)],
            above in prop_oneof![Just(0u32), 0u32..=1_000],
            factor in 0u32..=FACTOR_MAX,
            [mine, theirs] in prop::array::uniform2((
                -100i64..=100,
                prop_oneof![Just(0u8), Just(200), 0u8..=255],
                any::<bool>(),
            )),
        ) {
            let scale = Scale { range, importance };
            let own = |(nice, number, says): (i64, u8, bool)| {
                let comment = format!("fairmesh:importance={number}");
                (nice, Own::of(nice, if says { &comment } else { "" }))
            };
            let (mine, theirs) = (own(mine), own(theirs));
            let last = |factor, (nice, own): &(i64, Own)| {
                // Where there is no room, nice is the scheduler's own affair.
                let nice = if scale.room(step) > 0 { *nice } else { 0 };
                scale.job(factor, step, own) - nice
            };
            let higher = factor.saturating_add(step).saturating_add(above);
            if step > 0 && higher <= FACTOR_MAX {
                prop_assert!(last(factor, &mine) <= last(higher, &theirs));
                let differ = scale.account(factor) < scale.account(higher);
                prop_assert!(!differ || last(factor, &mine) < last(higher, &theirs));
            }
            let within = mine.1.importance.cmp(&theirs.1.importance);
            let points = last(factor, &mine).cmp(&last(factor, &theirs));
            prop_assert!(points == within || points.is_eq());
            if scale.room(step) >= 200 {
                prop_assert_eq!(points, within);
            }
        }
    }
}
