//! MetaCentrum's penalty: which machines fit, PE on each, the least of them and the penalty, all in
//! exact fractions.

use std::collections::{BTreeMap, BTreeSet};

use ethnum::U256;
use fairmesh_fairshare::charging::{Counted, cheapest, suitable};
use fairmesh_fairshare::{Job, Resources, Tariff, charge};
use fairmesh_model::{ChargingRule, Discounts, Factor, MachineClass, Millis, PriceList};
use serde_json::Value;

/// Vectors in the file; a file that lost some must not pass unnoticed.
const VECTORS: usize = 24;

/// GPUs and disk are not in these vectors.
const NOT_COUNTED: Counted = Counted {
    gpu: false,
    disk: false,
};

#[test]
fn every_vector_is_met_exactly() {
    let Some(vectors) = vectors() else { return };
    assert_eq!(vectors.len(), VECTORS);
    for vector in &vectors {
        check_equivalents(vector);
        check_penalty(vector);
    }
}

/// Which machines fit, PE on each and where it is least.
fn check_equivalents(vector: &Value) {
    let (id, prices, job) = (text(vector, "id"), prices(vector), job(vector));
    let fit: BTreeSet<&str> = suitable(&prices, &job, NOT_COUNTED)
        .map(|(name, _)| name)
        .collect();
    assert_eq!(fit, names(&vector["suitable"]), "{id}: suitable");
    let mut least = BTreeSet::new();
    for (name, class) in &prices.machines {
        let alone = PriceList {
            machines: BTreeMap::from([(name.clone(), class.clone())]),
            ..PriceList::default()
        };
        let found = cheapest(&alone, &job, NOT_COUNTED, false).map(|(_, pe)| pe);
        let expected = vector["pe"].get(name).map(fraction);
        assert_eq!(found.is_some(), expected.is_some(), "{id}: {name}");
        let (Some(found), Some(expected)) = (found, expected) else {
            continue;
        };
        assert!(same(found, expected), "{id}: PE on {name}");
        if same(found, fraction(&vector["min_pe"])) {
            least.insert(name.as_str());
        }
    }
    assert_eq!(least, names(&vector["argmin"]), "{id}: argmin");
    match cheapest(&prices, &job, NOT_COUNTED, false) {
        Some((name, pe)) => {
            assert!(least.contains(name), "{id}: {name}");
            assert!(same(pe, fraction(&vector["min_pe"])), "{id}: min PE");
        }
        None => assert!(vector["min_pe"].is_null(), "{id}: nothing fits"),
    }
}

/// The charge of as many times the walltime as make the penalty a whole number.
fn check_penalty(vector: &Value) {
    let (id, prices) = (text(vector, "id"), prices(vector));
    let job = Job {
        machine: vector["target"].as_str(),
        ..job(vector)
    };
    let tariff = Tariff {
        rule: &ChargingRule::Penalty {
            gpu: false,
            gpu_weight: None,
            disk: false,
            factor_max: Factor::MAX,
        },
        discounts: &Discounts::NONE,
        prices: &prices,
    };
    let seconds: u64 = text(vector, "walltime").parse().expect("whole seconds");
    if vector["penalty"].is_null() {
        assert!(
            charge(tariff, &job, Millis(seconds * 1_000)).is_err(),
            "{id}"
        );
        return;
    }
    let (numerator, denominator) = fraction(&vector["penalty"]);
    let charged = |times: u64| {
        let wall = Millis(seconds * 1_000 * times);
        U256::from(charge(tariff, &job, wall).expect("fits").charge)
    };
    let times = u64::try_from(denominator).expect("small");
    assert_eq!(charged(times), numerator * U256::new(1_000), "{id}: exact");
    let cut = numerator * U256::new(1_000) / denominator;
    assert_eq!(charged(1), cut, "{id}: in whole core-ms");
}

/// The vectors, if they are there.
fn vectors() -> Option<Vec<Value>> {
    let file = fairmesh_needs::vectors("metacentrum-penalty.json")?;
    let text = std::fs::read_to_string(&file).expect("a readable file");
    let all: Value = serde_json::from_str(&text).expect("the vectors are JSON");
    Some(all["vectors"].as_array().expect("a list").clone())
}

fn prices(vector: &Value) -> PriceList {
    let (target, spec_target) = (vector["target"].as_str(), text(vector, "spec_target"));
    let machines = vector["machines"].as_array().expect("a list");
    let class = |machine: &Value| {
        let name = text(machine, "name");
        // Some vectors try another speed of the target; without a target all have that speed.
        let spec = match target {
            Some(target) if target != name => text(machine, "spec"),
            _ => spec_target,
        };
        let class = MachineClass {
            count: 1,
            cpus: u32::try_from(number(machine, "cpus")).expect("few"),
            mem_mib: number(machine, "ram"),
            gpus: 0,
            disk_mib: 0,
            spec: Factor::parse(spec).expect("a factor"),
            properties: BTreeSet::new(),
            queues: BTreeSet::new(),
        };
        (name.to_owned(), class)
    };
    let cost = Factor::parse(text(vector, "queue_cost")).expect("a factor");
    PriceList {
        machines: machines.iter().map(class).collect(),
        queues: BTreeMap::from([("queue".to_owned(), cost)]),
        ..PriceList::default()
    }
}

fn job(vector: &Value) -> Job<'_> {
    let request = &vector["request"];
    Job {
        held: Resources {
            cores: number(request, "cpus"),
            mem_mib: number(request, "ram"),
            nodes: 1,
            ..Resources::default()
        },
        queue: Some("queue"),
        ..Job::default()
    }
}

fn fraction(value: &Value) -> (U256, U256) {
    let Some(text) = value.as_str() else {
        return (U256::ZERO, U256::ZERO);
    };
    let (numerator, denominator) = text.split_once('/').unwrap_or((text, "1"));
    let whole = |text: &str| text.parse::<u128>().map(U256::new).expect("digits");
    (whole(numerator), whole(denominator))
}

fn same(a: (U256, U256), b: (U256, U256)) -> bool {
    b.1 != U256::ZERO && a.0 * b.1 == b.0 * a.1
}

fn names(value: &Value) -> BTreeSet<&str> {
    let names = value.as_array().expect("a list").iter();
    names.map(|name| name.as_str().expect("a name")).collect()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("text")
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().expect("a whole number")
}
