//! The oracle on published vectors: FSGrid's order, and MetaCentrum's penalty.
//!
//! The vectors lie outside the repository: `FAIRMESH_VECTORS` names their folder, or they are looked
//! for beside the checkout. Without them this says so and checks the rows of its own alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fairmesh_model::{
    AccountPath, ChargingRule, Counters, Discounts, Factor, HistoryRule, JobKey, MachineClass,
    Origin, Placement, PriceList, Share, ShareRule, Span, UsageRecord, WallTime, Window,
    WindowLength,
};
use serde_json::Value;
use simnet::oracle::answers::{Given, Row, Rules, answers};
use simnet::oracle::cost::{Cost, ratio};
use simnet::oracle::tree::{Target, Tree};
use simnet::vo::{path, site_id};

/// Vectors in the files; a file that lost some must not pass unnoticed.
const VECTORS: [(&str, usize); 2] = [
    ("fsgrid-priority.json", 45),
    ("metacentrum-penalty.json", 24),
];

/// The window that usage is seen from.
const REFERENCE: u32 = 100;

/// Its target of 120 % is no share.
const NO_SHARE: &str = "v049";

#[test]
fn the_exact_order_is_that_of_the_vectors() {
    let own = serde_json::json!({
        "id": "own",
        "tree": { "name": "root", "children": [
            { "name": "a", "share": "75", "children": [
                { "name": "x", "share": "50" }, { "name": "y", "share": "50" } ] },
            { "name": "b", "share": "25" },
            { "name": "c", "share": "0" },
        ] },
        // a is 25 % above its target's 75, b 0, c at its target.
        "usage": { "/a/x": "2", "/a/y": "1", "/b": "1" },
        "order_lexicographic_exact": [["/a/y"], ["/b", "/c"], ["/a/x"]],
        "jobs": { "/a/x": {}, "/a/y": {}, "/b": {}, "/c": {} },
    });
    for vector in vectors(VECTORS[0]).iter().chain([&own]) {
        let id = text(vector, "id");
        let Some(order) = order(vector) else {
            assert_eq!(id, NO_SHARE);
            continue;
        };
        let expected = vector["order_lexicographic_exact"]
            .as_array()
            .expect("groups");
        let expected: Vec<Vec<String>> = expected
            .iter()
            .map(|group| serde_json::from_value(group.clone()).expect("paths"))
            .map(sorted)
            .collect();
        assert_eq!(order, expected, "{id}");
    }
}

#[test]
fn penalties_are_those_of_the_vectors() {
    for vector in &vectors(VECTORS[1]) {
        let (id, prices) = (text(vector, "id"), prices(vector));
        let rule = ChargingRule::Penalty {
            gpu: false,
            gpu_weight: None,
            disk: false,
            factor_max: Factor::MAX,
        };
        let mut record = asking(&vector["request"]);
        record.placement.machine = vector["target"].as_str().map(str::to_owned);
        let cost = Cost::of(&record, (&rule, &Discounts::NONE), &prices, |machine| {
            machine
        });
        let Some(penalty) = vector["penalty"].as_str() else {
            assert_eq!(cost, None, "{id}");
            continue;
        };
        let seconds: u64 = text(vector, "walltime").parse().expect("whole seconds");
        let right: num_rational::BigRational = penalty.parse().expect("a fraction");
        let rate = &cost.expect("fits").rates[0];
        let walltime = num_rational::BigRational::from_integer(seconds.into());
        assert_eq!(rate * walltime, right, "{id}");
    }
}

