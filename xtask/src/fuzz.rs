//! `cargo xtask fuzz`: a campaign of every fuzz target, and the rows of the table in `docs/threat-model.md`.
//!
//! Builds the targets with cargo-fuzz, has the tests write the examples that they begin with, and gives each target its
//! minutes of CPU, as many at a time as there are cores. All of it is kept in `target/fuzz`: whoever interrupts it and
//! comes back goes on with the targets that have no row yet. Deliberately not here: what a target does (`tests/fuzz`).
//!
//! Invariant: a target has a row when it has had its whole time and nothing failed; any other is an error at the end.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::steps::{cargo, go, root, target};

/// Minutes of CPU that a target gets, unless told otherwise.
const MINUTES: u64 = 20;

/// Packages of targets: of decoders and sessions, and of whole runs of the simulator.
const FOLDERS: [&str; 2] = ["tests/fuzz", "simnet/fuzz"];

/// The target whose inputs are runs of the simulator, and as many seeds as it begins with.
const SWARM: &str = "swarm";
const SWARM_SEEDS: u64 = 60;

/// What libFuzzer ends with when it is interrupted, which is how a campaign ends.
const INTERRUPTED: i32 = 72;

/// Ticks a second in `/proc/PID/stat`, of every Linux.
const TICKS: u64 = 100;

/// A line of the table, and its first two.
const HEAD: &str =
    "| target | inputs | edges reached | slowest input | commit |\n|---|--:|--:|--:|---|\n";

/// Runs the targets that are named, or else all that have no row; `--minutes` first, where it is wanted.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let (minutes, names) = match arguments {
        ["--minutes", minutes, names @ ..] => (minutes.parse().ok(), names),
        names => (Some(MINUTES), names),
    };
    let campaign = Campaign {
        folder: target().join("fuzz"),
        minutes: minutes.ok_or("--minutes takes a number of minutes")?,
        commit: output(Command::new("git").args(["describe", "--always", "--dirty"]))?,
    };
    let targets = campaign.choose(names)?;
    campaign.build(&targets)?;
    campaign.run(targets)
}

struct Campaign {
    folder: PathBuf,
    /// CPU time of each target.
    minutes: u64,
    commit: String,
}

