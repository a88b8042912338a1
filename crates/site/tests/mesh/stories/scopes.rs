//! By whose usage a level is compared is said by the entry above it.

use fairmesh_fairshare::explain::levels;
use fairmesh_model::{Distance, HistoryRule, Millis, Scope};

use crate::ledger::{Ledger, assert_converged};
use crate::mesh::Mesh;
use crate::vo::{HOUR, job, path, policy, sign_policy, timing};

/// Usage in the level of an entry, its own and its parent's, core-hours; and the distance.
fn level(mesh: &Mesh, node: usize, at: &str) -> (u128, u128, Distance) {
    let snapshot = mesh.nodes[node].site.snapshot();
    let entry = mesh.nodes[node].site.view().reader().entry(&path(at));
    let level = levels(&snapshot, entry.expect("an entry")).pop();
    let level = level.expect("it is not the root");
    let hours = |usage: u128| usage / u128::from(HOUR.0);
    (
        hours(level.usage),
        hours(level.parent_usage),
        level.distance,
    )
}

#[test]
fn a_local_level_of_a_vo_counts_each_sites_own_usage_and_the_view_stays_one() {
    let mut mesh = Mesh::found_with(1, 3, timing(), |charter| {
        charter.history = HistoryRule::None { horizon: 240 };
    });
    let mut ledger = Ledger::default();
    let mut says = policy(mesh.vo, 2, 50);
    says.usage = Some(Scope::Local);
    let group = says.shares.get_mut(&path("/g1")).expect("an entry");
    (group.usage, group.distance) = (Some(Scope::Global), Some(Distance::Relative));
    assert!(mesh.publish(1, &sign_policy(says)).is_ok());
    for (node, cores) in [(0, 10), (1, 20), (2, 40)] {
        let end = mesh.now(node).wall;
        let record = job("j", "grid", "g1", "u0", (end.before(HOUR), end), cores);
        mesh.report(node, std::slice::from_ref(&record))
            .expect("acknowledged");
        ledger.count(&record);
    }
    mesh.run(Millis::from_secs(60));
    for (node, cores) in [(0, 10), (1, 20), (2, 40)] {
        let absolute = Distance::Absolute;
        assert_eq!(level(&mesh, node, "/grid/g1"), (cores, cores, absolute));
        assert_eq!(level(&mesh, node, "/grid/g0/u0"), (0, 0, absolute));
        assert_eq!(
            level(&mesh, node, "/grid/g1/u0"),
            (70, 70, Distance::Relative)
        );
    }
    assert_converged(&mut mesh, &ledger);
}
