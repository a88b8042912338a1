//! Weights, sums, shares, order and factors of random trees, against the library's.

use fairmesh_fairshare::projection::{BitsProjection, RankProjection};
use fairmesh_fairshare::{
    Context, EntrySpec, InFlight, Order, Projection, Reach, TreeSpec, TreeWriter, WeightTable,
};
use fairmesh_model::{
    AccountPath, Counters, Distance, HistoryRule, Scope, Share, SiteId, Span, VoId, Window,
    WindowLength,
};
use proptest::prelude::*;
use simnet::oracle::answers::{Given, Row, Rules, answers};
use simnet::oracle::tree::{Target, Tree, Whose};
use simnet::oracle::weight::{age, weight};
use simnet::vo::{path, site_id};

/// Where the VOs are mounted.
const MOUNTS: [&str; 2] = ["/grid/vo", "/grid/too"];

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
    vos: Vec<(HistoryRule, WindowLength)>,
    /// How each level is compared: whether by usage of this site alone, wherever that is a question.
    levels: Vec<(bool, Distance)>,
    usage: Vec<Usage>,
    expected: Vec<(usize, u64, bool)>,
    time_of_day: u64,
    /// How long before now the usage was booked.
    booked_ago: u64,
}

/// Entries of the tree, and the VO of each.
const ENTRIES: [(&str, Option<usize>); 14] = [
    ("/local", None),
    ("/local/a", None),
    ("/local/b", None),
    ("/grid", None),
    ("/grid/vo", Some(0)),
    ("/grid/vo/x", Some(0)),
    ("/grid/vo/x/u", Some(0)),
    ("/grid/vo/x/v", Some(0)),
    ("/grid/vo/y", Some(0)),
    ("/grid/vo/y/u", Some(0)),
    ("/grid/vo/y/u/deep", Some(0)),
    ("/grid/vo/z", Some(0)),
    ("/grid/too", Some(1)),
    ("/grid/too/x", Some(1)),
];

/// Entries that others are right below.
const LEVELS: [&str; 8] = [
    "/",
    "/local",
    "/grid",
    "/grid/vo",
    "/grid/vo/x",
    "/grid/vo/y",
    "/grid/vo/y/u",
    "/grid/too",
];

/// Accounts that use something, by VO or local; not all have an entry of their own.
const ACCOUNTS: [(&str, Option<usize>); 12] = [
    ("/x/u", Some(0)),
    ("/x/v", Some(0)),
    ("/x/nobody", Some(0)),
    ("/y/u/deep", Some(0)),
    ("/z", Some(0)),
    ("/", Some(0)),
    ("/x", Some(1)),
    ("/nobody", Some(1)),
    ("/local/a", None),
    ("/local/b/c", None),
    ("/grid/mine", None),
    ("/elsewhere", None),
];

fn limit() -> impl Strategy<Value = Share> {
    prop_oneof![Just(Share::WHOLE), share()]
}

fn case() -> impl Strategy<Value = Case> {
    let usage = (0..ACCOUNTS.len(), used(), 0u64..1 << 50, any::<bool>());
    let expected = (0..8usize, 0u64..1 << 50, any::<bool>());
    (
        prop::collection::vec((share(), limit()), ENTRIES.len()),
        (rule(), length()),
        prop::collection::vec((rule(), length()), MOUNTS.len()),
        prop::collection::vec((any::<bool>(), distance()), LEVELS.len()),
        prop::collection::vec(usage, 0..40),
        prop::collection::vec(expected, 0..3),
        0..DAY_MS,
        0..6 * DAY_MS,
    )
        .prop_map(
            |(shares, local, vos, levels, usage, expected, time_of_day, booked_ago)| Case {
                shares,
                local,
                vos,
                levels,
                usage,
                expected,
                time_of_day,
                booked_ago,
            },
        )
}

fn vo(index: usize) -> VoId {
    VoId::from_bytes([u8::try_from(index).expect("few"); 32])
}

fn key((text, of): (&str, Option<usize>)) -> (Option<VoId>, AccountPath) {
    (of.map(vo), path(text))
}

fn in_tree((text, of): (&str, Option<usize>)) -> AccountPath {
    match of {
        Some(of) => path(MOUNTS[of]).join(&path(text)).expect("short"),
        None => path(text),
    }
}

impl Case {
    fn now(&self) -> u64 {
        TODAY * DAY_MS + self.time_of_day
    }

    fn length_of(&self, of: Option<usize>) -> WindowLength {
        of.map_or(self.local.1, |of| self.vos[of].1)
    }

