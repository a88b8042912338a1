//! What a share policy says of history: accounts without a line, former paths, periods.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Date, Millis, ShareEntry, SharePolicy, WallTime, Weight};

use crate::ledger::{Ledger, assert_converged};
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::{DAY, path, policy, sign_policy};

/// The day of a moment.
fn day(moment: WallTime) -> Date {
    Date(u32::try_from(moment.0 / DAY.0).expect("a day"))
}

/// The weighted usage of an entry that all sites count, in core-ms × 2^-32.
fn usage(mesh: &Mesh, entry: &str) -> u128 {
    let view = mesh.nodes[0].site.view();
    let entry = view.reader().entry(&path(entry)).expect("an entry");
    view.reader().sums(entry).global
}

/// What each site has used of an entry, by the explanation of its sum.
fn parts(mesh: &Mesh, entry: &str) -> u128 {
    let site = &mesh.nodes[0].site;
    let entry = path(entry);
    let usage = site.weighed_usage(std::slice::from_ref(&entry));
    let parts = usage.by_site(&entry, true, || true);
    parts.values().map(|part| part.weighted).sum()
}

fn shares(lines: &[(&str, ShareEntry)], mesh: &Mesh) -> SharePolicy {
    let lines = lines.iter();
    let shares: BTreeMap<AccountPath, ShareEntry> =
        lines.map(|(at, entry)| (path(at), entry.clone())).collect();
    SharePolicy {
        shares,
        ..policy(mesh.vo, 2, 80)
    }
}

#[test]
fn usage_without_a_line_of_a_former_path_and_of_before_a_period_counts_where_the_policy_says() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        (0..30).for_each(|round| drop(ledger.report(&mut mesh, round % 3)));
        mesh.tick_ms = 60_000;
        mesh.run(DAY);
        mesh.tick_ms = 1_000;
        (0..30).for_each(|round| drop(ledger.report(&mut mesh, round % 3)));
        mesh.run(Millis::from_secs(30));
        let old = ["/grid/g0", "/grid/g1", "/grid/g2"].map(|group| usage(&mesh, group));
        let today = day(mesh.now(0).wall);
        let weight = |share: u32| ShareEntry::of(Weight::whole(share));
        let lines = [
            // Renamed; of its users one has a line.
            (
                "/top",
                ShareEntry {
                    was: [path("/g0")].into(),
                    ..weight(3)
                },
            ),
            ("/top/u0", weight(1)),
            ("/top/*", weight(1)),
            // What was used yesterday does not count.
            (
                "/g1",
                ShareEntry {
                    since: Some(today),
                    ..weight(1)
                },
            ),
        ];
        let signed = sign_policy(shares(&lines, &mesh));
        assert!(mesh.publish(1, &signed).is_ok());
        mesh.run(Millis::from_secs(60));
        // Weights are those of the hour, which may have passed meanwhile: at most a thirty-fourth of a half-life.
        let about = |now: u128, then: u128| now <= then && now * 100 >= then * 97;
        assert!(about(usage(&mesh, "/grid/top"), old[0]));
        let listed = usage(&mesh, "/grid/top/u0");
        assert_eq!(
            usage(&mesh, "/grid/top"),
            listed + usage(&mesh, "/grid/top/*")
        );
        let since_today = usage(&mesh, "/grid/g1");
        assert!(
            0 < since_today && since_today * 10 < old[1] * 9,
            "{since_today} of {}",
            old[1]
        );
        // The group that lost its line is among the others of the VO.
        assert!(about(usage(&mesh, "/grid/*"), old[2]));
        for entry in ["/grid/top", "/grid/top/*", "/grid/g1", "/grid/*"] {
            assert_eq!(parts(&mesh, entry), usage(&mesh, entry), "{entry}");
        }
        assert_converged(&mut mesh, &ledger);
    });
}
