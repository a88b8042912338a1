use super::*;
use crate::plan::{PlanKind, plan};
use crate::site_policy::{SiteEntry, SitePolicy};
use crate::testing::*;
use crate::tree_file::parse_tree;

/// Where no VO mounts another's policy.
fn compile(site: &SitePolicy, mounts: &BTreeMap<String, InForce>) -> CompiledTree {
    super::compile(site, mounts, &BTreeMap::new(), ShareRule::Weights)
}

fn site(text: &str) -> SitePolicy {
    let file = parse_tree(text, "site.toml").expect("a tree");
    file.to_site_policy().expect("a site policy")
}

fn vo(entries: &[(&str, u32)]) -> InForce {
    let (policies, _) = vo_with_delegates();
    let mut in_force = policies.in_force(NOW);
    let from = in_force.entries[0].from.clone();
    let entry = |(at, share): &(&str, u32)| crate::in_force::VoEntry {
        path: path(at),
        share: percent(*share),
        at_most: fairmesh_model::Share::WHOLE,
        level: LevelRule::of_vo(Distance::Absolute),
        mount: None,
        was: Vec::new(),
        since: None,
        from: from.clone(),
    };
    in_force.entries = entries.iter().map(entry).collect();
    in_force
}

fn mounts(entries: &[(&str, u32)]) -> BTreeMap<String, InForce> {
    BTreeMap::from([("vo-a".to_owned(), vo(entries))])
}

fn lines(tree: &CompiledTree) -> Vec<String> {
    let line = |entry: &CompiledEntry| {
        let vo_path = entry.vo_path.as_ref().map_or("-", AccountPath::as_str);
        format!("{} {} {:?} {vo_path}", entry.path, entry.share, entry.scope)
    };
    tree.entries.iter().map(line).collect()
}

#[test]
fn the_tree_of_figure_3_is_put_together() {
    let site = site(
        "[shares]\n\"/local\" = 40\n\"/local/lu\" = 50\n\"/VO-A\" = { share = 60, mount = \"vo-a\" }",
    );
    let tree = compile(
        &site,
        &mounts(&[("/P-A1", 50), ("/P-A1/U-A11", 100), ("/P-A2", 50)]),
    );
    assert_eq!(
        lines(&tree),
        [
            "/VO-A 60 Local /",
            "/VO-A/P-A1 50 Global /P-A1",
            "/VO-A/P-A1/U-A11 100 Global /P-A1/U-A11",
            "/VO-A/P-A2 50 Global /P-A2",
            "/local 40 Local -",
            "/local/lu 50 Local -",
        ]
    );
    assert_eq!(tree.warnings, []);
    assert!(tree.get(&path("/VO-A/P-A2")).is_some());
}

/// With the owner's weights in place of the shares as written; those of VOs as written.
fn weights(tree: &CompiledTree) -> Vec<String> {
    let mut tree = tree.clone();
    for entry in tree
        .entries
        .iter_mut()
        .filter(|entry| entry.from == Origin::Site)
    {
        entry.share = Weight::whole(u32::try_from(entry.weight).expect("a small weight"));
    }
    lines(&tree)
}

#[test]
fn the_owner_caps_weighs_and_drops() {
    for (more, expected) in [
        (
            "cap = 25",
            vec!["/VO-A 1 Local /", "/VO-A/x 100 Global /x", "/l 3 Local -"],
        ),
        (
            "weight = 50",
            vec!["/VO-A 3 Local /", "/VO-A/x 100 Global /x", "/l 4 Local -"],
        ),
        ("drop = true", vec!["/l 1 Local -"]),
        (
            "drop = false",
            vec!["/VO-A 3 Local /", "/VO-A/x 100 Global /x", "/l 2 Local -"],
        ),
    ] {
        let text = format!(
            "[shares]\n\"/VO-A\" = {{ share = 60, mount = \"vo-a\", {more} }}\n\"/l\" = 40"
        );
        let tree = compile(&site(&text), &mounts(&[("/x", 100)]));
        assert_eq!(weights(&tree), expected, "{more}");
        assert_eq!(tree.warnings, []);
    }
}

