//! What counts is the same however it is counted.

use fairmesh_gossip::{PartKey, Replica};
use fairmesh_model::{
    AccountPath, HashSecret, Incarnation, SigningKey, VoId, WallTime, Window, WindowLength,
};
use fairmesh_usage::cut;

use super::large::Large;
use super::*;
use crate::checks::SiteKinds;
use crate::kinds::usage_key;
use crate::moved::Moved;
use proptest::prelude::*;

const LENGTH: WindowLength = WindowLength::HOUR;

/// A table of a day, or of one of its hours: which of the two halves of the accounts it says it is of, and cells.
type Change = (Option<u32>, bool, Vec<(u8, u8, u64, u64)>);

fn change() -> impl Strategy<Value = Change> {
    let span = prop_oneof![3 => (0..3u32).prop_map(Some), 1 => Just(None)];
    let cells = proptest::collection::vec((0..6u8, 1..3u8, 0..90u64, 0..20u64), 0..6);
    (span, any::<bool>(), cells)
}

/// The name and the bytes of a table; no bytes of one that goes.
fn part((hour, half, cells): &Change) -> (PartKey, Option<Vec<u8>>) {
    let span = hour.map_or(Span::Day(10), |hour| Span::Window(Window(240 + hour)));
    let mut name = Slice::first_of(span).to_bytes();
    name.extend([1, 0, u8::from(*half)]);
    let slice = Slice::from_bytes(&name).expect("one of two halves");
    let minutes = |minutes: u64| minutes * 60_000;
    let cells: BTreeMap<(AccountPath, Incarnation), Counters> = cells
        .iter()
        .map(|(account, incarnation, charge, refunds)| {
            let path = AccountPath::parse(&format!("/u{account}")).expect("a path");
            let counters = Counters {
                charge: minutes(*charge),
                cpu_ms: minutes(*charge),
                refunds: minutes(*refunds).min(minutes(*charge)),
                ..Counters::default()
            };
            ((path, Incarnation(u64::from(*incarnation))), counters)
        })
        .collect();
    let cells = cells
        .iter()
        .map(|((path, of), counters)| (path, *of, *counters));
    let table = cut(span, cells, 1 << 16).pop().map(|(_, bytes)| bytes);
    (usage_key(slice), table)
}

