//! `cargo xtask test --schedulers`: the batch systems that this machine's Debian does not have, each in the root of another
//! Debian, with the tests that tell their stories.
//!
//! Invariant: a root lies below `target/` and is made once; one that was not made whole is made anew. Nothing that is
//! missing is skipped. Deliberately not here: the tests, and starting anything in a root, which is theirs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A batch system in a Debian.
struct System {
    /// The Debian.
    suite: &'static str,
    /// Its package.
    package: &'static str,
    /// The program of its tests, which is also its name in `FAIRMESH_REQUIRE`.
    test: &'static str,
    /// The variable that tells the tests of the root.
    variable: &'static str,
}

const fn condor(suite: &'static str) -> System {
    System {
        suite,
        package: "htcondor",
        test: "condor",
        variable: "FAIRMESH_CONDOR_ROOT",
    }
}

const SYSTEMS: [System; 1] = [condor("trixie")];

/// Runs all of them, and ends with what each came to.
pub(crate) fn run() -> Result<(), String> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let project = project.ok_or("xtask lies in the repository")?;
    let mut table = String::new();
    let mut is_good = true;
    for system in &SYSTEMS {
        let root = made(system, project)?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["test", "--package", "fairmesh-tests", "--test", system.test]);
        command.env(system.variable, &root);
        command
            .env("FAIRMESH_REQUIRE", system.test)
            .current_dir(project);
        let passed = go(&mut command).is_ok();
        is_good &= passed;
        let told = if passed { "passed" } else { "FAILED" };
        let (suite, version) = (system.suite, version(system, &root));
        table += &format!("  {suite:8}{version:36}{told}\n");
    }
    print!("\n{table}");
    match is_good {
        true => Ok(()),
        false => Err("not every batch system passed".to_owned()),
    }
}

/// The root of a system, which is made where it is not there.
fn made(system: &System, project: &Path) -> Result<PathBuf, String> {
    let (suite, package) = (system.suite, system.package);
    let roots = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let roots = roots
        .unwrap_or_else(|| project.join("target"))
        .join("roots");
    let root = roots.join(format!("{suite}-{package}"));
    if root.exists() {
        return Ok(root);
    }
    let of = |error: std::io::Error| format!("{}: {error}", root.display());
    fs::create_dir_all(&roots).map_err(of)?;
    let half = root.with_extension("half");
    // There may be none.
    let _ = fs::remove_dir_all(&half);
    println!("making {}, in some minutes", root.display());
    go(Command::new("mmdebstrap")
        .args(["--quiet", "--variant=apt"])
        // A mirror may be older than it is to be.
        .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
        .arg(format!("--include={package},procps"))
        .arg(suite)
        .arg(&half))
    .map_err(|error| format!("{error}\nas root on Debian: apt-get install mmdebstrap"))?;
    fs::rename(&half, &root).map_err(of)?;
    Ok(root)
}

/// The package and its version, as the root says.
fn version(system: &System, root: &Path) -> String {
    let query = Command::new("chroot")
        .arg(root)
        .args(["dpkg-query", "-W", "-f=${Package} ${Version}"])
        .arg(system.package)
        .output();
    query.map_or_else(
        |_| system.package.to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

fn go(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} failed ({status})")),
        Err(error) => Err(format!("cannot start {command:?}: {error}")),
    }
}