#[test]
fn an_unknown_vo_stays_as_an_undivided_entry() {
    let tree = compile(
        &site("[shares]\n\"/VO-A\" = { share = 60, mount = \"vo-a\" }"),
        &BTreeMap::new(),
    );
    assert_eq!(lines(&tree), ["/VO-A 60 Local -"]);
    assert!(matches!(
        &tree.warnings[..],
        [CompileWarning::UnknownMount { .. }]
    ));
}

#[test]
fn a_vo_can_have_the_whole_site() {
    let tree = compile(
        &site("[shares]\n\"/\" = { share = 100, mount = \"vo-a\" }"),
        &mounts(&[("/x", 100)]),
    );
    assert_eq!(lines(&tree), ["/x 100 Global /x"]);
    assert!(tree.root_vo.is_some());
}

#[test]
fn what_is_too_deep_is_left_out_with_a_warning() {
    let deep = "/d".repeat(fairmesh_model::path::PATH_DEPTH_MAX);
    let long = format!("/{}", "x".repeat(fairmesh_model::path::PATH_BYTES_MAX - 1));
    let tree = compile(
        &site("[shares]\n\"/VO-A\" = { share = 60, mount = \"vo-a\" }"),
        &mounts(&[("/a", 1), (&deep, 1), (&long, 1)]),
    );
    assert_eq!(lines(&tree), ["/VO-A 60 Local /", "/VO-A/a 1 Global /a"]);
    assert_eq!(tree.warnings.len(), 2);
}

#[test]
fn a_plan_names_what_is_touched_and_what_it_amounts_to() {
    let before = site("[shares]\n\"/a\" = 50\n\"/a/x\" = 40\n\"/b\" = 50\n\"/c\" = 0");
    let after = site("[shares]\n\"/a\" = 50\n\"/a/x\" = 40\n\"/b\" = 25\n\"/d\" = 25");
    let none = BTreeMap::new();
    let (before, after) = (compile(&before, &none), compile(&after, &none));
    let lines = plan(&before, &after);
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            let absolute = |share: Option<crate::PlanShare>| share.map(|share| share.absolute);
            (
                line.path.as_str(),
                line.kind(),
                absolute(line.before),
                absolute(line.after),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("/b", PlanKind::Share, Some(500_000_000), Some(250_000_000)),
            ("/c", PlanKind::Removed, Some(0), None),
            ("/d", PlanKind::Added, None, Some(250_000_000)),
        ]
    );
    assert_eq!(plan(&after, &after), []);
}

#[test]
fn limits_are_the_owners_and_the_vos_own_and_a_plan_shows_them() {
    let tree = |text: &str, most: u32| {
        let mut vo = vo(&[("/p", 50)]);
        vo.entries[0].at_most = Share::from_percent(most).expect("a percentage");
        compile(&site(text), &BTreeMap::from([("vo-a".to_owned(), vo)]))
    };
    let owner = |most: &str| {
        format!(
            "[shares]\n\"/a\" = {{ share = 30, mount = \"vo-a\", cap = 20{most} }}\n\"/b\" = 70"
        )
    };
    let before = tree(&owner(", at_most = 40"), 60);
    let limits = before.entries.iter().map(|entry| entry.at_most);
    let expected = [40, 60, 100].map(Share::from_percent);
    assert_eq!(limits.map(Some).collect::<Vec<_>>(), expected);
    let lines = plan(&before, &tree(&owner(""), 70));
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line.path.as_str(), line.kind()))
        .collect();
    assert_eq!(told, [("/a", PlanKind::Limit), ("/a/p", PlanKind::Limit)]);
}

#[test]
fn a_plan_shows_those_who_lose_without_being_touched() {
    let tree = |entries: &[(&str, u32)]| {
        let entries = entries
            .iter()
            .map(|(at, share)| (path(at), SiteEntry::local(percent(*share))));
        let site = SitePolicy::new(entries.collect()).expect("valid");
        compile(&site, &BTreeMap::new())
    };
    let lines = plan(
        &tree(&[("/a", 10), ("/b", 10)]),
        &tree(&[("/a", 10), ("/b", 20)]),
    );
    assert_eq!(lines[0].kind(), PlanKind::Effect);
    assert_eq!(
        lines[0].after.map(|share| share.absolute),
        Some(333_333_333)
    );
    assert_eq!(
        lines[1].after.map(|share| share.absolute),
        Some(666_666_667)
    );
}

