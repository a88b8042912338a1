//! From jobs and factors to updates: a pure function.
//!
//! What counts is who goes before whom, and by how much. So the jobs of a level (one account's of one importance)
//! keep the number that most of them have while that is off by no more than the granularity, and stands apart from
//! its neighbours by half of what it should at the least. New jobs get the number of their level. So neither ageing
//! usage nor ranks that move elsewhere in the tree rewrite the queue.
//!
//! Invariants: after all updates are done, of two accounts the one with the higher factor has the higher numbers, and
//! of one account's jobs the more important one, at least half as far apart as factors and importance say; equal ones
//! have equal numbers. All of it before the batch system subtracts nice: what it is given back of that is added
//! behind. Jobs of accounts that the node does not know all have the number of the middle, so they come neither before
//! nor after all others, and the batch system orders them among each other. Held jobs are never touched; the job with
//! the highest number comes first.
//! Deliberately not here: asking and telling (`sync`).

use std::collections::BTreeMap;

use fairmesh_client::{Own, Scale};

/// A waiting job, as far as priorities go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The batch system's number of it.
    pub id: u64,
    /// What its commands call it.
    pub target: String,
    /// The number that it has, if it is known.
    pub current: Option<i64>,
    /// Its account's factor; none where the node does not know the account, which stands for the middle.
    pub factor: Option<u32>,
    /// What it says of itself.
    pub own: Own,
    /// Held by its user or an administrator.
    pub held: bool,
}

/// What to tell of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The batch system's number of it.
    pub id: u64,
    /// What its commands call it.
    pub target: String,
    /// The number before, if it is known.
    pub from: Option<i64>,
    /// The number to set.
    pub to: i64,
}

/// A job on its level, without what the batch system is given back of its nice.
struct Placed<'a> {
    job: &'a Waiting,
    /// Its number, if it is known, less that.
    current: Option<i64>,
    nice: i64,
}

/// A level: where it belongs, and where it is to be.
#[derive(Debug, Clone, Copy)]
struct Level {
    exact: i64,
    target: i64,
}

/// The updates that bring a queue in line with factors that differ by `step` at the least, the highest number first.
pub fn plan(jobs: &[Waiting], scale: &Scale, step: u32, granularity: u32) -> Vec<Update> {
    let mut levels: BTreeMap<i64, Vec<Placed<'_>>> = BTreeMap::new();
    for job in jobs.iter().filter(|job| !job.held) {
        let (exact, nice) = match job.factor {
            Some(factor) => (
                scale.account(factor) + scale.digit(step, &job.own),
                scale.nice(step, &job.own),
            ),
            None => (scale.neutral(), 0),
        };
        let current = job.current.map(|now| now - nice);
        let placed = Placed { job, current, nice };
        levels.entry(exact).or_default().push(placed);
    }
    let targets = targets(&levels, i64::from(granularity));
    let mut updates = Vec::new();
    for (jobs, level) in levels.values().zip(targets).rev() {
        let wrong = jobs.iter().filter(|it| it.current != Some(level.target));
        updates.extend(wrong.map(|Placed { job, nice, .. }| Update {
            id: job.id,
            target: job.target.clone(),
            from: job.current,
            to: level.target + nice,
        }));
    }
    updates
}

/// Updates to the same number, up to `most` together, in their order.
pub(crate) fn batches(updates: &[Update], most: usize) -> impl Iterator<Item = &[Update]> {
    let same = updates.chunk_by(|one, next| one.to == next.to);
    same.flat_map(move |same| same.chunks(most))
}

/// Where each level is to be, lowest first. Of two neighbours that come too near to each other the one that is
/// further off goes where it belongs.
fn targets(levels: &BTreeMap<i64, Vec<Placed<'_>>>, granularity: i64) -> Vec<Level> {
    let level = |(exact, jobs): (&i64, &Vec<Placed<'_>>)| Level {
        exact: *exact,
        target: usual(*exact, jobs, granularity).unwrap_or(*exact),
    };
    let mut targets: Vec<Level> = levels.iter().map(level).collect();
    let off = |level: &Level| (level.target - level.exact).abs();
    // Each pass but the last sends at least one level where it belongs, so this ends.
    loop {
        let mut changed = false;
        for index in 1..targets.len() {
            let (below, above) = (targets[index - 1], targets[index]);
            if 2 * (above.target - below.target) >= above.exact - below.exact {
                continue;
            }
            let worse = index - usize::from(off(&below) > off(&above));
            targets[worse].target = targets[worse].exact;
            changed = true;
        }
        if !changed {
            return targets;
        }
    }
}

