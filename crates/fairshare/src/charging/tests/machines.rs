//! Which machines a job is charged by: their speed, what they offer, GPUs beside them, and nodes that are
//! not alike. Rows that are worked out by hand.

use super::*;

const NORMALISED: ChargingRule = ChargingRule::NormalisedTime {
    spec_max: Factor::from_millionths(1_400_000),
};

const GPUS_BESIDE: ChargingRule = ChargingRule::Penalty {
    gpu: true,
    gpu_weight: Some(2_000),
    disk: true,
    factor_max: Factor::from_millionths(4_000_000),
};

fn weights_by_speed(max: bool) -> ChargingRule {
    ChargingRule::Weights {
        cpu: 1_000,
        gpu: 4_000,
        mem_gib: 250,
        max,
        energy_kwh: 0,
        spec_max: Some(factor("1.4")),
    }
}

fn held(cores: u64, gib: u64, gpus: u64, nodes: u32) -> Resources {
    Resources {
        cores,
        mem_mib: gib << 10,
        gpus,
        nodes,
        ..Resources::default()
    }
}

fn on(machine: &'static str, held: Resources) -> Job<'static> {
    Job {
        machine: Some(machine),
        ..holding(held)
    }
}

#[test]
fn the_same_work_costs_the_same_on_machines_of_every_speed() {
    // What took 1,100 s on the reference machine takes 1,000 on one of SPEC 1.1. Rule, held, core-s.
    let rows = [
        (NORMALISED, held(4, 0, 0, 1), 4_400),
        (weights_by_speed(false), held(4, 8, 1, 1), 11_000),
        (weights_by_speed(true), held(4, 8, 1, 1), 4_400),
        (weights_by_speed(true), held(1, 8, 1, 1), 4_400),
        (PENALTY, held(4, 0, 0, 1), 4_400),
    ];
    for (rule, held, expected) in rows {
        for (machine, wall) in [("thin", 1_100), ("gpu", 1_000)] {
            let charge = charged(&rule, &on(machine, held), wall);
            assert_eq!(charge, Ok(expected), "{rule:?} on {machine}");
        }
    }
    // Without SPEC whoever was put on the slow one pays more.
    let [slow, fast] = [("thin", 1_100), ("gpu", 1_000)].map(|(machine, wall)| {
        charged(&ChargingRule::CpuTime, &on(machine, held(4, 0, 0, 1)), wall)
    });
    assert_eq!((slow, fast), (Ok(4_400), Ok(4_000)));
}

#[test]
fn a_speed_that_nobody_can_tell_or_the_vo_does_not_allow_is_refused_by_every_rule() {
    for rule in [NORMALISED, weights_by_speed(false), weights_by_speed(true)] {
        let charged = |job: &Job<'_>| charged(&rule, job, 1_000);
        // Not told where: the slowest that it fits, which is `gpu` for 64 GiB.
        let cores_of = |gib| charged(&holding(held(1, gib, 0, 1)));
        let [small, large] = [1, 64].map(|gib| cores_of(gib).expect("fits"));
        assert!(small < large, "{rule:?}");
        assert!(matches!(cores_of(513), Err(ChargeError::FitsNowhere(_))));
        assert!(matches!(
            charged(&on("fat", held(1, 1, 0, 1))),
            Err(ChargeError::FactorAboveMax { .. })
        ));
        assert_eq!(
            charged(&on("moon", held(1, 1, 0, 1))),
            Err(ChargeError::UnknownMachine("moon".to_owned()))
        );
        let nothing = Tariff {
            rule: &rule,
            discounts: &FULL,
            prices: &PriceList::default(),
        };
        let refused = rate(nothing, &holding(held(1, 1, 0, 1)));
        assert_eq!(refused, Err(ChargeError::NoMachines));
    }
    // GPUs decide where a job can have run, where they are charged.
    let gpu = |rule: &ChargingRule| charged(rule, &holding(held(1, 1, 1, 1)), 1_000);
    assert_eq!(gpu(&weights_by_speed(false)), Ok(5_775));
    assert_eq!(gpu(&NORMALISED), Ok(1_000));
}

fn labels<C: FromIterator<String>>(names: &[&str]) -> C {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn suitable_machines_have_the_properties_and_serve_the_queue() {
    let mut prices = prices();
    let class = |prices: &mut PriceList, name: &str, properties: &[&str], queues: &[&str]| {
        let class = prices.machines.get_mut(name).expect("a class");
        (class.properties, class.queues) = (labels(properties), labels(queues));
    };
    class(&mut prices, "thin", &["ib"], &[]);
    class(&mut prices, "fat", &["avx", "ib"], &["big"]);
    class(&mut prices, "gpu", &["avx"], &["gpu", "big"]);
    // Properties asked for, queue, which classes suit a job of 8 cores and 16 GiB, and core-s of one core
    // and 64 GiB at the reference speed: an eighth of `fat`'s memory is 4 CPUs, half of `gpu`'s 8.
    type Names = &'static [&'static str];
    type Row = (Names, Option<&'static str>, Names, Option<u64>);
    let rows: [Row; 9] = [
        (&[], None, &["fat", "gpu", "thin"], Some(4)),
        (&["ib"], None, &["fat", "thin"], Some(4)),
        (&["avx"], None, &["fat", "gpu"], Some(4)),
        (&["avx", "ib"], None, &["fat"], Some(4)),
        (&["sse"], None, &[], None),
        (&[], Some("big"), &["fat", "gpu", "thin"], Some(4)),
        // The bargain on `fat` is none for a job that its queue does not let there.
        (&[], Some("gpu"), &["gpu", "thin"], Some(8)),
        (&["avx"], Some("gpu"), &["gpu"], Some(8)),
        (&[], Some("short"), &["thin"], None),
    ];
    for class in prices.machines.values_mut() {
        class.spec = Factor::ONE;
    }
    let counted = Counted {
        gpu: true,
        disk: true,
    };
    for (properties, queue, fit, cpus) in rows {
        let properties: Vec<String> = labels(properties);
        let asking = |held| Job {
            queue,
            properties: &properties,
            ..holding(held)
        };
        let job = asking(held(8, 16, 0, 1));
        let found: Vec<_> = suitable(&prices, &job, counted)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(found, fit, "{properties:?} {queue:?}");
        let tariff = Tariff {
            rule: &PENALTY,
            discounts: &FULL,
            prices: &prices,
        };
        let charge = charge(tariff, &asking(held(1, 64, 0, 1)), Millis(1));
        match (charge, cpus) {
            (Ok(counters), Some(cpus)) => assert_eq!(counters.charge, cpus),
            (Err(ChargeError::FitsNowhere(asked)), None) => {
                let mut words = properties.iter().map(String::as_str).chain(queue);
                assert!(words.all(|word| asked.contains(word)), "{asked}");
            }
            (charge, cpus) => panic!("{properties:?} {queue:?}: {charge:?}, not {cpus:?}"),
        }
    }
}

#[test]
fn a_machine_whose_gpus_are_taken_is_not_taken() {
    // On `gpu`: 16 CPUs, 128 GiB, 4 GPUs, at SPEC 1.1. What is held, core-s as parts of the machine, and
    // with 2 cores for each GPU beside it.
    let rows = [
        // All its GPUs with a core each: the whole machine, or what keeps others out of it.
        (held(4, 4, 4, 1), 17_600, 13_200),
        // The rest of the machine, which another job can still have.
        (held(12, 124, 0, 1), 17_050, 17_050),
        (held(12, 12, 0, 1), 13_200, 13_200),
        // One GPU.
        (held(1, 1, 1, 1), 4_400, 3_300),
        // All of it.
        (held(16, 128, 4, 1), 17_600, 26_400),
        // GPUs on two nodes.
        (held(8, 8, 8, 2), 35_200, 26_400),
    ];
    for (held, parts, beside) in rows {
        // `fat` would be cheaper for much memory.
        let mut prices = prices();
        prices.machines.remove("fat");
        let charged = |rule| {
            let tariff = Tariff {
                rule,
                discounts: &FULL,
                prices: &prices,
            };
            let charge = charge(tariff, &on("gpu", held), Millis(1_000));
            charge.map(|counters| counters.charge)
        };
        assert_eq!(charged(&PENALTY), Ok(parts), "{held:?}");
        assert_eq!(charged(&GPUS_BESIDE), Ok(beside), "{held:?}");
    }
    // Two jobs that share a machine pay what one would that holds both, and not two machines.
    let on_gpu = |held| charged(&GPUS_BESIDE, &on("gpu", held), 1_000).expect("fits");
    let whole = on_gpu(held(16, 16, 4, 1));
    assert_eq!(on_gpu(held(4, 4, 4, 1)) + on_gpu(held(12, 12, 0, 1)), whole);
    // Beside does not mean that it fits without: five GPUs are on no machine.
    assert!(charged(&GPUS_BESIDE, &holding(held(1, 1, 5, 1)), 1).is_err());
}

#[test]
fn nodes_that_are_not_alike_are_charged_each_by_its_own_machines() {
    // 32 cores on one node and one on each of 15; as 16 nodes alike they would be 3 each.
    let (large, small) = (held(32, 32, 0, 1), held(15, 15, 0, 15));
    let job = |chunks| Job {
        chunks,
        ..holding(held(47, 47, 0, 16))
    };
    let alike = job(Vec::new());
    let told = job(vec![(large, Some("fat")), (small, Some("thin"))]);
    // Rule, as if alike, by node: the large one at SPEC 1.5.
    let fast = ChargingRule::NormalisedTime {
        spec_max: factor("1.5"),
    };
    for (rule, of_totals, by_node) in [
        (ChargingRule::CpuTime, 47_000, 47_000),
        (fast, 47_000, 48_000 + 15_000),
        (PENALTY, 47_000, 48_000 + 15_000),
    ] {
        assert_eq!(charged(&rule, &alike, 1_000), Ok(of_totals), "{rule:?}");
        assert_eq!(charged(&rule, &told, 1_000), Ok(by_node), "{rule:?}");
    }
    // Memory: 500 GiB on one node and 1 on each of 15 is nearly all of one `fat`, not a quarter of every `thin`.
    let alike = holding(held(16, 515, 0, 16));
    assert!(matches!(
        charged(&PENALTY, &alike, 1_000),
        Err(ChargeError::TooFewMachines { .. })
    ));
    let told = Job {
        chunks: vec![(held(1, 512, 0, 1), None), (held(15, 15, 0, 15), None)],
        ..alike
    };
    assert_eq!(charged(&PENALTY, &told, 1_000), Ok(48_000 + 15_000));
    // One node that no machine is makes the job one that cannot have run.
    let impossible = job(vec![(held(33, 1, 0, 1), None), (small, None)]);
    assert!(matches!(
        charged(&PENALTY, &impossible, 1_000),
        Err(ChargeError::FitsNowhere(_))
    ));
    // Five fat nodes are more than there are.
    let many = job(vec![(held(160, 160, 0, 5), None), (small, None)]);
    assert!(matches!(
        charged(&PENALTY, &many, 1_000),
        Err(ChargeError::TooFewMachines { nodes: 5, .. })
    ));
    // What was held is told as it was.
    let counters = Tariff {
        rule: &PENALTY,
        discounts: &FULL,
        prices: &prices(),
    };
    let counters = charge(counters, &job(vec![(small, None); 3]), Millis(2)).expect("fits");
    assert_eq!((counters.charge, counters.cpu_ms), (90, 94));
}

proptest! {
    /// Whatever a job is cut into, its counters are differences, and cost what its chunks cost alone.
    #[test]
    fn chunks_add_up(
        chunks in proptest::collection::vec((0u64..40, 0u64..60, 0u64..5, 1u32..3), 1..6),
        terms in prop_oneof![Just(Terms::Regular), Just(Terms::Idle)],
        walls in (0u64..10_000_000, 0u64..10_000_000),
    ) {
        let discounts = Discounts { idle: Share::from_percent(37).expect("at most 100"), ..FULL };
        let prices = prices();
        let tariff = Tariff { rule: &GPUS_BESIDE, discounts: &discounts, prices: &prices };
        let parts: Vec<Resources> = chunks.into_iter().map(|(cores, gib, gpus, nodes)| held(cores, gib, gpus, nodes)).collect();
        let alone = |wall| parts.iter().try_fold(0, |sum, part| {
            let job = Job { terms, ..holding(*part) };
            charge(tariff, &job, Millis(wall)).map(|counters| sum + counters.charge)
        });
        let job = Job { terms, chunks: parts.iter().map(|part| (*part, None)).collect(), ..Job::default() };
        let whole = |wall| charge(tariff, &job, Millis(wall)).map(|counters| counters.charge);
        prop_assert_eq!(whole(walls.0).is_ok(), alone(walls.0).is_ok());
        if let (Ok(whole), Ok(alone)) = (whole(walls.0), alone(walls.0)) {
            prop_assert_eq!(whole, alone);
        }
        if let (Ok(less), Ok(more)) = (whole(walls.0), whole(walls.0 + walls.1)) {
            prop_assert!(less <= more);
        }
    }
}
