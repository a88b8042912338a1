//! Joining, clamping, and the codec of tables, against independent oracles.

use std::collections::{BTreeMap, BTreeSet};

use crdts::{CmRDT, CvRDT, GCounter};
use fairmesh_model::{AccountPath, Counters, HashSecret, Incarnation, Span, Window, WindowLength};
use fairmesh_usage::{
    Capacity, Cell, PathSet, Paths, Slice, Table, Total, check, cut, join, join_cells, named_cells,
};
use proptest::prelude::*;

const HOUR: WindowLength = WindowLength::HOUR;

fn path(name: u8) -> AccountPath {
    AccountPath::parse(&format!("/VO/project-{}/user-{name}", name / 3)).expect("valid")
}

fn charge(charge: u64) -> Counters {
    Counters {
        charge,
        cpu_ms: charge,
        ..Counters::default()
    }
}

fn any_counters() -> impl Strategy<Value = Counters> {
    prop_oneof![
        (1..u64::MAX).prop_map(charge),
        any::<[u64; 6]>().prop_map(Counters::from_columns),
        (0..3u64, 0..3u64).prop_map(|(jobs, refunds)| Counters {
            jobs,
            refunds,
            ..Counters::default()
        }),
    ]
}

type Cells = BTreeMap<(AccountPath, Incarnation), Counters>;

fn any_cells() -> impl Strategy<Value = Cells> {
    let cells = proptest::collection::btree_map((0..40u8, 0..4u64), any_counters(), 1..60);
    cells.prop_map(|cells| {
        let cell = |((name, of), counters): ((u8, u64), Counters)| {
            ((path(name), Incarnation(of * 1_000)), counters)
        };
        let cells = cells.into_iter().map(cell);
        cells.filter(|(_, counters)| !counters.is_zero()).collect()
    })
}

/// Increments of one site: in which incarnation, hour, for whom, how much.
fn any_history() -> impl Strategy<Value = Vec<(u64, u32, u8, u64)>> {
    proptest::collection::vec((0..3u64, 0..48u32, 0..3u8, 1..9u64), 0..40)
}

fn cells_of(history: &[(u64, u32, u8, u64)], merged: bool) -> Vec<Cell<u8>> {
    let mut cells: BTreeMap<(u64, Span, u8), u64> = BTreeMap::new();
    for (incarnation, hour, name, amount) in history {
        let is_old = merged && *hour < 24;
        let span = if is_old {
            Span::Day(0)
        } else {
            Span::Window(Window(*hour))
        };
        *cells.entry((*incarnation, span, *name)).or_default() += amount;
    }
    let cell = |((incarnation, span, name), amount)| {
        (Incarnation(incarnation), span, name, charge(amount))
    };
    cells.into_iter().map(cell).collect()
}

/// Sums by day and account of what a site's tables say, day by day as readers do.
fn by_day(cells: &[Cell<u8>]) -> BTreeMap<(u32, u8), u64> {
    let mut sums = BTreeMap::new();
    for day in 0..2 {
        let of_day = cells
            .iter()
            .filter(|(_, span, ..)| span.day(HOUR) == day)
            .copied();
        for ((span, name), counters) in join(of_day, HOUR) {
            assert_eq!(span.day(HOUR), day);
            *sums.entry((day, name)).or_default() += counters.charge;
        }
    }
    sums
}

