//! Charges of peers: weighted resources × time.
//!
//! Source: flux-accounting, `t/python/t1023_weighted_usage.py` (less its term of nodes: Fairmesh has none);
//! Armada, `internal/scheduler/scheduling/fairness/fairness_test.go`, a cost as thousandths of the whole; Slurm,
//! `doc/html/tres.shtml`, without licences.

use fairmesh_fairshare::{Job, Resources, Tariff, charge};
use fairmesh_model::{ChargingRule, Discounts, Millis, PriceList};

/// Weights of a core, a GPU and a GiB in thousandths of a core, and whether the largest term counts alone.
struct Weights(u32, u32, u32, bool);

/// Cores, GPUs and GiB.
type Held = (u64, u64, u64);

const ROWS: [(&str, Weights, Held, u64, u64); 11] = [
    // weights, what is held, seconds, core-seconds
    (
        "flux, core_weight 1",
        Weights(1_000, 0, 0, false),
        (4, 0, 0),
        100,
        400,
    ),
    (
        "flux, gpu_weight 10",
        Weights(0, 10_000, 0, false),
        (4, 2, 0),
        100,
        2_000,
    ),
    (
        "flux, mixed weights",
        Weights(500, 5_000, 0, false),
        (8, 2, 0),
        100,
        1_400,
    ),
    // A core is a thousandth of `foo`, a GPU of `bar`; there are 1 and 2 of them.
    (
        "Armada, single resource 1",
        Weights(1_000, 500, 0, true),
        (500, 0, 0),
        1,
        500,
    ),
    (
        "Armada, single resource 2",
        Weights(1_000, 500, 0, true),
        (0, 500, 0),
        1,
        250,
    ),
    (
        "Armada, multiple resources",
        Weights(1_000, 500, 0, true),
        (500, 1_100, 0),
        1,
        550,
    ),
    (
        "Armada, multiplier 4",
        Weights(4_000, 500, 0, true),
        (500, 1_100, 0),
        1,
        2_000,
    ),
    (
        "Slurm, sum of TRES",
        Weights(1_000, 2_000, 250, false),
        (1, 0, 8),
        3_600,
        3 * 3_600,
    ),
    (
        "Slurm, more memory",
        Weights(1_000, 2_000, 250, false),
        (1, 0, 10),
        3_600,
        7 * 1_800,
    ),
    (
        "Slurm, MAX_TRES",
        Weights(1_000, 2_000, 250, true),
        (1, 0, 8),
        3_600,
        2 * 3_600,
    ),
    (
        "Slurm, MAX_TRES with GPUs",
        Weights(1_000, 2_000, 250, true),
        (1, 2, 8),
        3_600,
        4 * 3_600,
    ),
];

#[test]
fn charges_of_peers() {
    for (source, Weights(cpu, gpu, mem_gib, max), (cores, gpus, gib), seconds, expected) in ROWS {
        let rule = ChargingRule::Weights {
            cpu,
            gpu,
            mem_gib,
            max,
            energy_kwh: 0,
            spec_max: None,
        };
        let tariff = Tariff {
            rule: &rule,
            discounts: &Discounts::NONE,
            prices: &PriceList::default(),
        };
        let held = Resources {
            cores,
            gpus,
            mem_mib: gib << 10,
            nodes: 1,
            ..Resources::default()
        };
        let job = Job {
            held,
            ..Job::default()
        };
        let counters = charge(tariff, &job, Millis(seconds * 1_000)).expect("no machine is needed");
        assert_eq!(counters.charge, expected * 1_000, "{source}");
    }
}
