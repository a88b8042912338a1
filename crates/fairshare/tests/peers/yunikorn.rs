//! YuniKorn: queues by allocation ÷ guarantee.
//!
//! Source: `pkg/scheduler/objects/sorters_test.go`, `TestSortQueuesWithGuarantees` ("fair", without priorities; of the
//! fourth row the memory, whose ratios are those of the dominant resource) and `TestSortQueuesNoGuarantees`, where
//! the queues have one maximum. YuniKorn breaks ties by pending resources, so they are ties here.

use crate::case::{Case, check};

const CASES: [Case; 6] = [
    Case {
        source: "YuniKorn, fair first: 0.6, 0.67, 0.5, 0.5",
        tree: &[
            ("/q0", 500, 300),
            ("/q1", 300, 200),
            ("/q2", 200, 100),
            ("/q3", 200, 100),
        ],
        order: "q2 = q3 > q0 > q1",
        differs: &[],
    },
    Case {
        source: "YuniKorn, fair second: 0.4, 1, 0.5, 0.5",
        tree: &[
            ("/q0", 500, 200),
            ("/q1", 300, 300),
            ("/q2", 200, 100),
            ("/q3", 200, 100),
        ],
        order: "q0 > q2 = q3 > q1",
        differs: &[],
    },
    Case {
        source: "YuniKorn, fair third: 0.3, 0.4, 0.5, 0.5",
        tree: &[
            ("/q0", 500, 150),
            ("/q1", 300, 120),
            ("/q2", 200, 100),
            ("/q3", 200, 100),
        ],
        order: "q0 > q1 > q2 = q3",
        differs: &[],
    },
    Case {
        source: "YuniKorn, fair - pending resource: 0.5 each",
        tree: &[
            ("/q0", 800, 400),
            ("/q1", 400, 200),
            ("/q2", 200, 100),
            ("/q3", 200, 100),
        ],
        order: "q0 = q1 = q2 = q3",
        differs: &[],
    },
    Case {
        source: "YuniKorn, fair no guarantees first",
        tree: &[
            ("/q0", 1, 300),
            ("/q1", 1, 200),
            ("/q2", 1, 100),
            ("/q3", 1, 100),
        ],
        order: "q2 = q3 > q1 > q0",
        differs: &[],
    },
    Case {
        source: "YuniKorn, fair no guarantees second",
        tree: &[
            ("/q0", 1, 200),
            ("/q1", 1, 300),
            ("/q2", 1, 100),
            ("/q3", 1, 100),
        ],
        order: "q2 = q3 > q0 > q1",
        differs: &[],
    },
];

#[test]
fn yunikorn_orders() {
    check(&CASES);
}
