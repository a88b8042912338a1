//! Kueue: queues by usage ÷ weight, and weights of zero.
//!
//! Source: `pkg/util/admissionfairsharing/admission_fair_sharing_test.go`, `pkg/cache/queue/manager_test.go` and
//! `pkg/scheduler/scheduler_afs_test.go` (#13476, #13481, #13559), `CompareDRS` in
//! `pkg/cache/scheduler/fair_sharing.go`.

use crate::case::{By, Case, check};

const CASES: [Case; 5] = [
    Case {
        source: "Kueue, does not prioritize a zero-weight localqueue: both are idle",
        tree: &[("/lq-a", 1, 0), ("/lq-zero", 0, 0)],
        order: "lq-a > lq-zero",
        differs: &[],
    },
    Case {
        source: "Kueue, TestUpdateLocalQueueWeightZeroReheapifies: both have used 4",
        tree: &[("/lq-a", 0, 4), ("/lq-b", 1, 4)],
        order: "lq-b > lq-a",
        differs: &[],
    },
    Case {
        source: "Kueue, TestUpdateLocalQueueWeightReheapifies: 4 ÷ 1 and 4 ÷ 2",
        tree: &[("/lq-a", 1, 4), ("/lq-b", 2, 4)],
        order: "lq-b > lq-a",
        differs: &[],
    },
    Case {
        source: "Kueue, CompareDRS: of two weights of zero the less used",
        tree: &[("/cq-a", 0, 9), ("/cq-b", 0, 4), ("/cq-c", 1, 90)],
        order: "cq-c > cq-b > cq-a",
        differs: &[],
    },
    Case {
        source: "Kueue, TestCalculateUsageWithDRA: 3 × 2 ÷ 1, 4 × (2 + 1) ÷ 2 and 1 × 2 ÷ 1",
        tree: &[("/explicit", 1, 6), ("/both", 2, 12), ("/default", 1, 2)],
        order: "default > both = explicit",
        differs: &[(
            By::Difference,
            "default > explicit > both",
            "a difference is no quotient: 0.25 − 0.3 and 0.5 − 0.6",
        )],
    },
];

#[test]
fn kueue_orders() {
    check(&CASES);
}
