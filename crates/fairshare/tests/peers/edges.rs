//! Shares at the edges: accounts without a line, shares of zero, usage of a pool account, exact ties, and siblings
//! that add up to a hundred.

use fairmesh_fairshare::Snapshot;
use fairmesh_model::{Distance, ShareRule, Weight};

use crate::tree::{
    BITS, BY_WEIGHTS, DISTANCES, FAIRTREE, PAPER, PAPER_ROUNDED, Prepare, RANK, Tree,
};

const CORE_HOUR: u64 = 3_600_000;

/// Asserts that the accounts are served in this order under all distances and the given projections.
fn check(lines: &[(&str, u64)], used: &[(&str, u64)], by: &[Prepare], order: &str, among: &[&str]) {
    let used: Vec<_> = used
        .iter()
        .map(|(path, hours)| (*path, hours * CORE_HOUR))
        .collect();
    for distance in DISTANCES {
        let tree = Tree::new(lines, distance).with(&used);
        for prepare in by {
            let name = tree.order(*prepare).projection().name();
            assert_eq!(
                tree.served(*prepare, among),
                order,
                "{name}, {distance:?}, {lines:?}"
            );
        }
    }
}

#[test]
fn a_user_without_a_line_who_has_used_much_is_last() {
    // `hog` maps to a path without a line and has used 100 of 200 core-hours; `new` has used nothing.
    let used = [("/a", 75), ("/b", 25), ("/hog", 100)];
    let among = ["/a", "/b", "/hog", "/new"];
    for lines in [
        &[("/a", 30), ("/b", 10)][..],
        &[("/a", 30), ("/b", 10), ("/*", 10)],
    ] {
        for distance in DISTANCES {
            let hours = used.map(|(path, hours)| (path, hours * CORE_HOUR));
            let tree = Tree::new(lines, distance).with(&hours);
            for prepare in BY_WEIGHTS {
                let name = tree.order(prepare).projection().name();
                let ranks = tree.ranks(prepare, &among);
                let [a, b, hog, new] = ranks[..] else {
                    panic!("four ranks");
                };
                assert!(a < hog && b < hog, "{name}, {distance:?}: {ranks:?}");
                assert!(new < hog, "{name}, {distance:?}: {ranks:?}");
            }
        }
    }
}

#[test]
fn accounts_without_a_line_have_the_target_of_their_line_together() {
    let tree = Tree::new(&[("/a", 30), ("/b", 10), ("/*", 10)], Distance::Absolute);
    let targets = ["/a", "/b", "/*"].map(|text| target(&tree.snapshot(), &tree, text));
    assert_eq!(targets, [(3, 5), (1, 5), (1, 5)]);
    let tree = Tree::new(&[("/a", 30), ("/b", 10)], Distance::Absolute);
    let targets = ["/a", "/b", "/*"].map(|text| target(&tree.snapshot(), &tree, text));
    assert_eq!(targets, [(3, 4), (1, 4), (0, 4)]);
}

fn target(snapshot: &Snapshot, tree: &Tree, text: &str) -> (u64, u64) {
    let entry = tree.entry(text);
    snapshot.level(entry).target.ratio()
}

#[test]
fn in_a_project_a_user_without_a_line_is_after_one_who_never_ran() {
    let used = [("/cms/ann", 11), ("/cms/bob", 11), ("/cms/eve", 200)];
    let among = ["/cms/ann", "/cms/bob", "/cms/eve", "/cms/new"];
    let lines = [
        ("/cms", 60),
        ("/cms/ann", 1),
        ("/cms/bob", 1),
        ("/lhcb", 40),
    ];
    check(&lines, &used, &BY_WEIGHTS, "ann = bob > new > eve", &among);
    let lines = [&lines[..], &[("/cms/*", 1)]].concat();
    check(&lines, &used, &BY_WEIGHTS, "ann = bob > new > eve", &among);
}

#[test]
fn a_share_of_zero_is_last_idle_or_used_and_the_less_used_first() {
    let lines = [("/phys", 50), ("/chem", 50), ("/scav", 0)];
    let among = ["/phys", "/chem", "/scav"];
    check(&lines, &[], &BY_WEIGHTS, "chem = phys > scav", &among);
    let used = [("/phys", 60), ("/chem", 40)];
    check(&lines, &used, &BY_WEIGHTS, "chem > phys > scav", &among);

    let lines = [("/phys", 1), ("/idle", 0), ("/scav", 0), ("/spam", 0)];
    let among = ["/phys", "/idle", "/scav", "/spam"];
    let used = [("/phys", 50), ("/scav", 10), ("/spam", 40)];
    check(
        &lines,
        &used,
        &BY_WEIGHTS,
        "phys > idle > scav > spam",
        &among,
    );
}

#[test]
fn usage_of_a_pool_account_is_that_of_an_account_without_a_line() {
    let lines = [
        ("/cms", 60),
        ("/cms/ann", 1),
        ("/cms/bob", 1),
        ("/lhcb", 40),
    ];
    let used = [
        ("/cms", 100),
        ("/cms/ann", 20),
        ("/cms/bob", 10),
        ("/lhcb", 70),
    ];
    let among = ["/cms/ann", "/cms/bob", "/cms", "/cms/new"];
    let by = [RANK, BITS, FAIRTREE];
    check(&lines, &used, &by, "bob > ann > new > cms", &among);

    let tree = Tree::new(&lines, Distance::Absolute).with(&used);
    let entry = |text: &str| tree.served_as(text);
    let level = |text: &str| {
        let vector = tree.vector(entry(text));
        vector.levels()[1]
    };
    // All of it counts for the group, and none of it for the users with a line.
    assert_eq!(
        level("/cms/ann").usage * 13,
        level("/cms/ann").parent_usage * 2
    );
    assert_eq!(level("/cms").usage * 13, level("/cms").parent_usage * 10);
    assert_eq!(tree.snapshot().path(entry("/cms")).as_str(), "/cms/*/=");
}

