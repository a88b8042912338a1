//! Faults of a machine: its disk, its log, its clock, its files and its key.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::fault::{Fault, Place, Report, nothing};
use super::mesh::{FOLLOWS, HUB, LOGS, Mesh, STRANGER};
use crate::{Node, Site};

/// A disk in memory gives out whole pages.
const PAGE_BYTES: u64 = 4_096;

/// A clock that is an hour ahead while a file is there, for a program that is linked with the C library.
const CLOCK: &str = "#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, \"clock_gettime\");
    int result = real(id, at);
    if (id == CLOCK_REALTIME && access(getenv(\"AHEAD\"), F_OK) == 0) at->tv_sec += 3600;
    return result;
}
";

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "disk-full",
        done: "the disk of s02's data folder is filled",
        prepare: nothing,
        inject: |mesh| mesh.disks[0].fill(0),
        fix: |mesh| mesh.disks[0].make_room(),
        reports: &[Report::status(&[FOLLOWS], &["disk-full", "disk-low"], "")],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "disk-read-only",
        done: "the disk of s02's data folder is read-only when its node starts",
        prepare: nothing,
        inject: |mesh| {
            mesh.kill(FOLLOWS)?;
            mesh.disks[0].write_protect(true)?;
            mesh.run(FOLLOWS)
        },
        fix: |mesh| {
            mesh.disks[0].write_protect(false)?;
            // The node's own view of the mounts is of its start.
            let pid = mesh.node(FOLLOWS)?.pid().to_string();
            let mut enter = Command::new("nsenter");
            enter.args(["-t", &pid, "-m", "mount", "-o", "remount,rw"]);
            let status = enter.arg(mesh.sites[FOLLOWS].data()).status()?;
            ensure!(status.success(), "{status}");
            Ok(())
        },
        reports: &[Report::status(
            &[FOLLOWS],
            &["disk-full"],
            "the disk is read-only",
        )],
        may: &[],
        restarts: &[FOLLOWS],
    },
    Fault {
        name: "log-full",
        done: "the disk of s06's log is filled, and the node logs a new charter",
        prepare: nothing,
        inject: |mesh| {
            // The last page of the log has no room either.
            let size = fs::metadata(mesh.log(LOGS))?.len();
            let rest = usize::try_from(PAGE_BYTES - size % PAGE_BYTES)?;
            let mut log = File::options().append(true).open(mesh.log(LOGS))?;
            log.write_all(&vec![b'\n'; rest])?;
            mesh.disks[1].fill(0)?;
            renew(mesh)
        },
        fix: |mesh| mesh.disks[1].make_room(),
        reports: &[Report::status(
            &[LOGS],
            &["log-unwritten"],
            "No space left on device",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "log-closed",
        done: "the reader of s06's log ends, and the node logs a new charter",
        prepare: |mesh| {
            mesh.stop(LOGS)?;
            let (reader, writer) = std::io::pipe()?;
            mesh.reader = Some(reader);
            let command = mesh.within(LOGS, &mesh.program);
            mesh.run_by(LOGS, command, writer.into())
        },
        inject: |mesh| {
            mesh.reader = None;
            renew(mesh)
        },
        fix: |mesh| restart(mesh, LOGS),
        reports: &[Report::status(&[LOGS], &["log-unwritten"], "Broken pipe")],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "few-files",
        done: "s06 may open 64 files (`ulimit -n`), and a client takes all that are left",
        prepare: |mesh| {
            mesh.stop(LOGS)?;
            let mut few = mesh.within(LOGS, Path::new("sh"));
            few.args(["-c", "ulimit -n 64; exec \"$@\"", "sh"]);
            few.arg(&mesh.program);
            let log = File::options().append(true).open(mesh.log(LOGS))?;
            mesh.run_by(LOGS, few, log.into())
        },
        inject: |mesh| {
            mesh.away.insert(LOGS);
            let socket = mesh.sites[LOGS].socket()?;
            let take = |_| std::os::unix::net::UnixStream::connect(&socket);
            mesh.taken = (0..64).map(take).collect::<Result<_, _>>()?;
            Ok(())
        },
        fix: |mesh| {
            mesh.taken.clear();
            restart(mesh, LOGS)
        },
        reports: &[Report::words(
            Place::Log,
            &[LOGS],
            "cannot accept connections",
        )],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "clock-ahead",
        done: "the clock of s06 is set an hour ahead",
        prepare: |mesh| {
            mesh.stop(LOGS)?;
            let (source, library) = (mesh.path("clock.c"), mesh.path("clock.so"));
            fs::write(&source, CLOCK)?;
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-fPIC", "-o"])
                .arg(&library)
                .arg(&source);
            ensure!(cc.status()?.success(), "cc");
            let mut command = mesh.within(LOGS, Path::new("env"));
            command.arg(format!("AHEAD={}", mesh.path("ahead").display()));
            command.arg(format!("LD_PRELOAD={}", library.display()));
            command.arg(&mesh.program);
            let log = File::options().append(true).open(mesh.log(LOGS))?;
            mesh.run_by(LOGS, command, log.into())
        },
        inject: |mesh| Ok(fs::write(mesh.path("ahead"), "")?),
        fix: |mesh| Ok(fs::remove_file(mesh.path("ahead"))?),
        reports: &[
            Report::status(&[LOGS], &["own-clock-off"], "this machine's clock is off"),
            Report::status(&[0, 1, 2, 3, 4, 5, 7, 8, 9], &["clock-off"], "s06"),
        ],
        may: &[10, 11],
        restarts: &[],
    },
    Fault {
        name: "two-machines",
        done: "a copy of s05's machine runs with its key at another address",
        prepare: |mesh| {
            mesh.stop(5)?;
            let folder = mesh.path("clone");
            copy(mesh.sites[5].folder(), &folder)?;
            mesh.run(5)
        },
        inject: |mesh| {
            let program = mesh.program.to_str().context("the program's path")?;
            let clone = Site::at(program, &mesh.path("clone"))?;
            let config = fs::read_to_string(clone.config())?;
            let listens = config
                .lines()
                .find(|line| line.starts_with("listen = [\"/ip4"));
            let config = config.replace(listens.context("listen")?, "listen = []");
            fs::write(clone.config(), config)?;
            mesh.sites[STRANGER] = clone;
            mesh.run(STRANGER)
        },
        fix: |mesh| mesh.stop(STRANGER),
        reports: &[
            Report::status(&[0, 1, 2, 3, 4, 6, 7], &["site-twice"], "s05"),
            Report::status(&[5, STRANGER], &["site-twice"], "this site's key"),
        ],
        may: &[8, 9],
        restarts: &[],
    },
    Fault {
        name: "cloned-folder",
        done: "a data folder of s05 is started under another key",
        prepare: nothing,
        inject: |mesh| {
            new_stranger(mesh, &[HUB])?;
            copy(&mesh.sites[5].data(), &mesh.sites[STRANGER].data())?;
            let mut run = mesh.within(STRANGER, &mesh.program);
            run.args(["run", "--config"])
                .arg(mesh.sites[STRANGER].config());
            mesh.answer = refusal(run)?;
            Ok(())
        },
        fix: nothing,
        reports: &[Report::words(Place::Command, &[STRANGER], "exit 2: ")],
        may: &[],
        restarts: &[],
    },
    Fault {
        name: "wiped",
        done: "s09, which knows no peers but by its charter, loses its data folder",
        prepare: nothing,
        inject: |mesh| {
            mesh.kill(9)?;
            fs::remove_dir_all(mesh.sites[9].data())?;
            mesh.configure(9, &[])?;
            mesh.run(9)
        },
        fix: |mesh| {
            mesh.hand_in_charters(9)?;
            mesh.configure(9, &[HUB])
        },
        reports: &[
            Report::status(
                &[9],
                &["charter-missing"],
                "its charter has not been received",
            ),
            Report::status(
                &[0, 1, 2, 3, 4, 5, 6, 7],
                &["peer-without-address"],
                "s09 is not connected",
            ),
        ],
        may: &[],
        restarts: &[9],
    },
    Fault {
        name: "backup-restored",
        done: "s07 loses its disk and starts on a backup of before",
        prepare: |mesh| {
            mesh.stop(7)?;
            copy(&mesh.sites[7].data(), &mesh.path("backup"))?;
            mesh.run(7)?;
            // The site publishes usage that the backup does not have.
            mesh.pass(Duration::from_secs(40))
        },
        inject: |mesh| {
            mesh.kill(7)?;
            let data = mesh.sites[7].data();
            fs::remove_dir_all(&data)?;
            copy(&mesh.path("backup"), &data)?;
            mesh.run(7)
        },
        fix: nothing,
        reports: &[Report::event(
            &[7],
            &["counters-recovered"],
            "peers held counters of this site",
        )],
        may: &[],
        restarts: &[7],
    },
    Fault {
        name: "store-damaged",
        done: "a bit of s07's store flips while the node is stopped",
        prepare: |mesh| {
            mesh.stop(7)?;
            // What the flip is to meet is written at a stop.
            mesh.run(7)
        },
        inject: |mesh| {
            mesh.stop(7)?;
            let file = mesh.sites[7].data().join("store/jobs.recent");
            let mut bytes = fs::read(&file)?;
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            fs::write(&file, bytes)?;
            mesh.run(7)
        },
        fix: |mesh| {
            mesh.stop(7)?;
            fs::rename(
                mesh.sites[7].data().join("store"),
                mesh.path("damaged-store"),
            )?;
            mesh.run(7)
        },
        reports: &[Report::status(&[7], &["store-damaged"], "jobs.recent")],
        may: &[],
        restarts: &[7],
    },
    Fault {
        name: "lookup-socket",
        done: "the look-up socket of s06 is removed; the node makes it again by itself",
        prepare: nothing,
        inject: |mesh| {
            Ok(fs::remove_file(
                mesh.sites[LOGS].folder().join("s/lookup.sock"),
            )?)
        },
        fix: |mesh| {
            let socket = mesh.sites[LOGS].folder().join("s/lookup.sock");
            std::os::unix::net::UnixStream::connect(socket)?;
            Ok(())
        },
        reports: &[Report::words(
            Place::Log,
            &[LOGS],
            "the socket file was removed, and is made again",
        )],
        may: &[],
        restarts: &[],
    },
];

/// Signs and publishes the next charter, which lists the same.
fn renew(mesh: &mut Mesh) -> anyhow::Result<()> {
    mesh.vo.renew(|_| {})?;
    mesh.vo.publish(mesh.node(HUB)?)
}

fn restart(mesh: &mut Mesh, site: usize) -> anyhow::Result<()> {
    mesh.stop(site)?;
    mesh.run(site)
}

/// Copies a file or a folder with all below it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = Command::new("cp").arg("-aT").arg(from).arg(to).status()?;
    ensure!(status.success(), "cannot copy {}", from.display());
    Ok(())
}

/// A site that the charter does not list, on the thirteenth machine.
pub(super) fn new_stranger(mesh: &mut Mesh, peers: &[usize]) -> anyhow::Result<()> {
    let program = mesh.program.to_str().context("the program's path")?;
    let folder = tempfile::tempdir_in(mesh.folder.path())?.keep();
    let site = Site::init(program, &folder.join("s12"), "s12")?;
    mesh.sites[STRANGER] = site.within(&mesh.namespaces.of(STRANGER));
    mesh.configure(STRANGER, peers)
}

/// A node with a key of its own, in the network of a site and at its address.
pub(super) fn other_key(mesh: &mut Mesh, site: usize) -> anyhow::Result<Node> {
    new_stranger(mesh, &[])?;
    let stranger = &mesh.sites[STRANGER];
    fs::copy(mesh.sites[site].config(), stranger.config())?;
    let command = mesh.within(site, &mesh.program);
    let log = File::create(stranger.folder().join("log"))?;
    stranger.start_with_log(command, log.into())
}

/// The exit status of a command that is to fail, and what it prints.
pub(super) fn refusal(mut command: Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).trim().replace('\n', " ");
    let code = output.status.code().unwrap_or(-1);
    Ok(format!("exit {code}: {text}"))
}
