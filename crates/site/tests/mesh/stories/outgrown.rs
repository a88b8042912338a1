//! Usage that outgrows what one head may hold.

use std::collections::BTreeMap;
use std::ops::Range;

use fairmesh_model::{AccountPath, Counters, Millis};
use fairmesh_site::Notice;

use crate::ledger::{assert_same, sums};
use crate::mesh::Mesh;
use crate::vo::{DAY, HOUR, job, path, site_id, timing};

const SETTLE: Millis = Millis::from_secs(40);

/// How long each job has run.
const RAN: Millis = HOUR.times(36);

/// The longest name that an account of a group may have.
fn user(number: u32) -> String {
    format!("{number:0>500}")
}

/// A job of 36 hours of each of these users is reported.
fn report(mesh: &mut Mesh, users: Range<u32>) {
    let end = mesh.now(0).wall;
    let ran = (end.before(RAN), end);
    let record = |number| job(format!("{number}"), "grid", "g0", &user(number), ran, 1);
    let records: Vec<_> = users.map(record).collect();
    let reported = mesh.report(0, &records).expect("answered");
    assert_eq!(reported.counted, records.len() as u64);
}

/// What a node counts of this day.
fn newest(mesh: &Mesh, node: usize) -> BTreeMap<AccountPath, Counters> {
    let today = u32::try_from(mesh.now(node).wall.0 / DAY.0).expect("a day");
    let known = mesh.nodes[node]
        .site
        .known_usage_in(mesh.vo, &(today..today + 1));
    let mut sums: BTreeMap<AccountPath, Counters> = BTreeMap::new();
    let name = |path: &str| AccountPath::parse(path).ok();
    known.each(name, |_, path, counters| {
        let sum = sums.entry(path).or_default();
        *sum = sum.plus(counters);
    });
    sums
}

/// The other node has taken all heads of the first one, which hold the newest usage whole and not all of the oldest.
fn assert_only_the_oldest_is_missing(mesh: &mut Mesh) {
    mesh.drain();
    let vectors = [0, 1].map(|node| mesh.nodes[node].site.vectors()[&mesh.vo].clone());
    assert_eq!(vectors[0], vectors[1]);
    let of_first = vectors[1].keys().filter(|head| head.site == site_id(0));
    assert_eq!(of_first.count(), 1, "it has covered the one before");
    assert_eq!(newest(mesh, 0), newest(mesh, 1));
    let of_last = |node| sums(mesh, node)[&path(&format!("/g0/{}", user(3_999)))].0;
    assert_eq!(of_last(0), RAN.0);
    assert!((RAN.0 - 6 * HOUR.0..RAN.0).contains(&of_last(1)));
    // Some may have had to wait, but nothing was wrong with any.
    assert!(!mesh.noticed(1, |of| matches!(of, Notice::Refused { .. })));
}

#[test]
fn a_site_that_outgrows_a_head_leaves_out_its_oldest_usage_and_says_so_and_others_take_the_rest() {
    let mut mesh = Mesh::found_with(1, 2, timing(), |charter| {
        charter
            .sites
            .iter_mut()
            .for_each(|site| site.cores = 10_000);
    });
    let is_over = |notice: &Notice| matches!(notice, Notice::OverBudget { .. });
    // 466,000 rows, by the length of the names.
    report(&mut mesh, 0..3_200);
    mesh.run(SETTLE);
    assert_same(&mut mesh);
    assert!(!mesh.noticed(0, is_over));
    // And 583,000.
    report(&mut mesh, 3_200..4_000);
    mesh.run(SETTLE);
    assert!(mesh.noticed(0, is_over));
    assert_only_the_oldest_is_missing(&mut mesh);
    mesh.nodes[0].notices.clear();
    mesh.restart(0);
    mesh.run(SETTLE);
    assert_only_the_oldest_is_missing(&mut mesh);
    assert!(mesh.noticed(0, is_over));
    assert!(!mesh.noticed(0, |notice| matches!(notice, Notice::BadRow { .. })));
}
