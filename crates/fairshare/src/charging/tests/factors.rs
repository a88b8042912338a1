//! Factors of queues and qualities of service, under every rule. Rows that are worked out by hand.

use ethnum::U256;

use super::*;

fn rules() -> [ChargingRule; 5] {
    [
        ChargingRule::CpuTime,
        ChargingRule::NormalisedTime {
            spec_max: factor("1.5"),
        },
        weights(false),
        weights(true),
        PENALTY,
    ]
}

fn in_queue(queue: Option<&'static str>, qos: Option<&'static str>) -> Job<'static> {
    let held = Resources {
        cores: 10,
        nodes: 2,
        ..Resources::default()
    };
    Job {
        queue,
        qos,
        machine: Some("thin"),
        ..holding(held)
    }
}

#[test]
fn factors_count_under_every_rule_and_multiply() {
    // Queue, QOS, core-ms of 10 cores for a second.
    let rows = [
        (None, None, 10_000),
        (Some("default"), Some("normal"), 10_000),
        (Some("express"), None, 25_000),
        (None, Some("urgent"), 20_000),
        (None, Some("scavenger"), 1_000),
        (Some("express"), Some("scavenger"), 2_500),
        (Some("free"), Some("urgent"), 0),
        // The two tables are two: a queue's name is none of a QOS.
        (Some("urgent"), Some("express"), 10_000),
    ];
    for rule in rules() {
        for (queue, qos, expected) in rows {
            let charge = charged(&rule, &in_queue(queue, qos), 1_000);
            assert_eq!(charge, Ok(expected), "{rule:?} {queue:?} {qos:?}");
        }
    }
}

#[test]
fn limits_of_a_charter_are_of_what_it_names() {
    // 2.5 × 2 is above the 4 of the penalty; the other rules bound SPEC alone.
    let job = in_queue(Some("express"), Some("urgent"));
    for rule in rules() {
        let charge = charged(&rule, &job, 1_000);
        match rule {
            ChargingRule::Penalty { .. } => {
                let text = charge.expect_err("too dear").to_string();
                let words = "SPEC 1 × queue factor 2.5 × QOS factor 2 is above the 4";
                assert!(text.starts_with(words), "{text}");
            }
            _ => assert_eq!(charge, Ok(50_000), "{rule:?}"),
        }
    }
}

#[test]
fn a_discount_counts_on_top_and_is_rounded_once() {
    let prices = prices();
    let discounts = Discounts {
        idle: Share::from_percent(50).expect("at most 100"),
        ..FULL
    };
    for rule in [ChargingRule::CpuTime, weights(false)] {
        let tariff = Tariff {
            rule: &rule,
            discounts: &discounts,
            prices: &prices,
        };
        let job = Job {
            terms: Terms::Idle,
            ..in_queue(Some("express"), Some("scavenger"))
        };
        // 10 × 3 ms × 2.5 × 0.1 × 0.5 = 3.75, and not 3 of 7.5 halves.
        let counters = charge(tariff, &job, Millis(3)).expect("no limit");
        assert_eq!((counters.charge, counters.cpu_ms), (3, 30), "{rule:?}");
    }
}

#[test]
fn the_largest_factors_overflow_nothing() {
    let prices = PriceList {
        queues: BTreeMap::from([("dear".to_owned(), Factor::MAX)]),
        qos: BTreeMap::from([("dear".to_owned(), Factor::MAX)]),
        ..prices()
    };
    let most = ChargingRule::Weights {
        cpu: u32::MAX,
        gpu: u32::MAX,
        mem_gib: u32::MAX,
        max: false,
        energy_kwh: 0,
        spec_max: None,
    };
    let job = Job {
        held: Resources {
            cores: u64::MAX,
            gpus: u64::MAX,
            mem_mib: u64::MAX,
            ..Resources::default()
        },
        queue: Some("dear"),
        qos: Some("dear"),
        terms: Terms::Idle,
        ..Job::default()
    };
    let discounts = Discounts {
        idle: Share::from_units(1).expect("below the whole"),
        ..FULL
    };
    let tariff = Tariff {
        rule: &most,
        discounts: &discounts,
        prices: &prices,
    };
    for wall in [1, u64::MAX] {
        let counters = charge(tariff, &job, Millis(wall)).expect("no limit");
        assert_eq!(counters.charge, u64::MAX, "{wall}");
    }
}

proptest! {
    #[test]
    fn factors_are_exact_and_rounded_once(
        cores in 0u64..100_000, wall in 0u64..1 << 40, queue in any::<u32>(), qos in any::<u32>(),
    ) {
        let named = |millionths| BTreeMap::from([("q".to_owned(), Factor::from_millionths(millionths))]);
        let prices = PriceList { queues: named(queue), qos: named(qos), ..PriceList::default() };
        let tariff = Tariff { rule: &ChargingRule::CpuTime, discounts: &FULL, prices: &prices };
        let held = Resources { cores, ..Resources::default() };
        let job = Job { queue: Some("q"), qos: Some("q"), ..holding(held) };
        let product = [cores, wall, queue.into(), qos.into()].map(U256::from);
        let exact = product.into_iter().product::<U256>() / U256::new(1_000_000_000_000);
        let expected = u64::try_from(exact).unwrap_or(u64::MAX);
        prop_assert_eq!(charge(tariff, &job, Millis(wall)).map(|of| of.charge), Ok(expected));
    }
}
