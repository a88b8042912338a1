//! Who pays for a job by all of its words, and where people of one name may pay for each other.

use std::collections::BTreeSet;

use fairmesh_model::Millis;
use fairmesh_site::{Account, Event, IdentityMap, Pattern, Rule};

use crate::mesh::Mesh;
use crate::vo::{HOUR, job, path, site_id};

#[test]
fn accounts_that_this_site_and_another_one_charge_are_found() {
    let mut mesh = Mesh::found(1, 3);
    let end = mesh.now(0).wall;
    let ran = (end.before(HOUR), end);
    for (node, name, user) in [
        (0, "both-0", "jsmith"),
        (1, "both-1", "jsmith"),
        (0, "own", "ann"),
        // The owner of site 0 can do nothing about them.
        (1, "others-1", "bob"),
        (2, "others-2", "bob"),
    ] {
        let reported = mesh.report(node, &[job(name, "grid", "g0", user, ran, 1)]);
        assert_eq!(reported.expect("acknowledged").counted, 1);
    }
    mesh.run(Millis::from_secs(40));
    let site = &mesh.nodes[0].site;
    let view = site.view();
    let account = |path: &fairmesh_model::AccountPath| Account {
        vo: Some(mesh.vo),
        path: path.clone(),
    };
    let known = site.known_usage(Some(mesh.vo));
    let found = known.of_several_sites(|path| view.may_mix_namesakes(&account(path)));
    let sites = BTreeSet::from([site_id(0), site_id(1)]);
    assert_eq!(Vec::from_iter(found), [(path("/g0/jsmith"), sites)]);
    let stated = known.of_several_sites(|_| false);
    assert!(stated.is_empty());
}

#[test]
fn jobs_of_one_user_in_one_report_are_charged_by_their_queues() {
    let mut mesh = Mesh::found(1, 2);
    let mut config = mesh.nodes[0].config.clone();
    let rule = |queue: Option<&str>, qos: Option<&str>, path: &str| Rule {
        queue: queue.map(Pattern::parse),
        qos: qos.map(Pattern::parse),
        vo: Some(mesh.vo),
        path: path.to_owned(),
        ..Rule::default()
    };
    let rules = vec![
        rule(Some("gpu*"), None, "/gpu/{user}"),
        rule(None, Some("urgent"), "/urgent/{user}"),
        rule(None, None, "/g0/{user}"),
    ];
    config.identity = IdentityMap::new(rules);
    mesh.handle(0, Event::Reconfigured(Box::new(config)));
    let end = mesh.now(0).wall;
    let ran = (end.before(HOUR), end);
    let placed = |name: &str, queue: Option<&str>, qos: Option<&str>| {
        let mut record = job(name, "grid", "g0", "u0", ran, 1);
        record.placement.queue = queue.map(str::to_owned);
        record.placement.qos = qos.map(str::to_owned);
        record
    };
    let records = [
        placed("1", Some("gpu-long"), Some("urgent")),
        placed("2", Some("cpu"), Some("urgent")),
        placed("3", None, None),
    ];
    assert_eq!(mesh.report(0, &records).expect("acknowledged").counted, 3);
    let used = mesh.nodes[0].site.usage_by_account(Some(mesh.vo));
    let used: Vec<_> = used
        .iter()
        .map(|(path, of)| (path.as_str(), of.net()))
        .collect();
    assert_eq!(
        used,
        [
            ("/g0/u0", HOUR.0),
            ("/gpu/u0", HOUR.0),
            ("/urgent/u0", HOUR.0)
        ]
    );
}

/// Members know of no usage of this site's own accounts, so none of it counts in their VO.
#[test]
fn usage_of_no_vo_counts_in_no_vos_tree_and_a_path_too_long_counts_as_near_as_it_can() {
    let mesh = Mesh::found(1, 2);
    let view = mesh.nodes[0].site.view();
    let place = |vo, at: &str| {
        let account = Account { vo, path: path(at) };
        view.reader().path(view.locate(&account).entry).to_string()
    };
    assert_eq!(place(None, "/grid/g0/u0"), "/*");
    assert_eq!(place(None, "/grid"), "/*");
    assert_eq!(place(Some(mesh.vo), "/g0/u0"), "/grid/g0/u0");
    let deep = format!("/g0/u0{}", "/x".repeat(14));
    assert_eq!(place(Some(mesh.vo), &deep), "/grid/g0/u0");
}
