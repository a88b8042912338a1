use fairmesh_model::{Distance, Importance};
use proptest::prelude::*;

use super::*;
use crate::explain::{Standing, explain};
use crate::order::Order;
use crate::order::tests::{entry, published, snapshot};
use crate::tree::Snapshot;

fn projections(snapshot: &Snapshot) -> Vec<Box<dyn Projection>> {
    vec![
        Box::new(PaperProjection),
        Box::new(PaperRoundedProjection),
        Box::new(BitsProjection),
        Box::new(RankProjection::prepare(snapshot)),
        Box::new(PercentalProjection),
        Box::new(FairTreeProjection::prepare(snapshot)),
    ]
}

fn project(snapshot: &Snapshot, projection: &dyn Projection, path: &str) -> (Priority, Share) {
    let entry = entry(snapshot, path);
    let context = Context {
        entry,
        depth: snapshot.depth(),
    };
    let priority = projection.project(&snapshot.vector(entry), &context);
    (priority, projection.factor(&priority, &context))
}

/// For every projection: whether `/a`, `/b` and `/c` come in this order, `=` for ties.
#[test]
fn projections_by_rows() {
    // name, (target %, usage), order by: paper, paper-rounded, bits, rank, percental, fairtree
    let rows = [
        ("no tie", [(50, 10), (30, 30), (20, 60)], ["a>b>c"; 6]),
        ("tie", [(40, 20), (40, 20), (20, 60)], ["a=b>c"; 6]),
        ("all tie", [(50, 50), (30, 30), (20, 20)], ["a=b=c"; 6]),
        ("zero share", [(100, 0), (0, 1), (0, 99)], ["a>b>c"; 6]),
        (
            "zero usage",
            [(50, 0), (30, 0), (20, 0)],
            ["a>b>c", "a>b>c", "a>b>c", "a>b>c", "a>b>c", "a=b=c"],
        ),
    ];
    for (name, [a, b, c], orders) in rows {
        let tree = [("/a", a.0, a.1), ("/b", b.0, b.1), ("/c", c.0, c.1)];
        let snapshot = snapshot(&tree, Distance::Absolute);
        let as_published = published(&tree, Distance::Absolute);
        for (projection, expected) in projections(&snapshot).iter().zip(orders) {
            let of = match projection.name().starts_with("paper") {
                true => &as_published,
                false => &snapshot,
            };
            let [a, b, c] = ["/a", "/b", "/c"].map(|path| project(of, &**projection, path));
            let sign = |x: &(Priority, Share), y: &(Priority, Share)| match x.0.cmp(&y.0) {
                std::cmp::Ordering::Greater => ">",
                std::cmp::Ordering::Equal => "=",
                std::cmp::Ordering::Less => "<",
            };
            let order = format!("a{}b{}c", sign(&a, &b), sign(&b, &c));
            assert_eq!(order, expected, "{name}, {}", projection.name());
            assert!(
                a.1 >= b.1 && b.1 >= c.1,
                "{name}, {}: factors out of order",
                projection.name()
            );
        }
    }
}

#[test]
fn factors_run_from_nothing_to_one() {
    let snapshot = snapshot(&[("/a", 100, 0), ("/b", 0, 9)], Distance::Absolute);
    for projection in projections(&snapshot) {
        let name = projection.name();
        let (best, worst) = (
            project(&snapshot, &*projection, "/a").1,
            project(&snapshot, &*projection, "/b").1,
        );
        assert_eq!(best, Share::WHOLE, "{name}");
        assert!(
            worst < Share::from_percent(51).expect("a percentage"),
            "{name}: {worst}"
        );
    }
    assert_eq!(
        project(&snapshot, &PercentalProjection, "/b").0.to_string(),
        "-5"
    );
    assert_eq!(
        project(&snapshot, &BitsProjection, "/b").0,
        Priority::whole(0)
    );
}

#[test]
fn relative_distances_stay_within_the_papers_digits() {
    let tree = [("/a", 1, 99), ("/b", 0, 1), ("/c", 99, 0)];
    let snapshot = snapshot(&tree, Distance::Relative);
    for (path, number) in [("/a", "0"), ("/b", "0"), ("/c", "200")] {
        assert_eq!(
            project(&snapshot, &PaperProjection, path).0.to_string(),
            number,
            "{path}"
        );
    }
    assert!(
        project(&snapshot, &BitsProjection, "/a").0 > project(&snapshot, &BitsProjection, "/b").0
    );
}

#[test]
fn the_deepest_tree_overflows_nothing() {
    let paths: Vec<String> = (1..=16).map(|depth| "/x".repeat(depth)).collect();
    for (percent, usage) in [(100, 0), (0, u64::MAX), (37, 12_345)] {
        let rows: Vec<_> = paths
            .iter()
            .map(|path| (path.as_str(), percent, usage))
            .collect();
        for distance in [Distance::Absolute, Distance::Relative] {
            let snapshot = snapshot(&rows, distance);
            for projection in projections(&snapshot) {
                let (_, factor) = project(&snapshot, &*projection, &paths[15]);
                assert!(factor <= Share::WHOLE);
            }
        }
    }
}