/// The number that most jobs of a level have, if it may stay. 0 is that of a job that nobody has placed.
fn usual(exact: i64, jobs: &[Placed<'_>], granularity: i64) -> Option<i64> {
    let near = jobs.iter().filter_map(|placed| placed.current);
    let near = near.filter(|now| *now != 0 && (now - exact).abs() <= granularity);
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    near.for_each(|now| *counts.entry(now).or_default() += 1);
    let by_count = |(now, count): &(i64, usize)| (*count, -(now - exact).abs());
    counts.into_iter().max_by_key(by_count).map(|(now, _)| now)
}

#[cfg(test)]
mod tests {
    use fairmesh_client::FACTOR_MAX;

    use super::*;

    const SCALE: Scale = Scale {
        range: 1_000,
        importance: 200,
    };

    /// Thousandths, a hundred of them apart: 99 points for the last digit, and 49 for the usual importance.
    const STEP: u32 = 100_000_000;

    fn job(id: u64, current: Option<i64>, factor: Option<u32>) -> Waiting {
        Waiting {
            id,
            target: id.to_string(),
            current,
            factor: factor.map(|thousandths| thousandths * 1_000_000),
            own: Own::default(),
            held: false,
        }
    }

    fn told(jobs: &[Waiting], granularity: u32) -> Vec<(u64, i64)> {
        told_apart(jobs, 0, granularity)
    }

    fn told_apart(jobs: &[Waiting], step: u32, granularity: u32) -> Vec<(u64, i64)> {
        let updates = plan(jobs, &SCALE, step, granularity);
        updates
            .iter()
            .map(|update| (update.id, update.to))
            .collect()
    }

    fn says(nice: i64, comment: &str, job: Waiting) -> Waiting {
        let own = Own::of(nice, comment);
        Waiting { own, ..job }
    }

    #[test]
    fn importance_orders_the_jobs_of_one_account_between_its_neighbours() {
        let jobs = [
            says(0, "fairmesh:importance=200", job(1, None, Some(500))),
            job(2, None, Some(500)),
            says(100, "", job(3, None, Some(500))),
            says(0, "fairmesh:importance=0", job(4, None, Some(600))),
            says(0, "fairmesh:importance=200", job(5, None, Some(400))),
        ];
        let sites = told_apart(&jobs, STEP, 0);
        // Slurm takes the 100 of job 3 away again.
        assert_eq!(sites, [(4, 600), (1, 599), (2, 549), (3, 600), (5, 499)]);
        let one_number = [(4, 600), (1, 500), (2, 500), (3, 500), (5, 400)];
        assert_eq!(told(&jobs, 0), one_number, "no room: nice is Slurm's alone");
    }

    #[test]
    fn a_job_that_becomes_more_important_is_told_however_coarse() {
        let placed = |comment| {
            let jobs = [
                job(1, Some(549), Some(500)),
                says(0, comment, job(2, Some(549), Some(500))),
                says(30, "", job(3, Some(564), Some(500))),
            ];
            told_apart(&jobs, STEP, 1_000)
        };
        assert_eq!(placed(""), [], "534 before nice is given back");
        let turned = [(2, 554), (1, 549)];
        assert_eq!(placed("fairmesh:importance=110"), turned[..1]);
    }

    #[test]
    fn the_highest_site_factor_comes_first() {
        let jobs = [
            job(1, Some(0), Some(200)),
            job(2, None, Some(900)),
            job(3, Some(0), Some(500)),
        ];
        assert_eq!(told(&jobs, 0), [(2, 900), (3, 500), (1, 200)]);
    }

    #[test]
    fn held_jobs_are_left_alone() {
        let mut held = job(1, Some(0), Some(200));
        held.held = true;
        assert_eq!(told(&[held], 0), []);
    }

    /// A job that no rule maps came after all others, those of entries that have used far too much included.
    #[test]
    fn unknown_jobs_get_the_middle_and_keep_their_own_order() {
        let jobs = [
            job(1, None, Some(100)),
            job(2, None, Some(900)),
            job(3, None, None),
            says(30, "fairmesh:importance=200", job(4, Some(0), None)),
            job(5, Some(500), None),
        ];
        let sites = told_apart(&jobs, STEP, 0);
        assert_eq!(sites, [(2, 949), (3, 500), (4, 500), (1, 149)]);
        // However coarse, it stays between those whom the factors put above and below it.
        let moved = [
            job(1, Some(480), Some(100)),
            job(2, Some(500), None),
            job(3, Some(520), Some(900)),
        ];
        assert_eq!(told(&moved, 1_000), [(3, 900), (1, 100)]);
        let alone = [job(1, Some(0), None), job(2, None, None)];
        assert_eq!(told(&alone, 1_000), [(1, 500), (2, 500)]);
    }

    #[test]
    fn small_changes_wait_while_the_order_is_right() {
        let jobs = [job(1, Some(500), Some(505)), job(2, Some(700), Some(695))];
        assert_eq!(told(&jobs, 10), []);
        assert_eq!(told(&jobs, 4), [(2, 695), (1, 505)]);
    }

    #[test]
    fn the_order_and_the_distances_are_right_however_coarse() {
        let jobs = [
            job(1, Some(500), Some(501)),
            job(2, Some(500), Some(502)),
            job(3, Some(503), Some(520)),
            job(4, Some(900), Some(900)),
        ];
        // 1 and 2 are tied; 3 comes too near to where 2 belongs.
        assert_eq!(told(&jobs, 100), [(3, 520), (2, 502)]);
        let turned = [job(1, Some(503), Some(501)), job(2, Some(502), Some(504))];
        assert_eq!(told(&turned, 100), [(2, 504), (1, 501)]);
    }

    #[test]
    fn while_the_order_and_half_of_the_distance_hold_nothing_is_told() {
        let two = |low, high| [job(1, Some(300), Some(low)), job(2, Some(800), Some(high))];
        for (low, high) in [
            (300, 800),
            (100, 200),
            (10, 1_000),
            (700, 701),
            (900, 1_000),
        ] {
            assert_eq!(told(&two(low, high), 1_000), [], "{low} {high}");
        }
        let near = [job(1, Some(300), Some(0)), job(2, Some(700), Some(1_000))];
        assert_eq!(told(&near, 1_000), [(2, 1_000)], "400 is less than half");
        assert_eq!(told(&two(800, 300), 1_000).len(), 2, "the order has turned");
        let alone = [
            job(1, Some(300), Some(1_000)),
            job(2, Some(0), Some(1_000)),
            job(3, None, Some(1_000)),
        ];
        assert_eq!(told(&alone, 1_000), [(2, 300), (3, 300)], "new ones join");
    }

    proptest::proptest! {
        /// Whatever a queue held, the order of accounts is right afterwards, ties are ties, and a second look has
        /// nothing to say.
        #[test]
        fn a_plan_puts_any_queue_in_order(
            queue in proptest::collection::vec((proptest::option::of(0_i64..1_200), 0_u32..=1_000), 0..40),
            granularity in 0_u32..=1_000,
        ) {
            let job = |(id, (current, factor)): (u64, &(Option<i64>, u32))| job(id, *current, Some(*factor));
            let mut jobs: Vec<Waiting> = (1..).zip(&queue).map(job).collect();
            for update in plan(&jobs, &SCALE, 0, granularity) {
                let index = usize::try_from(update.id - 1).expect("small");
                jobs[index].current = Some(update.to);
            }
            for (a, b) in jobs.iter().flat_map(|a| jobs.iter().map(move |b| (a, b))) {
                let (factors, numbers) = ((a.factor, b.factor), (a.current, b.current));
                proptest::prop_assert_eq!(factors.0.cmp(&factors.1), numbers.0.cmp(&numbers.1));
            }
            proptest::prop_assert_eq!(plan(&jobs, &SCALE, 0, granularity), []);
        }
    }

    #[test]
    fn jobs_of_one_account_get_one_number() {
        let jobs = [job(1, Some(100), Some(100)), job(2, None, Some(100))];
        assert_eq!(told(&jobs, 10), [(2, 100)]);
    }

    #[test]
    fn the_ends_of_the_range() {
        let widest = Scale {
            range: 2_000_000_000,
            ..SCALE
        };
        for (scale, factor, points) in [
            (SCALE, 0, 0),
            (SCALE, FACTOR_MAX, 1_000),
            (SCALE, u32::MAX, 1_000),
            (widest, FACTOR_MAX, 2_000_000_000),
        ] {
            assert_eq!(scale.account(factor), points);
        }
    }
}
