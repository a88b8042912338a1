use std::sync::atomic::{AtomicBool, Ordering};

use fairmesh_model::{
    AccountPath, Date, Distance, HistoryRule, Scope, Share, Span, Window, WindowLength,
};
use proptest::prelude::*;

use super::*;
use crate::history::{ONE, WeightTable};

fn path(text: &str) -> AccountPath {
    AccountPath::parse(text).expect("a path")
}

fn entry(text: &str, percent: u32, scope: Scope, history: usize) -> EntrySpec {
    EntrySpec {
        path: path(text),
        weight: u64::from(percent),
        at_most: Share::WHOLE,
        scope,
        distance: Distance::Absolute,
        history,
        since: None,
    }
}

/// A site with a group of its own, and one VO with half-hour windows mounted at `/vo`.
fn spec() -> TreeSpec {
    let half_hour = WindowLength::from_millis(1_800_000).expect("a window");
    let site = WeightTable::new(
        HistoryRule::HalfLife {
            windows: 24,
            horizon: 400,
        },
        WindowLength::HOUR,
    );
    let vo = WeightTable::new(
        HistoryRule::HalfLife {
            windows: 10,
            horizon: 900,
        },
        half_hour,
    );
    let mut spec = TreeSpec::new(vec![site, vo], 0);
    spec.entries = vec![
        entry("/vo/p/u", 50, Scope::Global, 1),
        entry("/vo", 40, Scope::Local, 1),
        entry("/own", 60, Scope::Local, 0),
        entry("/own/a", 100, Scope::Local, 0),
        entry("/vo/p", 70, Scope::Global, 1),
        entry("/vo/p/v", 50, Scope::Global, 1),
        entry("/vo-2", 0, Scope::Local, 0),
    ];
    spec
}

fn references(hour: u32) -> [Window; 2] {
    [Window(hour), Window(2 * hour)]
}

#[test]
fn a_wrong_specification_is_refused_by_name() {
    type Mistake = fn(&mut TreeSpec);
    let build = |change: Mistake| {
        let mut spec = spec();
        change(&mut spec);
        spec.build(&references(0)).expect_err("wrong").to_string()
    };
    let rows: [(Mistake, &str); 5] = [
        (
            |spec| spec.entries.push(spec.entries[0].clone()),
            "`/vo/p/u` is listed twice",
        ),
        (
            |spec| spec.entries.push(entry("/x/y", 1, Scope::Local, 0)),
            "`/x/y` is listed, but `/x`",
        ),
        (
            |spec| spec.entries.push(entry("/vo/p/u/x/y", 1, Scope::Global, 1)),
            "but `/vo/p/u/x` above it is not",
        ),
        (
            |spec| spec.entries[0].history = 9,
            "`/vo/p/u` has history 9, but there are only 2",
        ),
        (
            |spec| spec.entries.push(entry("/", 1, Scope::Local, 0)),
            "the root `/` is listed",
        ),
    ];
    for (change, message) in rows {
        assert!(
            build(change).contains(message),
            "{} instead of {message}",
            build(change)
        );
    }
    assert!(matches!(
        spec().build(&[]),
        Err(BuildError::References {
            given: 0,
            histories: 2
        })
    ));
}

#[test]
fn usage_counts_at_a_leaf_or_among_the_accounts_without_a_line() {
    let reader = spec().build(&references(0)).expect("valid").reader();
    let rows = [
        ("/vo/p/u", "/vo/p/u", true),
        ("/vo/p/u/job/7", "/vo/p/u", false),
        ("/vo/px", "/vo/*", false),
        ("/vo/p", "/vo/p/*", false),
        ("/vo/p/*", "/vo/p/*", false),
        ("/vo-3/p", "/*", false),
        ("/", "/*", false),
    ];
    for (asked, found, exact) in rows {
        let resolved = reader.resolve(&path(asked));
        assert_eq!(
            (reader.path(resolved.entry).as_str(), resolved.exact),
            (found, exact),
            "{asked}"
        );
    }
    let order: Vec<_> = reader
        .snapshot(1)
        .expect("quiet")
        .ids()
        .map(|id| reader.path(id).to_string())
        .collect();
    assert_eq!(
        order,
        [
            "/", "/*", "/own", "/own/*", "/own/a", "/vo", "/vo/*", "/vo/p", "/vo/p/*", "/vo/p/u",
            "/vo/p/v", "/vo-2"
        ]
    );
}

