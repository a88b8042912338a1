//! Weights, sums, shares, order and factors of random trees, against the library's.

use std::collections::BTreeMap;

use fairmesh_fairshare::projection::{BitsProjection, RankProjection};
use fairmesh_fairshare::{
    Context, EntrySpec, History, InFlight, Order, Projection, Reach, Scope, TreeSpec, TreeWriter,
    WeightTable,
};
use fairmesh_model::{
    AccountPath, Counters, Distance, HistoryRule, Share, SiteId, Span, VoId, Window, WindowLength,
};
use proptest::prelude::*;
use simnet::oracle::answers::{Given, Row, Rules, answers};
use simnet::oracle::tree::{Target, Tree};
use simnet::oracle::weight::{age, weight};
use simnet::vo::{path, site_id};

const VO: [u8; 32] = [7; 32];

/// Days from the epoch to now.
const TODAY: u64 = 20_000;

const DAY_MS: u64 = 86_400_000;

fn length() -> impl Strategy<Value = WindowLength> {
    prop::sample::select(vec![900_000, 3_600_000, 21_600_000, DAY_MS])
        .prop_map(|ms| WindowLength::from_millis(ms).expect("divides a day"))
}

fn share() -> impl Strategy<Value = Share> {
    prop_oneof![
        prop::sample::select(vec![0, 1, 25, 50, 100]).prop_map(Share::from_percent),
        (0..=Share::ONE).prop_map(Share::from_units),
    ]
    .prop_map(|share| share.expect("in range"))
}

fn rule() -> impl Strategy<Value = HistoryRule> {
    prop_oneof![
        (1u32..200, 1u32..70, share()).prop_map(|(length, count, factor)| HistoryRule::Windows {
            length,
            count,
            factor
        }),
        (1u32..800, 1u32..5_000)
            .prop_map(|(windows, horizon)| HistoryRule::HalfLife { windows, horizon }),
        (1u32..5_000).prop_map(|horizon| HistoryRule::None { horizon }),
        Just(HistoryRule::RunningOnly),
    ]
}

fn distance() -> impl Strategy<Value = Distance> {
    prop_oneof![
        Just(Distance::Absolute),
        Just(Distance::Relative),
        share().prop_map(|k| Distance::Mix { k }),
    ]
}

/// Where in the last ten days, and whether its day is told as a whole.
fn used() -> impl Strategy<Value = (u64, bool)> {
    (0..10 * DAY_MS, any::<bool>())
}

fn span((ago, is_day): (u64, bool), length: WindowLength, now: u64) -> Span {
    let at = now - ago;
    match is_day {
        true => Span::Day(u32::try_from(at / DAY_MS).expect("a day")),
        false => Span::Window(window_at(at, length)),
    }
}

fn window_at(at: u64, length: WindowLength) -> Window {
    Window(u32::try_from(at / length.millis().0).expect("a window"))
}

/// What was used: where in the list of places, when, how much, and whether at this site.
type Usage = (usize, (u64, bool), u64, bool);

#[derive(Debug, Clone)]
struct Case {
    shares: Vec<(Share, Share)>,
    local: (HistoryRule, WindowLength),
    vo: (HistoryRule, WindowLength, Distance),
    usage: Vec<Usage>,
    expected: Vec<(usize, u64, bool)>,
    time_of_day: u64,
    /// How long before now the usage was booked.
    booked_ago: u64,
}

/// Entries of the tree, and whether they are below the mount.
const ENTRIES: [(&str, bool); 11] = [
    ("/local", false),
    ("/local/a", false),
    ("/local/b", false),
    ("/vo", false),
    ("/vo/x", true),
    ("/vo/x/u", true),
    ("/vo/x/v", true),
    ("/vo/y", true),
    ("/vo/y/u", true),
    ("/vo/y/u/deep", true),
    ("/vo/z", true),
];

