use std::cmp::Ordering;

use fairmesh_model::{
    AccountPath, Distance, HistoryRule, Scope, Share, ShareRule, Span, Weight, Window, WindowLength,
};
use proptest::prelude::*;

use super::*;
use crate::deviation::Level;
use crate::history::WeightTable;
use crate::tree::{EntrySpec, Reach, TreeSpec};

/// A tree of `rows` (path, percent, usage), measured by `distance`.
pub(crate) fn snapshot(rows: &[(&str, u32, u64)], distance: Distance) -> Snapshot {
    limited(rows, &[], distance)
}

/// The same, where the first entries may have so many percent at most.
pub(crate) fn limited(rows: &[(&str, u32, u64)], most: &[u32], distance: Distance) -> Snapshot {
    built(rows, most, distance, ShareRule::Weights)
}

/// The same, with shares as published.
pub(crate) fn published(rows: &[(&str, u32, u64)], distance: Distance) -> Snapshot {
    built(rows, &[], distance, ShareRule::AsPublished)
}

fn built(rows: &[(&str, u32, u64)], most: &[u32], distance: Distance, rule: ShareRule) -> Snapshot {
    let unit = match rule {
        ShareRule::Weights => 1,
        ShareRule::AsPublished => Weight::ONE,
    };
    let limits = most.iter().copied().chain(std::iter::repeat(100));
    let limits = limits.map(|most| Share::from_percent(most).expect("a percentage"));
    let weights = WeightTable::new(HistoryRule::None { horizon: 9 }, WindowLength::HOUR);
    let mut spec = TreeSpec::new(vec![weights], 0);
    spec.rule = rule;
    let path = |text: &str| AccountPath::parse(text).expect("a path");
    spec.entries = rows
        .iter()
        .zip(limits)
        .map(|((text, percent, _), at_most)| EntrySpec {
            path: path(text),
            weight: u64::from(*percent) * unit,
            at_most,
            scope: Scope::Local,
            distance,
            history: 0,
            since: None,
        })
        .collect();
    let mut writer = spec.build(&[Window(0)]).expect("a valid tree");
    for (text, _, usage) in rows.iter().filter(|(.., usage)| *usage > 0) {
        let entry = writer.place(&path(text));
        writer.apply(entry, Span::Window(Window(0)), *usage, Reach::Own);
    }
    writer.snapshot()
}

pub(crate) fn entry(snapshot: &Snapshot, text: &str) -> EntryId {
    snapshot
        .ids()
        .find(|id| snapshot.path(*id).as_str() == text)
        .expect("an entry")
}

const MIX: Distance = Distance::Mix {
    k: match Share::from_percent(50) {
        Some(half) => half,
        None => Share::ZERO,
    },
};

#[test]
fn ranks_by_rows() {
    // (target %, usage) of three siblings; their ranks by absolute, relative and mixed distance
    let rows = [
        (
            "no tie",
            [(50, 10), (30, 60), (20, 30)],
            [[1, 3, 2], [1, 3, 2], [1, 3, 2]],
        ),
        (
            "tie",
            [(40, 20), (40, 20), (20, 60)],
            [[1, 1, 2], [1, 1, 2], [1, 1, 2]],
        ),
        (
            "all tie",
            [(50, 50), (30, 30), (20, 20)],
            [[1, 1, 1], [1, 1, 1], [1, 1, 1]],
        ),
        (
            "zero share",
            [(0, 1), (0, 99), (100, 0)],
            [[2, 3, 1], [2, 3, 1], [2, 3, 1]],
        ),
        (
            "zero usage",
            [(50, 0), (30, 0), (20, 0)],
            [[1, 2, 3], [1, 1, 1], [1, 2, 3]],
        ),
        (
            "idle zero share",
            [(0, 0), (50, 50), (50, 50)],
            [[2, 1, 1], [2, 1, 1], [2, 1, 1]],
        ),
    ];
    let paths = ["/a", "/b", "/c"];
    for (name, siblings, expected) in rows {
        let tree: Vec<_> = paths
            .into_iter()
            .zip(siblings)
            .map(|(path, (t, u))| (path, t, u))
            .collect();
        for (distance, expected) in [Distance::Absolute, Distance::Relative, MIX]
            .into_iter()
            .zip(expected)
        {
            let snapshot = snapshot(&tree, distance);
            let ids = paths.map(|text| entry(&snapshot, text));
            let ranked = Ranking::of(&snapshot).among(&ids);
            let ranks = ids.map(|id| {
                ranked
                    .iter()
                    .find(|item| item.entry == id)
                    .map(|item| item.rank)
            });
            assert_eq!(ranks, expected.map(Some), "{name}, {distance:?}");
        }
    }
}

