//! Who maps nowhere is kept, counted against the root, and listed.

use fairmesh_fairshare::EntryId;
use fairmesh_model::Millis;

use crate::mesh::Mesh;
use crate::vo::{HOUR, job};

#[test]
fn an_unmapped_user_is_kept_and_listed_also_after_a_restart() {
    let mut mesh = Mesh::found(1, 2);
    let end = mesh.now(0).wall;
    let record = job(
        "stray",
        "nobody-knows",
        "g0",
        "eve",
        (end.before(HOUR), end),
        2,
    );
    let reported = mesh
        .report(0, std::slice::from_ref(&record))
        .expect("acknowledged");
    assert_eq!((reported.counted, reported.unmapped), (1, 1));
    for _ in 0..2 {
        let site = &mesh.nodes[0].site;
        let listed: Vec<_> = site
            .unmapped()
            .map(|(origin, n, charge, _)| (origin.clone(), n, charge))
            .collect();
        assert_eq!(listed, [(record.origin.clone(), 1, 2 * HOUR.0)]);
        assert_eq!(site.view().resolve(&record.origin), None);
        let at_root = site.view().reader().sums(EntryId::ROOT).local;
        assert_eq!(at_root, u128::from(2 * HOUR.0) << 32);
        let charge: u64 = site
            .usage_by_account(None)
            .values()
            .map(|sum| sum.charge)
            .sum();
        assert_eq!(charge, 2 * HOUR.0);
        mesh.restart(0);
        mesh.run(Millis::from_secs(10));
    }
    assert_eq!(mesh.report(0, &[record]).expect("acknowledged").known, 1);
}
