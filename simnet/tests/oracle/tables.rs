//! Published tables as the oracle reads them, against those that sites write.

use std::collections::BTreeMap;

use fairmesh_model::{
    AccountPath, Counters, Incarnation, SiteId, Span, VoId, Window, WindowLength,
};
use fairmesh_usage::cut;
use proptest::prelude::*;
use simnet::oracle::{HeldCells, Published};

/// The kind of parts that hold usage.
const USAGE: u8 = 1;

proptest! {
    #[test]
    fn all_charges_of_all_tables_are_read(
        of in proptest::collection::btree_map((0..1_500u32, 0..3u64), (0..u64::MAX >> 20, 0..2u64), 1..2_000),
        bytes_max in 200..100_000usize,
    ) {
        let (vo, site) = (VoId::from_bytes([1; 32]), SiteId::from_bytes([2; 32]));
        let path = |user: u32| AccountPath::parse(&format!("/g{}/u{user}", user % 7)).expect("a path");
        let cells: BTreeMap<_, _> = of.iter().map(|((user, incarnation), (charge, jobs))| {
            let counters = Counters { charge: *charge, jobs: *jobs, cpu_ms: charge / 2, ..Counters::default() };
            ((path(*user), Incarnation(1_000 * incarnation)), counters)
        }).collect();
        let mut held = HeldCells::default();
        let span = Span::Window(Window(77));
        let in_order = cells.iter().map(|((path, incarnation), counters)| (path, *incarnation, *counters));
        for (slice, part) in cut(span, in_order, bytes_max) {
            let key = [&vo.as_bytes()[..], &site.as_bytes()[..], &[0; 8], &[USAGE], &slice.to_bytes()].concat();
            held.add(&key, &part);
        }
        let mut published = Published::default();
        published.found(vo, WindowLength::HOUR);
        let mut sums = BTreeMap::new();
        for ((path, _), counters) in cells.iter().filter(|(_, counters)| !counters.is_zero()) {
            *sums.entry(path.clone()).or_default() += counters.charge;
        }
        let read = published.said(site, &held).remove(&vo).unwrap_or_default();
        prop_assert_eq!(read, sums);
    }
}
