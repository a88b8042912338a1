//! flux-accounting: orders and fair-share values.
//!
//! Source: `src/fairness/weighted_tree/test/weighted_tree_test01.cpp` with its `accounts_data`, the values from
//! `t/t1098-fairshare-emulate.t` and `t/expected/update_fshare` (t1006), and `t/t1089-update-fshare-large-usage.t`.
//! flux ranks by shares ÷ usage among siblings and merges the users of accounts that tie, as Slurm's manual says.

use crate::case::{By, Case, check};
use crate::tree::FAIRTREE;
use fairmesh_model::Distance;

/// Why the default is another order where shares are far apart.
const BY_DESIGN: &str = "the absolute distance is a difference and no quotient";
const ZEROS: &str = "flux ties two shares of zero, here the less used goes first";

const NO_TIE: Case = Case {
    source: "flux-accounting, small_no_tie",
    tree: &[
        ("/account1", 1_000, 0),
        ("/account1/1.1", 10_000, 100),
        ("/account1/1.2", 1_000, 11),
        ("/account1/1.3", 100_000, 10),
        ("/account2", 100, 0),
        ("/account2/2.1", 100_000, 8),
        ("/account2/2.2", 10_000, 3),
        ("/account3", 10, 0),
        ("/account3/3.1", 100, 0),
        ("/account3/3.2", 10, 1),
    ],
    order: "3.1 > 3.2 > 2.1 > 2.2 > 1.3 > 1.1 > 1.2",
    differs: &[(
        By::Difference,
        "2.1 > 2.2 > 3.1 > 3.2 > 1.3 > 1.2 > 1.1",
        BY_DESIGN,
    )],
};

const UPDATED: Case = Case {
    source: "flux-accounting, update_fshare: small_no_tie with 55 used by leaf.2.1",
    tree: &[
        ("/account1", 1_000, 0),
        ("/account1/1.1", 10_000, 100),
        ("/account1/1.2", 1_000, 11),
        ("/account1/1.3", 100_000, 10),
        ("/account2", 100, 0),
        ("/account2/2.1", 100_000, 55),
        ("/account2/2.2", 10_000, 3),
        ("/account3", 10, 0),
        ("/account3/3.1", 100, 0),
        ("/account3/3.2", 10, 1),
    ],
    order: "3.1 > 3.2 > 1.3 > 1.1 > 1.2 > 2.2 > 2.1",
    differs: &[(
        By::Difference,
        "1.3 > 1.2 > 1.1 > 3.1 > 3.2 > 2.2 > 2.1",
        BY_DESIGN,
    )],
};

const TIE: Case = Case {
    source: "flux-accounting, small_tie",
    tree: &[
        ("/account1", 1_000, 0),
        ("/account1/1.1", 10_000, 100),
        ("/account1/1.2", 1_000, 10),
        ("/account1/1.3", 100_000, 10),
        ("/account2", 100, 0),
        ("/account2/2.1", 10_000, 10),
        ("/account2/2.2", 1_000, 1),
        ("/account2/2.3", 100_000, 1),
        ("/account3", 10, 0),
        ("/account3/3.1", 100, 0),
        ("/account3/3.2", 10, 1),
    ],
    order: "3.1 > 3.2 > 1.3 = 2.3 > 1.1 = 1.2 = 2.1 = 2.2",
    differs: &[(
        By::Difference,
        "3.1 > 3.2 > 2.3 > 2.2 > 2.1 > 1.3 > 1.2 > 1.1",
        BY_DESIGN,
    )],
};

const TIE_ALL: Case = Case {
    source: "flux-accounting, small_tie_all",
    tree: &[
        ("/account1", 1_000, 0),
        ("/account1/1.1", 10_000, 100),
        ("/account1/1.2", 1_000, 10),
        ("/account1/1.3", 100_000, 10),
        ("/account2", 100, 0),
        ("/account2/2.1", 10_000, 10),
        ("/account2/2.2", 1_000, 1),
        ("/account2/2.3", 100_000, 1),
        ("/account3", 10_000, 0),
        ("/account3/3.1", 10_000, 1_000),
        ("/account3/3.2", 1_000, 100),
        ("/account3/3.3", 100_000, 100),
    ],
    order: "1.3 = 2.3 = 3.3 > 1.1 = 1.2 = 2.1 = 2.2 = 3.1 = 3.2",
    differs: &[(
        By::Difference,
        "1.3 = 2.3 = 3.3 > 1.2 = 2.2 = 3.2 > 1.1 = 2.1 = 3.1",
        BY_DESIGN,
    )],
};

const TIE_DIFF_TYPE: Case = Case {
    source: "flux-accounting, small_tie_diff_type",
    tree: &[
        ("/0.1", 100, 12),
        ("/account1", 1_000, 0),
        ("/account1/1.1", 10_000, 100),
        ("/account1/1.2", 1_000, 10),
        ("/account1/1.3", 100_000, 10),
        ("/account3", 10, 0),
        ("/account3/3.1", 100, 0),
        ("/account3/3.2", 10, 1),
    ],
    order: "3.1 > 3.2 > 0.1 > 1.3 > 1.1 = 1.2",
    differs: &[
        (
            By::FairTree,
            "3.1 > 3.2 > 0.1 = 1.3 > 1.1 = 1.2",
            "a user ranks with the first user of the account that it ties with, by Slurm's manual",
        ),
        (
            By::Ratio,
            "3.1 > 3.2 > 1.3 > 0.1 > 1.1 = 1.2",
            "a level that a user does not have counts as 0: after users with less than their targets",
        ),
        (
            By::Difference,
            "3.1 > 3.2 > 0.1 > 1.3 > 1.2 > 1.1",
            BY_DESIGN,
        ),
    ],
};

