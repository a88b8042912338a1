//! The steps of `cargo xtask test`, and how they run.
//!
//! Each is one command at the root of the repository, cargo's but for the book, printed so that it can be repeated by
//! hand. The environment is passed on (`CARGO_TARGET_DIR` among it) but for what a step sets.
//!
//! Invariant: a step that did not run is never told as one that went well.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::beside;
use crate::lacking::{List, is_required};

/// Where the seeds that reach the most are listed, for the step `simnet` (`selection` writes it).
pub(crate) const SEEDS: &str = "simnet/seeds.txt";

/// Seeds of the commit that follow these.
const FRESH_SEEDS: &str = "5";

/// One command that has to succeed.
pub(crate) struct Step {
    /// What `--only` calls it.
    pub(crate) name: &'static str,
    /// Whether it uses what `setup` installs.
    pub(crate) needs_slurm: bool,
    program: &'static str,
    args: &'static [&'static str],
    /// A program that cargo has built, with its arguments: it is run after that.
    then: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    tool: Tool,
}

/// What brings the program, or the sub-command of cargo.
enum Tool {
    Cargo,
    /// The rustup component of that name.
    Component(&'static str),
    /// A package of that name: elsewhere than in the continuous integration one can do without.
    Package(&'static str),
}

/// Every step, the quick ones first.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        args: &["fmt", "--all", "--check"],
        tool: Tool::Component("rustfmt"),
        ..CARGO
    },
    Step {
        // Bans, licences and sources; advisories are news from outside, not a property of a commit.
        name: "deny",
        args: &[
            "deny",
            "check",
            "--hide-inclusion-graph",
            "bans",
            "licenses",
            "sources",
        ],
        tool: Tool::Package("cargo-deny"),
        ..CARGO
    },
    Step {
        // With QUIC and the fuzz targets, which nothing else compiles.
        name: "clippy",
        args: &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
            "-D",
            "warnings",
        ],
        // A library that nobody links, in place of a libFuzzer that would be compiled for nothing.
        env: &[("CUSTOM_LIBFUZZER_PATH", "unused/libfuzzer.a")],
        tool: Tool::Component("clippy"),
        ..CARGO
    },
    Step {
        // Before the tests, which take long: a broken link says so early.
        name: "doc",
        args: &["doc", "--workspace", "--no-deps", "--all-features"],
        env: &[
            ("RUSTDOCFLAGS", "-D warnings"),
            ("CUSTOM_LIBFUZZER_PATH", "unused/libfuzzer.a"),
        ],
        ..CARGO
    },
    Step {
        name: "book",
        program: "mdbook",
        args: &["build", "docs"],
        tool: Tool::Package("mdbook"),
        ..CARGO
    },
    Step {
        name: "test",
        needs_slurm: true,
        args: &[
            "test",
            "--workspace",
            "--features",
            "simnet/mutants,fairmesh-broker/mutants,fairmesh-quota/mutants",
        ],
        ..CARGO
    },
    Step {
        name: "simnet",
        // As the step before has built it: `cargo run --package simnet` has other features, and with
        // them compiles most of it again.
        args: &[
            "test",
            "--workspace",
            "--features",
            "simnet/mutants,fairmesh-broker/mutants,fairmesh-quota/mutants",
            "--test",
            "check",
            "--no-run",
        ],
        // Seeds that reach the most, and others for every commit.
        then: &[
            "simnet",
            "check",
            "--first",
            SEEDS,
            "--seeds",
            FRESH_SEEDS,
            "--from-commit",
            "HEAD",
        ],
        ..CARGO
    },
];

const CARGO_ITSELF: &str = "cargo";

/// What most steps are like.
const CARGO: Step = Step {
    name: "",
    needs_slurm: false,
    program: CARGO_ITSELF,
    args: &[],
    then: &[],
    env: &[],
    tool: Tool::Cargo,
};

impl Step {
    /// The command as one would type it.
    pub(crate) fn command(&self) -> String {
        let env = self
            .env
            .iter()
            .map(|(key, value)| format!("{key}='{value}' "));
        let env = env.collect::<String>();
        let first = format!("{env}{} {}", self.program, self.args.join(" "));
        match self.then {
            [] => first,
            then => {
                format!("{first} && {}", program(then[0]).display()) + " " + &then[1..].join(" ")
            }
        }
    }

    /// Its program, without arguments.
    fn first(&self) -> Command {
        match self.program {
            CARGO_ITSELF => cargo(),
            other => Command::new(other),
        }
    }