#[test]
fn usage_counts_upwards_in_its_scopes_under_its_histories() {
    let mut writer = spec().build(&references(24)).expect("valid");
    let reader = writer.reader();
    let [user, project, vo] =
        ["/vo/p/u", "/vo/p", "/vo"].map(|text| reader.entry(&path(text)).expect("known"));
    let now = Span::Window(Window(48));
    writer.apply(user, now, 10, Reach::Own);
    writer.apply(project, now, 5, Reach::Remote);
    // Half an hour's window 0 lies in the site's hour 0: a day, or one local half-life, ago.
    writer.apply(user, Span::Window(Window(0)), 8, Reach::Own);
    let in_flight = InFlight {
        local: 3,
        global: 4,
    };
    writer.set_in_flight(user, in_flight);
    writer.change_in_flight(user, -1, i64::MIN);
    writer.change_in_flight(user, 0, 2);
    // What is no VO's counts in no global sum.
    writer.apply(EntryId::ROOT, Span::Window(Window(24)), 1, Reach::Own);
    writer.set_in_flight(EntryId::ROOT, in_flight);
    writer.change_in_flight(EntryId::ROOT, -3, 0);
    let one = u128::from(ONE);
    let old = u128::from(writer.topology.histories[1].weight_at_age(48)) * 8;
    assert_eq!(
        reader.sums(user),
        Sums {
            local: 16 * one,
            global: 12 * one + old
        }
    );
    assert_eq!(
        reader.sums(project),
        Sums {
            local: 16 * one,
            global: 17 * one + old
        }
    );
    assert_eq!(reader.sums(vo), reader.sums(project));
    assert_eq!(
        reader.sums(EntryId::ROOT),
        Sums {
            local: 17 * one,
            global: 17 * one + old
        }
    );
    let vector = reader.vector(user);
    assert_eq!(reader.local_reference(), Window(24));
    assert_eq!(
        vector.compare(&writer.snapshot().vector(user)),
        std::cmp::Ordering::Equal
    );
    let levels: Vec<_> = vector
        .levels()
        .iter()
        .map(|level| (level.usage, level.parent_usage))
        .collect();
    let (user, all) = (12 * one + old, 17 * one + old);
    assert_eq!(levels, [(16 * one, 17 * one), (all, all), (user, all)]);
}

#[test]
fn a_level_over_vos_counts_what_each_used_by_its_own_history() {
    let mut spec = spec();
    let always = HistoryRule::None { horizon: 900 };
    spec.histories
        .push(WeightTable::new(always, WindowLength::HOUR));
    spec.entries.push(entry("/grid", 50, Scope::Local, 0));
    spec.entries.push(entry("/grid/a", 50, Scope::Global, 1));
    spec.entries.push(entry("/grid/b", 50, Scope::Global, 2));
    let references = [Window(20), Window(40), Window(20)];
    let mut writer = spec.build(&references).expect("valid");
    let reader = writer.reader();
    let of = |text: &str| reader.entry(&path(text)).expect("known");
    // Five hours, or one of the first VO's half-lives, ago.
    writer.apply(of("/grid/a"), Span::Window(Window(30)), 8, Reach::Remote);
    writer.apply(of("/grid/b"), Span::Window(Window(15)), 8, Reach::Own);
    // Of an account of the owner's that has no entry.
    writer.apply(of("/grid"), Span::Window(Window(20)), 100, Reach::Own);
    let one = u128::from(ONE);
    for (at, usage) in [("/grid/a", 4), ("/grid/b", 8)] {
        let vector = reader.vector(of(at));
        let level = vector.levels()[1];
        assert_eq!(
            (level.usage, level.parent_usage),
            (usage * one, 12 * one),
            "{at}"
        );
    }
}