const ZERO_SHARES: Case = Case {
    source: "flux-accounting, small_zero_shares",
    tree: &[
        ("/account1", 1_000, 0),
        ("/account1/1.1", 10_000, 100),
        ("/account1/1.2", 1_000, 10),
        ("/account1/1.3", 100_000, 10),
        ("/account2", 100, 0),
        ("/account2/2.1", 0, 10),
        ("/account2/2.2", 0, 1),
        ("/account2/2.3", 100_000, 1),
        ("/account3", 10, 0),
        ("/account3/3.1", 100, 0),
        ("/account3/3.2", 10, 1),
    ],
    order: "3.1 > 3.2 > 2.3 > 1.3 > 1.1 = 1.2 > 2.1 = 2.2",
    differs: &[
        (
            By::FairTree,
            "3.1 > 3.2 > 2.3 > 1.3 > 1.1 = 1.2 > 2.2 > 2.1",
            ZEROS,
        ),
        (
            By::Ratio,
            "3.1 > 3.2 > 2.3 > 1.3 > 1.1 = 1.2 > 2.2 > 2.1",
            ZEROS,
        ),
        (
            By::Difference,
            "3.1 > 3.2 > 2.3 > 2.2 > 2.1 > 1.3 > 1.2 > 1.1",
            BY_DESIGN,
        ),
    ],
};

const SINGLE: Case = Case {
    source: "flux-accounting, t1098: single_user",
    tree: &[("/account1", 1_000, 0), ("/account1/only", 1_000, 100)],
    order: "only",
    differs: &[],
};

const NESTED: Case = Case {
    source: "flux-accounting, t1098: deeply_nested",
    tree: &[
        ("/level1", 1_000, 0),
        ("/level1/level2", 1_000, 0),
        ("/level1/level2/level3", 1_000, 0),
        ("/level1/level2/level3/user1", 1_000, 50),
        ("/level1/level2/level3/user2", 1_000, 50),
    ],
    order: "user1 = user2",
    differs: &[],
};

const IDENTICAL: Case = Case {
    source: "flux-accounting, t1098: identical_weights",
    tree: &[
        ("/account1", 1_000, 0),
        ("/account1/a", 1_000, 100),
        ("/account1/b", 1_000, 100),
        ("/account1/c", 1_000, 100),
    ],
    order: "a = b = c",
    differs: &[],
};

const LARGE_USAGE: Case = Case {
    source: "flux-accounting, t1089: usage beyond 2^31 − 1",
    tree: &[
        ("/A", 333_333, 0),
        ("/A/user_A", 1, 9_000_000_000),
        ("/B", 333_333, 0),
        ("/B/user_B", 1, 1_500_000_000),
    ],
    order: "user_B > user_A",
    differs: &[],
};

/// The cases, with flux's fair-share values of the leaves in millionths, where its tests have them.
const CASES: [(Case, &[u32]); 10] = [
    (
        NO_TIE,
        &[
            285_714, 142_857, 428_571, 714_286, 571_429, 1_000_000, 857_143,
        ],
    ),
    (
        UPDATED,
        &[
            571_429, 428_571, 714_286, 142_857, 285_714, 1_000_000, 857_143,
        ],
    ),
    (
        TIE,
        &[
            500_000, 500_000, 750_000, 500_000, 500_000, 750_000, 1_000_000, 875_000,
        ],
    ),
    (
        TIE_ALL,
        &[
            666_667, 666_667, 1_000_000, 666_667, 666_667, 1_000_000, 666_667, 666_667, 1_000_000,
        ],
    ),
    (TIE_DIFF_TYPE, &[]),
    (ZERO_SHARES, &[]),
    (SINGLE, &[1_000_000]),
    (NESTED, &[1_000_000, 1_000_000]),
    (IDENTICAL, &[1_000_000, 1_000_000, 1_000_000]),
    (LARGE_USAGE, &[500_000, 1_000_000]),
];

#[test]
fn flux_orders() {
    check(CASES.iter().map(|(case, _)| case));
}

#[test]
fn flux_fair_share_values() {
    let mut compared = 0;
    for (case, values) in &CASES {
        let tree = case.built(Distance::Relative);
        let order = tree.order(FAIRTREE);
        for (leaf, value) in case.leaves().iter().zip(*values) {
            let entry = tree.entry(leaf);
            let rounded = (order.factor(entry).units() + 500) / 1_000;
            assert_eq!(rounded, *value, "{}, {leaf}", case.source);
            compared += 1;
        }
        assert!(values.is_empty() || values.len() == case.leaves().len());
    }
    assert_eq!(compared, 39);
}
