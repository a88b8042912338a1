use fairmesh_model::Distance;
use proptest::prelude::*;

use super::*;
use crate::order::tests::{entry, limited, snapshot};
use crate::projection::RankProjection;

fn exact(snapshot: &Snapshot) -> Order {
    Order::of(
        snapshot.clone(),
        Box::new(RankProjection::prepare(snapshot)),
    )
}

const TREE: [(&str, u32, u64); 6] = [
    ("/a", 50, 0),
    ("/a/x", 50, 60),
    ("/a/y", 50, 20),
    ("/b", 50, 0),
    ("/b/x", 50, 10),
    ("/b/y", 50, 10),
];

#[test]
fn it_names_the_level_at_which_an_entry_loses() {
    let snapshot = snapshot(&TREE, Distance::Absolute);
    let (loser, winner) = (entry(&snapshot, "/a/y"), entry(&snapshot, "/b/x"));
    let explanation = explain(&exact(&snapshot), loser, Some(winner));
    let levels: Vec<_> = explanation
        .levels
        .iter()
        .map(|level| {
            (
                level.path.to_string(),
                level.actual.to_string(),
                level.deviation.to_string(),
                level.usage,
            )
        })
        .collect();
    let row = |path: &str, actual: &str, deviation: &str, usage| {
        (
            path.to_owned(),
            actual.to_owned(),
            deviation.to_owned(),
            usage,
        )
    };
    assert_eq!(
        levels,
        [
            row("/a", "80", "-30.0000000", 80),
            row("/a/y", "25", "+25.0000000", 20)
        ]
    );
    let comparison = explanation.comparison.expect("asked for");
    assert_eq!(
        (comparison.standing, comparison.level),
        (Standing::After, Some(0))
    );
    assert_eq!(comparison.common_ancestor, AccountPath::root());
    // With 60 more, /b ties with /a, but then /a/y is better off in its group than /b/x in its own.
    assert_eq!(comparison.parity, Some(CoreMillis(60)));
    let json =
        serde_json::to_value(explain(&exact(&snapshot), winner, Some(loser))).expect("serialises");
    assert_eq!(json["comparison"]["standing"], "before");
    assert_eq!(json["levels"][0]["deviation"], "+30.0000000");
}

#[test]
fn an_entry_over_its_limit_is_said_to_be_and_parity_is_where_it_is_not() {
    let rows = [("/a", 30, 57), ("/b", 40, 93)];
    let snapshot = limited(&rows, &[37], Distance::Absolute);
    let [a, b] = ["/a", "/b"].map(|text| entry(&snapshot, text));
    let explanation = explain(&exact(&snapshot), a, Some(b));
    let level = &explanation.levels[0];
    assert_eq!((level.at_most, level.over), (Share::from_percent(37), true));
    let comparison = explanation.comparison.expect("asked for");
    // 57 of 155 are less than 37 %, 57 of 154 are not.
    let told = (comparison.standing, comparison.level, comparison.parity);
    assert_eq!(told, (Standing::After, Some(0), Some(CoreMillis(5))));
    let level = &explain(&exact(&snapshot), b, None).levels[0];
    assert_eq!((level.at_most, level.over), (None, false));
}

#[test]
fn ties_and_ancestors_are_explained() {
    let snapshot = snapshot(&TREE, Distance::Absolute);
    let [x, y, b] = ["/b/x", "/b/y", "/b"].map(|text| entry(&snapshot, text));
    for (one, other) in [(x, y), (x, b), (b, x), (x, x)] {
        let comparison = explain(&exact(&snapshot), one, Some(other))
            .comparison
            .expect("asked for");
        assert_eq!(
            (comparison.standing, comparison.level, comparison.parity),
            (Standing::Tied, None, None)
        );
    }
    assert!(
        explain(&exact(&snapshot), EntryId::ROOT, None)
            .levels
            .is_empty()
    );
}

#[test]
fn a_new_account_without_a_line_is_level_once_it_has_used_as_much() {
    let rows = [("/a", 50, 30), ("/a/x", 50, 10), ("/b", 50, 0)];
    let snapshot = snapshot(&rows, Distance::Absolute);
    let (new, used) = (entry(&snapshot, "/a/*"), entry(&snapshot, "/a/*/="));
    let explanation = explain(&exact(&snapshot), new, Some(used));
    let comparison = explanation.comparison.expect("asked for");
    assert_eq!(
        (comparison.standing, comparison.level, comparison.parity),
        (Standing::Before, Some(2), Some(CoreMillis(30)))
    );
}

#[test]
fn what_no_amount_can_do_is_not_promised() {
    let tree = [("/a", 0, 1), ("/b", 100, 0)];
    for distance in [Distance::Absolute, Distance::Relative] {
        let snapshot = snapshot(&tree, distance);
        let (a, b) = (entry(&snapshot, "/a"), entry(&snapshot, "/b"));
        let comparison = explain(&exact(&snapshot), a, Some(b))
            .comparison
            .expect("asked for");
        assert_eq!(
            (comparison.standing, comparison.parity),
            (Standing::After, None),
            "{distance:?}"
        );
    }
}

proptest! {
    /// Booking the promised amount makes the loser stand no worse, and one unit less does not.
    #[test]
    fn parity_is_the_least_amount_that_does_it(
        shares in prop::collection::vec(0u32..=100, 6),
        usage in prop::collection::vec(0u64..50, 6),
        pair in (0usize..6, 0usize..6),
        relative in any::<bool>(),
    ) {
        let mut rows: Vec<_> = TREE.iter().zip(shares).zip(usage).map(|((row, share), usage)| (row.0, share, usage)).collect();
        let distance = if relative { Distance::Relative } else { Distance::Absolute };
        let ids = |snapshot: &Snapshot| (entry(snapshot, TREE[pair.0].0), entry(snapshot, TREE[pair.1].0));
        let before = snapshot(&rows, distance);
        let (loser, winner) = ids(&before);
        let comparison = explain(&exact(&before), loser, Some(winner)).comparison.expect("asked for");
        if let (Standing::After, Some(parity)) = (comparison.standing, comparison.parity) {
            for (less, expected) in [(1, Standing::After), (0, Standing::Tied)] {
                rows[pair.1].2 += parity.0 - less;
                let after = snapshot(&rows, distance);
                let standing = explain(&exact(&after), loser, Some(winner)).comparison.expect("asked for").standing;
                prop_assert!(standing == expected || (less == 0 && standing == Standing::Before), "{:?}", rows);
                rows[pair.1].2 -= parity.0 - less;
            }
        }
    }
}