impl Campaign {
    /// The targets to run: those of the names, also where they have a row, or all others.
    fn choose(&self, names: &[&str]) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        for folder in FOLDERS {
            all.extend(targets_in(folder)?);
        }
        all.sort();
        if let Some(unknown) = names
            .iter()
            .find(|name| !all.iter().any(|one| one == *name))
        {
            return Err(format!(
                "there is no fuzz target {unknown}: {}",
                all.join(", ")
            ));
        }
        // There is none before the first target has ended.
        let rows = fs::read_to_string(self.rows()).unwrap_or_default();
        all.retain(|one| match names {
            [] => !rows.contains(&format!("| `{one}` |")),
            names => names.contains(&one.as_str()),
        });
        Ok(all)
    }

    /// Compiles the packages of the targets, and writes what these begin with.
    fn build(&self, targets: &[String]) -> Result<(), String> {
        let at = |name: &str| self.folder.join(name);
        for name in ["seeds", "corpus", "failed", "log"] {
            let folder = at(name);
            fs::create_dir_all(&folder)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        for folder in FOLDERS {
            if targets_in(folder)?.iter().any(|of| targets.contains(of)) {
                self.compile(folder)?;
            }
        }
        if targets.iter().any(|target| target == SWARM) {
            let folder = at("seeds").join(SWARM);
            let written = fs::create_dir_all(&folder).and_then(|()| {
                (1..=SWARM_SEEDS).try_for_each(|seed| {
                    fs::write(folder.join(seed.to_string()), seed.to_le_bytes())
                })
            });
            written.map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        if targets == [SWARM] {
            return Ok(());
        }
        let mut examples = cargo();
        examples.args([
            "test",
            "--quiet",
            "--package",
            "fairmesh-tests",
            "--lib",
            "examples",
        ]);
        examples.env("FAIRMESH_WRITE_SEEDS", at("seeds"));
        go(&mut examples)
    }

    fn compile(&self, folder: &str) -> Result<(), String> {
        // No sanitizer: it would look for what only unsafe code does, and there is none.
        let mut build = Command::new("rustup");
        build.args(["run", "nightly", "cargo", "fuzz", "build"]);
        build.args(["--fuzz-dir", folder, "--features", "link"]);
        build.args(["--sanitizer", "none", "--target-dir"]);
        build.arg(self.folder.join("build"));
        go(&mut build).map_err(|error| {
            format!(
                "{error}\nit takes `rustup toolchain install nightly`, `cargo install cargo-fuzz` and a C++ compiler"
            )
        })
    }

    /// Runs targets, a lane for each core, and prints the table.
    fn run(&self, targets: Vec<String>) -> Result<(), String> {
        let lanes = std::thread::available_parallelism().map_or(1, usize::from);
        println!(
            "fuzz: {} targets, {} minutes of CPU each, {lanes} at a time, in {}",
            targets.len(),
            self.minutes,
            self.folder.display()
        );
        let waiting = Mutex::new(targets.into_iter());
        let next = || {
            waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .next()
        };
        let failures = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..lanes {
                scope.spawn(|| {
                    while let Some(target) = next() {
                        match self.one(&target).and_then(|row| self.keep(&row)) {
                            Ok(()) => println!("fuzz: {target}: done"),
                            Err(why) => {
                                println!("fuzz: {target}: FAILED: {why}");
                                let failures = failures.lock();
                                failures
                                    .unwrap_or_else(PoisonError::into_inner)
                                    .push(target);
                            }
                        }
                    }
                });
            }
        });
        // There is none where the first targets have failed.
        print!(
            "\n{HEAD}{}",
            fs::read_to_string(self.rows()).unwrap_or_default()
        );
        match failures
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)[..]
        {
            [] => Ok(()),
            ref failures => Err(format!("{} failed", failures.join(", "))),
        }
    }

    /// Gives a target its time; its row.
    fn one(&self, target: &str) -> Result<String, String> {
        let log = self.folder.join("log").join(target);
        let told = |error| format!("{}: {error}", log.display());
        let mut fuzzer = self.fuzzer(target)?;
        let output = File::create(&log).map_err(told)?;
        fuzzer
            .stdout(output.try_clone().map_err(told)?)
            .stderr(output);
        let mut fuzzer = fuzzer
            .spawn()
            .map_err(|error| format!("cannot start {fuzzer:?}: {error}"))?;
        let process = fuzzer.id().to_string();
        let mut had_its_time = false;
        let ended = loop {
            if let Some(status) = fuzzer.try_wait().map_err(told)? {
                break status;
            }
            if !had_its_time && cpu_seconds(&process)? >= self.minutes * 60 {
                had_its_time = true;
                go(Command::new("kill").args(["-INT", &process]))?;
            }
            std::thread::sleep(Duration::from_millis(500));
        };
        if !had_its_time || ended.code() != Some(INTERRUPTED) {
            let failed = self.folder.join("failed").join(target);
            return Err(format!(
                "{ended}: {}, and {}-*",
                log.display(),
                failed.display()
            ));
        }
        let bytes = fs::read(&log).map_err(told)?;
        row(target, &String::from_utf8_lossy(&bytes), &self.commit)
            .ok_or_else(|| format!("{}: no closing lines of libFuzzer", log.display()))
    }

    fn fuzzer(&self, target: &str) -> Result<Command, String> {
        let built = self.folder.join("build");
        let mut command = Command::new(find(&built, target)?);
        // There are no examples of sessions: libFuzzer ends where it finds no folder.
        for of in ["corpus", "seeds"] {
            let folder = self.folder.join(of).join(target);
            fs::create_dir_all(&folder)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
            command.arg(folder);
        }
        command.args(["-rss_limit_mb=4096", "-print_final_stats=1"]);
        // Sessions and runs are long from the beginning.
        command.args(match target {
            "session" => &["-timeout=25", "-len_control=0", "-max_len=600"][..],
            SWARM => &["-timeout=300", "-len_control=0", "-max_len=80"],
            _ => &["-timeout=25"],
        });
        let mut prefix = std::ffi::OsString::from("-artifact_prefix=");
        prefix.push(self.folder.join("failed").join(format!("{target}-")));
        command.arg(prefix).stdin(Stdio::null());
        Ok(command)
    }

    /// Appends a row at once, so that nothing is lost when this is interrupted.
    fn keep(&self, row: &str) -> Result<(), String> {
        let rows = self.rows();
        let file = File::options().create(true).append(true).open(&rows);
        file.and_then(|mut file| file.write_all(row.as_bytes()))
            .map_err(|error| format!("{}: {error}", rows.display()))
    }

    /// The lines of the table so far, of campaigns that were as long.
    fn rows(&self) -> PathBuf {
        self.folder
            .join(format!("rows-of-{}-minutes.md", self.minutes))
    }
}