proptest! {
    #[test]
    fn tables_round_trip_and_have_one_form(cells in any_cells()) {
        let mut paths = Paths::new(HashSecret::new(7));
        let rows = cells.iter().map(|((path, incarnation), counters)| (path, *incarnation, *counters));
        let mut back = Cells::new();
        for (slice, bytes) in cut(Span::Window(Window(9)), rows, 600) {
            prop_assert!(bytes.len() <= 600);
            prop_assert_eq!(Slice::from_bytes(&slice.to_bytes()), Some(slice));
            let table = Table::read(bytes.clone().into(), &mut paths);
            prop_assert_eq!(check(&bytes).expect("our own") as usize, table.cells().count());
            for (incarnation, id, counters) in table.cells() {
                prop_assert_eq!(back.insert((paths.path(id).clone(), incarnation), counters), None);
            }
            table.release(&mut paths);
        }
        prop_assert_eq!(back, cells);
        prop_assert!(paths.is_empty());
    }

    #[test]
    fn whatever_decodes_is_the_only_form_and_no_bytes_panic(
        cells in any_cells(), at in any::<proptest::sample::Index>(), flip in 1..=255u8,
    ) {
        let rows = cells.iter().map(|((path, incarnation), counters)| (path, *incarnation, *counters));
        for (_, mut bytes) in cut(Span::Day(9), rows, 60_000) {
            let place = at.index(bytes.len());
            bytes[place] ^= flip;
            let mut paths = Paths::new(HashSecret::new(7));
            if check(&bytes).is_ok() {
                let table = Table::read(bytes.clone().into(), &mut paths);
                let mut rows: Vec<_> = table.cells().map(|(of, id, counters)| (paths.path(id), of, counters)).collect();
                rows.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
                let again = cut(Span::Day(9), rows.into_iter(), 60_000);
                prop_assert_eq!(&again[0].1, &bytes);
            }
            prop_assert!(check(&bytes[..place]).is_err());
        }
    }

    /// Prefixes of one history, joined, are the longest of them: as grow-only counters are.
    #[test]
    fn prefixes_of_one_history_join_to_the_longest_as_grow_only_counters_do(
        history in any_history(), cuts in proptest::collection::vec((any::<proptest::sample::Index>(), any::<bool>()), 1..4),
    ) {
        let mut offered = Vec::new();
        let mut oracle: BTreeMap<(u32, u8), GCounter<(u64, u32)>> = BTreeMap::new();
        for (cut, merged) in &cuts {
            let prefix = &history[..cut.index(history.len() + 1)];
            offered.extend(cells_of(prefix, *merged));
            let mut counted: BTreeMap<(u32, u8), GCounter<(u64, u32)>> = BTreeMap::new();
            for (incarnation, hour, name, amount) in prefix {
                let counter = counted.entry((hour / 24, *name)).or_default();
                let op = counter.inc_many((*incarnation, *hour), *amount);
                counter.apply(op);
            }
            for (of, counter) in counted {
                oracle.entry(of).or_default().merge(counter);
            }
        }
        let expected: BTreeMap<(u32, u8), u64> = oracle.into_iter().map(|(of, counter)| {
            let sum = counter.read();
            (of, sum.iter_u64_digits().next().unwrap_or(0))
        }).collect();
        prop_assert_eq!(by_day(&offered), expected.clone());
        let mut reversed = offered.clone();
        reversed.reverse();
        reversed.extend(offered);
        prop_assert_eq!(by_day(&reversed), expected);
    }

    #[test]
    fn clamping_never_exceeds_the_capacity_and_keeps_who_had_more(
        claims in proptest::collection::vec((0..4u8, any::<u64>()), 1..12), cores in 0..9u32,
    ) {
        let capacity = Capacity::of_cores(cores);
        let mut sums: BTreeMap<(Span, u8), Counters> = BTreeMap::new();
        for (name, amount) in claims {
            sums.insert((Span::Day(3), name), charge(amount));
        }
        let before = sums.clone();
        let excess = clamp(capacity, &mut sums);
        let total: u128 = sums.values().map(|counters| u128::from(counters.charge)).sum();
        prop_assert!(total <= capacity.charge_limit(24, HOUR));
        let claimed: u128 = before.values().map(|counters| u128::from(counters.charge)).sum();
        prop_assert_eq!(excess.is_empty(), claimed <= capacity.charge_limit(24, HOUR));
        for (a, was_a) in &before {
            for (b, was_b) in &before {
                prop_assert!(was_a.charge > was_b.charge || sums[a].charge <= sums[b].charge);
            }
        }
    }
}

/// Clamps sums by key.
fn clamp(capacity: Capacity, sums: &mut BTreeMap<(Span, u8), Counters>) -> BTreeSet<Span> {
    let mut rows: Vec<_> = std::mem::take(sums).into_iter().collect();
    let beyond = capacity.clamp(&mut rows, HOUR);
    sums.extend(rows);
    beyond
}