    /// Whether there is such a program, or such a sub-command of cargo.
    fn is_there(&self) -> bool {
        let mut version = self.first();
        if self.program == CARGO_ITSELF {
            version.arg(self.args[0]);
        }
        let quiet = version.arg("--version").stdout(Stdio::null());
        let status = quiet.stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// Runs it; a word on why it could not be run where one can do without.
    fn run(&self, not_run: &List) -> Result<Verdict, String> {
        match self.tool {
            Tool::Cargo => {}
            Tool::Component(_) | Tool::Package(_) if self.is_there() => {}
            Tool::Component(name) => {
                return Err(format!(
                    "`cargo {}` is not installed: `rustup component add {name}`",
                    self.args[0]
                ));
            }
            Tool::Package(name) if is_required(self.name) => install(name)?,
            Tool::Package(name) => {
                let what = format!("step {}", self.name);
                let remedy = format!("`cargo install {name} --locked`");
                not_run.add(&what, self.name, &format!("no {name}"), &remedy)?;
                return Ok(Verdict::NotRun);
            }
        }
        let mut commands = vec![self.first()];
        if self.needs_slurm {
            commands[0].args(["--config", &beside::runner()?]);
        }
        commands[0].args(self.args);
        for waiting in beside::WAITING.iter().filter(|_| self.needs_slurm) {
            // First, so that it waits while the others are compiled.
            let mut first = cargo();
            first.args(["--config", &beside::runner()?]);
            first.args(self.args).args(["--test", waiting]);
            commands.insert(0, first);
        }
        if let [name, arguments @ ..] = self.then {
            commands.push(Command::new(program(name)));
            commands[1].args(arguments);
        }
        commands.iter_mut().try_for_each(|command| {
            command.envs(self.env.iter().copied());
            command.env("FAIRMESH_NOT_RUN", not_run.file());
            command.current_dir(root());
            let status = command.status();
            let status = status.map_err(|error| format!("cannot start {command:?}: {error}"))?;
            match status.success() {
                true => Ok(()),
                false => Err(format!("`{}` failed ({status})", self.command())),
            }
        })?;
        Ok(Verdict::Good)
    }
}

/// How a step ended that did not fail.
enum Verdict {
    Good,
    NotRun,
}

/// Installs a package of cargo's, as quickly as that goes: it is compiled once, without what it does not need to check,
/// and runs for a second.
fn install(name: &str) -> Result<(), String> {
    println!("set-up: installing {name}");
    let status = cargo()
        .args([
            "install",
            "--quiet",
            "--locked",
            "--debug",
            "--no-default-features",
        ])
        .args(["--config", "profile.dev.debug=false", name])
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("{name} cannot be installed")),
    }
}

/// Runs the steps in order up to the first that fails, waits for what they have started, and prints what each
/// took.
pub(crate) fn run(steps: &[&Step], not_run: &List) -> Result<(), String> {
    let mut done = Vec::new();
    let mut outcome = Ok(());
    beside::clear();
    for step in steps {
        println!("\n==> {}: {}", step.name, step.command());
        let start = Instant::now();
        let verdict = match step.run(not_run) {
            Ok(Verdict::Good) => "ok",
            Ok(Verdict::NotRun) => "NOT RUN",
            Err(message) => {
                outcome = Err(format!("step {}: {message}", step.name));
                "FAILED"
            }
        };
        done.push((step.name, verdict, start.elapsed()));
        println!("<== {}: {verdict}, {}", step.name, seconds(start.elapsed()));
        if outcome.is_err() {
            break;
        }
    }
    let start = Instant::now();
    let beside = beside::wait();
    summarise(steps, &done, start.elapsed());
    outcome.and(beside)
}

fn summarise(steps: &[&Step], done: &[(&str, &str, Duration)], waited: Duration) {
    println!("\n{:8}  {:8}  {:>10}", "step", "result", "time");
    for (name, verdict, elapsed) in done {
        println!("{name:8}  {verdict:8}  {:>10}", seconds(*elapsed));
    }
    for step in &steps[done.len()..] {
        println!("{:8}  not run", step.name);
    }
    let total = waited
        + done
            .iter()
            .map(|(_, _, elapsed)| *elapsed)
            .sum::<Duration>();
    println!("{:8}  {:8}  {:>10}", "waiting", "", seconds(waited));
    println!("{:8}  {:8}  {:>10}", "total", "", seconds(total));
}

fn seconds(elapsed: Duration) -> String {
    format!("{:.1} s", elapsed.as_secs_f64())
}

/// The cargo that runs this (or the one on the path).
pub(crate) fn cargo() -> Command {
    let mut cargo =
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    // What cargo has told xtask of itself. Some packages are compiled anew, and all that needs them, where it differs.
    let told = std::env::vars_os().map(|(key, _)| key);
    let is_xtasks = |key: &OsString| {
        let key = key.to_string_lossy();
        key.starts_with("CARGO_PKG_") || key.starts_with("CARGO_MANIFEST_")
    };
    for key in told.filter(is_xtasks) {
        cargo.env_remove(key);
    }
    cargo
}

/// Runs a command at the root of the repository, or where it says.
pub(crate) fn go(command: &mut Command) -> Result<(), String> {
    if command.get_current_dir().is_none() {
        command.current_dir(root());
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} failed ({status})")),
        Err(error) => Err(format!("cannot start {command:?}: {error}")),
    }
}

/// A program of the workspace: cargo puts them where this one is.
fn program(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    this.with_file_name(name)
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The tree in which `cargo xtask` was called. It is asked for when this runs: two clones with one target
/// directory have one program.
pub(crate) fn root() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| "xtask".into());
    Path::new(&xtask).join("..")
}