/// The targets of a package.
fn targets_in(folder: &str) -> Result<Vec<String>, String> {
    let sources = root().join(folder).join("fuzz_targets");
    let named = |error| format!("{}: {error}", sources.display());
    let mut all = Vec::new();
    for file in fs::read_dir(&sources).map_err(named)? {
        let path = file.map_err(named)?.path();
        all.extend(
            path.file_stem()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    Ok(all)
}

/// The program of a target: cargo-fuzz always builds for a platform by its name.
fn find(built: &Path, target: &str) -> Result<PathBuf, String> {
    let named = |error| format!("{}: {error}", built.display());
    for platform in fs::read_dir(built).map_err(named)? {
        let program = platform.map_err(named)?.path().join("release").join(target);
        if program.is_file() {
            return Ok(program);
        }
    }
    Err(format!("{}: there is no program {target}", built.display()))
}

/// A line of the table, of what libFuzzer has printed.
fn row(target: &str, log: &str, commit: &str) -> Option<String> {
    let last = |key: &str| {
        let (_, behind) = log.rsplit_once(key)?;
        behind.split_whitespace().next()?.parse::<u64>().ok()
    };
    let slowest = match last("stat::slowest_unit_time_sec:")? {
        0 => "below 1 s".to_owned(),
        seconds => format!("{seconds} s"),
    };
    let (inputs, edges) = (last("stat::number_of_executed_units:")?, last(" cov:")?);
    let (inputs, edges) = (grouped(inputs), grouped(edges));
    Some(format!(
        "| `{target}` | {inputs} | {edges} | {slowest} | {commit} |\n"
    ))
}

/// With a comma before each three digits.
fn grouped(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1000), number % 1000),
    }
}

/// CPU time that a process has used, all its threads', in whole seconds (proc_pid_stat(5): utime and stime).
fn cpu_seconds(process: &str) -> Result<u64, String> {
    let file = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    ticks(&stat)
        .map(|ticks| ticks / TICKS)
        .ok_or_else(|| format!("{file}: cannot be understood"))
}

fn ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name, which may have blanks and parentheses.
    let (_, behind) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = behind.split_whitespace().collect();
    let of = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(of(14)? + of(15)?)
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.current_dir(root()).output();
    let output = output.map_err(|error| format!("cannot start {command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{command:?} failed ({})", output.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_of_the_last_figures() {
        let log = "#2\tINITED cov: 85 ft: 86\n#4194304\tpulse  cov: 2410 ft: 9999 corp: 1/1b\n\
                   stat::number_of_executed_units: 19090159\nstat::slowest_unit_time_sec:    0\n";
        assert_eq!(
            row("share_tree", log, "475cbdc").as_deref(),
            Some("| `share_tree` | 19,090,159 | 2,410 | below 1 s | 475cbdc |\n")
        );
        assert_eq!(row("share_tree", "killed before the end", "475cbdc"), None);
    }

    #[test]
    fn the_time_of_a_process_with_an_odd_name_is_read() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 100 0 0 0 1201 30 0 0 39 19 1 0 500 1 1";
        assert_eq!(ticks(stat), Some(1231));
        assert_eq!(ticks("7 (a"), None);
    }
}
