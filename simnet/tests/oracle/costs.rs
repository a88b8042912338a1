//! What random jobs cost by every rule, against the library.

use std::collections::BTreeSet;

use fairmesh_fairshare::{Job, Tariff, charge};
use fairmesh_model::{
    ChargingRule, Chunk, Discounts, Factor, JobKey, MachineClass, Millis, Origin, Placement,
    PriceList, Share, Terms, UsageRecord, WallTime,
};
use proptest::prelude::*;
use simnet::oracle::cost::Cost;

fn rule() -> impl Strategy<Value = ChargingRule> {
    let most = || (500_000u32..20_000_000).prop_map(Factor::from_millionths);
    let weights = (any::<u16>(), 0u16..3, any::<u16>(), any::<bool>());
    let weights = (weights, prop::option::of(most()));
    let penalty = (
        any::<bool>(),
        prop::option::of(any::<u16>()),
        any::<bool>(),
        most(),
    );
    prop_oneof![
        Just(ChargingRule::CpuTime),
        most().prop_map(|spec_max| ChargingRule::NormalisedTime { spec_max }),
        weights.prop_map(
            |((cpu, gpu, mem_gib, max), spec_max)| ChargingRule::Weights {
                cpu: cpu.into(),
                gpu: u32::from(gpu) * 4_001,
                mem_gib: mem_gib.into(),
                max,
                energy_kwh: 0,
                spec_max,
            }
        ),
        penalty.prop_map(|(gpu, weight, disk, factor_max)| ChargingRule::Penalty {
            gpu,
            gpu_weight: weight.filter(|_| gpu).map(u32::from),
            disk,
            factor_max,
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
    let class = (class, labels(["ib", "avx"]), labels(["long", "short"]));
    let class = class.prop_map(
        |((count, cpus, mem_mib, gpus, disk_mib, spec), properties, queues)| MachineClass {
            count,
            cpus,
            mem_mib,
            gpus,
            disk_mib,
            spec: Factor::from_millionths(spec),
            properties,
            queues,
        },
    );
    let cost = |name: &str| {
        let cost = (0u32..3_000_000).prop_map(Factor::from_millionths);
        prop::collection::btree_map(Just(name.to_owned()), cost, 0..2)
    };
    (
        prop::collection::btree_map("[abc]", class, 0..4),
        cost("long"),
        cost("urgent"),
    )
        .prop_map(|(machines, queues, qos)| PriceList {
            machines,
            queues,
            qos,
        })
}

fn labels(of: [&'static str; 2]) -> impl Strategy<Value = BTreeSet<String>> {
    prop::collection::btree_set(prop::sample::select(of.map(str::to_owned).to_vec()), 0..3)
}

fn chunk() -> impl Strategy<Value = Chunk> {
    let held = (0u32..64, 0u32..3, 0u64..2_000, 0u64..500, 1u32..3);
    (held, prop::option::of("[abcd]")).prop_map(
        |((cores, gpus, mem_mib, disk_mib, nodes), machine)| Chunk {
            nodes,
            cores,
            gpus,
            mem_mib,
            disk_mib,
            machine,
        },
    )
}

fn record() -> impl Strategy<Value = UsageRecord> {
    let held = (0u32..100, 0u32..5, 0u64..5_000, 0u64..1_000, 0u32..4);
    let terms = prop::sample::select(vec![Terms::Regular, Terms::Preemptible, Terms::Idle]);
    let asked = (prop::option::of("[abcd]"), labels(["ib", "avx"]));
    let chunks = prop::collection::vec(chunk(), 0..3);
    let places = (any::<bool>(), any::<bool>());
    (held, places, terms, asked, chunks).prop_map(
        |(
            (cores, gpus, mem_mib, disk_mib, nodes),
            (long, urgent),
            terms,
            (machine, asked),
            chunks,
        )| {
            UsageRecord {
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
                    energy_j: 0,
                    nodes,
                    disk_mib,
                    queue: long.then(|| "long".to_owned()),
                    qos: urgent.then(|| "urgent".to_owned()),
                    machine,
                    terms,
                    properties: asked.into_iter().collect(),
                    chunks,
                    next_instance: None,
                },
                running: false,
            }
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
        (preemptible, idle) in (0..=Share::ONE, 0..=Share::ONE),
        ms in 0u64..1 << 45,
    ) {
        let discounts = Discounts {
            preemptible: Share::from_units(preemptible).expect("a share"),
            idle: Share::from_units(idle).expect("a share"),
        };
        let job = Job::of(&record, |machine| machine);
        let tariff = Tariff { rule: &rule, discounts: &discounts, prices: &prices };
        let shown = charge(tariff, &job, Millis(ms)).ok();
        let right = Cost::of(&record, (&rule, &discounts), &prices, |machine| machine);
        prop_assert_eq!(right.map(|cost| cost.of_first(ms)), shown);
    }
}
