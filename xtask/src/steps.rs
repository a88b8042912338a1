//! The steps of `cargo xtask test`, and how they run.
//!
//! Each is one cargo command at the root of the repository, printed so that it can be repeated by
//! hand. The environment is passed on (`CARGO_TARGET_DIR` among it) but for what a step sets.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One cargo command that has to succeed.
pub(crate) struct Step {
    /// What `--only` calls it.
    pub(crate) name: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    /// The rustup component that brings the sub-command, where cargo alone does not.
    component: Option<&'static str>,
}

/// Every step, the quick ones first.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        args: &["fmt", "--all", "--check"],
        env: &[],
        component: Some("rustfmt"),
    },
    Step {
        name: "clippy",
        args: &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        env: &[],
        component: Some("clippy"),
    },
    Step {
        name: "test",
        args: &["test", "--workspace"],
        env: &[],
        component: None,
    },
    Step {
        name: "simnet",
        // Other seeds for every commit.
        args: &[
            "run",
            "--package",
            "simnet",
            "--",
            "check",
            "--seeds",
            "60",
            "--from-commit",
            "HEAD",
        ],
        env: &[],
        component: None,
    },
    Step {
        name: "doc",
        args: &["doc", "--workspace", "--no-deps"],
        env: &[("RUSTDOCFLAGS", "-D warnings")],
        component: None,
    },
];

impl Step {
    /// The command as one would type it.
    pub(crate) fn command(&self) -> String {
        let env = self
            .env
            .iter()
            .map(|(key, value)| format!("{key}='{value}' "));
        format!("{}cargo {}", env.collect::<String>(), self.args.join(" "))
    }

    fn run(&self) -> Result<(), String> {
        if let Some(component) = self.component
            && !has_subcommand(self.args[0])
        {
            return Err(format!(
                "`cargo {}` is not installed: `rustup component add {component}`",
                self.args[0]
            ));
        }
        let status = cargo()
            .args(self.args)
            .envs(self.env.iter().copied())
            .status()
            .map_err(|error| format!("cannot start cargo: {error}"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("`{}` failed ({status})", self.command()))
        }
    }
}

/// Runs the steps in order up to the first that fails, then prints what each took.
pub(crate) fn run(steps: &[&Step]) -> Result<(), String> {
    let mut done = Vec::new();
    let mut outcome = Ok(());
    for step in steps {
        println!("\n==> {}: {}", step.name, step.command());
        let start = Instant::now();
        outcome = step.run();
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        done.push((step.name, verdict, start.elapsed()));
        println!("<== {}: {verdict}, {}", step.name, seconds(start.elapsed()));
        if let Err(message) = outcome {
            outcome = Err(format!("step {}: {message}", step.name));
            break;
        }
    }
    summarise(steps, &done);
    outcome
}

fn summarise(steps: &[&Step], done: &[(&str, &str, Duration)]) {
    println!("\n{:8}  {:8}  {:>10}", "step", "result", "time");
    for (name, verdict, elapsed) in done {
        println!("{name:8}  {verdict:8}  {:>10}", seconds(*elapsed));
    }
    for step in &steps[done.len()..] {
        println!("{:8}  not run", step.name);
    }
    let total = done.iter().map(|(_, _, elapsed)| *elapsed).sum();
    println!("{:8}  {:8}  {:>10}", "total", "", seconds(total));
}

fn seconds(elapsed: Duration) -> String {
    format!("{:.1} s", elapsed.as_secs_f64())
}

fn has_subcommand(name: &str) -> bool {
    cargo()
        .args([name, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The cargo that runs this (or the one on the path), at the root of the repository.
fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command
}
