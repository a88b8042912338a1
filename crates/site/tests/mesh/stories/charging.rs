//! Whatever the rule, each moment of a job is charged once, by what its site declares; and what
//! cannot be charged is refused and said, never free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{
    AccountPath, ChargingRule, Chunk, ContentHash, Counters, Discounts, Factor, MachineClass,
    Millis, Placement, PriceList, RunningJob, Share, Terms, UsageMode, UsageRecord, WallTime,
};
use fairmesh_site::{Charging, Estimate, Event, Pattern, Reported};
use proptest::prelude::*;

use crate::mesh::Mesh;
use crate::random::Dice;
use crate::vo::{self, HOUR, START, job};

/// Instalments of one job.
const INSTALMENTS: u64 = 50;

const PENALTY: ChargingRule = ChargingRule::Penalty {
    gpu: true,
    gpu_weight: None,
    disk: true,
    factor_max: Factor::from_millionths(5_000_000),
};

fn weights(max: bool) -> ChargingRule {
    ChargingRule::Weights {
        cpu: 333,
        gpu: 7_001,
        mem_gib: 77,
        max,
        energy_kwh: 0,
        spec_max: None,
    }
}

/// Odd numbers, so that every rate is a fraction that never comes out even.
fn prices() -> PriceList {
    let class = |cpus, mem_mib, gpus, spec| MachineClass {
        count: 9,
        cpus,
        mem_mib,
        gpus,
        disk_mib: 70_001,
        spec: Factor::from_millionths(spec),
        properties: BTreeSet::new(),
        queues: BTreeSet::new(),
    };
    PriceList {
        machines: BTreeMap::from([
            ("thin".to_owned(), class(13, 17_003, 0, 999_983)),
            ("fat".to_owned(), class(61, 900_001, 3, 1_300_007)),
        ]),
        queues: BTreeMap::from([("long".to_owned(), Factor::from_millionths(1_100_003))]),
        ..PriceList::default()
    }
}

fn discounts() -> Discounts {
    Discounts {
        preemptible: Share::from_percent(37).expect("at most 100"),
        idle: Share::from_percent(11).expect("at most 100"),
    }
}

/// A site whose VO charges by `rule`.
fn found(rule: ChargingRule, discounts: Discounts) -> Mesh {
    found_at(1, rule, discounts)
}

/// So many sites, the first of which says what its machines cost.
fn found_at(sites: usize, rule: ChargingRule, discounts: Discounts) -> Mesh {
    let mut mesh = Mesh::found_with(1, sites, vo::timing(), |charter| {
        charter.charging = rule;
        charter.discounts = discounts;
        charter.usage_mode = UsageMode::Predictive;
    });
    let mut config = mesh.config(vo::timing());
    config.charging = Charging {
        prices: Arc::new(prices()),
        hosts: vec![(Pattern::parse("thin-*"), "thin".to_owned())],
        ..Charging::default()
    };
    // A restarted node reads the same file again.
    mesh.nodes[0].config = config.clone();
    mesh.handle(0, Event::Reconfigured(Box::new(config)));
    mesh
}

fn a_job(cores: u32, mem_mib: u64, gpus: u32, placement: Placement) -> UsageRecord {
    let ran = (START.before(HOUR.times(9)), START);
    UsageRecord {
        mem_mib,
        gpus,
        placement,
        ..job("long", "grid", "g1", "u1", ran, cores)
    }
}

fn on(machine: &str, terms: Terms) -> Placement {
    Placement {
        nodes: 2,
        disk_mib: 1_009,
        queue: Some("long".to_owned()),
        machine: Some(machine.to_owned()),
        terms,
        ..Placement::default()
    }
}

type Counts = BTreeMap<AccountPath, Counters>;

