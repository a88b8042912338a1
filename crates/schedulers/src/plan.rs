//! From jobs and factors to updates: a pure function.
//!
//! A job keeps the site factor that it has while that is wrong by no more than the granularity and
//! the order of all accounts is right; so ageing usage does not rewrite the whole queue each round.
//!
//! Invariants: after all updates are done, of two accounts the one with the higher factor has the
//! higher site factors, and of one account's jobs the more important one; equal ones have equal site
//! factors up to the granularity. All of it before Slurm subtracts nice: what it is given back of that
//! is added behind. Held jobs and accounts that the node does not know are never touched; the job with
//! the highest site factor comes first.
//! Deliberately not here: asking and telling (`sync`).

use std::collections::BTreeMap;

use fairmesh_client::{Own, Scale};

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
    /// What it says of itself.
    pub own: Own,
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

/// A job on its level, without what Slurm is given back of its nice.
struct Placed<'a> {
    job: &'a Waiting,
    /// Its site factor, if it is known, less that.
    current: Option<i64>,
    nice: i64,
}

/// The updates that bring Slurm's queue in line with factors that differ by `step` at the least, the
/// highest site factor first.
pub fn plan(jobs: &[Waiting], scale: &Scale, step: u32, granularity: u32) -> Vec<Update> {
    let mut levels: BTreeMap<i64, Vec<Placed<'_>>> = BTreeMap::new();
    for job in jobs.iter().filter(|job| !job.held) {
        if let Some(factor) = job.factor {
            let exact = scale.account(factor) + scale.digit(step, &job.own);
            let nice = scale.nice(step, &job.own);
            let current = job.current.map(|now| now - nice);
            let placed = Placed { job, current, nice };
            levels.entry(exact).or_default().push(placed);
        }
    }
    let kept = keepable(&levels, i64::from(granularity));
    let mut updates = Vec::new();
    for ((exact, jobs), kept) in levels.iter().zip(kept).rev() {
        for Placed { job, current, nice } in jobs {
            let stays = kept && current.is_some_and(|now| near(now, *exact, granularity));
            if !stays && *current != Some(*exact) {
                updates.push(Update {
                    id: job.id,
                    target: job.target.clone(),
                    from: job.current,
                    to: exact + nice,
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
fn keepable(levels: &BTreeMap<i64, Vec<Placed<'_>>>, granularity: i64) -> Vec<bool> {
    let mut spans: Vec<(i64, i64, i64, bool)> = levels
        .iter()
        .map(|(exact, jobs)| {
            let near = jobs.iter().filter_map(|placed| placed.current);
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
