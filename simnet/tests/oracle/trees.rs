//! Weights, sums, shares, order and factors of random trees, against the library's.

use std::collections::BTreeMap;

use fairmesh_fairshare::projection::{BitsProjection, RankProjection};
use fairmesh_fairshare::{
    Context, EntrySpec, InFlight, Order, Projection, Reach, TreeSpec, TreeWriter, WeightTable,
};
use fairmesh_model::{
    AccountPath, Counters, Date, Distance, HistoryRule, Scope, Share, SiteId, Span, VoId, Weight,
    Window, WindowLength,
};
use proptest::prelude::*;
use simnet::oracle::answers::{Answer, Given, Row, Rules, answers};
use simnet::oracle::cost::ratio;
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

/// What a line says.
#[derive(Debug, Clone)]
struct Line {
    is_there: bool,
    /// In units of 10^-7.
    weight: u64,
    at_most: Share,
    since: Option<Date>,
}

#[derive(Debug, Clone)]
struct Case {
    lines: Vec<Line>,
    /// What weights are multiplied by.
    scale: u64,
    local: (HistoryRule, WindowLength),
    vos: Vec<(HistoryRule, WindowLength)>,
    /// How each level is compared: whether by usage of this site alone, wherever that is a question.
    levels: Vec<(bool, Distance)>,
    /// Former paths, of entries that may not be there.
    former: Vec<usize>,
    usage: Vec<Usage>,
    expected: Vec<(usize, u64, bool)>,
    time_of_day: u64,
    /// How long before now the usage was booked.
    booked_ago: u64,
}

/// Lines of the tree, and the VO of each. A parent comes before its children.
const LINES: [(&str, Option<usize>); 26] = [
    ("/*", None),
    ("/local", None),
    ("/local/*", None),
    ("/local/a", None),
    ("/local/b", None),
    ("/local/b/*", None),
    ("/grid", None),
    ("/grid/*", None),
    ("/grid/vo", Some(0)),
    ("/grid/vo/*", Some(0)),
    ("/grid/vo/x", Some(0)),
    ("/grid/vo/x/*", Some(0)),
    ("/grid/vo/x/u", Some(0)),
    ("/grid/vo/x/v", Some(0)),
    ("/grid/vo/x/w", Some(0)),
    ("/grid/vo/y", Some(0)),
    ("/grid/vo/y/*", Some(0)),
    ("/grid/vo/y/u", Some(0)),
    ("/grid/vo/y/u/*", Some(0)),
    ("/grid/vo/y/u/deep", Some(0)),
    ("/grid/vo/z", Some(0)),
    ("/grid/too", Some(1)),
    ("/grid/too/*", Some(1)),
    ("/grid/too/x", Some(1)),
    ("/grid/too/x/*", Some(1)),
    ("/grid/too/x/y", Some(1)),
];

/// Entries that others are right below.
const LEVELS: [&str; 10] = [
    "/",
    "/local",
    "/local/b",
    "/grid",
    "/grid/vo",
    "/grid/vo/x",
    "/grid/vo/y",
    "/grid/vo/y/u",
    "/grid/too",
    "/grid/too/x",
];

/// Former paths and what has become of them. What is in the tree of a VO stays there.
const FORMER: [(&str, &str); 16] = [
    ("/elsewhere", "/local/b"),
    ("/elsewhere", "/local"),
    ("/elsewhere/deep", "/grid"),
    ("/local/b", "/local/a"),
    ("/local/b/c", "/local"),
    ("/grid/mine", "/local/b"),
    ("/grid/vo/nobody", "/grid/vo/x"),
    ("/grid/vo/x", "/grid/vo/y/u"),
    ("/grid/vo/x/nobody", "/grid/vo/z"),
    ("/grid/vo/x/nobody", "/grid/vo/x"),
    ("/grid/vo/y", "/grid/vo/x/u"),
    ("/grid/vo/y/u/deep", "/grid/vo/y"),
    ("/grid/vo/z", "/grid/vo/x"),
    ("/grid/vo/z/v", "/grid/vo/x/v"),
    ("/grid/too/nobody", "/grid/too/x/y"),
    ("/grid/too/x/y", "/grid/too/x"),
];

/// Accounts that use something, by VO or local; not all have a line of their own.
const ACCOUNTS: [(&str, Option<usize>); 20] = [
    ("/x/u", Some(0)),
    ("/x/v", Some(0)),
    ("/x/nobody", Some(0)),
    ("/y/u/deep", Some(0)),
    ("/z", Some(0)),
    ("/", Some(0)),
    ("/x", Some(1)),
    ("/nobody", Some(1)),
    ("/x", Some(0)),
    ("/y/u", Some(0)),
    ("/z/v", Some(0)),
    ("/nobody/v/w", Some(0)),
    ("/x/w/below", Some(0)),
    ("/local/a", None),
    ("/local/b/c", None),
    ("/local/b", None),
    ("/grid/mine", None),
    ("/elsewhere", None),
    ("/elsewhere/deep/er", None),
    ("/", None),
];