#[test]
fn what_runs_counts_locally_alone_by_its_age_until_it_is_taken_out() {
    let mut writer = spec().build(&references(24)).expect("valid");
    let reader = writer.reader();
    let user = reader.entry(&path("/vo/p/u")).expect("known");
    let [now, old] = [Window(48), Window(0)].map(Span::Window);
    writer.add_running(user, now, 10);
    // A day, or one local half-life, ago.
    writer.add_running(user, old, 8);
    let one = u128::from(ONE);
    let local = |halves: u128| Sums {
        local: halves * one / 2,
        global: 0,
    };
    assert_eq!(reader.sums(user), local(28));
    assert_eq!(reader.sums(EntryId::ROOT), local(28));
    // What comes again is in another window, and no more is taken than there is.
    writer.take_running(user, now, 4);
    writer.take_running(user, old, 9);
    assert_eq!(reader.sums(user), local(12));
    assert!(writer.advance(&references(48), usize::MAX));
    assert_eq!(reader.sums(user), local(6));
    writer.take_running(user, now, 6);
    assert_eq!(reader.sums(user), Sums::default());
}

#[test]
fn the_digest_is_the_same_wherever_the_vo_is_mounted() {
    let mut writer = spec().build(&references(0)).expect("valid");
    let reader = writer.reader();
    let entry = |text: &str| reader.entry(&path(text)).expect("known");
    writer.apply(entry("/vo/p/v"), Span::Day(0), 2, Reach::Remote);
    let mut seen = Vec::new();
    let feed = |path: &str, sum| seen.push((path.to_owned(), sum));
    writer.snapshot().digest(entry("/vo"), feed);
    let two = 2 * u128::from(ONE);
    assert_eq!(
        seen,
        [
            ("/".to_owned(), two),
            ("/p".to_owned(), two),
            ("/p/v".to_owned(), two)
        ]
    );
    let mut again = Vec::new();
    let snapshot = reader.snapshot(1).expect("nobody writes");
    snapshot.digest(entry("/vo"), |path, sum| again.push((path.to_owned(), sum)));
    assert_eq!(seen, again);
}

#[test]
fn old_windows_merge_into_days_and_forgotten_ones_go() {
    let mut writer = spec().build(&references(0)).expect("valid");
    let user = writer.reader().entry(&path("/vo/p/u")).expect("known");
    for window in 0..96 {
        writer.apply(user, Span::Window(Window(window)), 1, Reach::Own);
    }
    for (hour, cells) in [(71, 96), (72, 49), (120, 2), (700, 0)] {
        assert!(writer.advance(&references(hour), usize::MAX));
        assert_eq!(writer.booked[user.index()].len(), cells, "at hour {hour}");
    }
    assert!(
        writer.advance(&references(5), 1),
        "references never move back"
    );
    assert_eq!(writer.reader().references(), references(700));
}

/// Accounts that use something: leaves, what lies below them, accounts without a line, entries with children,
/// and a former path.
const ACCOUNTS: [&str; 9] = [
    "/vo/p/u",
    "/vo/p/u/job",
    "/vo/p/new",
    "/vo/p",
    "/own/a",
    "/own/new",
    "/",
    "/else/where",
    "/gone/v",
];

/// The tree with periods at two levels, and a former path.
fn dated() -> TreeSpec {
    let mut spec = spec();
    for (path, day) in [("/vo", 6), ("/vo/p", 4), ("/vo/p/v", 9), ("/own/a", 12)] {
        let of_path = |entry: &&mut EntrySpec| entry.path.as_str() == path;
        let entry = spec.entries.iter_mut().find(of_path).expect("an entry");
        entry.since = Some(Date(day));
    }
    spec.moves.push((path("/gone"), path("/vo/p")));
    spec
}

