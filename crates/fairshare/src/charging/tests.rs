//! Charges as rows, and the laws of splits and rates.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{MachineClass, WallTime, Window, WindowLength};
use proptest::prelude::*;

use super::*;

mod factors;
mod machines;

const FULL: Discounts = Discounts::NONE;

fn weights(max: bool) -> ChargingRule {
    ChargingRule::Weights {
        cpu: 1_000,
        gpu: 4_000,
        mem_gib: 250,
        max,
        energy_kwh: 0,
        spec_max: None,
    }
}

fn factor(text: &str) -> Factor {
    Factor::parse(text).expect("a factor")
}

/// Machine classes by name: how many, CPUs, GiB of memory, GPUs, GiB of disk, SPEC.
fn prices() -> PriceList {
    let rows = [
        ("thin", 100, 8, 16, 0, 100, "1"),
        ("fat", 4, 32, 512, 0, 1_000, "1.5"),
        ("gpu", 2, 16, 128, 4, 100, "1.1"),
    ];
    let class = |(name, count, cpus, gib, gpus, disk_gib, spec): (&str, _, _, u64, _, u64, _)| {
        let class = MachineClass {
            count,
            cpus,
            mem_mib: gib << 10,
            gpus,
            disk_mib: disk_gib << 10,
            spec: factor(spec),
            properties: BTreeSet::new(),
            queues: BTreeSet::new(),
        };
        (name.to_owned(), class)
    };
    PriceList {
        machines: rows.into_iter().map(class).collect(),
        queues: BTreeMap::from([
            ("express".to_owned(), factor("2.5")),
            ("free".to_owned(), factor("0")),
        ]),
        qos: BTreeMap::from([
            ("scavenger".to_owned(), factor("0.1")),
            ("urgent".to_owned(), factor("2")),
        ]),
    }
}

const PENALTY: ChargingRule = ChargingRule::Penalty {
    gpu: true,
    gpu_weight: None,
    disk: true,
    factor_max: Factor::from_millionths(4_000_000),
};

fn charged(rule: &ChargingRule, job: &Job<'_>, wall: u64) -> Result<u64, ChargeError> {
    let prices = prices();
    let tariff = Tariff {
        rule,
        discounts: &FULL,
        prices: &prices,
    };
    Ok(charge(tariff, job, Millis(wall))?.charge)
}

fn holding(held: Resources) -> Job<'static> {
    Job {
        held,
        ..Job::default()
    }
}

#[test]
fn charges_by_cores_and_by_weights() {
    let held = Resources {
        cores: 4,
        gpus: 1,
        mem_mib: 32_768,
        ..Resources::default()
    };
    let many = |cores| Resources { cores, ..held };
    let everything = Resources {
        cores: u64::MAX,
        gpus: u64::MAX,
        mem_mib: u64::MAX,
        disk_mib: u64::MAX,
        nodes: u32::MAX,
    };
    let little = ChargingRule::Weights {
        cpu: 1,
        gpu: 0,
        mem_gib: 0,
        max: false,
        energy_kwh: 0,
        spec_max: None,
    };
    // Two threads are one core.
    let threads = ChargingRule::Weights {
        cpu: 500,
        gpu: 0,
        mem_gib: 0,
        max: false,
        energy_kwh: 0,
        spec_max: None,
    };
    // rule, what is held, milliseconds, core-ms
    let rows = [
        (ChargingRule::CpuTime, held, 1_000, 4_000),
        (threads, many(2), 3_600_000, 3_600_000),
        (threads, many(1), 3_600_001, 1_800_000),
        (weights(false), held, 1_000, 16_000),
        (weights(true), held, 1_000, 8_000),
        (weights(false), Resources::default(), 1_000, 0),
        (weights(false), held, 0, 0),
        (little, held, 499, 1),
        (ChargingRule::CpuTime, many(u64::MAX), 2, u64::MAX),
        (weights(false), everything, u64::MAX, u64::MAX),
    ];
    for (rule, held, wall, expected) in rows {
        let charge = charged(&rule, &holding(held), wall);
        assert_eq!(charge, Ok(expected), "{rule:?} {held:?} {wall}");
    }
    let by_energy = ChargingRule::Weights {
        cpu: 1_000,
        gpu: 0,
        mem_gib: 0,
        max: true,
        energy_kwh: 2_500,
        spec_max: None,
    };
    // 2 kWh in 3 s beside 4 cores; a third of it in a third of the time.
    let hot = Job {
        energy: (7_200_000, Millis(3_000)),
        ..holding(held)
    };
    assert_eq!(charged(&by_energy, &hot, 3_000), Ok(4 * 3_000 + 18_000_000));
    assert_eq!(charged(&by_energy, &hot, 1_000), Ok(4 * 1_000 + 6_000_000));
    assert_eq!(charged(&weights(true), &hot, 1_000), Ok(8_000));
    let unknown = Job {
        energy: (1, Millis(0)),
        ..holding(held)
    };
    assert_eq!(charged(&by_energy, &unknown, 1_000), Ok(4_000));
    let counters = rate(
        Tariff {
            rule: &ChargingRule::CpuTime,
            discounts: &FULL,
            prices: &PriceList::default(),
        },
        &holding(held),
    )
    .expect("needs no machines")
    .counters(Millis(1_500));
    assert_eq!(
        (counters.gpu_ms, counters.mem_mib_s, counters.jobs),
        (1_500, 49_152, 0)
    );
}