/// What moved, by the accounts' names.
fn named(of: &Published, update: &Update) -> Vec<Moved<(Span, String)>> {
    let name = |moved: &Moved<(Span, PathId)>| Moved {
        key: (moved.key.0, of.paths.path(moved.key.1).to_string()),
        before: moved.before,
        after: moved.after,
    };
    let mut all: Vec<_> = update.moved.iter().map(name).collect();
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

/// Counts all that a head of one day changed: accounts that move by themselves, or the day as a whole.
fn count(
    of: &mut Published,
    replica: &Replica,
    (site, parts): (SiteId, &[PartKey]),
    capacity: Capacity,
    may_be_few: bool,
) -> (Update, bool) {
    let slices = || parts.iter().filter_map(usage_slice);
    let spans = of.with_days(site, slices().map(|slice| slice.span).collect());
    let tables = of.read_tables(replica, site, slices());
    let few = match may_be_few {
        true => of.update_few(site, &spans, tables, capacity),
        false => Err(tables),
    };
    match few {
        Ok(update) => (update, true),
        Err(tables) => {
            let large = Large::read(site, spans, tables, Vec::new());
            (of.count_at_once(replica, large, capacity), false)
        }
    }
}

#[test]
fn one_row_is_taken_by_itself_and_a_scaled_one_is_not() {
    let key = SigningKey::from_secret(&[1; 32]);
    let site = key.site_id();
    let mut replica = Replica::new(VoId::from_bytes([7; 32]), site);
    let mut published = Published::new(LENGTH, HashSecret::new(3));
    let mut is_few = |charge, cores| {
        let changes = vec![part(&(Some(1), false, vec![(0, 1, charge, 0)]))];
        let (of, at) = (Incarnation(1), WallTime(20 * 86_400_000));
        let kinds = SiteKinds { length: LENGTH };
        let (change, _) = replica.publish(&kinds, &key, of, at, changes);
        let capacity = Capacity::of_cores(cores);
        let (update, is_few) = count(
            &mut published,
            &replica,
            (site, &change.parts),
            capacity,
            true,
        );
        published.finish(update);
        is_few
    };
    let taken = [(10, 1), (20, 1), (90, 1), (30, 1), (40, 1)];
    let taken = taken.map(|(charge, cores)| is_few(charge, cores));
    assert_eq!(
        taken,
        [true, true, false, false, true],
        "an hour of one core is 60"
    );
}

proptest! {
    /// However a site cuts its tables, whether it claims more than it has, and whatever comes as whole days.
    #[test]
    fn a_few_accounts_move_as_all_of_them_would(
        heads in proptest::collection::vec(proptest::collection::vec(change(), 1..4), 1..12),
        cores in 1..12u32,
    ) {
        let key = SigningKey::from_secret(&[1; 32]);
        let site = key.site_id();
        let mut replica = Replica::new(VoId::from_bytes([7; 32]), site);
        let new = || Published::new(LENGTH, HashSecret::new(3));
        let (mut few, mut all) = (new(), new());
        let capacity = Capacity::of_cores(cores);
        for head in heads {
            let changes: BTreeMap<PartKey, Option<Vec<u8>>> = head.iter().map(part).collect();
            let held = replica.part_keys(site);
            let is_news = |(key, bytes): &(PartKey, Option<Vec<u8>>)| bytes.is_some() || held.contains(key);
            let changes: Vec<_> = changes.into_iter().filter(is_news).collect();
            let kinds = SiteKinds { length: LENGTH };
            let at = WallTime(20 * 86_400_000);
            let (change, _) = replica.publish(&kinds, &key, Incarnation(1), at, changes);
            let (quick, _) = count(&mut few, &replica, (site, &change.parts), capacity, true);
            let (slow, _) = count(&mut all, &replica, (site, &change.parts), capacity, false);
            prop_assert_eq!(named(&few, &quick), named(&all, &slow));
            prop_assert_eq!(quick.taken_back, slow.taken_back);
            few.finish(quick);
            all.finish(slow);
            let totals = |of: &Published| {
                let totals = of.sites.get(&site).map(|of| of.totals.clone()).unwrap_or_default();
                let some = totals.into_iter().filter(|(_, total)| *total != Total::default());
                some.collect::<Vec<_>>()
            };
            prop_assert_eq!(totals(&few), totals(&all));
            prop_assert_eq!(few.is_over(site), all.is_over(site));
        }
    }

    /// Whatever the room of a step, whenever a sum comes back, and with heads that come in between.
    #[test]
    fn heads_that_are_counted_in_steps_come_to_what_they_say_at_the_end(
        heads in proptest::collection::vec(
            (proptest::collection::vec(change(), 1..4), proptest::collection::vec(1..9usize, 0..5)), 1..12),
        cores in 1..12u32,
    ) {
        let key = SigningKey::from_secret(&[1; 32]);
        let site = key.site_id();
        let mut replica = Replica::new(VoId::from_bytes([7; 32]), site);
        let capacity = Capacity::of_cores(cores);
        let kinds = SiteKinds { length: LENGTH };
        let mut stepped = Stepped::new();
        for (head, rooms) in heads {
            let changes: BTreeMap<PartKey, Option<Vec<u8>>> = head.iter().map(part).collect();
            let held = replica.part_keys(site);
            let is_news = |(key, bytes): &(PartKey, Option<Vec<u8>>)| bytes.is_some() || held.contains(key);
            let changes: Vec<_> = changes.into_iter().filter(is_news).collect();
            let (change, _) = replica.publish(&kinds, &key, Incarnation(1), WallTime(20 * 86_400_000), changes);
            stepped.published.note(site, &change.parts);
            for room in rooms {
                stepped.step(&replica, capacity, room);
            }
        }
        for _ in 0..10_000 {
            if !stepped.published.is_behind() {
                break;
            }
            stepped.step(&replica, capacity, 1);
        }
        prop_assert!(!stepped.published.is_behind());
        let mut at_once = Published::new(LENGTH, HashSecret::new(3));
        at_once.read_new(&replica, site);
        let sums = at_once.sums_of_day(site, 10, capacity);
        let sums = net(&sums).filter(|(_, amount)| *amount > 0);
        let sums: BTreeMap<_, _> = sums.map(|((span, id), amount)| ((span, at_once.paths.path(id).to_string()), amount)).collect();
        prop_assert_eq!(stepped.counts, sums);
        prop_assert_eq!(stepped.published.paths.len(), at_once.paths.len(), "accounts that nobody uses are let go");
        prop_assert_eq!(stepped.published.is_over(site), at_once.is_over(site));
    }
}

/// What counts of a site whose heads are counted in steps, by span and account.
struct Stepped {
    published: Published,
    counts: BTreeMap<(Span, String), u64>,
    sum: Option<Box<Sum>>,
}

impl Stepped {
    fn new() -> Self {
        Self {
            published: Published::new(LENGTH, HashSecret::new(3)),
            counts: BTreeMap::new(),
            sum: None,
        }
    }

    /// One step; or, where none can be made, the sum that was made beside comes back.
    fn step(&mut self, replica: &Replica, capacity: Capacity, room: usize) {
        let mut left = room;
        match self.published.step(replica, |_| capacity, &mut left, true) {
            Some((_, Step::Counted(update))) => {
                for moved in named(&self.published, &update) {
                    let count = self.counts.remove(&moved.key).unwrap_or_default();
                    assert_eq!(count, moved.before, "{moved:?}");
                    if moved.after > 0 {
                        self.counts.insert(moved.key, moved.after);
                    }
                }
                self.published.finish(update);
            }
            Some((_, Step::Sum(sum))) => self.sum = Some(sum),
            Some((_, Step::Nothing)) => {}
            None => {
                if let Some(sum) = self.sum.take() {
                    self.published.take_sum(sum.run());
                }
            }
        }
    }
}
