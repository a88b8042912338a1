//! What is local stays local, and VOs come and go at run time.

use fairmesh_model::Millis;
use fairmesh_site::Event;

use crate::ledger::Ledger;
use crate::mesh::Mesh;
use crate::vo::{self, HOUR, job, sign_charter, timing};

const SECRET: &str = "zz-secret-group";

#[test]
fn nothing_of_a_local_account_ever_leaves_the_site() {
    let (mut mesh, mut ledger) = (Mesh::found(1, 3), Ledger::default());
    for round in 0..10 {
        let end = mesh.now(0).wall;
        let ran = (end.before(HOUR), end);
        let secret = job(
            format!("s{round}"),
            "local",
            SECRET,
            "zz-secret-user",
            ran,
            3,
        );
        let stray = job(format!("n{round}"), "zz-secret-account", "g", "u", ran, 3);
        mesh.report(0, &[secret, stray]).expect("acknowledged");
        ledger.report(&mut mesh, 0);
        mesh.run(Millis::from_secs(10));
    }
    mesh.restart(0);
    mesh.restart_on(2, Default::default());
    mesh.run(Millis::from_secs(30));
    let total: u64 = mesh.nodes[0]
        .site
        .usage_by_account(None)
        .values()
        .map(|sum| sum.charge)
        .sum();
    assert_eq!(total, 2 * 10 * 3 * HOUR.0);
    let sent = &mesh.nodes[0].sent;
    assert!(sent.len() > 10);
    for bytes in sent {
        let leaks = bytes.windows(9).any(|window| window == b"zz-secret");
        assert!(!leaks, "a local name left the site");
    }
}

#[test]
fn a_vo_that_is_added_at_run_time_takes_part() {
    let (mut mesh, mut ledger) = (Mesh::found(1, 3), Ledger::default());
    let second = sign_charter(vo::charter("second", 3));
    let introducers = mesh.nodes[0].config.introducers.clone();
    let config = vo::config(
        &[("grid", mesh.vo), ("second", second.vo())],
        introducers,
        timing(),
    );
    for node in 0..3 {
        mesh.nodes[node].config = config.clone();
        mesh.handle(node, Event::Reconfigured(Box::new(config.clone())));
    }
    assert!(mesh.publish(1, second.bytes()).is_ok());
    mesh.run(Millis::from_secs(30));
    let end = mesh.now(2).wall;
    let record = job("two", "second", "g0", "u0", (end.before(HOUR), end), 4);
    mesh.report(2, &[record]).expect("acknowledged");
    ledger.report(&mut mesh, 2);
    mesh.run(Millis::from_secs(30));
    for node in 0..3 {
        let site = &mesh.nodes[node].site;
        let sums = site.usage_by_account(Some(second.vo()));
        assert_eq!(sums.values().map(|sum| sum.charge).sum::<u64>(), 4 * HOUR.0);
        assert_eq!(crate::ledger::sums(&mesh, node), ledger.sums);
        assert_eq!(
            site.view_digest(second.vo()),
            mesh.nodes[0].site.view_digest(second.vo())
        );
    }
}