#[test]
fn an_entry_over_its_limit_is_behind_its_level_in_every_projection() {
    use crate::projection::{
        BitsProjection, FairTreeProjection, PaperProjection, PaperRoundedProjection,
        PercentalProjection, RankProjection,
    };
    // /a has 8 points too much; /b has 22 too much, and no limit.
    let rows = [
        ("/a", 30, 38),
        ("/a/x", 50, 19),
        ("/b", 40, 62),
        ("/b/y", 50, 31),
        ("/c", 30, 0),
    ];
    let rows = rows.map(|(path, percent, usage)| (path, percent, usage * 1_000));
    let projections = |snapshot: &Snapshot| -> Vec<Box<dyn Projection>> {
        vec![
            Box::new(RankProjection::prepare(snapshot)),
            Box::new(FairTreeProjection::prepare(snapshot)),
            Box::new(BitsProjection),
            Box::new(PaperProjection),
            Box::new(PaperRoundedProjection),
            Box::new(PercentalProjection),
        ]
    };
    for (most, first) in [(100, "/a"), (37, "/b"), (38, "/a")] {
        let snapshot = limited(&rows, &[most], Distance::Absolute);
        for projection in projections(&snapshot) {
            let name = projection.name();
            let order = Order::of(snapshot.clone(), projection);
            let [a, b] = ["/a", "/b"].map(|text| entry(&snapshot, text));
            let before = order.ranking().rank(a) < order.ranking().rank(b);
            assert_eq!(before, first == "/a", "{name} at most {most} %");
            assert!(order.factor(a) >= order.factor(b) || !before, "{name}");
            assert!(order.factor(a) <= order.factor(b) || before, "{name}");
        }
    }
}

#[test]
fn a_tie_above_is_broken_below_across_parents() {
    let rows = [
        ("/a", 50, 0),
        ("/a/x", 70, 2),
        ("/a/y", 30, 2),
        ("/b", 50, 0),
        ("/b/x", 60, 3),
        ("/b/y", 40, 1),
    ];
    let snapshot = snapshot(&rows, Distance::Absolute);
    let ranking = Ranking::of(&snapshot);
    let rank = |text: &str| ranking.rank(entry(&snapshot, text));
    assert_eq!(
        ["/a/x", "/b/y", "/a", "/", "/b/x", "/a/y"].map(rank),
        [1, 2, 3, 3, 4, 5]
    );
    assert_eq!(ranking.count(), 5);
}

proptest! {
    #[test]
    fn ranks_are_the_order_of_the_vectors(
        shares in prop::collection::vec(prop_oneof![Just(0u32), Just(50), 0u32..=100], 9),
        usage in prop::collection::vec(prop_oneof![Just(0u64), Just(1), 0u64..5, any::<u64>()], 9),
        most in prop::collection::vec(prop_oneof![Just(100u32), 0u32..=100], 0..9),
        relative in any::<bool>(),
    ) {
        let paths = ["/a", "/a/x", "/a/y", "/a/y/z", "/b", "/b/x", "/b/y", "/b/y/z", "/c"];
        let rows: Vec<_> = paths.iter().zip(shares).zip(usage).map(|((path, share), usage)| (*path, share, usage)).collect();
        let snapshot = limited(&rows, &most, if relative { Distance::Relative } else { Distance::Absolute });
        let ranking = Ranking::of(&snapshot);
        let present: Vec<EntryId> = snapshot.ids().filter(|id| snapshot.is_present(*id)).collect();
        for a in present.iter().copied() {
            for b in present.iter().copied() {
                let exact = snapshot.vector(b).compare(&snapshot.vector(a));
                prop_assert_eq!(ranking.rank(a).cmp(&ranking.rank(b)), exact);
                prop_assert!(bits_keep(exact.reverse(), &snapshot, a, b));
            }
        }
    }
}

/// Whether packed digits order `a` and `b` as `exact` does, where they first differ by a digit.
fn bits_keep(exact: Ordering, snapshot: &Snapshot, a: EntryId, b: EntryId) -> bool {
    use crate::projection::bits::{digit_bits, pack};
    let depth = snapshot.depth();
    let (a, b) = (snapshot.vector(a), snapshot.vector(b));
    let packed = pack(&a, depth).cmp(&pack(&b, depth));
    let Some(level) = (0..depth).find(|level| a.deviation(*level) != b.deviation(*level)) else {
        return packed.is_eq();
    };
    let digit = |vector: &crate::DeviationVector| {
        let level = vector
            .levels()
            .get(level)
            .copied()
            .unwrap_or(Level::MISSING);
        crate::digit::digit(&level, digit_bits(depth))
    };
    digit(&a) == digit(&b) || packed == exact
}
