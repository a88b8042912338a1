//! Installs the Debian packages that the tests need, on a machine where that is allowed.
//!
//! Invariant: it never fails the run. A package that cannot be had is named, and the step that
//! needs it says the rest.

use std::path::Path;
use std::process::{Command, Stdio};

/// What the build and the tests need beside a Rust toolchain.
const PACKAGES: &[&str] = &[
    "build-essential", // the linker, and the C compiler for `ring`
];

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
        .filter(|package| !is_installed(package))
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
