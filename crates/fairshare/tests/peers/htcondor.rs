//! HTCondor: users by effective priority, and groups in starvation order.
//!
//! Source: `docs/admin-manual/cm-configuration.rst`. Effective priority is real priority (usage) × factor, the lowest
//! goes first, and shares are in inverse proportion to the factors. Groups go by usage ÷ quota, the least first; the
//! quotas are those of the manual's example, and what the groups use is ours.

use crate::case::{Case, check};

const CASES: [Case; 3] = [
    Case {
        source: "HTCondor, manual: effective priorities 5, 10 and 20 under one factor",
        tree: &[("/A", 1, 5), ("/B", 1, 10), ("/C", 1, 20)],
        order: "A > B > C",
        differs: &[],
    },
    Case {
        source: "HTCondor, Accountant: a usage of 10 × factors of 1, 10 and 1000",
        tree: &[("/local", 1_000, 10), ("/far", 100, 10), ("/nice", 1, 10)],
        order: "local > far > nice",
        differs: &[],
    },
    Case {
        source: "HTCondor, manual: groups in starvation order",
        tree: &[("/hep", 15, 12), ("/lep", 5, 2), ("/chemistry", 10, 6)],
        order: "lep > chemistry > hep",
        differs: &[],
    },
];

#[test]
fn htcondor_orders() {
    check(&CASES);
}