#[test]
fn each_says_how_the_levels_below_his_entries_are_compared() {
    let (mut policies, charter) = vo_with_delegates();
    let says = |usage, distance| fairmesh_model::ShareEntry {
        usage,
        distance,
        ..delegated(60, role(&[20], 1))
    };
    let mut root = policy(
        charter.vo(),
        "/",
        2,
        &[
            ("/a", says(Some(Scope::Global), None)),
            ("/b", entry(40)),
            ("/b/x", entry(9)),
        ],
    );
    root.usage = Some(Scope::Local);
    root.distance = Some(Distance::Relative);
    let mut below = policy(
        charter.vo(),
        "/a",
        1,
        &[("/x", entry(9)), ("/x/y", entry(9))],
    );
    below
        .shares
        .get_mut(&path("/x"))
        .expect("it is there")
        .distance = Some(Distance::Absolute);
    for (policy, key) in [(root, 10), (below, 20)] {
        policies
            .adopt_policy(sign_policy(policy, &[key]))
            .expect("it is in force");
    }
    let tree = |owners: &str| {
        let text = format!("[shares]\n{owners}\n\"/g/VO\" = {{ share = 60, mount = \"vo-a\" }}");
        let mounts = BTreeMap::from([("vo-a".to_owned(), policies.in_force(NOW))]);
        let tree = compile(&site(&text), &mounts);
        let line = |entry: &CompiledEntry| {
            let (scope, distance) = (entry.scope, entry.distance);
            format!("{} {scope} {distance}", entry.path)
        };
        tree.entries.iter().map(line).collect::<Vec<_>>()
    };
    let below_mount = [
        "/g/VO/a local relative",
        "/g/VO/a/x global relative",
        "/g/VO/a/x/y global absolute",
        "/g/VO/b local relative",
        "/g/VO/b/x local relative",
    ];
    for (owners, at_mount) in [
        ("\"/g\" = 40", ["/g local absolute", "/g/VO local absolute"]),
        (
            "\"/\" = { distance = \"mix:0.5\" }\n\"/g\" = { share = 40, usage = \"global\" }",
            ["/g local mix:0.5", "/g/VO global mix:0.5"],
        ),
    ] {
        let expected: Vec<_> = at_mount.into_iter().chain(below_mount).collect();
        assert_eq!(tree(owners), expected, "{owners}");
    }
}

#[test]
fn an_entry_is_divided_as_another_vos_policy_says() {
    let (mut policies, charter) = vo_with_delegates();
    let [inner_id, third] = [9, 8].map(|byte| VoId::from_bytes([byte; 32]));
    let mounting = |vo, at: &str| fairmesh_model::ShareEntry {
        mount: Some(PolicyMount { vo, path: path(at) }),
        ..entry(60)
    };
    let root = policy(
        charter.vo(),
        "/",
        2,
        &[
            ("/a", mounting(inner_id, "/P")),
            ("/b", mounting(third, "/")),
        ],
    );
    policies
        .adopt_policy(sign_policy(root, &[10]))
        .expect("it is in force");
    assert_eq!(policies.mounted(), [third, inner_id].into());
    // `/P-A/x` lies between `/P` and what is below that.
    let mut inner = vo(&[
        ("/P", 50),
        ("/P-A", 50),
        ("/P-A/x", 50),
        ("/P/x", 70),
        ("/P/x/u", 10),
        ("/Q", 50),
    ]);
    (inner.vo, inner.readers) = (inner_id, [charter.vo()].into());
    inner.entries[3].mount = Some(PolicyMount {
        vo: third,
        path: path("/"),
    });
    inner.entries[3].level = LevelRule {
        scope: Scope::Local,
        distance: Distance::Relative,
    };
    let tree = |inner: &InForce| {
        let site = site("[shares]\n\"/VO\" = { share = 60, mount = \"vo-a\" }");
        let mounts = BTreeMap::from([("vo-a".to_owned(), policies.in_force(NOW))]);
        super::compile(
            &site,
            &mounts,
            &BTreeMap::from([(inner_id, inner.clone())]),
            ShareRule::Weights,
        )
    };
    let divided = tree(&inner);
    assert_eq!(
        lines(&divided),
        [
            "/VO 60 Local /",
            "/VO/a 60 Global /a",
            "/VO/a/x 70 Local /a/x",
            "/VO/a/x/u 10 Global /a/x/u",
            "/VO/b 60 Global /b",
        ]
    );
    let whose: Vec<_> = divided
        .entries
        .iter()
        .map(|entry| entry.policy_of)
        .collect();
    assert_eq!(whose, [None, None, Some(inner_id), Some(inner_id), None]);
    assert_eq!(divided.entries[2].distance, Distance::Relative);
    let said = |tree: &CompiledTree| -> Vec<String> {
        tree.warnings.iter().map(ToString::to_string).collect()
    };
    let why = said(&divided);
    assert!(
        why[0].starts_with("`/VO/a/x` mounts") && why[0].contains("nothing in turn"),
        "{why:?}"
    );
    assert!(
        why[1].starts_with("`/VO/b` mounts") && why[1].contains("nothing is known"),
        "{why:?}"
    );
    // Whoever is not a reader, and what is not there, divides nothing.
    inner.readers.clear();
    assert_eq!(lines(&tree(&inner)).len(), 3);
    assert!(said(&tree(&inner))[0].contains("among its readers"));
    inner.readers = [charter.vo()].into();
    inner.entries.truncate(1);
    assert!(said(&tree(&inner))[0].contains("does not divide it"));
}