/// Every column of every account by the rule as `docs/counting.md` says it.
fn clamped_by_hand(
    sums: &BTreeMap<(Span, u8), Counters>,
    limits: [Option<u128>; 4],
) -> BTreeMap<(Span, u8), [u64; 4]> {
    let left = |of: &Counters| {
        let net = of.charge.saturating_sub(of.refunds);
        let part = |held: u64| match of.refunds {
            0 => held,
            _ => (u128::from(held) * u128::from(net) / u128::from(of.charge.max(1))) as u64,
        };
        [net, part(of.cpu_ms), part(of.gpu_ms), part(of.mem_mib_s)]
    };
    let total =
        |column: usize| -> u128 { sums.values().map(|of| u128::from(left(of)[column])).sum() };
    let scale = |of: &Counters| {
        std::array::from_fn(|column| {
            let (value, total) = (u128::from(left(of)[column]), total(column));
            let limit = limits[column].unwrap_or(total).min(total);
            (value * limit).checked_div(total).unwrap_or(0) as u64
        })
    };
    sums.iter().map(|(at, of)| (*at, scale(of))).collect()
}

proptest! {
    #[test]
    fn each_column_is_scaled_by_its_own_limit_exactly_and_what_is_left_of_corrections_counts(
        claims in proptest::collection::vec(
            (0..4u8, proptest::array::uniform6(0..1u64 << 40)), 1..12),
        cores in 0..90u32, gpus in proptest::option::of(0..9u32), mem in proptest::option::of(0..9u32),
    ) {
        let capacity = Capacity { cores, gpus, mem_gib: mem, charge_cores: 2 * cores };
        let day_ms = 86_400_000u128 * 17 / 16;
        let limits = [
            Some(2 * u128::from(cores) * day_ms),
            Some(u128::from(cores) * day_ms),
            gpus.map(|gpus| u128::from(gpus) * day_ms),
            mem.map(|gib| u128::from(gib) * 1_024 * day_ms / 1_000),
        ];
        let claims = claims.into_iter();
        let mut sums: BTreeMap<(Span, u8), Counters> = claims
            .map(|(name, columns)| ((Span::Day(3), name), Counters::from_columns(columns)))
            .collect();
        let expected = clamped_by_hand(&sums, limits);
        let before = sums.clone();
        let excess = clamp(capacity, &mut sums);
        for (at, of) in &sums {
            let of = if excess.is_empty() { of.left() } else { *of };
            let columns = [of.net(), of.cpu_ms, of.gpu_ms, of.mem_mib_s];
            prop_assert_eq!(&columns, &expected[at]);
        }
        if excess.is_empty() {
            prop_assert_eq!(&sums, &before);
        }
        // A charter that declares less and one that declares more again: what is there is clamped anew.
        let mut less = before.clone();
        clamp(Capacity { cores: cores / 2, ..capacity }, &mut less);
        let mut again = before.clone();
        clamp(capacity, &mut again);
        prop_assert_eq!(again, sums);
    }
}

#[test]
fn what_is_taken_back_leaves_its_room_to_others() {
    let day = Span::Day(3);
    let full = 10 * 86_400_000;
    let job = |charge, refunds| Counters {
        charge,
        cpu_ms: charge,
        refunds,
        ..Counters::default()
    };
    let mut sums = BTreeMap::from([
        ((day, 1), job(full, 0)),
        ((day, 2), job(9 * full, 9 * full)),
    ]);
    let excess = clamp(Capacity::of_cores(10), &mut sums);
    assert_eq!(excess, BTreeSet::new());
    assert_eq!((sums[&(day, 1)].net(), sums[&(day, 2)].net()), (full, 0));
    // More is taken back of one account than it was charged: others are charged no less for it.
    let mut sums = BTreeMap::from([((day, 1), job(2 * full, 0)), ((day, 2), job(1, full))]);
    assert_eq!(clamp(Capacity::of_cores(10), &mut sums).len(), 1);
    assert_eq!(sums[&(day, 1)].net(), full * 17 / 16);
    let taken_back = sums[&(day, 2)];
    assert_eq!((taken_back.charge, taken_back.refunds), (1, 1));
}

