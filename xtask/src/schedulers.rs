//! `cargo xtask test --schedulers`: batch systems that this machine's Debian does not have, with the tests that tell
//! their stories, in the roots of other Debians.
//!
//! A test program runs with another Debian's `/usr` and `/etc` over this machine's, in a mount namespace of its own, so
//! the programs and headers that it finds are those of that Debian, and nothing in it knows of the root.
//!
//! Invariant: a root lies below `target/` and is made once; one that was not made whole, or of other packages, is
//! made anew. Nothing stays mounted, and no system is left out without a word. Deliberately not here: the tests, and
//! starting any batch system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::steps::{cargo, go, root, target};

const SUITES: [&str; 2] = ["trixie", "sid"];

/// A batch system, or what takes jobs for one.
struct System {
    /// Its name in `FAIRMESH_REQUIRE`.
    name: &'static str,
    /// The program of its tests, and which of them are its own.
    tests: (&'static str, &'static str),
    /// The package whose version is the system's.
    package: &'static str,
    /// Whether it has a queue whose order is measured.
    has_queue: bool,
}

const SYSTEMS: [System; 4] = [
    System {
        name: "slurm",
        tests: ("slurm", ""),
        package: "slurmctld",
        has_queue: true,
    },
    System {
        name: "gridengine",
        tests: ("gridengine", ""),
        package: "gridengine-master",
        has_queue: true,
    },
    System {
        name: "condor",
        tests: ("condor", ""),
        package: "condor",
        has_queue: true,
    },
    System {
        name: "arc",
        tests: ("nodes", "arc::"),
        package: "nordugrid-arc-arex",
        has_queue: false,
    },
];

/// The word for figures (`tests/benches/reorder.rs`) instead of tests.
const REORDER: &str = "reorder";

/// Jobs of the figures.
const JOBS: &str = "1000";

/// What is in a root beside these packages.
const PACKAGES: &str = "slurmd,slurmdbd,slurm-client,slurm-wlm-basic-plugins,slurm-wlm-mysql-plugin,libslurm-dev,munge,\
                        mariadb-server,lua-socket,gridengine-exec,gridengine-client,nordugrid-arc-client,nordugrid-arc-arcctl-service,openssl,gcc,make,libc6-dev,dpkg-dev,iproute2,procps,mount,hostname";

/// A program with the root's files over this machine's. dpkg's list is the root's, too: it says which Slurm that has.
const IN_ROOT: &str = r#"for folder in etc var/lib/dpkg usr; do mount --bind "$0/$folder" "/$folder" || exit; done; exec "$@""#;

/// Runs the tests of all systems in all Debians, or of those that are named, and ends with what each came to.
pub(crate) fn run(chosen: &[&str]) -> Result<(), String> {
    let is_known = |word: &&&str| {
        **word == REORDER
            || SUITES.contains(word)
            || SYSTEMS.iter().any(|system| system.name == **word)
    };
    if let Some(word) = chosen.iter().find(|word| !is_known(word)) {
        return Err(format!(
            "{word} is neither a Debian nor a batch system that is tried there"
        ));
    }
    let is_chosen = |word: &str, all: &[&str]| {
        chosen.contains(&word) || !all.iter().any(|other| chosen.contains(other))
    };
    let names = SYSTEMS.map(|system| system.name);
    let measures = chosen.contains(&REORDER);
    let project = &root()
        .canonicalize()
        .map_err(|error| format!("the repository: {error}"))?;
    let mut table = String::new();
    let mut is_good = true;
    for suite in SUITES.iter().filter(|suite| is_chosen(suite, &SUITES)) {
        let root = made(suite)?;
        let source = source(&root, project)?;
        if source.is_none() {
            table += &format!(
                "  {suite:8}without Slurm's plug-in: this mirror has no source of that Slurm\n"
            );
        }
        for system in SYSTEMS
            .iter()
            .filter(|system| is_chosen(system.name, &names) && (!measures || system.has_queue))
        {
            let began = Instant::now();
            let passed = go(&mut command_of(
                system,
                &root,
                source.as_deref(),
                project,
                measures,
            ))
            .is_ok();
            is_good &= passed;
            let (version, took) = (version(system.package, &root)?, began.elapsed().as_secs());
            let told = if passed { "passed" } else { "FAILED" };
            table += &format!(
                "  {suite:8}{:12}{version:28}{told}, {took} s\n",
                system.name
            );
        }
    }
    print!("\n{table}");
    match is_good {
        true => Ok(()),
        false => Err("not every batch system passed".to_owned()),
    }
}

