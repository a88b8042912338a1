//! Slurm: the example of the classic algorithm, and shares of zero.
//!
//! Source: `doc/html/classic_fair_share.shtml`, `testsuite/python/scripts/prio_multifactor.c` (without AccountH,
//! whose users take the share of their parent: Fairmesh has no such share), `fair_tree.c`.
//! The classic factor is `F = 2^(−UE/S)`. The test computes it from the targets and sums of our levels.

use fairmesh_fairshare::DeviationVector;
use fairmesh_model::Distance;

use crate::case::{Case, check};

const CLASSIC: Case = Case {
    source: "Slurm, the example of classic_fair_share.html",
    tree: &[
        ("/A", 40, 0),
        ("/A/B", 30, 0),
        ("/A/B/user1", 1, 20),
        ("/A/C", 10, 0),
        ("/A/C/user2", 1, 25),
        ("/A/C/user3", 1, 0),
        ("/D", 60, 0),
        ("/D/E", 25, 0),
        ("/D/E/user4", 1, 25),
        ("/D/F", 35, 0),
        ("/D/F/user5", 1, 0),
    ],
    order: "user5 > user4 > user1 > user3 > user2",
    differs: &[],
};

/// The same with an account whose share is zero, which has used what the example leaves out: 30 of 100.
const MULTIFACTOR: Case = Case {
    source: "Slurm, prio_multifactor.c without AccountH",
    tree: &[
        ("/A", 40, 0),
        ("/A/B", 30, 0),
        ("/A/B/user1", 1, 20),
        ("/A/C", 10, 0),
        ("/A/C/user2", 1, 25),
        ("/A/C/user3", 1, 0),
        ("/D", 60, 0),
        ("/D/E", 25, 0),
        ("/D/E/user4", 1, 25),
        ("/D/F", 35, 0),
        ("/D/F/user5", 1, 0),
        ("/G", 0, 0),
        ("/G/user6", 0, 30),
    ],
    order: "user5 > user4 > user1 > user3 > user2 > user6",
    differs: &[],
};

const IDLE_ZERO: Case = Case {
    source: "Slurm, fair_tree.c: level_fs is 0 where the share is 0, used or not; flux, calc_set_weight: as much",
    tree: &[("/phys", 50, 0), ("/chem", 50, 0), ("/scav", 0, 0)],
    order: "chem = phys > scav",
    differs: &[],
};

#[test]
fn slurm_orders() {
    check(&[CLASSIC, MULTIFACTOR, IDLE_ZERO]);
}

#[test]
fn slurm_classic_factors() {
    let tree = MULTIFACTOR.built(Distance::Absolute);
    let factors = [0.408_479, 0.022_097, 0.125, 0.5, 0.749_154, 0.0];
    for (leaf, expected) in MULTIFACTOR.leaves().iter().zip(factors) {
        let entry = tree.entry(leaf);
        let factor = classic_factor(&tree.vector(entry));
        assert!((factor - expected).abs() < 0.000_001, "{leaf}: {factor}");
    }
}

/// `UE = U + (UE of the parent − U) × S ÷ S of all siblings`, where at the first level `UE = U`.
fn classic_factor(vector: &DeviationVector) -> f64 {
    let (mut share, mut used, mut effective) = (1.0, 1.0, None);
    for level in vector.levels() {
        let (part, whole) = level.target.ratio();
        let target = part as f64 / whole as f64;
        used *= level.usage as f64 / level.parent_usage.max(1) as f64;
        share *= target;
        effective = Some(effective.map_or(used, |above: f64| used + (above - used) * target));
    }
    match share {
        0.0 => 0.0,
        share => (-effective.unwrap_or(0.0) / share).exp2(),
    }
}