/// What the site counts when it has published all, and the digest of its view, in
/// which each hour weighs what it weighs, so sums alone would not do.
fn fed(
    rule: ChargingRule,
    reports: &[UsageRecord],
    mut restart: impl FnMut() -> bool,
) -> (Counts, Option<ContentHash>) {
    let mut mesh = found(rule, discounts());
    for report in reports {
        let reported = mesh.report(0, std::slice::from_ref(report));
        let Reported { refused, .. } = reported.expect("acknowledged");
        assert_eq!(refused, []);
        if restart() {
            mesh.restart(0);
        }
    }
    mesh.run(Millis::from_secs(30));
    (
        mesh.nodes[0].site.usage_by_account(Some(mesh.vo)),
        mesh.nodes[0].site.view_digest(mesh.vo),
    )
}

fn rule() -> impl Strategy<Value = ChargingRule> {
    prop_oneof![
        Just(ChargingRule::CpuTime),
        Just(weights(false)),
        Just(weights(true)),
        Just(PENALTY),
        Just(ChargingRule::NormalisedTime {
            spec_max: Factor::from_millionths(1_300_007),
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn instalments_a_last_word_and_all_of_it_again_make_what_the_last_word_makes_alone(
        rule in rule(),
        (cores, mem_mib, gpus) in (1..20u32, 0..30_000u64, 0..3u32),
        machine in prop_oneof![Just("fat"), Just("thin"), Just("thin-17")],
        terms in prop_oneof![Just(Terms::Regular), Just(Terms::Preemptible), Just(Terms::Idle)],
        ran_ms in 1..9 * HOUR.0,
        order in any::<u64>(),
    ) {
        let whole = a_job(cores, mem_mib, gpus, on(machine, terms));
        let last_word = UsageRecord { end: whole.start.after(Millis(ran_ms)), ..whole };
        let instalments = (1..=INSTALMENTS).map(|index| UsageRecord {
            end: last_word.start.after(Millis(ran_ms * index / INSTALMENTS)),
            running: true,
            ..last_word.clone()
        });
        let mut again: Vec<UsageRecord> = instalments.clone().chain([last_word.clone()]).collect();
        let mut dice = Dice::new(order);
        dice.shuffle(&mut again);
        let in_order: Vec<_> = instalments.chain([last_word.clone()]).chain(again.clone()).collect();
        let once = fed(rule, &[last_word], || false);
        prop_assert!(once.0.values().any(|counters| counters.charge > 0 && counters.jobs == 1));
        prop_assert_eq!(&fed(rule, &in_order, || false), &once);
        // A restart may be a new life of the site, with cells of its own; the sums are the same.
        prop_assert_eq!(&fed(rule, &in_order, || dice.percent(10)).0, &once.0);
        prop_assert_eq!(&fed(rule, &again, || dice.percent(10)).0, &once.0);
    }
}

#[test]
fn a_job_that_fits_no_machine_is_refused_and_counts_when_the_list_is_mended() {
    let mut mesh = found(PENALTY, Discounts::NONE);
    let record = a_job(62, 1, 0, Placement::default());
    let reported = mesh.report(0, std::slice::from_ref(&record));
    let reported = reported.expect("acknowledged");
    let (counted, why) = (reported.counted, &reported.refused[0].1);
    assert_eq!(counted, 0);
    assert!(why.contains("`long`") && why.contains("62 CPUs"), "{why}");

    let mut config = mesh.config(vo::timing());
    let mut list = prices();
    list.machines.get_mut("fat").expect("declared").cpus = 64;
    config.charging.prices = Arc::new(list);
    mesh.handle(0, Event::Reconfigured(Box::new(config)));
    let reported = mesh.report(0, &[record]).expect("acknowledged");
    assert_eq!((reported.counted, reported.refused.len()), (1, 0));
}

#[test]
fn a_machine_of_no_class_is_refused_by_its_name() {
    let mut mesh = found(PENALTY, Discounts::NONE);
    let record = a_job(1, 1, 0, on("moon-1", Terms::Regular));
    let reported = mesh.report(0, &[record]).expect("acknowledged");
    assert!(reported.refused[0].1.contains("`moon-1`"));
}

/// What a node says that the first site charges for a job.
fn checked_at(mesh: &Mesh, node: usize, record: &UsageRecord) -> Result<u64, String> {
    let (now, site) = (mesh.now(node), vo::site_id(0));
    let records = std::iter::once(record.clone());
    let mut estimates = mesh.nodes[node].site.estimate_at(now, records, site);
    match estimates.pop() {
        Some(Estimate::Counted { counters, .. }) => Ok(counters.charge),
        Some(Estimate::Refused(why)) => Err(why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn others_compute_the_same_charge_from_the_signed_description() {
    let mut mesh = found_at(3, PENALTY, discounts());
    mesh.run(Millis::from_secs(30));
    let record = a_job(3, 40_000, 1, on("fat", Terms::Preemptible));
    let reported = mesh.report(0, std::slice::from_ref(&record));
    let charged = reported.expect("acknowledged").charge;
    assert_eq!(checked_at(&mesh, 2, &record), Ok(charged));
    // 3 of 61 CPUs, a GPU of 3 is dearest: 61/3 CPUs × SPEC 1.300007 × 1.100003 × 37 %.
    let per_hour = 61.0 / 3.0 * 1.300_007 * 1.100_003 * 0.37 * 3_600_000.0;
    let hours = charged as f64 / per_hour;
    assert!((hours - 9.0).abs() < 1e-6, "{hours}");

    let named = |machine| UsageRecord {
        placement: on(machine, Terms::Preemptible),
        ..record.clone()
    };
    let of_host = checked_at(&mesh, 1, &named("thin-17"));
    assert!(
        of_host.is_ok_and(|charge| charge < charged),
        "its class is slower"
    );
    let why = checked_at(&mesh, 1, &named("moon-1")).expect_err("no such machine");
    assert!(why.contains("`moon-1`"), "{why}");
}

/// 1,000 cores of `fat` for an hour, which is all that the charter declares, at SPEC 1.300007, in a queue without a
/// factor.
fn full_and_fast(mesh: &Mesh) -> UsageRecord {
    let end = mesh.now(0).wall;
    let placement = Placement {
        queue: None,
        ..on("fat", Terms::Regular)
    };
    UsageRecord {
        start: WallTime(end.0 / HOUR.0 * HOUR.0).before(HOUR.times(2)),
        end: WallTime(end.0 / HOUR.0 * HOUR.0).before(HOUR),
        ..a_job(1_000, 1, 0, placement)
    }
}

#[test]
fn a_site_full_of_jobs_on_fast_machines_counts_all_that_it_charges() {
    for (spec_max, limit) in [(1_300_007, None), (4_000_000, Some(1_200_000))] {
        let spec_max = Factor::from_millionths(spec_max);
        let mut mesh = found_at(
            3,
            ChargingRule::NormalisedTime { spec_max },
            Discounts::NONE,
        );
        let record = full_and_fast(&mesh);
        let reported = mesh.report(0, std::slice::from_ref(&record));
        let charged = reported.expect("acknowledged").charge;
        assert_eq!(charged, 1_000 * HOUR.0 * 1_300_007 / 1_000_000);
        mesh.run(Millis::from_secs(60));
        let weighed = |mesh: &Mesh, node: usize| {
            let view = mesh.nodes[node].site.view();
            let entry = view.reader().entry(&vo::path("/grid/g1/u1"));
            view.reader().sums(entry.expect("an entry")).global
        };
        let all = weighed(&mesh, 0);
        assert!(all > 0);
        assert_eq!([1, 2].map(|node| weighed(&mesh, node)), [all; 2]);
        // A charter that believes less of machines makes the same tables count for less, everywhere.
        let Some(limit) = limit else { continue };
        let mut charter = vo::next_charter(&mesh.charter);
        charter.charging = ChargingRule::NormalisedTime {
            spec_max: Factor::from_millionths(limit),
        };
        let charter = vo::sign_charter(charter);
        assert!(mesh.publish(0, charter.bytes()).is_ok());
        mesh.run(Millis::from_secs(60));
        let less = weighed(&mesh, 0);
        assert_eq!([1, 2].map(|node| weighed(&mesh, node)), [less; 2]);
        assert!(0 < less && less < all, "{less} of {all}");
    }
}

#[test]
fn each_chunk_is_charged_by_the_machine_that_it_names() {
    let spec_max = Factor::from_millionths(1_400_000);
    let rule = ChargingRule::NormalisedTime { spec_max };
    let mut mesh = found_at(3, rule, Discounts::NONE);
    mesh.run(Millis::from_secs(30));
    let chunk = |nodes, cores, machine: &str| Chunk {
        nodes,
        cores,
        machine: Some(machine.to_owned()),
        ..Chunk::default()
    };
    let of = |machine| UsageRecord {
        placement: Placement {
            nodes: 4,
            chunks: vec![chunk(1, 61, "fat"), chunk(3, 3, machine)],
            ..Placement::default()
        },
        ..a_job(64, 0, 0, Placement::default())
    };
    let reported = mesh.report(0, &[of("thin-17")]).expect("acknowledged");
    let part = |cores, spec| 9 * HOUR.0 * cores * spec / 1_000_000;
    assert_eq!(reported.charge, part(61, 1_300_007) + part(3, 999_983));
    let why = checked_at(&mesh, 2, &of("moon-1")).expect_err("no such machine");
    assert!(why.contains("`moon-1`"), "{why}");
    assert_eq!(checked_at(&mesh, 2, &of("thin-17")), Ok(reported.charge));
}

#[test]
fn what_a_site_has_not_said_is_not_made_up() {
    let mesh = Mesh::found(1, 2);
    let record = a_job(1, 1, 0, Placement::default());
    let why = checked_at(&mesh, 1, &record).expect_err("nothing was said");
    assert!(why.contains("nothing about its machines"), "{why}");
}

#[test]
fn what_is_expected_of_running_jobs_is_charged_by_the_same_rule() {
    let mut mesh = found(PENALTY, Discounts::NONE);
    let now = mesh.now(0).wall;
    let record = UsageRecord {
        start: now,
        end: now,
        ..a_job(1, 1, 1, on("fat", Terms::Regular))
    };
    let running = RunningJob {
        expected_end: now.after(HOUR),
        record,
    };
    let jobs = vec![(running, None)];
    mesh.handle(0, Event::Running { ticket: 1, jobs });
    let view = mesh.nodes[0].site.view();
    let entry = view.reader().entry(&vo::path("/grid/g1/u1"));
    let expected = view.reader().sums(entry.expect("an entry")).global >> 32;
    let whole = u128::from(HOUR.0) * 61 * 1_300_007 * 1_100_003 / 3 / 1_000_000_000_000;
    assert_eq!(expected, whole);
}

#[test]
fn a_local_account_is_charged_by_the_owners_rule() {
    let charge_by = |local_rule| {
        let mut mesh = found(ChargingRule::CpuTime, Discounts::NONE);
        let mut config = mesh.config(vo::timing());
        config.charging.prices = Arc::new(prices());
        config.charging.local_rule = local_rule;
        mesh.handle(0, Event::Reconfigured(Box::new(config)));
        let mut record = a_job(1, 900_001, 0, Placement::default());
        record.origin.account = Some("local".to_owned());
        mesh.report(0, &[record]).expect("acknowledged").charge
    };
    let hours = HOUR.0 * 9;
    assert_eq!(charge_by(ChargingRule::CpuTime), hours);
    assert_eq!(charge_by(PENALTY), hours * 61 * 1_300_007 / 1_000_000);
}
