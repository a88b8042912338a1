//! Faults of networks and of nodes that are away.

use std::process::Command;

use super::fault::{Fault, Report, nothing};
use super::mesh::{HUB, Mesh, SITES, name};
use crate::namespaces::host;

/// The first half of the mesh if it is parted: the hub, and who reaches only the hub.
const HALF: &[usize] = &[0, 1, 2, 3, 10, 11];
const OTHER_HALF: &[usize] = &[4, 5, 6, 7, 8, 9];

/// An address in the network that no machine has.
const NOBODY: &str = "10.77.0.200";

const UNREACHABLE: &[&str] = &["peer-unreachable"];
/// Of several peers some only call out.
const SEVERAL: &[&str] = &["peer-unreachable", "peer-without-address"];

/// The connections of a site that is cut off end one by one.
const CUT_OFF: &[&str] = &["alone", "peer-unreachable", "peer-without-address"];

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "peer-killed",
        done: "SIGKILL for the node of s03",
        prepare: nothing,
        inject: |mesh| mesh.kill(3),
        fix: |mesh| mesh.run(3),
        reports: &[Report::status(
            &[0, 1, 2, 4, 5, 6, 7, 8, 9],
            UNREACHABLE,
            "s03 is not reachable",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "peer-stopped",
        done: "SIGSTOP for the node of s04",
        prepare: nothing,
        inject: |mesh| {
            mesh.away.insert(4);
            signal(mesh, 4, "-STOP")
        },
        fix: |mesh| {
            mesh.away.remove(&4);
            signal(mesh, 4, "-CONT")
        },
        reports: &[Report::status(
            &[0, 1, 2, 3, 5, 6, 7, 8, 9],
            &["peer-unreachable", "peer-silent"],
            "s04 is ",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "caller-killed",
        done: "SIGKILL for the node of s11, which only calls out",
        prepare: nothing,
        inject: |mesh| mesh.kill(11),
        fix: |mesh| mesh.run(11),
        reports: &[Report::status(
            &[HUB],
            &["peer-without-address"],
            "s11 is not connected",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "firewall",
        done: "all packets between s03 and s05 are dropped",
        prepare: nothing,
        inject: |mesh| firewall(mesh, true),
        fix: |mesh| firewall(mesh, false),
        reports: &[
            Report::status(
                &[3],
                &["peer-unreachable", "peer-through-others"],
                "s05 is not",
            ),
            Report::status(
                &[5],
                &["peer-unreachable", "peer-through-others"],
                "s03 is not",
            ),
        ],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "half-open",
        done: "the machine of s05 loses its power: no packet ends its connections",
        prepare: nothing,
        inject: |mesh| {
            mesh.namespaces.cut(5)?;
            mesh.kill(5)
        },
        fix: |mesh| {
            mesh.namespaces.part(5, false)?;
            mesh.run(5)
        },
        reports: &[Report::status(
            &[0, 1, 2, 3, 4, 6, 7, 8, 9],
            UNREACHABLE,
            "s05 is not reachable",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "mtu",
        done: "packets above 1,000 bytes of s11 are dropped; its node is started again and misses a large head",
        prepare: nothing,
        inject: |mesh| {
            mesh.stop(11)?;
            mesh.report_crowd(HUB)?;
            mesh.namespaces.limit_packets(11, 1_000)?;
            mesh.run(11)
        },
        fix: |mesh| mesh.namespaces.limit_packets(11, 1_500),
        // The hub misses nothing, and for it the connections of s11 only end and come back.
        reports: &[Report::status(
            &[11],
            &["peer-never-exchanged"],
            "s00 accepts connections, and no exchange has ended",
        )],
        may: &[],
        restarts: &[11],
    },
    Fault {
        name: "dns-gone",
        done: "the hub's name is no longer in DNS; the node of s11 is started again",
        prepare: nothing,
        inject: |mesh| {
            mesh.set_hub_address(None)?;
            restart(mesh, 11)
        },
        fix: |mesh| mesh.set_hub_address(Some(&host(HUB))),
        reports: &[
            Report::status(
                &[11],
                &["alone", "peer-unreachable"],
                "DNS has no address for hub.grid.test",
            ),
            Report::status(&[HUB], &["peer-without-address"], "s11 is not connected"),
        ],
        may: &[],
        restarts: &[11],
    },
    Fault {
        name: "dns-elsewhere",
        done: "the hub's name leads to an address of no machine; the node of s11 is started again",
        prepare: nothing,
        inject: |mesh| {
            mesh.set_hub_address(Some(NOBODY))?;
            restart(mesh, 11)
        },
        fix: |mesh| mesh.set_hub_address(Some(&host(HUB))),
        reports: &[
            Report::status(&[11], &["alone", "peer-unreachable"], " reachable"),
            Report::status(&[HUB], &["peer-without-address"], "s11 is not connected"),
        ],
        may: &[],
        restarts: &[11],
    },
    Fault {
        name: "other-key",
        done: "at the address of s07 a node with another key runs",
        prepare: nothing,
        inject: |mesh| {
            mesh.stop(7)?;
            let stranger = super::machines::other_key(mesh, 7)?;
            mesh.twin = Some(stranger);
            Ok(())
        },
        fix: |mesh| {
            mesh.twin = None;
            mesh.run(7)
        },
        reports: &[Report::status(
            &[0, 1, 2, 3, 4, 5, 6, 8, 9],
            &["peer-other-key"],
            "s07 is not reachable",
        )],
        may: &[],
        restarts: &[7],
    },
    Fault {
        name: "hub-down",
        done: "SIGKILL for the node of the hub, the only site that s10 and s11 reach",
        prepare: nothing,
        inject: |mesh| mesh.kill(HUB),
        fix: |mesh| mesh.run(HUB),
        reports: &[
            Report::status(
                &[1, 2, 3, 4, 5, 6, 7, 8, 9],
                UNREACHABLE,
                "s00 is not reachable",
            ),
            Report::status(&[10, 11], &["alone"], "no other site is reachable"),
        ],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "partition-6-6",
        done: "the network falls apart: s04 to s09 on one side, the others on the other side",
        prepare: nothing,
        inject: |mesh| part(mesh, OTHER_HALF, true),
        fix: |mesh| part(mesh, OTHER_HALF, false),
        reports: &[
            Report::status(&[0, 1, 2, 3], SEVERAL, ""),
            Report::status(OTHER_HALF, SEVERAL, ""),
        ],
        may: HALF,
        restarts: &[],
    },
    Fault {
        name: "partition-1-11",
        done: "s07 is cut off from all others",
        prepare: nothing,
        inject: |mesh| part(mesh, &[7], true),
        fix: |mesh| part(mesh, &[7], false),
        reports: &[
            Report::status(&[7], CUT_OFF, ""),
            Report::status(
                &[0, 1, 2, 3, 4, 5, 6, 8, 9],
                UNREACHABLE,
                "s07 is not reachable",
            ),
        ],
        may: &[],
        restarts: &[],
    },
];

fn signal(mesh: &Mesh, site: usize, signal: &str) -> anyhow::Result<()> {
    let pid = mesh.node(site)?.pid().to_string();
    let status = Command::new("kill").args([signal, &pid]).status()?;
    anyhow::ensure!(status.success(), "{}: {status}", name(site));
    Ok(())
}

fn restart(mesh: &mut Mesh, site: usize) -> anyhow::Result<()> {
    mesh.stop(site)?;
    mesh.run(site)
}

fn firewall(mesh: &mut Mesh, on: bool) -> anyhow::Result<()> {
    mesh.namespaces.block(3, &host(5), on)?;
    mesh.namespaces.block(5, &host(3), on)
}

/// Moves sites to the other side, or back.
fn part(mesh: &mut Mesh, sites: &[usize], on: bool) -> anyhow::Result<()> {
    debug_assert!(sites.iter().all(|site| *site < SITES));
    sites
        .iter()
        .try_for_each(|site| mesh.namespaces.part(*site, on))
}
