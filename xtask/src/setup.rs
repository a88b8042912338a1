//! Installs the Debian packages that the tests need, on a machine where that is allowed.
//!
//! Invariant: it never fails the run. A package that cannot be had is named, and the step that
//! needs it says the rest.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::steps::root;

/// What the build and the tests need beside a Rust toolchain. Of alternatives the first is installed where none is there.
const PACKAGES: &[&str] = &[
    "build-essential", // the linker, and the C compiler for `ring`
    // A real Slurm for `tests/tests/slurm`.
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "lua-socket", // with which Slurm's Lua asks the node
    "libslurm-dev",
    "munge",
    "slurmdbd",
    "slurm-wlm-mysql-plugin",
    "mariadb-server",
    "libnss-wrapper",
    // A real Grid Engine for `tests/tests/gridengine`, in namespaces of its own.
    "gridengine-master",
    "gridengine-exec",
    "gridengine-client",
    // A browser for the pages: 64 MB, of which the whole one has twice as many.
    "chromium-headless-shell | chromium",
    "iproute2",     // a network of a test's own
    "python3",      // the client for Python
    "python3-venv", // schemathesis, with pip
    "prometheus",   // rules and metrics, read by a real one
    "dpkg-dev",     // unpacks Slurm's source, which the plug-in is compiled against
];

/// Where the tests of the plug-in look for Slurm's source.
const SLURM_SOURCE: [&str; 2] = ["crates/client-ffi/slurm/get-source.sh", "target/slurm-src"];

/// Installs what is missing where this is root on Debian or a child of it; elsewhere says what it
/// skips.
pub(crate) fn install_packages() {
    if !Path::new("/usr/bin/apt-get").exists() {
        println!(
            "set-up: skipped, no apt-get here. The tests expect what Debian calls: {}",
            PACKAGES.join(" ")
        );
        return;
    }
    let missing: Vec<_> = PACKAGES
        .iter()
        .copied()
        .filter(|package| !package.split(" | ").any(is_installed))
        .filter_map(|package| package.split(" | ").next())
        .collect();
    if missing.is_empty() {
        return;
    }
    let list = missing.join(" ");
    if !is_root() {
        println!("set-up: skipped, not root. Missing: `sudo apt-get install {list}`");
        return;
    }
    println!("set-up: installing {list}");
    // A failed update is not the end: the lists at hand may do.
    apt_get(&["update"]);
    let install = ["install", "--yes", "--no-install-recommends"];
    if !apt_get(&[&install, &missing[..]].concat()) {
        println!("set-up: apt-get failed, going on without {list}");
    }
}

/// Fetches the source of the Slurm that is installed, where that can be done.
pub(crate) fn fetch_slurm_source() {
    let fetched = Command::new("sh")
        .args(SLURM_SOURCE)
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !fetched {
        println!("set-up: Slurm's source cannot be had; the plug-in's tests will not run");
    }
}

fn is_installed(package: &str) -> bool {
    stdout_of("dpkg-query", &["-W", "-f=${db:Status-Status}", package]) == "installed"
}

fn is_root() -> bool {
    stdout_of("id", &["-u"]) == "0"
}

fn apt_get(args: &[&str]) -> bool {
    Command::new("apt-get")
        .arg("-qq")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Installed daemons are for the tests to start, in folders of their own.
        .env("RUNLEVEL", "1")
        .stdin(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// What the program printed, trimmed; empty where it could not run.
fn stdout_of(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
