//! Everybody busy: each job of one unit goes to the account that the order serves first.
//!
//! Invariant: after 400 jobs each account has its weight of all weights, within one point of a hundred, under every
//! distance. `rank` and `bits` keep the order of the vectors. `fairtree` and `percental` are orders of their own, which
//! know no distances and give the same parts. `paper` is left out: a site that serves by it reads shares by FSGrid's
//! published rule, under which the unpromised rest is dealt out equally.

use fairmesh_model::{Distance, ShareRule, Weight};
use proptest::prelude::*;

use crate::tree::{BITS, BY_WEIGHTS, DISTANCES, PAPER, PAPER_ROUNDED, Prepare, RANK, Tree};

/// Jobs of one simulation, of an hour on one core each.
const JOBS: u64 = 400;
const CORE_HOUR: u64 = 3_600_000;

/// The lines of a tree, and the accounts that submit with what they should have of the whole, as a ratio.
type Row = (
    &'static [(&'static str, u64)],
    &'static [(&'static str, (u64, u64))],
);

const ROWS: [Row; 12] = [
    (&[("/a", 30), ("/b", 10)], &[("/a", (3, 4)), ("/b", (1, 4))]),
    (
        &[("/a", 1), ("/b", 2), ("/c", 3)],
        &[("/a", (1, 6)), ("/b", (1, 3)), ("/c", (1, 2))],
    ),
    (
        &[("/a", 20), ("/b", 1), ("/c", 1), ("/d", 1)],
        &[
            ("/a", (20, 23)),
            ("/b", (1, 23)),
            ("/c", (1, 23)),
            ("/d", (1, 23)),
        ],
    ),
    // Above 100.
    (
        &[("/a", 60), ("/b", 60), ("/c", 30)],
        &[("/a", (2, 5)), ("/b", (2, 5)), ("/c", (1, 5))],
    ),
    (&[("/a", 75), ("/b", 25)], &[("/a", (3, 4)), ("/b", (1, 4))]),
    // Two levels, each with a sum of its own.
    (
        &[
            ("/a", 30),
            ("/a/x", 1),
            ("/a/y", 2),
            ("/b", 10),
            ("/b/x", 120),
            ("/b/y", 40),
        ],
        &[
            ("/a/x", (1, 4)),
            ("/a/y", (1, 2)),
            ("/b/x", (3, 16)),
            ("/b/y", (1, 16)),
        ],
    ),
    // Accounts without a line have what their `*` has, in equal parts.
    (
        &[("/a", 30), ("/b", 10), ("/*", 10)],
        &[
            ("/a", (3, 5)),
            ("/b", (1, 5)),
            ("/u", (1, 10)),
            ("/v", (1, 10)),
        ],
    ),
    (
        &[("/a", 1), ("/a/x", 2), ("/a/*", 1), ("/b", 1), ("/*", 0)],
        &[
            ("/a/x", (1, 3)),
            ("/a/u", (1, 12)),
            ("/a/v", (1, 12)),
            ("/b", (1, 2)),
            ("/w", (0, 1)),
        ],
    ),
    // A share of zero, with a line or without one, gets nothing while others wait.
    (
        &[("/a", 30), ("/b", 10), ("/scav", 0)],
        &[
            ("/a", (3, 4)),
            ("/b", (1, 4)),
            ("/scav", (0, 1)),
            ("/hog", (0, 1)),
        ],
    ),
    (
        &[("/a", 3), ("/a/x", 5), ("/a/scav", 0), ("/b", 1)],
        &[("/a/x", (3, 4)), ("/a/scav", (0, 1)), ("/b", (1, 4))],
    ),
    // Jobs of a pool account count at the group itself: it is one of the accounts without a line.
    (
        &[("/a", 1), ("/a/x", 1), ("/a/*", 1), ("/b", 1)],
        &[
            ("/a/x", (1, 4)),
            ("/a", (1, 8)),
            ("/a/u", (1, 8)),
            ("/b", (1, 2)),
        ],
    ),
    // Nobody else waits: then it is served.
    (&[("/a", 30), ("/scav", 0)], &[("/scav", (1, 1))]),
];