/// Accounts that use something, by VO or local; not all have an entry of their own.
const ACCOUNTS: [(&str, bool); 9] = [
    ("/x/u", true),
    ("/x/v", true),
    ("/x/nobody", true),
    ("/y/u/deep", true),
    ("/z", true),
    ("/", true),
    ("/local/a", false),
    ("/local/b/c", false),
    ("/elsewhere", false),
];

fn limit() -> impl Strategy<Value = Share> {
    prop_oneof![Just(Share::WHOLE), share()]
}

fn case() -> impl Strategy<Value = Case> {
    let usage = (0..ACCOUNTS.len(), used(), 0u64..1 << 50, any::<bool>());
    let expected = (0..6usize, 0u64..1 << 50, any::<bool>());
    (
        prop::collection::vec((share(), limit()), ENTRIES.len()),
        (rule(), length()),
        (rule(), length(), distance()),
        prop::collection::vec(usage, 0..40),
        prop::collection::vec(expected, 0..3),
        0..DAY_MS,
        0..6 * DAY_MS,
    )
        .prop_map(
            |(shares, local, vo, usage, expected, time_of_day, booked_ago)| Case {
                shares,
                local,
                vo,
                usage,
                expected,
                time_of_day,
                booked_ago,
            },
        )
}

fn key((text, is_vo): (&str, bool)) -> (Option<VoId>, AccountPath) {
    (is_vo.then_some(VoId::from_bytes(VO)), path(text))
}

fn in_tree((text, is_vo): (&str, bool)) -> AccountPath {
    match is_vo {
        true => path("/vo").join(&path(text)).expect("short"),
        false => path(text),
    }
}

impl Case {
    fn now(&self) -> u64 {
        TODAY * DAY_MS + self.time_of_day
    }

    /// The library's tree, with the usage booked some time ago and the windows moved on since.
    fn writer(&self) -> TreeWriter {
        let history = |rule, length, distance| History {
            weights: WeightTable::new(rule, length),
            distance,
        };
        let histories = vec![
            history(self.local.0, self.local.1, Distance::Absolute),
            history(self.vo.0, self.vo.1, self.vo.2),
        ];
        let mut spec = TreeSpec::new(histories, 0);
        spec.entries = ENTRIES
            .iter()
            .zip(&self.shares)
            .map(|((at, is_global), (share, at_most))| EntrySpec {
                path: path(at),
                share: *share,
                at_most: *at_most,
                scope: if *is_global {
                    Scope::Global
                } else {
                    Scope::Local
                },
                history: usize::from(at.starts_with("/vo")),
            })
            .collect();
        let references = |at| [window_at(at, self.local.1), window_at(at, self.vo.1)];
        let mut writer = spec
            .build(&references(self.now() - self.booked_ago))
            .expect("a tree");
        let reader = writer.reader();
        for (account, when, charge, own) in &self.usage {
            let account = ACCOUNTS[*account];
            let length = if account.1 { self.vo.1 } else { self.local.1 };
            let entry = reader.resolve(&in_tree(account)).entry;
            let reach = if *own { Reach::Own } else { Reach::Remote };
            writer.apply(entry, span(*when, length, self.now()), *charge, reach);
        }
        for (account, charge, own) in &self.expected {
            let entry = reader.resolve(&in_tree(ACCOUNTS[*account])).entry;
            let before = writer.in_flight(entry);
            // What is expected counts nowhere locally, wherever the jobs run; what they have used does.
            let after = InFlight {
                global: before.global + *charge,
                ..before
            };
            writer.set_in_flight(entry, after);
            if *own {
                let now = Span::Window(window_at(self.now(), self.vo.1));
                writer.add_running(entry, now, *charge / 3);
            }
        }
        while !writer.advance(&references(self.now()), 3) {}
        writer
    }