#[test]
fn a_total_is_that_of_the_accounts_that_are_left() {
    let counters = |number: u64| Counters::from_columns([9, 8, 7, 6, 5, 4].map(|of| of * number));
    let mut totals = [Total::default(); 2];
    for number in [1, 2, 3] {
        totals[0].add(counters(number));
    }
    totals[0].remove(counters(2));
    for number in [1, 3] {
        totals[1].add(counters(number));
    }
    assert_eq!(totals[0], totals[1]);
    // Of 9 core-ms 4 were taken back, and of 8 of CPU time so many of 9: 4 are left.
    let mut total = Total::default();
    total.add(counters(1));
    assert_eq!(total.cpu_ms(), 4);
}

#[test]
fn cells_that_join_keep_their_incarnations() {
    let hour = Span::Window(Window(7));
    let cell = |incarnation, charged| (Incarnation(incarnation), hour, 1u8, charge(charged));
    let joined = join_cells([cell(1, 5), cell(2, 7), cell(1, 6)], HOUR);
    let expected =
        [(1, 6), (2, 7)].map(|(of, charged)| ((Incarnation(of), hour, 1), charge(charged)));
    assert_eq!(joined, BTreeMap::from(expected));
    let sums = join([cell(1, 5), cell(2, 7), cell(1, 6)], HOUR);
    assert_eq!(sums, [((hour, 1), charge(13))]);
}

/// The bytes of a table as `columns` documents them, and other bytes for the same cells.
#[test]
fn a_set_of_cells_has_these_bytes_and_no_others() {
    let path = |text| AccountPath::parse(text).expect("valid");
    let (ann, ben) = (path("/a"), path("/b"));
    let table = |cells: &[(&AccountPath, u64, [u64; 6])]| {
        let rows = cells.iter();
        let rows = rows
            .map(|(path, of, columns)| (*path, Incarnation(*of), Counters::from_columns(*columns)));
        let tables = cut(Span::Day(1), rows, 60_000);
        tables[0].1.clone()
    };
    let a = [1, 1, 0, 2, b'/', b'a', 1, 5, 1];
    // The mask: jobs are bit 4, and bit 6 says that CPU time is the charge.
    for (columns, rest) in [
        ([0, 0, 0, 0, 1, 0], &[16, 1][..]),
        ([3, 3, 0, 0, 0, 0], &[65, 3]),
        ([3, 4, 0, 0, 0, 0], &[3, 3, 4]),
    ] {
        assert_eq!(table(&[(&ann, 5, columns)]), [&a, rest].concat());
    }
    let jobs = [0, 0, 0, 0, 1, 0];
    // Each incarnation has a cell of one of two paths, so it says which.
    let two = [
        1, 2, 0, 2, b'/', b'a', 1, 1, b'b', 2, 5, 1, 0, 6, 1, 1, 16, 1, 1,
    ];
    assert_eq!(table(&[(&ann, 5, jobs), (&ben, 6, jobs)]), two);
    check(&two).expect("it is the form");
    for (why, bytes) in [
        (
            "a path shares more than it says",
            &[1, 2, 0, 2, b'/', b'a', 1, 2, b'a', b'b', 1, 5, 2, 16, 1, 1][..],
        ),
        (
            "an incarnation comes twice",
            &[
                1, 2, 0, 2, b'/', b'a', 1, 1, b'b', 2, 5, 1, 0, 5, 1, 1, 16, 1, 1,
            ],
        ),
        (
            "an incarnation has no cell",
            &[1, 1, 0, 2, b'/', b'a', 2, 5, 0, 6, 1, 16, 1],
        ),
        (
            "CPU time is left out where there is none",
            &[1, 1, 0, 2, b'/', b'a', 1, 5, 1, 16 + 64, 1],
        ),
    ] {
        assert!(check(bytes).is_err(), "{why}");
    }
}