#[test]
fn one_policy_mounted_in_thousands_of_places_is_placed_where_there_is_room_and_read_nowhere_else() {
    let inner_id = VoId::from_bytes([9; 32]);
    let named = |count: u32| -> Vec<_> { (0..count).map(|at| (format!("/{at:06}"), 1)).collect() };
    let of = |named: &[(String, u32)]| {
        let named: Vec<_> = named
            .iter()
            .map(|(at, share)| (at.as_str(), *share))
            .collect();
        vo(&named)
    };
    let (mut outer, mut inner) = (of(&named(3_000)), of(&named(100_000)));
    (inner.vo, inner.readers) = (inner_id, [outer.vo].into());
    for entry in &mut outer.entries {
        entry.mount = Some(PolicyMount {
            vo: inner_id,
            path: path("/"),
        });
    }
    let site = site("[shares]\n\"/VO\" = { share = 60, mount = \"vo-a\" }");
    let mounts = BTreeMap::from([("vo-a".to_owned(), outer)]);
    let tree = super::compile(
        &site,
        &mounts,
        &BTreeMap::from([(inner_id, inner)]),
        ShareRule::Weights,
    );
    assert_eq!(tree.entries.len(), 1 + 3_000 + MOUNTED_ENTRIES_MAX);
    assert_eq!(tree.warnings.len(), 3_000 - 10);
}

#[test]
fn former_paths_move_with_a_mount_and_contradictions_are_named() {
    let mut of_vo = vo(&[("/top", 60), ("/higgs", 40)]);
    of_vo.entries[0].was = vec![path("/old"), path("/higgs")];
    of_vo.entries[1].was = vec![path("/old")];
    of_vo.entries[1].since = Some(fairmesh_model::Date(20_000));
    let site = site(
        "[shares]\n\"/VO\" = { share = 60, mount = \"vo-a\", was = [\"/vo-a\"] }\n\"/l\" = 40",
    );
    let tree = compile(&site, &BTreeMap::from([("vo-a".to_owned(), of_vo)]));
    let former = tree
        .former
        .iter()
        .map(|of| (of.was.as_str(), of.now.as_str()));
    assert_eq!(
        former.collect::<Vec<_>>(),
        [("/VO/old", "/VO/higgs"), ("/vo-a", "/VO")]
    );
    let warned: Vec<_> = tree.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warned.len(), 2, "{warned:?}");
    assert!(
        warned
            .iter()
            .all(|warning| warning.contains("`/VO/top` was")),
        "{warned:?}"
    );
    let since = tree.get(&path("/VO/higgs")).and_then(|entry| entry.since);
    assert_eq!(since, Some(fairmesh_model::Date(20_000)));
}
