//! From jobs and factors to updates: a pure function.
//!
//! A job keeps the site factor that it has while that is wrong by no more than the granularity and
//! the order of all accounts is right; so ageing usage does not rewrite the whole queue each round.
//!
//! Invariants: after all updates are done, of two accounts the one with the higher factor has the
//! higher site factor, and equal factors have equal ones up to the granularity; held jobs and accounts
//! that the node does not know are never touched; the most important job comes first.
//! Deliberately not here: asking and telling (`sync`).

use std::collections::BTreeMap;

use fairmesh_client::FACTOR_MAX;

/// A waiting job, as far as priorities go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Slurm's number.
    pub id: u64,
    /// What `scontrol` calls it.
    pub target: String,
    /// Its site factor, if it is known.
    pub current: Option<i64>,
    /// Its account's factor; none where the node does not know the account.
    pub factor: Option<u32>,
    /// Held by its user or an administrator.
    pub held: bool,
}

/// What to tell Slurm of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Slurm's number.
    pub id: u64,
    /// What `scontrol` calls it.
    pub target: String,
    /// The site factor before, if it is known.
    pub from: Option<i64>,
    /// The site factor to set.
    pub to: i64,
}

/// The site factor of a factor.
pub fn scaled(factor: u32, range: u32) -> i64 {
    let scaled = u64::from(factor.min(FACTOR_MAX)) * u64::from(range) / u64::from(FACTOR_MAX);
    i64::try_from(scaled).unwrap_or(i64::MAX)
}

/// The updates that bring Slurm's queue in line with the factors, the most important job first.
pub fn plan(jobs: &[Waiting], range: u32, granularity: u32) -> Vec<Update> {
    let mut levels: BTreeMap<i64, Vec<&Waiting>> = BTreeMap::new();
    for job in jobs.iter().filter(|job| !job.held) {
        if let Some(factor) = job.factor {
            levels.entry(scaled(factor, range)).or_default().push(job);
        }
    }
    let kept = keepable(&levels, i64::from(granularity));
    let mut updates = Vec::new();
    for ((exact, jobs), kept) in levels.iter().zip(kept).rev() {
        for job in jobs {
            let stays = kept
                && job
                    .current
                    .is_some_and(|now| near(now, *exact, granularity));
            if !stays && job.current != Some(*exact) {
                updates.push(Update {
                    id: job.id,
                    target: job.target.clone(),
                    from: job.current,
                    to: *exact,
                });
            }
        }
    }
    updates
}

fn near(now: i64, exact: i64, granularity: u32) -> bool {
    (now - exact).abs() <= i64::from(granularity)
}

/// Of each level, lowest first: whether its jobs may keep what they have where that is near enough.
/// Two neighbours of which that would turn or blur the order are both set anew.
fn keepable(levels: &BTreeMap<i64, Vec<&Waiting>>, granularity: i64) -> Vec<bool> {
    let mut spans: Vec<(i64, i64, i64, bool)> = levels
        .iter()
        .map(|(exact, jobs)| {
            let near = jobs.iter().filter_map(|job| job.current);
            let near = near.filter(|now| (now - exact).abs() <= granularity);
            let (low, high) = near.fold((*exact, *exact), |(low, high), now| {
                (low.min(now), high.max(now))
            });
            (*exact, low, high, true)
        })
        .collect();
    // Each pass but the last takes the freedom of at least one level, so this ends.
    loop {
        let mut changed = false;
        for index in 1..spans.len() {
            let (below, above) = (spans[index - 1], spans[index]);
            if below.2 < above.1 {
                continue;
            }
            for level in [&mut index.saturating_sub(1), &mut { index }] {
                let (exact, _, _, free) = spans[*level];
                changed |= free;
                spans[*level] = (exact, exact, exact, false);
            }
        }
        if !changed {
            return spans.into_iter().map(|(_, _, _, free)| free).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: u32 = 1_000;

    fn job(id: u64, current: Option<i64>, factor: Option<u32>) -> Waiting {
        Waiting {
            id,
            target: id.to_string(),
            current,
            factor: factor.map(|thousandths| thousandths * 1_000_000),
            held: false,
        }
    }

    fn told(jobs: &[Waiting], granularity: u32) -> Vec<(u64, i64)> {
        let updates = plan(jobs, RANGE, granularity);
        updates
            .iter()
            .map(|update| (update.id, update.to))
            .collect()
    }

    #[test]
    fn the_most_important_job_comes_first() {
        let jobs = [
            job(1, Some(0), Some(200)),
            job(2, None, Some(900)),
            job(3, Some(0), Some(500)),
        ];
        assert_eq!(told(&jobs, 0), [(2, 900), (3, 500), (1, 200)]);
    }

    #[test]
    fn held_and_unknown_jobs_are_left_alone() {
        let mut held = job(1, Some(0), Some(200));
        held.held = true;
        assert_eq!(told(&[held, job(2, Some(7), None)], 0), []);
    }

    #[test]
    fn small_changes_wait_while_the_order_is_right() {
        let jobs = [job(1, Some(500), Some(505)), job(2, Some(700), Some(695))];
        assert_eq!(told(&jobs, 10), []);
        assert_eq!(told(&jobs, 4), [(2, 695), (1, 505)]);
    }

    #[test]
    fn the_order_is_right_however_coarse() {
        let jobs = [
            job(1, Some(500), Some(501)),
            job(2, Some(500), Some(502)),
            job(3, Some(503), Some(520)),
            job(4, Some(900), Some(900)),
        ];
        // 1 and 2 are tied in Slurm, so both are set; 3 would then stand between, and may stay.
        assert_eq!(told(&jobs, 100), [(2, 502), (1, 501)]);
        let turned = [job(1, Some(503), Some(501)), job(2, Some(502), Some(504))];
        assert_eq!(told(&turned, 100), [(2, 504), (1, 501)]);
    }

    #[test]
    fn a_correction_that_collides_with_its_neighbour_sets_that_one_too() {
        let jobs = [
            job(1, Some(450), Some(480)),
            job(2, Some(470), Some(490)),
            job(3, Some(460), Some(495)),
        ];
        assert_eq!(told(&jobs, 100), [(3, 495), (2, 490), (1, 480)]);
    }

    #[test]
    fn jobs_of_one_account_get_one_number() {
        let jobs = [job(1, Some(100), Some(100)), job(2, None, Some(100))];
        assert_eq!(told(&jobs, 10), [(2, 100)]);
    }

    #[test]
    fn the_ends_of_the_range() {
        assert_eq!(scaled(0, RANGE), 0);
        assert_eq!(scaled(FACTOR_MAX, RANGE), 1_000);
        assert_eq!(scaled(u32::MAX, RANGE), 1_000);
        assert_eq!(scaled(FACTOR_MAX, 2_000_000_000), 2_000_000_000);
    }
}
