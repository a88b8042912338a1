//! Faults of what brings job records to a node.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::fault::{Fault, Place, Report, nothing};
use super::machines::refusal;
use super::mesh::{FOLLOWS, Mesh, SLURM};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "feed-dead",
        done: "SIGKILL for `fairmesh slurm feed` of s01",
        prepare: nothing,
        inject: |mesh| {
            mesh.feed = None;
            Ok(())
        },
        fix: Mesh::start_feed,
        reports: &[Report::status(
            &[SLURM],
            &["loop-silent"],
            "slurm feed has not reported",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "feed-stuck",
        done: "SIGSTOP for `fairmesh slurm feed` of s01",
        prepare: nothing,
        inject: |mesh| signal(mesh, "-STOP"),
        fix: |mesh| signal(mesh, "-CONT"),
        reports: &[Report::status(
            &[SLURM],
            &["loop-silent"],
            "slurm feed has not reported",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "feed-behind",
        done: "`squeue` of s01 hangs",
        prepare: nothing,
        inject: |mesh| slurm(mesh, "hangs", true),
        fix: |mesh| slurm(mesh, "hangs", false),
        reports: &[Report::status(
            &[SLURM],
            &["loop-behind", "loop-failing"],
            "slurm feed",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "slurmdbd-away",
        done: "slurmdbd of s01 does not answer",
        prepare: nothing,
        inject: |mesh| slurm(mesh, "dbd-away", true),
        fix: |mesh| slurm(mesh, "dbd-away", false),
        reports: &[Report::status(
            &[SLURM],
            &["source-away"],
            "slurmdbd does not answer",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "slurmctld-away",
        done: "slurmctld of s01 does not answer",
        prepare: nothing,
        inject: |mesh| slurm(mesh, "ctld-away", true),
        fix: |mesh| slurm(mesh, "ctld-away", false),
        reports: &[Report::status(
            &[SLURM],
            &["loop-failing"],
            "Unable to contact slurm controller",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "bad-records",
        done: "a line that is no record comes to the file that `report --follow` of s02 reads",
        prepare: nothing,
        inject: |mesh| {
            let mut file = File::options().append(true).open(mesh.followed(FOLLOWS))?;
            Ok(file.write_all(b"no record\n")?)
        },
        fix: |mesh| {
            let mut rejects = mesh.followed(FOLLOWS).into_os_string();
            rejects.push(".rejects");
            Ok(fs::remove_file(rejects)?)
        },
        reports: &[Report::status(
            &[FOLLOWS],
            &["rejects-wait"],
            "1 reject waits",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "unknown-format",
        done: "a file of no known format is reported at s02",
        prepare: nothing,
        inject: |mesh| {
            let file = mesh.path("strange");
            fs::write(&file, "no list\nof jobs\n")?;
            let mut report = mesh.command(FOLLOWS);
            report.arg("report").arg(file);
            mesh.answer = refusal(report)?;
            Ok(())
        },
        fix: nothing,
        reports: &[Report::words(
            Place::Command,
            &[FOLLOWS],
            "the format cannot be recognised",
        )],
        may: &[],
        restarts: &[],
    },
];

fn signal(mesh: &Mesh, signal: &str) -> anyhow::Result<()> {
    let feed = mesh.feed.as_ref().context("the feed")?;
    let pid = feed.0.id().to_string();
    let status = Command::new("kill").args([signal, &pid]).status()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Makes or removes a file that a script of the Slurm looks for.
fn slurm(mesh: &mut Mesh, file: &str, on: bool) -> anyhow::Result<()> {
    let file = mesh.path("slurm").join(file);
    match on {
        true => fs::write(file, "")?,
        false => fs::remove_file(file)?,
    }
    Ok(())
}
