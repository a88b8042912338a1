//! `cargo xtask mutants`: which planted faults the tests of the crates find, without the simulator.
//!
//! The faults are those of the simulator's table. Each is planted in all threads of the tests of the crate that has its
//! hook, and if these pass, in those of all crates of the core.
//!
//! Deliberately not here: what the simulator finds (`simnet mutants`).

use std::fs;
use std::process::{Command, Stdio};

use crate::steps::{go, root};

const TABLE: &str = "simnet/src/mutants/table.csv";

/// The crates that have hooks, lowest first.
const CRATES: [&str; 9] = [
    "model",
    "policy",
    "fairshare",
    "usage",
    "quota",
    "broker",
    "gossip",
    "site",
    "round",
];

/// Plants each fault, or those named, and prints what finds it.
pub(crate) fn run(names: &[&str]) -> Result<(), String> {
    let table = fs::read_to_string(root().join(TABLE));
    let table = table.map_err(|error| format!("{TABLE}: {error}"))?;
    let rows = table.lines().skip(1).filter_map(|row| {
        let mut fields = row.split(',');
        Some((fields.next()?, fields.next()?))
    });
    let rows: Vec<(&str, &str)> = rows
        .filter(|(name, _)| names.is_empty() || names.contains(name))
        .collect();
    if let Some(unknown) = names
        .iter()
        .find(|name| rows.iter().all(|row| row.0 != **name))
    {
        return Err(format!("{TABLE} has no fault {unknown}"));
    }
    go(tests(&CRATES).arg("--no-run"))?;
    if !passes(None, &CRATES) {
        return Err("the tests of the crates fail without a fault".to_owned());
    }
    let mut found = 0;
    for (name, layer) in &rows {
        let own = CRATES.iter().find(|krate| *krate == layer);
        let is_found = own.is_some_and(|own| !passes(Some(name), &[own]));
        let finder = match is_found {
            true => layer,
            false if !passes(Some(name), &CRATES) => "another crate",
            false => "nothing",
        };
        found += u32::from(finder != "nothing");
        println!("| {name} | {layer} | {finder} |");
    }
    println!("{found} of {} found", rows.len());
    Ok(())
}

fn tests(crates: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--quiet", "--features", "fairmesh-model/mutants"]);
    for krate in crates {
        cargo.args(["--package", &format!("fairmesh-{krate}")]);
    }
    cargo
}

fn passes(fault: Option<&str>, crates: &[&str]) -> bool {
    let mut tests = tests(crates);
    tests.env("FAIRMESH_PLANTED", fault.unwrap_or_default());
    // What a planted fault fails with is no case to keep.
    tests.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
    go(tests.stdout(Stdio::null()).stderr(Stdio::null())).is_ok()
}
