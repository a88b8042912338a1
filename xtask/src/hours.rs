//! `cargo xtask hours`: an hour of a mesh of twelve without faults, and one of named faults.
//!
//! It builds the program as it is installed, or takes the one that `FAIRMESH_PROGRAM` names, and runs the driver, which
//! writes the tables of `docs/reference/faults.md`. Deliberately not here: what is done and read (`tests/src/hours`).

use std::path::PathBuf;

use crate::steps::{cargo, root};

/// Runs both parts, or what the options choose.
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let named = std::env::var_os("FAIRMESH_PROGRAM").map(PathBuf::from);
    let program = match named {
        Some(program) => program,
        None => {
            let mut build = cargo();
            build.args(["build", "--release", "--package", "fairmesh"]);
            succeeds(build.current_dir(root()))?;
            let target = std::env::var_os("CARGO_TARGET_DIR");
            let target = target.map_or(root().join("target"), PathBuf::from);
            target.join("release/fairmesh")
        }
    };
    let program = std::fs::canonicalize(&program)
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let mut driver = cargo();
    driver.args([
        "run",
        "--release",
        "--package",
        "fairmesh-tests",
        "--bin",
        "hours",
        "--",
    ]);
    driver.args(options).env("FAIRMESH_PROGRAM", program);
    succeeds(driver.current_dir(root()))
}

fn succeeds(command: &mut std::process::Command) -> Result<(), String> {
    let status = command.status();
    let status = status.map_err(|error| format!("{command:?}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} ended with {status}")),
    }
}