/// The manual's three rules for ties.
#[test]
fn fair_tree_follows_the_manual_in_ties() {
    let tree = [
        // Two tied accounts: their users are one list, sorted by level fairshare.
        ("/a", 40, 0),
        ("/a/p", 50, 1),
        ("/a/q", 50, 3),
        ("/b", 40, 0),
        ("/b/r", 50, 2),
        ("/b/s", 50, 2),
        // A user tied with them ranks as their first user.
        ("/u", 40, 4),
        // Two tied users.
        ("/v", 20, 8),
        ("/w", 20, 8),
    ];
    let snapshot = snapshot(&tree, Distance::Absolute);
    let fairtree = FairTreeProjection::prepare(&snapshot);
    let rank = |path: &str| fairtree.rank(entry(&snapshot, path));
    assert_eq!(
        ["/u", "/a/p", "/b/r", "/b/s", "/a/q", "/v", "/w"].map(rank),
        [7, 7, 5, 5, 3, 2, 2]
    );
    assert_eq!(project(&snapshot, &fairtree, "/a/p").1, Share::WHOLE);
    assert_eq!(rank("/a"), 7, "an account ranks as its first user would");
}

#[test]
fn importance_orders_only_what_is_equal_otherwise() {
    let job = |priority, importance| {
        let importance = Importance::try_from(importance).expect("in range");
        Priority::whole(priority).with_importance(importance)
    };
    assert!(job(2, 0) > job(1, Importance::MAX.get()));
    assert!(job(2, 7) > job(2, 6));
    assert_eq!(job(2, 7).to_string(), "2+7");
}

#[test]
fn priorities_print_exactly() {
    let rows = [
        (0, 3, "0"),
        (-1_500, 3, "-1.5"),
        (5, 3, "0.005"),
        (12_000, 3, "12"),
        (7, 0, "7"),
    ];
    for (units, decimals, text) in rows {
        assert_eq!(
            Priority::from_units(I256::from(units), decimals)
                .expect("few decimals")
                .to_string(),
            text
        );
    }
    assert_eq!(Priority::from_units(I256::ONE, 37), None);
}

proptest! {
    /// Where a level is compared by the relative distance it is sorted as Fair Tree sorts it, by share ÷ usage:
    /// `(t − a) / t = 1 − a / t`. Shares of zero come last in both, by their use.
    #[test]
    fn the_relative_distance_of_a_level_is_fair_trees_order(
        siblings in prop::collection::vec((0u32..=100, prop_oneof![0u64..5, any::<u64>()]), 2..7),
    ) {
        let paths = ["/a", "/b", "/c", "/d", "/e", "/f"];
        let rows = paths.iter().zip(siblings);
        let rows: Vec<_> = rows.map(|(path, (percent, usage))| (*path, percent, usage)).collect();
        let snapshot = snapshot(&rows, Distance::Relative);
        let fairtree = FairTreeProjection::prepare(&snapshot);
        for (a, ..) in &rows {
            for (b, ..) in &rows {
                let [a, b] = [a, b].map(|path| entry(&snapshot, path));
                let by_distance = snapshot.level(a).deviation().cmp(&snapshot.level(b).deviation());
                prop_assert_eq!(fairtree.rank(a).cmp(&fairtree.rank(b)), by_distance);
            }
        }
    }

    /// Under each projection ranks, priorities and factors are one order: nobody whose rank is better has a
    /// lower factor, and under `rank` factors differ wherever vectors do.
    #[test]
    fn ranks_priorities_and_factors_never_contradict_each_other(
        shares in prop::collection::vec(prop_oneof![Just(0u32), Just(50), 0u32..=100], 12),
        usage in prop::collection::vec(prop_oneof![Just(0u64), 0u64..5, any::<u64>()], 12),
        relative in any::<bool>(),
    ) {
        let paths = [
            "/a", "/a/x", "/a/y", "/a/y/z", "/a/y/z/d", "/b", "/b/x", "/b/y", "/b/y/z", "/c", "/d", "/e",
        ];
        let rows = paths.iter().zip(shares).zip(usage);
        let rows: Vec<_> = rows.map(|((path, share), usage)| (*path, share, usage)).collect();
        let distance = if relative { Distance::Relative } else { Distance::Absolute };
        let snapshot = snapshot(&rows, distance);
        for projection in projections(&snapshot) {
            let order = Order::of(snapshot.clone(), projection);
            let (ranking, is_exact) = (order.ranking(), order.projection().is_exact());
            let step = order.step();
            prop_assert!(step > 0);
            // The most important job of one entry, and the least important one of another.
            let job = |entry, importance| order.priority(entry).with_importance(importance);
            let present: Vec<EntryId> = snapshot.ids().filter(|id| snapshot.is_present(*id)).collect();
            for a in present.iter().copied() {
                for b in present.iter().copied() {
                    let before = ranking.rank(b).cmp(&ranking.rank(a));
                    prop_assert_eq!(order.priority(a).cmp(&order.priority(b)), before);
                    let factors = order.factor(a).cmp(&order.factor(b));
                    prop_assert!(factors == before || factors.is_eq() && !is_exact);
                    let apart = order.factor(a).units().abs_diff(order.factor(b).units());
                    prop_assert!(apart == 0 || apart >= step);
                    let jobs = job(a, Importance::MIN).cmp(&job(b, Importance::MAX));
                    prop_assert_eq!(jobs, before.then(std::cmp::Ordering::Less));
                    let standing = explain(&order, a, Some(b)).comparison.expect("asked for").standing;
                    let expected = match before {
                        std::cmp::Ordering::Greater => Standing::Before,
                        std::cmp::Ordering::Equal => Standing::Tied,
                        std::cmp::Ordering::Less => Standing::After,
                    };
                    prop_assert_eq!(standing, expected);
                    let exact = snapshot.vector(a).compare(&snapshot.vector(b));
                    prop_assert!(!is_exact || exact == before);
                }
            }
        }
    }
}