#[test]
fn a_penalty_is_for_what_was_asked_for_wherever_it_ran() {
    let gib = |gib: u64| gib << 10;
    let held = |cores, gib_, gpus, disk_gib, nodes| Resources {
        cores,
        mem_mib: gib(gib_),
        gpus,
        disk_mib: gib(disk_gib),
        nodes,
    };
    // what is held, on which machine, core-ms for 1 s
    let rows = [
        // As many CPUs as it asked for, everywhere.
        (held(4, 4, 0, 0, 1), "thin", 4_000),
        // Memory of four CPUs of the fat machine, though it ran on the thin ones' neighbour.
        (held(1, 64, 0, 0, 1), "fat", 6_000),
        (held(1, 64, 0, 0, 1), "gpu", 4_400),
        // A quarter of the GPUs is a quarter of the machine; only that machine has any.
        (held(1, 1, 1, 0, 1), "gpu", 4_400),
        // Disk: a tenth of the fat machine.
        (held(1, 1, 0, 100, 1), "fat", 4_800),
        // On two thin machines it fits, on one it does not.
        (held(16, 16, 0, 0, 2), "thin", 16_000),
        (held(0, 0, 0, 0, 0), "thin", 0),
    ];
    for (held, machine, expected) in rows {
        let job = Job {
            machine: Some(machine),
            ..holding(held)
        };
        assert_eq!(charged(&PENALTY, &job, 1_000), Ok(expected), "{job:?}");
    }
    // Not told where, it is charged as on the slowest that could have run it: `gpu`, not `fat`.
    let job = holding(held(1, 64, 0, 0, 1));
    assert_eq!(charged(&PENALTY, &job, 1_000), Ok(4_400));
}

#[test]
fn what_cannot_have_run_is_an_error_and_never_free() {
    let asks = |cores, gib: u64, nodes| Resources {
        cores,
        mem_mib: gib << 10,
        nodes,
        ..Resources::default()
    };
    let too_large = charged(&PENALTY, &holding(asks(33, 1, 1)), 1).expect_err("33 CPUs");
    assert_eq!(
        too_large,
        ChargeError::FitsNowhere("33 CPUs and 1024 MiB".to_owned())
    );
    // The CPUs of one class and the memory of another are no machine.
    assert!(charged(&PENALTY, &holding(asks(32, 513, 1)), 1).is_err());
    assert_eq!(
        charged(&PENALTY, &holding(asks(160, 5 * 512, 5)), 1),
        Err(ChargeError::TooFewMachines {
            nodes: 5,
            machines: 4
        })
    );
    let strange = Job {
        machine: Some("moon"),
        ..holding(asks(1, 1, 1))
    };
    let error = charged(&PENALTY, &strange, 1).expect_err("unknown");
    assert_eq!(error, ChargeError::UnknownMachine("moon".to_owned()));
    let nothing = Tariff {
        rule: &PENALTY,
        discounts: &FULL,
        prices: &PriceList::default(),
    };
    let job = holding(asks(1, 1, 1));
    assert_eq!(rate(nothing, &job), Err(ChargeError::NoMachines));
}

#[test]
fn a_queue_has_its_cost_and_the_charter_its_limit() {
    let job = |queue, machine| Job {
        queue: Some(queue),
        machine: Some(machine),
        ..holding(Resources {
            cores: 2,
            ..Resources::default()
        })
    };
    for (queue, machine, expected) in [
        ("default", "thin", 2_000),
        ("express", "thin", 5_000),
        ("express", "fat", 7_500),
        ("free", "fat", 0),
    ] {
        assert_eq!(
            charged(&PENALTY, &job(queue, machine), 1_000),
            Ok(expected),
            "{queue} {machine}"
        );
    }
    let tight = ChargingRule::Penalty {
        gpu: true,
        gpu_weight: None,
        disk: true,
        factor_max: factor("3.749999"),
    };
    assert!(charged(&tight, &job("express", "thin"), 1).is_ok());
    assert!(matches!(
        charged(&tight, &job("express", "fat"), 1),
        Err(ChargeError::FactorAboveMax { .. })
    ));
}