/// The jobs of a vector, tied ones together, first served first; `None` where a share is none.
fn order(vector: &Value) -> Option<Vec<Vec<String>>> {
    let mut tree = Tree {
        rule: ShareRule::AsPublished,
        ..Tree::default()
    };
    add(&vector["tree"], &AccountPath::root(), &mut tree)?;
    let mut rows = Vec::new();
    for (account, amount) in scaled(vector["usage"].as_object().expect("usage")) {
        // A window's counter has 64 bits; what is more lies in the windows before, which weigh alike.
        let (mut rest, mut window) = (amount, REFERENCE + 1);
        while rest > 0 {
            let charge = u64::try_from(rest).unwrap_or(u64::MAX);
            rest -= u128::from(charge);
            window -= 1;
            rows.push(Row {
                site: site_id(0),
                account: (None, path(&account)),
                span: Span::Window(Window(window)),
                counters: Counters {
                    charge,
                    ..Counters::default()
                },
            });
        }
    }
    let right = answers(&Given {
        site: site_id(0),
        tree: &tree,
        rows: &rows,
        expected: &[],
        running: &[],
        local: Rules {
            history: HistoryRule::None {
                horizon: REFERENCE + 1,
            },
            window: WindowLength::HOUR,
            reference: REFERENCE,
        },
        vos: &BTreeMap::new(),
    });
    let mut groups: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for job in vector["jobs"].as_object().expect("jobs").keys() {
        groups
            .entry(right[&path(job)].rank)
            .or_default()
            .push(job.clone());
    }
    Some(groups.into_values().map(sorted).collect())
}

fn sorted(mut paths: Vec<String>) -> Vec<String> {
    paths.sort();
    paths
}

fn add(node: &Value, above: &AccountPath, tree: &mut Tree) -> Option<()> {
    for child in node["children"].as_array().into_iter().flatten() {
        let at = above.child(text(child, "name")).expect("a path");
        let share = Share::parse_percent(text(child, "share")).ok()?;
        let part = ratio(u64::from(share.units()), u64::from(Share::ONE));
        let target = Target::new(part, Share::WHOLE, None);
        tree.targets.insert(at.clone(), target);
        add(child, &at, tree)?;
    }
    Some(())
}

/// Decimal amounts as whole numbers, all multiplied by the same power of ten.
fn scaled(usage: &serde_json::Map<String, Value>) -> Vec<(String, u128)> {
    let split = |amount: &Value| {
        let amount = amount.as_str().expect("text");
        let (whole, decimals) = amount.split_once('.').unwrap_or((amount, ""));
        (whole.to_owned(), decimals.to_owned())
    };
    let width = usage.values().map(|amount| split(amount).1.len()).max();
    let width = width.unwrap_or(0);
    let whole = |(account, amount): (&String, &Value)| {
        let (whole, decimals) = split(amount);
        let digits = format!("{whole}{decimals:0<width$}");
        (account.clone(), digits.parse().expect("digits"))
    };
    usage.iter().map(whole).collect()
}

fn asking(request: &Value) -> UsageRecord {
    UsageRecord {
        key: JobKey {
            cluster: "c".to_owned(),
            job: "1".to_owned(),
            instance: 0,
        },
        origin: Origin::default(),
        start: WallTime(0),
        end: WallTime(0),
        cores: u32::try_from(number(request, "cpus")).expect("few"),
        gpus: 0,
        mem_mib: number(request, "ram"),
        placement: Placement {
            nodes: 1,
            queue: Some("queue".to_owned()),
            ..Placement::default()
        },
        running: false,
    }
}

fn prices(vector: &Value) -> PriceList {
    let (target, of_target) = (vector["target"].as_str(), text(vector, "spec_target"));
    let class = |machine: &Value| {
        let name = text(machine, "name");
        // Some vectors try another speed of the target; without a target all have that speed.
        let spec = match target {
            Some(target) if target != name => text(machine, "spec"),
            _ => of_target,
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
    let machines = vector["machines"].as_array().expect("a list").iter();
    let cost = Factor::parse(text(vector, "queue_cost")).expect("a factor");
    PriceList {
        machines: machines.map(class).collect(),
        queues: BTreeMap::from([("queue".to_owned(), cost)]),
    }
}

fn vectors((name, count): (&str, usize)) -> Vec<Value> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/vectors");
    let folder = std::env::var("FAIRMESH_VECTORS").unwrap_or_else(|_| beside.to_owned());
    let file = PathBuf::from(folder).join(name);
    let Ok(text) = std::fs::read_to_string(&file) else {
        println!(
            "ABSENT, not tested: {}; set FAIRMESH_VECTORS",
            file.display()
        );
        return Vec::new();
    };
    let all: Value = serde_json::from_str(&text).expect("the vectors are JSON");
    let vectors = all["vectors"].as_array().expect("a list").clone();
    assert_eq!(vectors.len(), count, "{name}");
    vectors
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("text")
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().expect("a whole number")
}