/// How many of them are VOs'.
const OF_VOS: usize = 13;

fn limit() -> impl Strategy<Value = Share> {
    prop_oneof![3 => Just(Share::WHOLE), 1 => share()]
}

/// Nothing, small numbers, percentages with decimals, and numbers beyond 100.
fn units() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => Just(0),
        2 => (1u64..4).prop_map(|number| number * Weight::ONE),
        2 => 1..100 * Weight::ONE,
        1 => (101u64..10_000).prop_map(|number| number * Weight::ONE),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    let days = u32::try_from(TODAY).expect("a day");
    let since = prop_oneof![
        4 => Just(None),
        1 => (days - 11..=days + 1).prop_map(|day| Some(Date(day))),
    ];
    (0u32..4, units(), limit(), since).prop_map(|(is_there, weight, at_most, since)| Line {
        is_there: is_there > 0,
        weight,
        at_most,
        since,
    })
}

fn case() -> impl Strategy<Value = Case> {
    let usage = (0..ACCOUNTS.len(), used(), 0u64..1 << 50, any::<bool>());
    let expected = (0..OF_VOS, 0u64..1 << 50, any::<bool>());
    let tree = (
        prop::collection::vec(line(), LINES.len()),
        prop::sample::select(vec![1, 100_000]),
        prop::collection::vec((any::<bool>(), distance()), LEVELS.len()),
        prop::sample::subsequence((0..FORMER.len()).collect::<Vec<_>>(), 0..6),
    );
    let times = (0..DAY_MS, 0..6 * DAY_MS);
    (
        tree,
        (rule(), length()),
        prop::collection::vec((rule(), length()), MOUNTS.len()),
        prop::collection::vec(usage, 0..40),
        prop::collection::vec(expected, 0..3),
        times,
    )
        .prop_map(
            |((lines, scale, levels, former), local, vos, usage, expected, times)| Case {
                lines,
                scale,
                local,
                vos,
                levels,
                former,
                usage,
                expected,
                time_of_day: times.0,
                booked_ago: times.1,
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

    /// The lines that are there, and have all lines above. The mounts always are.
    fn lines(&self) -> Vec<(&'static str, Option<usize>, &Line)> {
        let mut there: Vec<(&'static str, Option<usize>, &Line)> = Vec::new();
        for ((at, of), line) in LINES.iter().zip(&self.lines) {
            let is_mount = MOUNTS.contains(at) || *at == "/grid";
            let above = path(at).parent().expect("not the root");
            let has_parent = above.is_root() || there.iter().any(|(at, ..)| *at == above.as_str());
            if is_mount || (line.is_there && has_parent) {
                there.push((at, *of, line));
            }
        }
        there
    }

    /// The former paths of lines that are there, by line.
    fn former(&self) -> Vec<(AccountPath, AccountPath)> {
        let lines = self.lines();
        let is_there = |at: &str| lines.iter().any(|(line, ..)| *line == at);
        let former = self.former.iter().map(|index| FORMER[*index]);
        let former = former.filter(|(_, now)| is_there(now));
        let mut former: Vec<_> = former.map(|(was, now)| (path(was), path(now))).collect();
        former.sort();
        former
    }

    /// How an entry is compared with its siblings.
    fn level_of(&self, at: &str, of: Option<usize>) -> (Whose, Distance) {
        let above = path(at).parent().expect("no root is listed");
        let level = LEVELS.iter().position(|level| *level == above.as_str());
        let (is_local, distance) = self.levels[level.expect("a level")];
        let whose = match of.map(vo) {
            _ if above.as_str() == "/grid" && !is_local => Whose::Vos(of.map(vo)),
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
        let entry = |(at, of, line): (&str, Option<usize>, &Line)| {
            let (whose, distance) = self.level_of(at, of);
            EntrySpec {
                path: path(at),
                weight: line.weight * self.scale,
                at_most: line.at_most,
                scope: match whose {
                    Whose::Here => Scope::Local,
                    _ => Scope::Global,
                },
                distance,
                history: of.map_or(0, |of| of + 1),
                since: line.since,
            }
        };
        spec.entries = self.lines().into_iter().map(entry).collect();
        spec.moves = self.former();
        let references = |at| -> Vec<Window> {
            let windows = rules.clone().map(|(_, length)| window_at(at, *length));
            windows.collect()
        };
        let mut writer = spec
            .build(&references(self.now() - self.booked_ago))
            .expect("a tree");
        for (account, when, charge, own) in &self.usage {
            let account = ACCOUNTS[*account];
            let entry = writer.place(&in_tree(account));
            let reach = if *own { Reach::Own } else { Reach::Remote };
            let span = span(*when, self.length_of(account.1), self.now());
            writer.apply(entry, span, *charge, reach);
        }
        for (account, charge, own) in &self.expected {
            let account = ACCOUNTS[*account];
            let entry = writer.place(&in_tree(account));
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

    /// The oracle's tree.
    fn tree(&self) -> Tree {
        let mut tree = Tree::default();
        let mounts = MOUNTS.iter().enumerate();
        tree.mounts
            .extend(mounts.map(|(of, at)| (vo(of), path(at))));
        let levels = self.lines();
        for (at, _, line) in &levels {
            let weight = ratio(line.weight * self.scale, 1);
            let target = Target::new(weight, line.at_most, line.since);
            tree.targets.insert(path(at), target);
        }
        for (was, now) in self.former() {
            tree.former.claim(&now, [was].into_iter());
        }
        tree.add_others();
        for (at, target) in &mut tree.targets {
            let listed = LINES.iter().find(|(line, _)| *line == at.as_str());
            let of = listed.expect("all levels have their `*` here").1;
            (target.whose, target.distance) = self.level_of(at.as_str(), of);
        }
        tree
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

    fn rules(&self, (history, window): (HistoryRule, WindowLength)) -> Rules {
        Rules {
            history,
            window,
            reference: window_at(self.now(), window).0,
        }
    }

    /// What the oracle says.
    fn right(&self) -> BTreeMap<AccountPath, Answer> {
        let of_vo = |at: &usize| vo(ACCOUNTS[*at].1.expect("a VO's"));
        let expected: Vec<_> = (self.expected.iter())
            .map(|(at, charge, own)| (of_vo(at), site(*own), path(ACCOUNTS[*at].0), *charge))
            .collect();
        let running: Vec<_> = (self.expected.iter())
            .filter(|(.., own)| *own)
            .map(|(at, charge, _)| {
                let now = window_at(self.now(), self.length_of(ACCOUNTS[*at].1));
                let span = Some(Span::Window(now));
                (key(ACCOUNTS[*at]), span, *charge / 3)
            })
            .collect();
        let vos = self.vos.iter().enumerate();
        answers(&Given {
            site: site(true),
            tree: &self.tree(),
            rows: &self.rows(),
            expected: &expected,
            running: &running,
            local: self.rules(self.local),
            vos: &vos.map(|(of, rule)| (vo(of), self.rules(*rule))).collect(),
        })
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
        let right = case.right();
        let ranks = RankProjection::prepare(&snapshot);
        let order = Order::of(snapshot.clone(), Box::new(ranks));
        let bits_order = Order::of(snapshot.clone(), Box::new(BitsProjection));
        let present = right.values().filter(|answer| answer.is_present);
        let last = present.map(|answer| answer.rank).max().expect("the root");
        for at in right.keys() {
            prop_assert!(snapshot.ids().any(|entry| snapshot.path(entry) == at), "{}", at);
        }
        for entry in snapshot.ids() {
            let (at, level) = (snapshot.path(entry), snapshot.level(entry));
            let Some(answer) = right.get(at) else {
                // An account that has used nothing stands where a new one does.
                prop_assert!(!snapshot.is_present(entry), "{}", at);
                let others = snapshot.parent(entry).expect("below `*`");
                prop_assert_eq!(order.factor(entry), order.factor(others), "{}", at);
                continue;
            };
            prop_assert_eq!(answer.is_present, snapshot.is_present(entry), "{}", at);
            let (part, whole) = level.target.ratio();
            let bits = BitsProjection.priority_of(&snapshot, entry);
            let bits_factor = BitsProjection.factor(&bits, &Context::of(&snapshot, entry));
            let factor = u64::from(last + 1 - answer.rank) * u64::from(Share::ONE) / u64::from(last);
            prop_assert_eq!(answer.level.usage, (level.usage, level.parent_usage), "{}", at);
            prop_assert_eq!(&answer.level.target, &ratio(part, whole), "{}", at);
            prop_assert_eq!(answer.level.is_last, level.target.is_last(), "{}", at);
            prop_assert_eq!(answer.level.at_most, level.at_most, "{}", at);
            prop_assert_eq!(answer.level.distance, level.distance, "{}", at);
            prop_assert_eq!(answer.rank, order.ranking().rank(entry), "{}", at);
            prop_assert_eq!(factor, u64::from(order.factor(entry).units()), "{}", at);
            prop_assert_eq!(ethnum::I256::from(answer.priority), bits.units(), "{}", at);
            prop_assert_eq!(answer.factor, bits_factor, "{}", at);
            prop_assert!(bits_order.factor(entry) <= bits_factor, "{}", at);
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
