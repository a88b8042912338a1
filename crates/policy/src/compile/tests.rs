use super::*;
use crate::plan::{PlanKind, plan};
use crate::site_policy::{SiteEntry, SitePolicy};
use crate::testing::*;
use crate::tree_file::parse_tree;

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

#[test]
fn the_owner_caps_weighs_and_drops() {
    for (more, expected) in [
        (
            "cap = 25",
            vec!["/VO-A 25 Local /", "/VO-A/x 100 Global /x"],
        ),
        (
            "weight = 50",
            vec!["/VO-A 30 Local /", "/VO-A/x 100 Global /x"],
        ),
        ("drop = true", vec![]),
        (
            "drop = false",
            vec!["/VO-A 60 Local /", "/VO-A/x 100 Global /x"],
        ),
    ] {
        let text = format!("[shares]\n\"/VO-A\" = {{ share = 60, mount = \"vo-a\", {more} }}");
        let tree = compile(&site(&text), &mounts(&[("/x", 100)]));
        assert_eq!(lines(&tree), expected, "{more}");
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
        vo.entries[0].at_most = percent(most);
        compile(&site(text), &BTreeMap::from([("vo-a".to_owned(), vo)]))
    };
    let owner = |most: &str| {
        format!(
            "[shares]\n\"/a\" = {{ share = 30, mount = \"vo-a\", cap = 20{most} }}\n\"/b\" = 70"
        )
    };
    let before = tree(&owner(", at_most = 40"), 60);
    let limits = before.entries.iter().map(|entry| entry.at_most);
    let expected = [40, 60, 100].map(percent);
    assert_eq!(limits.collect::<Vec<_>>(), expected);
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
