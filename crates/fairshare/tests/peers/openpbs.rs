//! OpenPBS: groups and users by percentages of a tree, users by equal shares, and jobs that run one by one.
//!
//! Source: `test/tests/functional/pbs_fairshare.py`. An entity without usage has a usage of 1 there.

use fairmesh_model::Distance;

use crate::case::{Case, check};
use crate::tree::{FAIRTREE, RANK, Tree};

const FORMULA: Case = Case {
    source: "OpenPBS, test_fairshare_formula3, 4 and 5",
    tree: &[
        ("/group1", 40, 0),
        ("/group1/user", 50, 100),
        ("/group1/user1", 50, 100),
        ("/group2", 60, 0),
        ("/group2/user2", 60, 1),
        ("/group2/user3", 40, 1_000),
    ],
    order: "user = user1 > user2 > user3",
    differs: &[],
};

const PBSFS: Case = Case {
    source: "OpenPBS, test_pbsfs: as set, and after all usage was removed and the other's was set",
    tree: &[("/user", 10, 100), ("/user1", 10, 1)],
    order: "user1 > user",
    differs: &[],
};

const PBSFS_AFTER: Case = Case {
    tree: &[("/user", 10, 1), ("/user1", 10, 50)],
    order: "user > user1",
    ..PBSFS
};

#[test]
fn openpbs_orders() {
    check(&[FORMULA, PBSFS, PBSFS_AFTER]);
}

/// `test_fairshare_formula2`: the target of each user, in hundredths of the whole.
#[test]
fn openpbs_percentages() {
    let tree = FORMULA.built(Distance::Absolute);
    for (leaf, hundredths) in FORMULA.leaves().iter().zip([20, 20, 36, 24]) {
        let vector = tree.vector(tree.entry(leaf));
        let of_whole = vector.levels().iter().fold((1, 1), |(part, whole), level| {
            let (weight, total) = level.target.ratio();
            (part * weight, whole * total)
        });
        assert_eq!(of_whole.0 * 100, of_whole.1 * hundredths, "{leaf}");
    }
}

/// `test_fairshare_acct_name`: shares 10 and 25, jobs of one unit; B, B and A run.
#[test]
fn openpbs_accounts_run_in_turn() {
    for distance in crate::tree::DISTANCES {
        for prepare in [RANK, FAIRTREE] {
            let lines = [("/acctA", 10), ("/acctB", 25)];
            let mut tree = Tree::new(&lines, distance).with(&[("/acctA", 1), ("/acctB", 1)]);
            for (step, order) in [
                ("/acctB", "acctB > acctA"),
                ("/acctB", "acctB > acctA"),
                ("/acctA", "acctA > acctB"),
            ] {
                assert_eq!(tree.served(prepare, &["/acctA", "/acctB"]), order);
                tree.charge(step, 1);
            }
        }
    }
}
