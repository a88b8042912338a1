//! Durable batches into the store, and the same through sled alone, in one run.
//!
//! The goal (half of the store's own batched write rate, and 20,000 records a second) is for the
//! node's whole ingest; this is the ceiling that it is measured against.

use std::fs::File;
use std::time::{SystemTime, UNIX_EPOCH};

use criterion::{BatchSize, Criterion, Throughput};
use fairmesh_model::WallTime;
use fairmesh_node::store::{Store, Table, Write};

const BATCH: u64 = 500;
const KEYS: u64 = 100_000;

/// Updates of a few keys out of many, as counters get them.
fn batch(number: u64) -> Vec<Write> {
    (0..BATCH)
        .map(|record| {
            let key = (number * BATCH + record).wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS;
            Write {
                table: Table::Ledger,
                key: key.to_be_bytes().to_vec(),
                value: Some([number.to_be_bytes(), record.to_be_bytes()].concat()),
            }
        })
        .collect()
}

fn now() -> WallTime {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    WallTime::from_unix_secs(since.as_secs())
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let dir = tempfile::tempdir().expect("a folder");
    let (store, _) = Store::open(&dir.path().join("store"), now()).expect("opens");
    let bare = sled::open(dir.path().join("bare")).expect("opens");
    let bare_data = File::open(dir.path().join("bare/db")).expect("is there");
    let mut group = criterion.benchmark_group("store");
    group.throughput(Throughput::Elements(BATCH));
    let mut number = 0;
    let mut next = || {
        number += 1;
        batch(number)
    };
    group.bench_function("500 records, durable", |b| {
        b.iter_batched(
            &mut next,
            |writes| store.write(writes).expect("written"),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("500 records, sled alone, as durable", |b| {
        b.iter_batched(
            &mut next,
            |writes| {
                let mut batch = sled::Batch::default();
                for write in writes {
                    batch.insert(write.key, write.value.expect("is given"));
                }
                bare.apply_batch(batch).expect("applied");
                bare.flush().expect("flushed");
                bare_data.sync_data().expect("synced");
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("get", |b| {
        let mut key = 0_u64;
        b.iter(|| {
            key = (key + 7_919) % KEYS;
            store.get(Table::Ledger, &key.to_be_bytes()).expect("reads")
        });
    });
    group.finish();
    criterion.final_summary();
}