#[test]
fn with_everybody_busy_each_gets_its_weight() {
    for row in &ROWS {
        for distance in DISTANCES {
            for prepare in BY_WEIGHTS {
                let (lines, accounts) = row;
                let name = format!("{lines:?}, {distance:?}");
                check(&mut Tree::new(lines, distance), prepare, accounts, &name);
            }
        }
    }
}

fn check(tree: &mut Tree, prepare: Prepare, accounts: &[(&str, (u64, u64))], name: &str) {
    let paths: Vec<&str> = accounts.iter().map(|(path, _)| *path).collect();
    let mut jobs = vec![0; paths.len()];
    for _ in 0..JOBS {
        let ranks = tree.ranks(prepare, &paths);
        // Of several that tie, the first one.
        let first = (0..paths.len()).min_by_key(|index| ranks[*index]);
        let first = first.expect("somebody is busy");
        tree.charge(paths[first], CORE_HOUR);
        jobs[first] += 1;
    }
    let name = format!(
        "{name}, {}: {jobs:?}",
        tree.order(prepare).projection().name()
    );
    for ((path, (part, whole)), jobs) in accounts.iter().zip(&jobs) {
        let off = (jobs * whole).abs_diff(JOBS * part);
        assert!(off * 100 <= JOBS * whole, "{path}, {name}");
        assert!(*part > 0 || *jobs == 0, "{path} got something, {name}");
    }
}

/// Nobody is promised the other 60 of a hundred, so each of the two gets 30 of them.
#[test]
fn by_fsgrids_published_rule_the_unpromised_rest_is_dealt_out_equally() {
    let lines = [("/a", 30 * Weight::ONE), ("/b", 10 * Weight::ONE)];
    for prepare in [PAPER, PAPER_ROUNDED, RANK, BITS] {
        let rule = ShareRule::AsPublished;
        let mut tree = Tree::read_by(rule, &lines, Distance::Absolute);
        let accounts = [("/a", (3, 5)), ("/b", (2, 5))];
        check(&mut tree, prepare, &accounts, "30 and 10 as published");
    }
}

/// A group of a random tree: its weight, those of its users, and of its `*` with how many accounts without a line.
type Group = (u64, Vec<u64>, Option<(u64, usize)>);

fn groups() -> impl Strategy<Value = Vec<Group>> {
    let users = prop::collection::vec(1u64..=1_000, 1..3);
    let others = prop::option::of((1u64..=1_000, 1usize..3));
    prop::collection::vec((1u64..=1_000, users, others), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn with_random_weights_each_account_gets_its_own(
        groups in groups(), distance in 0..DISTANCES.len(), projection in 0..BY_WEIGHTS.len(),
    ) {
        let mut lines = Vec::new();
        let mut accounts = Vec::new();
        let total: u64 = groups.iter().map(|(weight, ..)| weight).sum();
        for (group, (weight, users, others)) in groups.iter().enumerate() {
            let of_others = others.map_or(0, |(weight, _)| weight);
            let whole = total * (users.iter().sum::<u64>() + of_others);
            lines.push((format!("/g{group}"), *weight));
            for (user, of_user) in users.iter().enumerate() {
                lines.push((format!("/g{group}/u{user}"), *of_user));
                accounts.push((format!("/g{group}/u{user}"), (weight * of_user, whole)));
            }
            if let Some((of_others, members)) = others {
                lines.push((format!("/g{group}/*"), *of_others));
                let whole = whole * u64::try_from(*members).expect("few");
                let member = |member| (format!("/g{group}/new{member}"), (weight * of_others, whole));
                accounts.extend((0..*members).map(member));
            }
        }
        let lines: Vec<_> = lines.iter().map(|(path, weight)| (path.as_str(), *weight)).collect();
        let accounts: Vec<_> = accounts.iter().map(|(path, part)| (path.as_str(), *part)).collect();
        let mut tree = Tree::new(&lines, DISTANCES[distance]);
        check(&mut tree, BY_WEIGHTS[projection], &accounts, &format!("{lines:?}"));
    }
}