    fn rows(&self) -> Vec<Row> {
        let row = |(account, when, charge, own): &Usage| {
            let account = ACCOUNTS[*account];
            let length = if account.1 { self.vo.1 } else { self.local.1 };
            Row {
                site: site(*own),
                account: key(account),
                span: span(*when, length, self.now()),
                counters: Counters {
                    charge: *charge,
                    ..Counters::default()
                },
            }
        };
        // Usage of local accounts never comes from elsewhere, but the library's tree takes it.
        self.usage.iter().map(row).collect()
    }
}

fn site(own: bool) -> SiteId {
    site_id(usize::from(!own))
}

proptest! {
    /// `PROPTEST_CASES=100000` plays as many trees.
    #[test]
    fn answers_are_those_of_the_library(case in case()) {
        let writer = case.writer();
        let snapshot = writer.snapshot();
        let vo = VoId::from_bytes(VO);
        let mut tree = Tree::default();
        tree.mounts.insert(vo, path("/vo"));
        for ((at, is_global), (share, at_most)) in ENTRIES.iter().zip(&case.shares) {
            let (share, at_most, global) = (*share, *at_most, is_global.then_some(vo));
            tree.targets.insert(path(at), Target { share, at_most, global });
        }
        let rules = |history, window, distance| Rules {
            history,
            window,
            reference: window_at(case.now(), window).0,
            distance,
        };
        let expected: Vec<_> = case
            .expected
            .iter()
            .map(|(at, charge, own)| (vo, site(*own), path(ACCOUNTS[*at].0), *charge))
            .collect();
        let now = Span::Window(window_at(case.now(), case.vo.1));
        let own = case.expected.iter().filter(|(_, _, own)| *own);
        let running: Vec<_> = own
            .map(|(at, charge, _)| ((Some(vo), path(ACCOUNTS[*at].0)), Some(now), *charge / 3))
            .collect();
        let right = answers(&Given {
            site: site(true),
            tree: &tree,
            rows: &case.rows(),
            expected: &expected,
            running: &running,
            local: rules(case.local.0, case.local.1, Distance::Absolute),
            vos: &BTreeMap::from([(vo, rules(case.vo.0, case.vo.1, case.vo.2))]),
        });
        let ranks = RankProjection::prepare(&snapshot);
        let order = Order::of(snapshot.clone(), Box::new(ranks));
        let last = right.values().map(|answer| answer.rank).max().expect("the root");
        prop_assert_eq!(right.len(), snapshot.entries());
        for entry in snapshot.ids() {
            let (at, level) = (snapshot.path(entry), snapshot.level(entry));
            let answer = &right[at];
            let bits = BitsProjection.priority_of(&snapshot, entry);
            let bits_factor = BitsProjection.factor(&bits, &Context::of(&snapshot, entry));
            let factor = u64::from(last + 1 - answer.rank) * u64::from(Share::ONE) / u64::from(last);
            prop_assert_eq!(answer.level.usage, (level.usage, level.parent_usage), "{}", at);
            prop_assert_eq!(answer.level.target, level.target, "{}", at);
            prop_assert_eq!(answer.level.distance, level.distance, "{}", at);
            prop_assert_eq!(answer.rank, order.ranking().rank(entry), "{}", at);
            prop_assert_eq!(factor, u64::from(order.factor(entry).units()), "{}", at);
            prop_assert_eq!(ethnum::I256::from(answer.priority), bits.units(), "{}", at);
            prop_assert_eq!(answer.factor, bits_factor, "{}", at);
        }
    }

    #[test]
    fn weights_are_those_of_the_library(
        rule in rule(), from in length(), to in length(), when in used(), time in 0..DAY_MS,
    ) {
        let now = TODAY * DAY_MS + time;
        let (table, reference) = (WeightTable::new(rule, to), window_at(now, to));
        let span = span(when, from, now);
        let shown = table.weight_of_span(table.convert(span, from), reference);
        prop_assert_eq!(weight(rule, age(span, from, to, reference.0)), shown);
    }
}
