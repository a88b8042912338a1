//! Joining a delta of 100 sites × 1,000 accounts into a state that holds older values of all of
//! them, against maps of `crdts::GCounter` in the same run. Ours carries five counters a cell and
//! keeps capacity totals, the state digest, the batch log and the list of changes; the maps carry
//! one counter and keep nothing.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use crdts::{CmRDT, CvRDT, Dot, GCounter};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use fairmesh_model::documents::PathCells;
use fairmesh_model::{
    AccountPath, Counters, Incarnation, Role, Seq, Signed, SigningKey, Span, StreamId, UsageBatch,
    Verified, VoId, WallTime, Window, WindowLength,
};
use fairmesh_usage::{Bound, VoUsage};

const SITES: u16 = 100;
const ACCOUNTS: u64 = 1_000;
const SPAN: Span = Span::Window(Window(480_000));
const BOUND: Bound = Bound::new(100_000, 100_000);

type Batch = Arc<Verified<UsageBatch>>;
type Maps = BTreeMap<(Span, AccountPath), GCounter<StreamId>>;

fn key(site: u16) -> SigningKey {
    let mut secret = [0; 32];
    secret[..2].copy_from_slice(&site.to_le_bytes());
    SigningKey::from_secret(&secret)
}

fn account(user: u64) -> AccountPath {
    AccountPath::parse(&format!("/project-{}/user-{user}", user % 40)).expect("a valid path")
}

fn batch(site: u16, previous: Option<&Batch>) -> Batch {
    let key = key(site);
    let seq = previous.map_or(Seq(1), |batch| batch.body().seq.next());
    let rows = (0..ACCOUNTS).map(|user| {
        let ms = 3_600_000 * seq.0 + user;
        (
            SPAN,
            account(user),
            Counters {
                charge: ms,
                cpu_ms: ms,
                jobs: seq.0,
                ..Counters::default()
            },
        )
    });
    let body = UsageBatch {
        vo: VoId::from_bytes([1; 32]),
        site: key.site_id(),
        incarnation: Incarnation(1),
        seq,
        previous: previous.map(|batch| batch.hash()),
        at: WallTime(0),
        retired_below: Incarnation(0),
        settled_below: Incarnation(0),
        cells: PathCells::from_rows(rows),
    };
    let role = Role::single(key.site_id());
    Arc::new(
        Signed::sign(body, &[&key])
            .and_then(|signed| signed.verify(&[&role]))
            .expect("verifies"),
    )
}

fn apply_all(usage: &mut VoUsage, batches: &[Batch]) {
    for batch in batches {
        black_box(
            usage
                .apply_batch(batch.clone(), BOUND)
                .expect("within capacity"),
        );
    }
}

fn maps_of(batches: &[Batch]) -> Maps {
    let mut maps = Maps::new();
    for batch in batches {
        for (span, path, counters) in batch.body().cells.rows() {
            let counter = maps.entry((span, path.clone())).or_default();
            counter.apply(Dot::new(batch.body().stream(), counters.charge));
        }
    }
    maps
}

fn merge_maps(maps: &mut Maps, delta: Maps) {
    for (key, counter) in delta {
        maps.entry(key).or_default().merge(counter);
    }
}

fn joins(criterion: &mut Criterion) {
    let first: Vec<Batch> = (0..SITES).map(|site| batch(site, None)).collect();
    let second: Vec<Batch> = first
        .iter()
        .zip(0..)
        .map(|(previous, site)| batch(site, Some(previous)))
        .collect();
    let empty = VoUsage::new(VoId::from_bytes([1; 32]), WindowLength::HOUR);
    let mut old = empty.clone();
    apply_all(&mut old, &first);
    let mut new = old.clone();
    apply_all(&mut new, &second);
    let (old_maps, delta_maps) = (maps_of(&first), maps_of(&second));
    println!(
        "memory: {} bytes for {} cells",
        new.memory_bytes(),
        new.cells().count()
    );

    let mut group = criterion.benchmark_group("join 100 sites x 1000 accounts");
    group.sample_size(20);
    let whole = BatchSize::PerIteration;
    group.bench_function("batches into an empty state", |bencher| {
        bencher.iter_batched_ref(|| empty.clone(), |usage| apply_all(usage, &first), whole);
    });
    group.bench_function("batches into an older state", |bencher| {
        bencher.iter_batched_ref(|| old.clone(), |usage| apply_all(usage, &second), whole);
    });
    group.bench_function("whole state into an older state", |bencher| {
        let clones = || (old.clone(), Some(new.clone()));
        bencher.iter_batched_ref(
            clones,
            |(usage, new)| usage.merge(new.take().expect("once")),
            whole,
        );
    });
    group.bench_function("whole state into itself", |bencher| {
        let clones = || (new.clone(), Some(new.clone()));
        bencher.iter_batched_ref(
            clones,
            |(usage, new)| usage.merge(new.take().expect("once")),
            whole,
        );
    });
    group.bench_function("GCounter maps into older maps", |bencher| {
        let clones = || (old_maps.clone(), Some(delta_maps.clone()));
        bencher.iter_batched_ref(
            clones,
            |(maps, delta)| merge_maps(maps, delta.take().expect("once")),
            whole,
        );
    });
    group.finish();
}

criterion_group!(benches, joins);
criterion_main!(benches);
