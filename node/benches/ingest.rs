//! Durable ingest through the whole node (driver, site, counters, marks, store) against the store's
//! own batched writes of as many rows, in one run. The goal is half of the store's rate, and 20,000
//! records a second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use criterion::{Criterion, Throughput};
use fairmesh_model::{
    AccountPath, HistoryRule, JobKey, Millis, Origin, UsageRecord, Weight, WindowLength,
};
use fairmesh_node::driver::{Clock, NodeHandle, NodeOptions, SystemClock, start};
use fairmesh_node::network::NetworkConfig;
use fairmesh_node::store::{Store, Table, Write};
use fairmesh_policy::{SiteEntry, SitePolicy};
use fairmesh_site::{IdentityMap, Pattern, Rule, SiteConfig, Timing};

/// Records in one report, as `fairmesh report` sends them.
const REPORT: u64 = 500;

/// Reports under way at once: what a feed that does not wait for each answer keeps in flight.
const IN_FLIGHT: u64 = 8;

/// Users that the records are of.
const USERS: u64 = 1_000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(SystemClock::start());
    let (store, _) = Store::open(&folder.path().join("bare"), clock.now().wall).expect("opens");
    let node = runtime.block_on(node(&folder, clock.clone()));
    let mut next = 0;
    let mut group = criterion.benchmark_group("ingest");
    group.throughput(Throughput::Elements(REPORT * IN_FLIGHT));
    group.bench_function("records through the node", |b| {
        b.iter(|| {
            let first = next;
            next += REPORT * IN_FLIGHT;
            runtime.block_on(report(&node, first, clock.now().wall));
        });
    });
    group.bench_function("as many rows into the store alone", |b| {
        b.iter(|| {
            let first = next;
            next += REPORT * IN_FLIGHT;
            store.write(rows(first)).expect("written");
        });
    });
    group.finish();
    criterion.final_summary();
    runtime.block_on(node.stop());
}

/// Many reports at once, as several feeds or a pipelined one make them.
async fn report(node: &NodeHandle, first: u64, now: fairmesh_model::WallTime) {
    let reports = (0..IN_FLIGHT).map(|report| {
        let records = (0..REPORT)
            .map(|record| job(first + report * REPORT + record, now))
            .collect();
        node.report(records)
    });
    for reported in futures::future::join_all(reports).await {
        assert_eq!(reported.expect("the node runs").counted, REPORT);
    }
}

/// An ended job of one of the users, in the hour that now is.
fn job(number: u64, now: fairmesh_model::WallTime) -> UsageRecord {
    let user = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % USERS;
    UsageRecord {
        key: JobKey {
            cluster: "bench".to_owned(),
            job: number.to_string(),
            instance: 0,
        },
        origin: Origin {
            user: Some(format!("u{user}")),
            account: Some("local".to_owned()),
            ..Origin::default()
        },
        start: now.before(Millis(1_000)),
        end: now,
        cores: 4,
        gpus: 0,
        mem_mib: 0,
        placement: fairmesh_model::Placement::default(),
        running: false,
    }
}

/// The rows that those records come to: a mark for each job, and the counters of the users.
fn rows(first: u64) -> Vec<Write> {
    let marks = (first..first + REPORT * IN_FLIGHT).map(|job| Write {
        table: Table::Jobs,
        key: fairmesh_model::ContentHash::of(&job.to_be_bytes())
            .as_bytes()
            .to_vec(),
        value: Some(vec![1; 9]),
    });
    let counters = (0..USERS).map(|user| Write {
        table: Table::Ledger,
        key: fairmesh_model::ContentHash::of(&user.to_le_bytes())
            .as_bytes()
            .repeat(2),
        value: Some([first.to_be_bytes(); 6].concat()),
    });
    marks.chain(counters).collect()
}

async fn node(folder: &tempfile::TempDir, clock: Arc<SystemClock>) -> NodeHandle {
    let local = AccountPath::parse("/local").expect("a path");
    let rule = Rule {
        account: Some(Pattern::parse("*")),
        path: "/local/{user}".to_owned(),
        ..Rule::default()
    };
    let options = NodeOptions {
        site: SiteConfig {
            share_rule: fairmesh_model::ShareRule::Weights,
            policy: SitePolicy::new(BTreeMap::from([(
                local,
                SiteEntry::local(Weight::whole(1)),
            )]))
            .expect("valid"),
            vos: BTreeMap::new(),
            identity: IdentityMap::new(vec![rule]),
            introducers: BTreeSet::new(),
            advert: None,
            forward: None,
            quotas: Default::default(),
            local_history: HistoryRule::default(),
            local_window: WindowLength::HOUR,
            charging: fairmesh_site::Charging::default(),
            timing: Timing::default(),
        },
        secret: [7; 32],
        takes_over: None,
        network: NetworkConfig::default(),
        data_dir: folder.path().join("node"),
        clock,
        observer: None,
        random: 1,
    };
    start(options).await.expect("starts").handle
}
