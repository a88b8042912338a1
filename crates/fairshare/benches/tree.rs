//! One delta and one look-up in trees of a thousand to a million leaves; ranking; moving the reference
//! window on. `--goals` measures what the table of goals has of it, and nothing else.
//!
//! The first must not grow with the number of leaves, beyond what a cache miss a level costs: leaves
//! are drawn at random, so in the large trees each is cold.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock"
)]

use std::hint::black_box;
use std::time::Instant;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group};
use fairmesh_fairshare::projection::RankProjection;
use fairmesh_fairshare::{
    EntryId, EntrySpec, Order, Reach, TreeSpec, TreeWriter, UsageItem, WeightTable,
};
use fairmesh_model::{
    AccountPath, Distance, HistoryRule, Scope, Share, Span, Window, WindowLength,
};

const REFERENCE: Window = Window(480_000);

/// A VO at `/vo`, and below it groups of up to a hundred projects of a hundred users each.
fn tree(leaves: u32) -> (TreeWriter, Vec<EntryId>) {
    let weights = WeightTable::new(HistoryRule::default(), WindowLength::HOUR);
    let mut spec = TreeSpec::new(vec![weights.clone(), weights], 0);
    let mut add = |text: &str, scope| {
        let path = AccountPath::parse(text).expect("a path");
        spec.entries.push(EntrySpec {
            path,
            weight: 1,
            at_most: Share::WHOLE,
            scope,
            distance: Distance::Absolute,
            history: 1,
            since: None,
        });
    };
    add("/vo", Scope::Local);
    let users = 100;
    for group in 0..leaves.div_ceil(users * 100) {
        add(&format!("/vo/g{group}"), Scope::Global);
        for project in 0..(leaves / users).min(100) {
            add(&format!("/vo/g{group}/p{project}"), Scope::Global);
            for user in 0..users {
                add(&format!("/vo/g{group}/p{project}/u{user}"), Scope::Global);
            }
        }
    }
    let mut writer = spec.build(&[REFERENCE; 2]).expect("a valid tree");
    let snapshot = writer.snapshot();
    let leaves: Vec<EntryId> = snapshot
        .ids()
        .filter(|entry| snapshot.is_leaf(*entry))
        .collect();
    let mut random = Random(7);
    let items: Vec<UsageItem> = leaves
        .iter()
        .map(|entry| UsageItem {
            entry: *entry,
            span: Span::Window(Window(REFERENCE.0 - 3)),
            charge: random.next() >> 24,
            reach: Reach::Own,
        })
        .collect();
    writer.load(items);
    (writer, leaves)
}

/// A small generator, so that runs draw the same leaves.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ (self.0 >> 33)
    }

    fn pick(&mut self, from: &[EntryId]) -> EntryId {
        let count = u64::try_from(from.len()).expect("a small number");
        from[usize::try_from(self.next() % count).expect("an index")]
    }
}

fn delta_and_lookup(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tree");
    for leaves in [1_000, 100_000, 1_000_000] {
        let (mut writer, ids) = tree(leaves);
        let reader = writer.reader();
        let mut random = Random(1);
        group.bench_function(BenchmarkId::new("delta and look-up", leaves), |bench| {
            bench.iter(|| {
                let entry = random.pick(&ids);
                writer.apply(
                    entry,
                    Span::Window(Window(REFERENCE.0 - 3)),
                    60_000,
                    Reach::Remote,
                );
                black_box(reader.vector(entry))
            });
        });
        group.bench_function(BenchmarkId::new("look-up", leaves), |bench| {
            bench.iter(|| black_box(reader.vector(random.pick(&ids))));
        });
    }
    group.finish();
}

fn rank(criterion: &mut Criterion) {
    let (writer, _) = tree(100_000);
    let mut group = criterion.benchmark_group("rank");
    group.sample_size(10);
    group.bench_function("100000 leaves", |bench| {
        bench.iter_batched(
            || writer.snapshot(),
            |snapshot| {
                let ranks = RankProjection::prepare(&snapshot);
                black_box(Order::of(snapshot, Box::new(ranks)))
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn advance(criterion: &mut Criterion) {
    let (mut writer, _) = tree(100_000);
    let mut group = criterion.benchmark_group("advance");
    group.sample_size(10);
    let mut reference = REFERENCE;
    group.bench_function("100000 leaves, slices of 1000", |bench| {
        bench.iter(|| {
            reference = Window(reference.0 + 1);
            while !writer.advance(&[reference], 1_000) {}
        });
    });
    group.finish();
}

criterion_group!(benches, delta_and_lookup, rank, advance);

fn main() {
    if std::env::args().any(|argument| argument == "--goals") {
        return goal();
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}

/// Leaves of the tree of the goal.
const LEAVES: u32 = 1_000_000;

/// Deltas, each with a look-up, of one pass, and passes: the one in the middle counts.
const DELTAS: u32 = 1_000_000;
const PASSES: usize = 5;

/// The row of the table of goals.
fn goal() {
    let before = resident_bytes();
    let (mut writer, ids) = tree(LEAVES);
    let bytes = resident_bytes().saturating_sub(before) / u64::from(LEAVES);
    let reader = writer.reader();
    let mut random = Random(1);
    let mut pass = || {
        let began = Instant::now();
        for _ in 0..DELTAS {
            let entry = random.pick(&ids);
            let span = Span::Window(Window(REFERENCE.0 - 3));
            writer.apply(entry, span, 60_000, Reach::Remote);
            black_box(reader.vector(entry));
        }
        began.elapsed().as_secs_f64() * 1e6 / f64::from(DELTAS)
    };
    let mut passes: Vec<f64> = (0..PASSES).map(|_| pass()).collect();
    passes.sort_by(f64::total_cmp);
    fairmesh_needs::say_row(
        "delta + look-up in a tree of 1,000,000 leaves",
        &format!(
            "{:.2} µs, of the library alone; {bytes} bytes a leaf, with its name and its usage",
            passes[PASSES / 2]
        ),
    );
}

/// Memory that this process has.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1_024
}