#[test]
fn a_typical_table_takes_few_bytes_and_a_cell_of_nothing_is_refused() {
    let cells: Cells = (0..100u8)
        .map(|name| {
            (
                (path(name), Incarnation(1_700_000_000_000)),
                charge(3_600_000 + u64::from(name)),
            )
        })
        .collect();
    let rows = cells
        .iter()
        .map(|((path, incarnation), counters)| (path, *incarnation, *counters));
    let tables = cut(Span::Window(Window(450_000)), rows, 60_000);
    assert_eq!(tables.len(), 1);
    assert!(
        tables[0].1.len() <= 13 * cells.len(),
        "{} bytes",
        tables[0].1.len()
    );
    // One path, one incarnation with one cell, and no columns.
    assert!(check(&[1, 1, 0, 2, b'/', b'a', 1, 5, 1, 0]).is_err());
}

#[test]
fn a_table_names_its_accounts_and_its_bytes_are_read_without_it() {
    let [ann, ben] = ["/a", "/b"].map(|text| AccountPath::parse(text).expect("valid"));
    let rows = [
        (&ann, Incarnation(1), charge(3)),
        (&ben, Incarnation(1), charge(4)),
    ];
    let [(_, both)] = &cut(Span::Day(1), rows.into_iter(), 600)[..] else {
        panic!("one table");
    };
    let (_, of_ann) = &cut(Span::Day(1), rows.into_iter().take(1), 600)[0];
    let mut paths = Paths::new(HashSecret::new(7));
    let [both_read, ann_read] =
        [both, of_ann].map(|bytes| Table::read(bytes.clone().into(), &mut paths));
    assert_eq!(both_read.bytes_len(), both.len());
    let (mut anns, mut bens) = (PathSet::default(), PathSet::default());
    ann_read.list_in(&mut anns);
    bens.insert(paths.acquire("/b"));
    assert!(both_read.names_any(&anns) && both_read.names_any(&bens));
    assert!(ann_read.names_any(&anns) && !ann_read.names_any(&bens));
    // Who wants one account reads no other.
    let cells = named_cells(both, |text| (text == "/b").then_some('b'));
    assert_eq!(
        cells.collect::<Vec<_>>(),
        [(Incarnation(1), 'b', charge(4))]
    );
}

#[test]
fn a_slice_is_one_of_two_to_the_power_of_its_depth() {
    let ann = AccountPath::parse("/a").expect("valid");
    let tables = cut(
        Span::Day(1),
        [(&ann, Incarnation(1), charge(1))].into_iter(),
        600,
    );
    let whole = tables[0].0.to_bytes();
    let named =
        |depth: u8, index: u8| Slice::from_bytes(&[&whole, &[depth, 0, index][..]].concat());
    for depth in 1..=7 {
        assert!(named(depth, (1 << depth) - 1).is_some());
        assert_eq!(named(depth, 1 << depth), None);
    }
}

#[test]
fn a_span_is_cut_into_twice_as_many_tables_where_one_would_have_more_than_1024_cells() {
    let tables = |cells: u32| {
        let path = |name: u32| AccountPath::parse(&format!("/{name:05}")).expect("valid");
        let paths: Vec<AccountPath> = (0..cells).map(path).collect();
        let cells = paths.iter().map(|path| (path, Incarnation(1), charge(1)));
        cut(Span::Day(1), cells, usize::MAX).len()
    };
    assert_eq!(
        [1, 1_024, 1_025, 2_049, 2_050, 4_100].map(tables),
        [1, 1, 2, 2, 4, 8]
    );
}

#[test]
fn long_names_count_as_more_rows_than_they_have_cells() {
    let rows = |bytes: usize| {
        let path = |name: u32| AccountPath::parse(&format!("/{name:0>0$}", bytes - 1));
        let paths: Vec<AccountPath> = (0..1_000).map(|name| path(name).expect("valid")).collect();
        let cells = paths.iter().map(|path| (path, Incarnation(1), charge(1)));
        let tables = cut(Span::Day(1), cells, usize::MAX).into_iter();
        let rows = tables.map(|(_, bytes)| check(&bytes).expect("our own"));
        rows.sum::<u32>()
    };
    assert_eq!([16, 128, 200, 512].map(rows), [1_000, 1_000, 1_562, 4_000]);
}