#[derive(Debug, Clone)]
enum Step {
    Apply(usize, Span, u64, Reach),
    InFlight(usize, u64, u64),
    AddRunning(usize, Span, u64),
    TakeRunning(usize, Span, u64),
    Advance(u32, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let span = prop_oneof![
        (0u32..1_000).prop_map(|window| Span::Window(Window(window))),
        (0u32..20).prop_map(Span::Day),
    ];
    let reach = prop_oneof![Just(Reach::Own), Just(Reach::Remote)];
    let account = 0..ACCOUNTS.len();
    let step = prop_oneof![
        4 => (account.clone(), span.clone(), 0u64..1 << 50, reach).prop_map(|(e, s, c, r)| Step::Apply(e, s, c, r)),
        1 => (account.clone(), 0u64..1 << 50, any::<u64>()).prop_map(|(e, local, global)| Step::InFlight(e, local, global)),
        2 => (account.clone(), span.clone(), 0u64..1 << 50).prop_map(|(e, s, c)| Step::AddRunning(e, s, c)),
        1 => (account, span, 0u64..1 << 50).prop_map(|(e, s, c)| Step::TakeRunning(e, s, c)),
        2 => (0u32..500, 1usize..9).prop_map(|(hour, entries)| Step::Advance(hour, entries)),
    ];
    prop::collection::vec(step, 0..60)
}

fn play(writer: &mut TreeWriter, step: &Step) {
    let mut place = |account: usize| writer.place(&path(ACCOUNTS[account]));
    match *step {
        Step::Apply(account, span, charge, reach) => {
            let entry = place(account);
            writer.apply(entry, span, charge, reach);
        }
        Step::InFlight(account, local, global) => {
            let entry = place(account);
            writer.set_in_flight(entry, InFlight { local, global });
        }
        Step::AddRunning(account, span, charge) => {
            let entry = place(account);
            writer.add_running(entry, span, charge);
        }
        Step::TakeRunning(account, span, charge) => {
            let entry = place(account);
            writer.take_running(entry, span, charge);
        }
        Step::Advance(hour, entries_max) => {
            writer.advance(&references(hour), entries_max);
        }
    }
}

type Known = std::collections::BTreeMap<String, (Sums, Vec<(u128, u128)>)>;

/// The sums of all entries that have any, and the usage of all their levels, by path.
fn all_sums(writer: &TreeWriter) -> Known {
    let snapshot = writer.snapshot();
    let used = snapshot
        .ids()
        .filter(|entry| snapshot.sums(*entry) != Sums::default());
    let levels = |entry| {
        let vector = snapshot.vector(entry);
        let levels = vector.levels().iter();
        levels
            .map(|level| (level.usage, level.parent_usage))
            .collect()
    };
    used.map(|entry| {
        (
            snapshot.path(entry).to_string(),
            (snapshot.sums(entry), levels(entry)),
        )
    })
    .collect()
}

/// A tree built at `reference` and loaded with what the steps book.
fn rebuilt(steps: &[Step], reference: &[Window]) -> TreeWriter {
    let mut writer = dated().build(reference).expect("valid");
    let mut items = Vec::new();
    for step in steps {
        if let Step::Apply(account, span, charge, reach) = *step {
            let entry = writer.place(&path(ACCOUNTS[account]));
            items.push(UsageItem {
                entry,
                span,
                charge,
                reach,
            });
        }
    }
    writer.load(items);
    let not_booked = |step: &&Step| !matches!(step, Step::Apply(..) | Step::Advance(..));
    for step in steps.iter().filter(not_booked) {
        play(&mut writer, step);
    }
    writer
}

proptest! {
    #[test]
    fn sums_are_those_of_a_rebuilt_tree_whatever_the_slices(steps in steps()) {
        let mut writer = dated().build(&references(0)).expect("valid");
        for (done, step) in steps.iter().enumerate() {
            play(&mut writer, step);
            let seen = writer.reader().references();
            prop_assert_eq!(all_sums(&writer), all_sums(&rebuilt(&steps[..=done], &seen)));
        }
        while !writer.advance(&references(500), 3) {}
        prop_assert_eq!(all_sums(&writer), all_sums(&rebuilt(&steps, &references(500))));
    }

    #[test]
    fn the_order_of_deltas_does_not_matter(steps in steps(), rotate in 0usize..60) {
        let mut other: Vec<Step> =
            steps.iter().filter(|step| matches!(step, Step::Apply(..))).cloned().collect();
        let mut writers = [(); 2].map(|()| dated().build(&references(300)).expect("valid"));
        other.iter().for_each(|step| play(&mut writers[0], step));
        let middle = rotate.min(other.len());
        other.rotate_left(middle);
        other[middle / 2..].reverse();
        other.iter().for_each(|step| play(&mut writers[1], step));
        prop_assert_eq!(all_sums(&writers[0]), all_sums(&writers[1]));
    }
}

#[test]
fn readers_see_one_moment_while_the_writer_writes() {
    let mut writer = spec().build(&references(100)).expect("valid");
    let reader = writer.reader();
    let users = ["/vo/p/u", "/vo/p/v"].map(|text| reader.entry(&path(text)).expect("known"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (reader, done) = (reader.clone(), &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let vector = reader.vector(users[1]);
                    // Both users are fed alike, first one and then the other.
                    for level in vector.levels() {
                        assert!(
                            level.usage <= level.parent_usage,
                            "a child has more than its parent"
                        );
                    }
                    let of_project = vector.levels()[2];
                    assert!(of_project.parent_usage - of_project.usage >= of_project.usage);
                    let references = reader.references();
                    assert_eq!(
                        2 * references[0].0,
                        references[1].0,
                        "references of two generations"
                    );
                    if let Some(snapshot) = reader.snapshot(1) {
                        let [u, v] = users.map(|user| snapshot.sums(user).global);
                        assert_eq!(snapshot.sums(EntryId::ROOT).global, u + v);
                    }
                }
            });
        }
        for round in 0..60_000u32 {
            for user in users {
                writer.apply(
                    user,
                    Span::Window(Window(200 + round % 64)),
                    u64::from(u32::MAX),
                    Reach::Own,
                );
            }
            writer.advance(&references(100 + round / 2_000), 2);
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// `/vo/p/v` counts from day 9, `/vo/p` and `/vo` from day 6 and 4; the root counts everything.
#[test]
fn usage_before_a_period_counts_at_the_levels_above_it_only() {
    let mut spec = spec();
    for (path, day) in [("/vo", 4), ("/vo/p", 6), ("/vo/p/v", 9)] {
        let of_path = |entry: &&mut EntrySpec| entry.path.as_str() == path;
        let entry = spec.entries.iter_mut().find(of_path).expect("an entry");
        entry.since = Some(Date(day));
    }
    spec.histories =
        vec![WeightTable::new(HistoryRule::None { horizon: 9_000 }, WindowLength::HOUR); 2];
    let mut writer = spec.build(&[Window(480); 2]).expect("valid");
    for (account, day, charge) in [
        ("/vo/p/v", 3, 1),
        ("/vo/p/v", 8, 2),
        ("/vo/p/v", 9, 4),
        ("/vo/p/u", 8, 8),
        ("/vo/p/new", 8, 16),
    ] {
        let entry = writer.place(&path(account));
        writer.apply(entry, Span::Day(day), charge, Reach::Own);
    }
    for _ in 0..2 {
        let snapshot = writer.snapshot();
        let reader = writer.reader();
        let levels = |text: &str| {
            let entry = reader.entry(&path(text)).expect("an entry");
            let one = u128::from(ONE);
            let of_level = |level: &crate::Level| (level.usage / one, level.parent_usage / one);
            let of_reader: Vec<_> = reader.vector(entry).levels().iter().map(of_level).collect();
            let of_snapshot: Vec<_> = snapshot
                .vector(entry)
                .levels()
                .iter()
                .map(of_level)
                .collect();
            assert_eq!(of_reader, of_snapshot);
            of_reader
        };
        // Of 31 in all, /vo counts 30. Of the level of /vo/p/v, its 4 and the 24 of the others count.
        assert_eq!(levels("/vo/p/v"), [(30, 30), (30, 30), (4, 28)]);
        assert_eq!(levels("/vo/p/u"), [(30, 30), (30, 30), (8, 28)]);
        assert_eq!(
            levels("/vo/p/new"),
            [(30, 30), (30, 30), (16, 28), (16, 16)]
        );
        assert_eq!(
            writer.reader().sums(EntryId::ROOT).local,
            31 * u128::from(ONE)
        );
        // The same after all sums were recomputed.
        while !writer.advance(&[Window(481); 2], 2) {}
    }
}

#[test]
fn accounts_without_a_line_are_served_by_their_use_and_new_ones_first() {
    let mut spec = spec();
    spec.entries.push(entry("/own/*", 100, Scope::Local, 0));
    let mut writer = spec.build(&references(24)).expect("valid");
    for (account, charge) in [
        ("/own/a", 10),
        ("/own/much", 6),
        ("/own/little", 3),
        ("/own", 1),
    ] {
        let place = writer.place(&path(account));
        writer.apply(place, Span::Window(Window(24)), charge, Reach::Own);
    }
    let (reader, snapshot) = (writer.reader(), writer.snapshot());
    let ranking = crate::Ranking::of(&snapshot);
    let rank = |account: &str| ranking.rank(reader.resolve(&path(account)).entry);
    let order = ["/own/new", "/own", "/own/little", "/own/much"].map(rank);
    assert!(order.is_sorted_by(|a, b| a < b), "{order:?}");
    // Half of the group's share is promised to all of them together, and half of its usage is theirs.
    assert_eq!(rank("/own/a"), rank("/own/new"));
    let others = reader.entry(&path("/own/*")).expect("it has a line");
    let names: Vec<_> = snapshot
        .children(others)
        .map(|id| snapshot.path(id).to_string())
        .collect();
    assert_eq!(names, ["/own/*/=", "/own/little", "/own/much"]);
    assert_eq!(snapshot.level(others).target.ratio(), (1, 2));
    assert_eq!(snapshot.level(others).usage, 10 * u128::from(ONE));
}

#[test]
fn former_paths_lead_to_the_entries_that_they_have_become() {
    let mut spec = spec();
    let moves = [
        ("/old", "/vo/p"),
        ("/vo/x", "/own"),
        ("/own/b", "/own/a"),
        ("/vo/p", "/own"),
        ("/old", "/own"),
    ];
    spec.moves = moves.map(|(from, to)| (path(from), path(to))).to_vec();
    let reader = spec.build(&references(0)).expect("valid").reader();
    for (account, counts_at) in [
        ("/old/u", "/vo/p/u"),
        ("/old/u/job", "/vo/p/u"),
        ("/old", "/vo/p/*"),
        ("/vo/x/b/c", "/own/a"),
        // An entry is no former path of another.
        ("/vo/p/v", "/vo/p/v"),
    ] {
        let resolved = reader.resolve(&path(account));
        assert_eq!(reader.path(resolved.entry).as_str(), counts_at, "{account}");
    }
    assert_eq!(
        reader.entry(&path("/old/v")),
        reader.entry(&path("/vo/p/v"))
    );
    assert_eq!(reader.entry(&path("/old/w")), None);
}

/// Usage before a period counts for the VO and not at its level: what counts there is in the digest, too.
#[test]
fn the_digest_holds_what_counts_at_a_level_where_a_period_begins() {
    let digest_of = |account: &str| {
        let mut spec = spec();
        let dated = spec.entries.iter_mut();
        dated
            .filter(|entry| entry.path.as_str() == "/vo/p/v")
            .for_each(|entry| entry.since = Some(Date(9)));
        let mut writer = spec.build(&references(240)).expect("valid");
        for (account, charge) in [("/vo/p/u", 1), (account, 2)] {
            let entry = writer.place(&path(account));
            writer.apply(entry, Span::Day(8), charge, Reach::Remote);
        }
        let mut rows = Vec::new();
        let mount = writer.reader().entry(&path("/vo")).expect("a mount");
        writer
            .snapshot()
            .digest(mount, |path, sum| rows.push((path.to_owned(), sum)));
        rows
    };
    assert_ne!(digest_of("/vo/p/v"), digest_of("/vo/p/nobody"));
}

#[test]
fn an_account_without_a_line_that_has_used_nothing_changes_no_answer() {
    let mut writer = spec().build(&references(24)).expect("valid");
    let order = |writer: &TreeWriter| {
        let snapshot = writer.snapshot();
        let projection = crate::projection::RankProjection::prepare(&snapshot);
        crate::Order::of(snapshot, Box::new(projection))
    };
    let before = order(&writer);
    let account = writer.place(&path("/vo/p/deep/er"));
    let span = Span::Window(Window(48));
    writer.apply(account, span, 5, Reach::Own);
    assert!(writer.snapshot().is_present(account));
    writer.take_back(account, span, 5, Reach::Own);
    let after = order(&writer);
    assert!(!after.snapshot().is_present(account));
    assert_eq!(after.snapshot().depth(), before.snapshot().depth());
    for entry in before.snapshot().ids() {
        assert_eq!(before.factor(entry), after.factor(entry));
        assert_eq!(before.ranking().rank(entry), after.ranking().rank(entry));
    }
    let others = after.snapshot().parent(account).expect("below `*`");
    assert_eq!(after.factor(account), after.factor(others));
}