    /// How an entry is compared with its siblings.
    fn level_of(&self, at: &str, of: Option<usize>) -> (Whose, Distance) {
        let above = path(at).parent().expect("no root is listed");
        let level = LEVELS.iter().position(|level| *level == above.as_str());
        let (is_local, distance) = self.levels[level.expect("a level")];
        let whose = match of.map(vo) {
            Some(vo) if !is_local && MOUNTS.contains(&at) => Whose::Vos(Some(vo)),
            Some(vo) if !is_local => Whose::Members(vo),
            _ => Whose::Here,
        };
        (whose, distance)
    }

    /// The library's tree, with the usage booked some time ago and the windows moved on since.
    fn writer(&self) -> TreeWriter {
        let rules = [&self.local].into_iter().chain(&self.vos);
        let histories: Vec<_> = rules
            .clone()
            .map(|(rule, length)| WeightTable::new(*rule, *length))
            .collect();
        let mut spec = TreeSpec::new(histories, 0);
        let entry = |((at, of), (share, at_most)): (&(&str, Option<usize>), &(Share, Share))| {
            let (whose, distance) = self.level_of(at, *of);
            EntrySpec {
                path: path(at),
                share: *share,
                at_most: *at_most,
                scope: match whose {
                    Whose::Here => Scope::Local,
                    _ => Scope::Global,
                },
                distance,
                history: of.map_or(0, |of| of + 1),
            }
        };
        spec.entries = ENTRIES.iter().zip(&self.shares).map(entry).collect();
        let references = |at| -> Vec<Window> {
            let windows = rules.clone().map(|(_, length)| window_at(at, *length));
            windows.collect()
        };
        let mut writer = spec
            .build(&references(self.now() - self.booked_ago))
            .expect("a tree");
        let reader = writer.reader();
        for (account, when, charge, own) in &self.usage {
            let account = ACCOUNTS[*account];
            let entry = reader.resolve(&in_tree(account)).entry;
            let reach = if *own { Reach::Own } else { Reach::Remote };
            let span = span(*when, self.length_of(account.1), self.now());
            writer.apply(entry, span, *charge, reach);
        }
        for (account, charge, own) in &self.expected {
            let account = ACCOUNTS[*account];
            let entry = reader.resolve(&in_tree(account)).entry;
            let before = writer.in_flight(entry);
            // What is expected counts nowhere locally, wherever the jobs run; what they have used does.
            let after = InFlight {
                global: before.global + *charge,
                ..before
            };
            writer.set_in_flight(entry, after);
            if *own {
                let now = window_at(self.now(), self.length_of(account.1));
                writer.add_running(entry, Span::Window(now), *charge / 3);
            }
        }
        while !writer.advance(&references(self.now()), 3) {}
        writer
    }

    fn rows(&self) -> Vec<Row> {
        let row = |(account, when, charge, own): &Usage| {
            let account = ACCOUNTS[*account];
            Row {
                site: site(*own),
                account: key(account),
                span: span(*when, self.length_of(account.1), self.now()),
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
        let mut tree = Tree::default();
        let mounts = MOUNTS.iter().enumerate();
        tree.mounts.extend(mounts.map(|(of, at)| (vo(of), path(at))));
        for ((at, of), (share, at_most)) in ENTRIES.iter().zip(&case.shares) {
            let (share, at_most, (whose, distance)) = (*share, *at_most, case.level_of(at, *of));
            tree.targets.insert(path(at), Target { share, at_most, whose, distance });
        }
        let rules = |(history, window): (HistoryRule, WindowLength)| Rules {
            history,
            window,
            reference: window_at(case.now(), window).0,
        };
        let of = |at: usize| ACCOUNTS[at].1.expect("what is expected is of a VO");
        let expected: Vec<_> = case
            .expected
            .iter()
            .map(|(at, charge, own)| (vo(of(*at)), site(*own), path(ACCOUNTS[*at].0), *charge))
            .collect();
        let own = case.expected.iter().filter(|(_, _, own)| *own);
        let running: Vec<_> = own
            .map(|(at, charge, _)| {
                let now = Span::Window(window_at(case.now(), case.vos[of(*at)].1));
                (key(ACCOUNTS[*at]), Some(now), *charge / 3)
            })
            .collect();
        let vos = case.vos.iter().enumerate();
        let right = answers(&Given {
            site: site(true),
            tree: &tree,
            rows: &case.rows(),
            expected: &expected,
            running: &running,
            local: rules(case.local),
            vos: &vos.map(|(of, rule)| (vo(of), rules(*rule))).collect(),
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