/// Cargo's command for the tests of a system, each of which it starts in the root, or for its figures.
fn command_of(
    system: &System,
    root: &Path,
    source: Option<&str>,
    project: &Path,
    measures: bool,
) -> Command {
    let mut command = cargo();
    let runner = format!(
        "target.'cfg(all())'.runner=['unshare','--mount','sh','-c','''{IN_ROOT}''','{}']",
        root.display()
    );
    command.args(["test", "--config", &runner, "--package", "fairmesh-tests"]);
    let (program, tests) = system.tests;
    match measures {
        true => command.args(["--bench", REORDER, "--", JOBS, system.name]),
        // What the stories measured is told, too.
        false => command.args(["--test", program, "--", "--show-output", tests]),
    };
    let mut needs = SYSTEMS.map(|system| system.name).join(",") + ",root";
    if source.is_some() {
        needs += ",plugin";
    }
    command.env("FAIRMESH_REQUIRE", needs);
    // A folder that is not there has none: this machine's would be of another Slurm.
    command.env("FAIRMESH_SLURM_SRC", source.unwrap_or("none"));
    command.current_dir(project);
    command
}

/// The root of a Debian, which is made where it is not there.
fn made(suite: &str) -> Result<PathBuf, String> {
    let roots = target().join("roots");
    let root = roots.join(suite);
    let packages = SYSTEMS.map(|system| system.package).join(",") + "," + PACKAGES;
    let list = |root: &Path| root.join("packages-of-fairmesh");
    if fs::read_to_string(list(&root)).is_ok_and(|of| of == packages) {
        return Ok(root);
    }
    let of = |error: std::io::Error| format!("{}: {error}", root.display());
    fs::create_dir_all(&roots).map_err(of)?;
    let half = root.with_extension("half");
    // There may be none.
    let _ = fs::remove_dir_all(&half);
    let _ = fs::remove_dir_all(&root);
    println!("making {}, in some minutes", root.display());
    go(Command::new("mmdebstrap")
        .args(["--quiet", "--variant=apt"])
        // A mirror may be older than it is to be.
        .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
        .arg(format!("--include={packages}"))
        // Before Grid Engine is installed, which looks this machine's name up.
        .arg("--essential-hook=copy-in /etc/hosts /etc")
        .arg(suite)
        .arg(&half))
    .map_err(|error| format!("{error}\nas root on Debian: apt-get install mmdebstrap"))?;
    fs::write(list(&half), packages).map_err(of)?;
    fs::rename(&half, &root).map_err(of)?;
    Ok(root)
}

/// The source of the root's Slurm, which its plug-in is built with; none where the mirror has none.
fn source(root: &Path, project: &Path) -> Result<Option<String>, String> {
    let folder = root.with_extension("source");
    let fetched = Command::new("unshare")
        .args(["--mount", "sh", "-c", IN_ROOT])
        .arg(root)
        .arg(project.join("crates/client-ffi/slurm/get-source.sh"))
        .arg(&folder)
        .output();
    let fetched = fetched.map_err(|error| format!("unshare: {error}"))?;
    if fetched.status.success() {
        return Ok(Some(
            String::from_utf8_lossy(&fetched.stdout).trim().to_owned(),
        ));
    }
    let why = String::from_utf8_lossy(&fetched.stderr);
    println!(
        "{why}no source of its Slurm; it may be put into {}",
        folder.display()
    );
    Ok(None)
}

/// A package's version, as the root says.
fn version(package: &str, root: &Path) -> Result<String, String> {
    let query = Command::new("dpkg-query")
        .arg(format!(
            "--admindir={}",
            root.join("var/lib/dpkg").display()
        ))
        .args(["-W", "-f=${Version}", package])
        .output();
    let query = query.map_err(|error| format!("dpkg-query: {error}"))?;
    Ok(String::from_utf8_lossy(&query.stdout).into_owned())
}
