//! Faults of documents, of membership and of configurations.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::ensure;

use super::fault::{Fault, Place, Report, nothing};
use super::machines::{new_stranger, refusal};
use super::mesh::{HUB, Mesh, STRANGER, name};

const ALL: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "site-removed",
        done: "the next charter does not list s08",
        prepare: nothing,
        inject: |mesh| {
            let removed = mesh.sites[8].id;
            mesh.vo
                .renew(|charter| charter.sites.retain(|member| member.site != removed))?;
            publish(mesh, 8)
        },
        fix: |mesh| {
            let id = mesh.sites[8].id;
            mesh.vo.renew(|charter| {
                let mut member = charter.sites[9].clone();
                (member.site, member.name) = (id, name(8));
                member.addresses.clear();
                charter.sites.insert(8, member);
            })?;
            publish(mesh, 8)
        },
        reports: &[Report::status(
            &[8],
            &["not-a-member"],
            "does not list this site",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "unlisted-site",
        done: "a node that the charter does not list calls the hub; its operator has handed it the charter",
        prepare: nothing,
        inject: |mesh| {
            new_stranger(mesh, &[HUB])?;
            mesh.run(STRANGER)?;
            mesh.hand_in_charters(STRANGER)
        },
        fix: |mesh| mesh.stop(STRANGER),
        reports: &[Report::status(
            &[STRANGER],
            &["not-a-member"],
            "does not list this site",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "charter-missing",
        done: "a new site has the id of the VO, and nobody whom it could ask for the charter",
        prepare: nothing,
        inject: |mesh| {
            new_stranger(mesh, &[])?;
            mesh.run(STRANGER)
        },
        fix: |mesh| mesh.stop(STRANGER),
        reports: &[Report::status(
            &[STRANGER],
            &["charter-missing"],
            "its charter has not been received",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "bad-signature",
        done: "the next charter, signed by another key, is published at s04",
        prepare: nothing,
        inject: |mesh| {
            let file = mesh.path("bad.cbor");
            fs::write(&file, mesh.vo.forged()?)?;
            let mut publish = mesh.command(4);
            publish.args(["policy", "publish"]).arg(file);
            mesh.answer = refusal(publish)?;
            Ok(())
        },
        fix: nothing,
        reports: &[Report::words(Place::Command, &[4], "signature")],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "bad-reload",
        done: "the configuration of s04 gets an unknown key, and the node is reloaded (SIGHUP)",
        prepare: nothing,
        inject: |mesh| {
            let file = mesh.sites[4].config();
            let text = fs::read_to_string(&file)?;
            fs::write(&file, text.replace("[network]", "[network]\nnonsense = 1"))?;
            mesh.node(4)?.reload()
        },
        fix: |mesh| {
            mesh.configure(4, &[HUB])?;
            mesh.node(4)?.reload()
        },
        reports: &[Report::status(&[4], &["reload-rejected"], "nonsense")],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "over-capacity",
        done: "s03 has reported more than the CPUs of the next charter can have run",
        prepare: |mesh| report(mesh, 3, "physics", 100, 1_000, 1),
        inject: |mesh| cores(mesh, 3, 1),
        fix: |mesh| cores(mesh, 3, 100_000),
        reports: &[Report::status(ALL, &["over-capacity"], "s03")],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "job-refused",
        done: "a job of s04 held more CPUs than the charter gives the site",
        prepare: nothing,
        inject: |mesh| report(mesh, 4, "physics", 1, 1, 200_000),
        fix: |mesh| cores(mesh, 4, 1_000_000),
        reports: &[Report::status(
            &[4],
            &["records-refused"],
            "the node refused 1 job",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "unmapped",
        done: "a job of s04 is of an account that no identity rule maps",
        prepare: nothing,
        inject: |mesh| report(mesh, 4, "elsewhere", 1, 1, 1),
        fix: nothing,
        reports: &[Report {
            at: &[4],
            place: Place::Doctor,
            codes: &["unmapped"],
            text: "no identity rule maps 1 origin",
        }],
        may: &[],
        restarts: &[],
    },
];

/// Hands the newest documents to the hub and to a site that may not hear of them otherwise.
fn publish(mesh: &Mesh, site: usize) -> anyhow::Result<()> {
    mesh.vo.publish(mesh.node(HUB)?)?;
    mesh.vo.publish(mesh.node(site)?)
}

/// Signs and publishes a charter with so many CPUs of a site.
fn cores(mesh: &mut Mesh, site: usize, cores: u32) -> anyhow::Result<()> {
    let id = mesh.sites[site].id;
    mesh.vo.renew(|charter| {
        let member = charter.sites.iter_mut().find(|member| member.site == id);
        member.expect("it is listed").cores = cores;
    })?;
    mesh.vo.publish(mesh.node(HUB)?)
}

/// Reports jobs that ended a minute ago.
fn report(
    mesh: &mut Mesh,
    site: usize,
    account: &str,
    count: u64,
    seconds: u64,
    cores: u64,
) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let (start, end) = (now - 60 - seconds, now - 60);
    let line = |job: u64| {
        format!(
            "{{\"cluster\":\"faults\",\"job\":\"{now}.{job}\",\"user\":\"ann\",\"account\":\"{account}\",\
             \"start_ms\":{start}000,\"end_ms\":{end}000,\"cores\":{cores}}}\n"
        )
    };
    let lines: String = (0..count).map(line).collect();
    let answer = mesh
        .node(site)?
        .http("POST", "/v1/records", lines.as_bytes())?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(())
}