#[test]
fn equal_ratios_tie_exactly() {
    // Ten of thirty, and 1,000 of 3,000: on target, and below it; shares as small and as large numbers.
    type Amounts = [(&'static str, u64)];
    let rows: [(&Amounts, &Amounts); 3] = [
        (
            &[
                ("/a", 1),
                ("/a/x", 1),
                ("/a/y", 2),
                ("/b", 100),
                ("/b/x2", 10),
                ("/b/y2", 20),
            ],
            &[
                ("/a/x", 10),
                ("/a/y", 20),
                ("/b/x2", 1_000),
                ("/b/y2", 2_000),
            ],
        ),
        (
            &[
                ("/a", 1),
                ("/a/x", 7),
                ("/a/y", 7),
                ("/b", 100),
                ("/b/x2", 1),
                ("/b/y2", 1),
            ],
            &[
                ("/a/x", 10),
                ("/a/y", 20),
                ("/b/x2", 1_000),
                ("/b/y2", 2_000),
            ],
        ),
        (
            &[
                ("/a", 10),
                ("/a/x", 10),
                ("/a/y", 1_100),
                ("/b", 1_000),
                ("/b/x2", 1),
                ("/b/y2", 110),
            ],
            &[
                ("/a/x", 10),
                ("/a/y", 20),
                ("/b/x2", 1_000),
                ("/b/y2", 2_000),
            ],
        ),
    ];
    for (lines, used) in rows {
        for distance in DISTANCES {
            let tree = Tree::new(lines, distance).with(used);
            for prepare in [RANK, BITS, FAIRTREE] {
                let name = tree.order(prepare).projection().name();
                for pair in [["/a", "/b"], ["/a/x", "/b/x2"], ["/a/y", "/b/y2"]] {
                    let ranks = tree.ranks(prepare, &pair);
                    assert_eq!(ranks[0], ranks[1], "{pair:?}, {name}, {distance:?}");
                }
            }
        }
    }
}

/// Percentages with seven decimals cannot say 1000 of 1110, so accounts that tie were told apart.
#[test]
fn small_whole_numbers_tie_where_percentages_do_not() {
    let among = ["/a", "/b", "/c"];
    let used = [("/a", 120), ("/b", 12), ("/c", 1)];
    let served = |weights: [u64; 3], prepare| {
        let lines = [0, 1, 2].map(|at| (among[at], weights[at]));
        let tree = Tree::new(&lines, Distance::Relative).with(&used);
        tree.served(prepare, &among)
    };
    for prepare in [RANK, FAIRTREE] {
        assert_eq!(served([1_000, 100, 10], prepare), "c > a = b");
        assert_eq!(served([10, 1, 0], prepare), "a = b > c");
        let percent = [900_900_901, 90_090_090, 9_009_009];
        assert_eq!(served(percent, prepare), "c > a > b");
    }
}

#[test]
fn siblings_that_add_up_to_a_hundred_have_the_vectors_and_figures_of_before() {
    let lines = [
        ("/a", 70),
        ("/a/x", 25),
        ("/a/x/p", 100),
        ("/a/y", 75),
        ("/b", 30),
        ("/b/x", 10),
        ("/b/y", 50),
        ("/b/z", 40),
    ];
    let paths = lines.map(|(path, _)| path);
    let usages: [&[(&str, u64)]; 4] = [
        &[],
        &[
            ("/a/x/p", 7),
            ("/a/y", 21),
            ("/b/x", 2),
            ("/b/y", 6),
            ("/b/z", 4),
        ],
        &[("/a/x/p", 1), ("/b/z", 999)],
        &[("/a/y", 3), ("/b/x", 1), ("/b/y", 1), ("/b/z", 1)],
    ];
    let published = lines.map(|(path, percent)| (path, percent * Weight::ONE));
    for used in usages {
        for distance in DISTANCES {
            let weights = Tree::new(&lines, distance).with(used);
            let before = Tree::read_by(ShareRule::AsPublished, &published, distance).with(used);
            for text in paths {
                let vector = |tree: &Tree| {
                    let entry = tree.entry(text);
                    tree.vector(entry)
                };
                let (now, then) = (vector(&weights), vector(&before));
                assert!(now.compare(&then).is_eq(), "{text}, {distance:?}");
                assert_eq!(format!("{now:?}"), format!("{then:?}"));
            }
            for prepare in BY_WEIGHTS.into_iter().chain([PAPER, PAPER_ROUNDED]) {
                let figures = |tree: &Tree| {
                    let order = tree.order(prepare);
                    let figures = paths.map(|text| {
                        let entry = tree.entry(text);
                        let rank = order.ranking().rank(entry);
                        (rank, order.priority(entry), order.factor(entry))
                    });
                    (order.projection().name(), figures)
                };
                assert_eq!(figures(&weights), figures(&before), "{distance:?}");
            }
        }
    }
}
