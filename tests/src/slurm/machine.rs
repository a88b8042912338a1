//! What a Slurm needs of the machine: programs, rights, ports.
//!
//! Invariant: nothing is started here. Deliberately not here: installing (`cargo xtask test`).

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::bail;

/// Where Debian has programs.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The script with a verb, for the Slurm of a folder.
pub(super) fn script(verb: &str, folder: &Path) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/slurm/mini-slurm.sh");
    let mut command = Command::new(script);
    command.arg(verb).arg(folder);
    command
}

/// What is missing for a Slurm.
pub(super) fn lack(with_slurmdbd: bool) -> Option<String> {
    let mut programs = vec!["slurmctld", "slurmd", "squeue", "munged"];
    if with_slurmdbd {
        programs.extend(["slurmdbd", "mariadbd"]);
    }
    absent(&programs).or_else(|| (!is_root()).then(|| "a Slurm needs root".to_owned()))
}

/// Whether this is root.
pub(crate) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout == b"0\n")
}

/// Which programs are not installed.
pub(crate) fn absent(programs: &[&str]) -> Option<String> {
    let is_there = |program: &str| {
        FOLDERS
            .iter()
            .any(|at| Path::new(at).join(program).exists())
    };
    let absent: Vec<_> = programs
        .iter()
        .filter(|it| !is_there(it))
        .copied()
        .collect();
    (!absent.is_empty()).then(|| format!("no {}", absent.join(", ")))
}

/// Ports that a mini-Slurm takes (P, P + 1, P + 11, and P + 12 where it has two nodes), below those that the system hands out to
/// everybody who asks for any, as far as one can see free.
pub(super) fn free_ports() -> anyhow::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..200 {
        let step = std::process::id().wrapping_mul(7) + NEXT.fetch_add(1, Ordering::Relaxed);
        let first = u16::try_from(20_000 + step % 500 * 20)?;
        let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if [first, first + 1, first + 11, first + 12]
            .into_iter()
            .all(is_free)
        {
            return Ok(first);
        }
    }
    bail!("no free ports")
}
