//! What random jobs cost by every rule, against the library.

use fairmesh_fairshare::{Job, Tariff, charge};
use fairmesh_model::{
    ChargingRule, Discounts, Factor, JobKey, MachineClass, Millis, Origin, Placement, PriceList,
    Share, Terms, UsageRecord, WallTime,
};
use proptest::prelude::*;
use simnet::oracle::cost::Cost;

fn rule() -> impl Strategy<Value = ChargingRule> {
    let weights = (any::<u16>(), any::<u16>(), any::<u16>(), any::<bool>());
    let penalty = (any::<bool>(), any::<bool>(), 500_000u32..20_000_000);
    prop_oneof![
        Just(ChargingRule::CpuTime),
        weights.prop_map(|(cpu, gpu, mem_gib, max)| ChargingRule::Weights {
            cpu: cpu.into(),
            gpu: gpu.into(),
            mem_gib: mem_gib.into(),
            max,
        }),
        penalty.prop_map(|(gpu, disk, factor_max)| ChargingRule::Penalty {
            gpu,
            disk,
            factor_max: Factor::from_millionths(factor_max),
        }),
    ]
}

fn prices() -> impl Strategy<Value = PriceList> {
    let class = (
        1u32..4,
        1u32..64,
        1u64..4_096,
        0u32..4,
        0u64..1_000,
        1u32..3_000_000,
    );
    let class = class.prop_map(
        |(count, cpus, mem_mib, gpus, disk_mib, spec)| MachineClass {
            count,
            cpus,
            mem_mib,
            gpus,
            disk_mib,
            spec: Factor::from_millionths(spec),
        },
    );
    let cost = (0u32..3_000_000).prop_map(Factor::from_millionths);
    let queue = prop::sample::select(vec!["long".to_owned()]);
    (
        prop::collection::btree_map("[abc]", class, 0..4),
        prop::collection::btree_map(queue, cost, 0..2),
    )
        .prop_map(|(machines, queues)| PriceList { machines, queues })
}

fn record() -> impl Strategy<Value = UsageRecord> {
    let held = (0u32..100, 0u32..5, 0u64..5_000, 0u64..1_000, 0u32..4);
    let terms = prop::sample::select(vec![Terms::Regular, Terms::Preemptible, Terms::Idle]);
    (held, any::<bool>(), terms).prop_map(
        |((cores, gpus, mem_mib, disk_mib, nodes), long, terms)| UsageRecord {
            key: JobKey {
                cluster: "c".to_owned(),
                job: "1".to_owned(),
                instance: 0,
            },
            origin: Origin::default(),
            start: WallTime(0),
            end: WallTime(0),
            cores,
            gpus,
            mem_mib,
            placement: Placement {
                nodes,
                disk_mib,
                queue: long.then(|| "long".to_owned()),
                machine: None,
                terms,
            },
            running: false,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn costs_are_those_of_the_library(
        rule in rule(),
        prices in prices(),
        record in record(),
        class in prop::option::of("[abcd]"),
        (preemptible, idle) in (0..=Share::ONE, 0..=Share::ONE),
        ms in 0u64..1 << 45,
    ) {
        let discounts = Discounts {
            preemptible: Share::from_units(preemptible).expect("a share"),
            idle: Share::from_units(idle).expect("a share"),
        };
        let job = Job::of(&record, class.as_deref());
        let tariff = Tariff { rule: &rule, discounts: &discounts, prices: &prices };
        let shown = charge(tariff, &job, Millis(ms)).ok();
        let right = Cost::of(&record, (&rule, &discounts), &prices, class.as_deref());
        prop_assert_eq!(right.map(|cost| cost.of_first(ms)), shown);
    }
}
