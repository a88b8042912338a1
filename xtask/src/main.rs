//! `cargo xtask`: the chores of this repository.
//!
//! `cargo xtask test` is the one command that a contributor and the continuous integration run: it
//! sets up what it may set up, runs every check in order, stops at the first that fails, and ends
//! with a table of what each step cost and, where there is any, one of what could not be run.
//!
//! `cargo xtask fuzz` runs campaigns of the fuzz targets, and `cargo xtask bench` measures the product against its
//! goals and writes the table of `docs/benchmarks.md`. `cargo xtask sizes` measures what a node takes of a machine.
//! `cargo xtask hours` runs a mesh of twelve without faults and with named ones. `cargo xtask coverage` counts what the
//! simulator's seeds reach. `cargo xtask house` counts what the house rules bound.
//!
//! Deliberately not here: dependencies but for a parser of Rust, so that it builds in seconds, and any check that is not a
//! command of its own (the house rules are tests, in `tests/tests/tidy`).

mod bench;
mod beside;
mod coverage;
mod fuzz;
mod hours;
mod house;
mod lacking;
mod package;
mod planted;
mod schedulers;
mod selection;
mod setup;
mod sizes;
mod steps;

use std::process::ExitCode;

use steps::STEPS;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        []
        | ["help" | "--help" | "-h"]
        | [
            "test" | "bench" | "sizes" | "hours" | "fuzz" | "coverage" | "mutants" | "house",
            "--help" | "-h",
        ] => {
            help();
            Ok(())
        }
        ["test"] => test(None),
        ["test", "--only", name] => test(Some(name)),
        ["test", "--schedulers", ref chosen @ ..] => schedulers::run(chosen),
        ["package", ref options @ ..] => package::run(options),
        ["bench"] => bench::run(),
        ["sizes"] => sizes::run(),
        ["hours", ref options @ ..] => hours::run(options),
        ["fuzz", ref arguments @ ..] => fuzz::run(arguments),
        ["coverage", ref arguments @ ..] => coverage::run(arguments),
        ["mutants", ref names @ ..] => planted::run(names),
        ["house"] => house::run(),
        // Cargo's, not a contributor's.
        ["beside", program, ref arguments @ ..] => match beside::run(program, arguments) {
            Ok(code) => return code,
            Err(message) => Err(message),
        },
        _ => Err(format!(
            "cannot understand `{}`: try `cargo xtask help`",
            args.join(" ")
        )),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every step, or only the one with that name.
fn test(only: Option<&str>) -> Result<(), String> {
    let chosen: Vec<_> = STEPS
        .iter()
        .filter(|step| only.is_none_or(|name| name == step.name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!("--only takes one of {}", names.join(", ")));
    }
    let not_run = lacking::List::new()?;
    if chosen.iter().any(|step| step.needs_slurm) {
        setup::install_packages();
        setup::fetch_slurm_source();
    }
    let outcome = steps::run(&chosen, &not_run);
    // Last, where it is seen.
    print!("{}", not_run.table());
    outcome
}

fn help() {
    println!("cargo xtask test                  sets up, then runs every step below");
    println!("cargo xtask test --only <STEP>    runs one of them");
    println!(
        "cargo xtask test --schedulers     batch systems of other Debians, in roots of their own (root, minutes);"
    );
    println!(
        "                                  behind it, trixie, sid, slurm, gridengine, condor, arc choose; reorder measures"
    );
    println!("cargo xtask package               builds the Debian package, with cargo-deb");
    println!(
        "cargo xtask package --check       and tries it in a Debian of its own (root, minutes)"
    );
    println!(
        "cargo xtask bench                 measures the product, and writes docs/benchmarks.md"
    );
    println!(
        "cargo xtask sizes                 measures what nodes of three sizes take, and writes docs/benchmarks.md"
    );
    println!(
        "cargo xtask hours                 runs a mesh of twelve for an hour, then with named faults (root, two hours), and writes"
    );
    println!(
        "                                  docs/reference/faults.md; --minutes N, --only FAULT[,FAULT] choose"
    );
    println!(
        "cargo xtask fuzz                  gives each fuzz target 20 minutes of CPU (hours; cargo-fuzz, nightly); --minutes N,"
    );
    println!("                                  and then targets, choose");
    println!(
        "cargo xtask coverage              runs seeds and writes docs/judge.md: what of the core they reach (cargo-llvm-cov,"
    );
    println!("                                  nightly); --seeds N");
    println!(
        "cargo xtask mutants               plants faults in the tests of the crates; FAULT… chooses"
    );
    println!(
        "cargo xtask house                 prints lines and circles of each crate, fields of `Site`, why-comments, names"
    );
    println!("cargo xtask help                  prints this\n");
    println!(
        "FAIRMESH_REQUIRE=slurm,plugin,root,traces,vectors,deny,book,prometheus,python,schemathesis,gridengine,condor,systemd,arc,axe names what may not be lacking: a test"
    );
    println!("that cannot run then fails, instead of being listed at the end.\n");
    println!("Steps, in order:");
    for step in STEPS {
        println!("  {:8}{}", step.name, step.command());
    }
}