#[test]
fn discounts_are_off_unless_declared() {
    let percent = |percent| Share::from_percent(percent).expect("at most 100");
    let declared = Discounts {
        preemptible: percent(50),
        idle: percent(10),
    };
    let prices = prices();
    let charged = |discounts: &Discounts, terms| {
        let tariff = Tariff {
            rule: &ChargingRule::CpuTime,
            discounts,
            prices: &prices,
        };
        let held = Resources {
            cores: 3,
            ..Resources::default()
        };
        let job = Job {
            terms,
            ..holding(held)
        };
        charge(tariff, &job, Millis(1_001)).expect("no machines are asked for")
    };
    for (terms, full, less) in [
        (Terms::Regular, 3_003, 3_003),
        (Terms::Preemptible, 3_003, 1_501),
        (Terms::Idle, 3_003, 300),
    ] {
        assert_eq!(charged(&FULL, terms).charge, full);
        assert_eq!(charged(&declared, terms).charge, less);
        // What was held is told as it was.
        assert_eq!(charged(&declared, terms).cpu_ms, 3_003);
    }
}

#[test]
fn the_largest_job_overflows_nothing() {
    let class = MachineClass {
        count: u32::MAX,
        cpus: u32::MAX,
        mem_mib: u64::MAX,
        gpus: 1,
        disk_mib: u64::MAX,
        spec: Factor::MAX,
        properties: BTreeSet::new(),
        queues: BTreeSet::new(),
    };
    let prices = PriceList {
        machines: BTreeMap::from([("all".to_owned(), class)]),
        queues: BTreeMap::from([("dear".to_owned(), Factor::from_millionths(1_000_000))]),
        qos: BTreeMap::new(),
    };
    let job = Job {
        held: Resources {
            cores: u64::from(u32::MAX),
            gpus: u64::from(u32::MAX),
            mem_mib: u64::MAX,
            disk_mib: u64::MAX,
            nodes: u32::MAX,
        },
        queue: Some("dear"),
        machine: None,
        terms: Terms::Idle,
        ..Job::default()
    };
    let discounts = Discounts {
        idle: Share::from_units(Share::ONE - 1).expect("below the whole"),
        ..FULL
    };
    let tariff = Tariff {
        rule: &ChargingRule::Penalty {
            gpu: true,
            gpu_weight: None,
            disk: true,
            factor_max: Factor::MAX,
        },
        discounts: &discounts,
        prices: &prices,
    };
    let counters = charge(tariff, &job, Millis(u64::MAX)).expect("fits");
    assert_eq!(counters.charge, u64::MAX);
}

#[test]
fn a_job_is_split_by_overlap_and_counted_where_it_ended() {
    let hour = 3_600_000;
    let counters = Counters {
        charge: 1_001,
        jobs: 1,
        ..Counters::default()
    };
    let (start, end) = (WallTime(hour / 2), WallTime(2 * hour));
    let parts: Vec<_> = split_counters(counters, start, end, WindowLength::HOUR).collect();
    let charges: Vec<_> = parts
        .iter()
        .map(|(window, part)| (window.0, part.charge, part.jobs))
        .collect();
    assert_eq!(charges, [(0, 333, 0), (1, 668, 1)]);
    let instant: Vec<_> = split_amount(7, end, end, WindowLength::HOUR).collect();
    assert_eq!(instant, [(Window(2), 7)]);
    let backwards: Vec<_> = split_amount(7, end, start, WindowLength::HOUR).collect();
    assert_eq!(backwards, [(Window(2), 7)]);
}

proptest! {
    #[test]
    fn the_parts_are_the_whole(amount in any::<u64>(), start in 0u64..1_000_000_000, duration in 0u64..500_000_000) {
        let (start, end) = (WallTime(start), WallTime(start + duration));
        let parts: Vec<_> = split_amount(amount, start, end, WindowLength::HOUR).collect();
        prop_assert_eq!(parts.iter().map(|(_, part)| u128::from(*part)).sum::<u128>(), u128::from(amount));
        prop_assert!(parts.windows(2).all(|pair| pair[0].0.0 + 1 == pair[1].0.0));
    }

    #[test]
    fn asking_for_more_is_never_cheaper(
        cores in 0u64..32, gib in 0u64..512, gpus in 0u64..4, more in (0u64..8, 0u64..64, 0u64..2), wall in 1u64..10_000_000,
    ) {
        let held = |cores, gib: u64, gpus| holding(Resources { cores, mem_mib: gib << 10, gpus, nodes: 1, ..Resources::default() });
        let on = |job: Job<'static>| charged(&PENALTY, &Job { machine: Some("thin"), ..job }, wall);
        if let (Ok(less), Ok(more)) = (on(held(cores, gib, gpus)), on(held(cores + more.0, gib + more.1, gpus + more.2))) {
            prop_assert!(less <= more, "{less} > {more}");
        }
    }
}
