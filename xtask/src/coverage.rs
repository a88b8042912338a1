//! `cargo xtask coverage`: which lines and branches of the core the seeds of `simnet check` take.
//!
//! It builds the simulator with counters (cargo-llvm-cov, nightly, as stable Rust counts no branches), runs seeds, and
//! writes the tables of `DOCUMENT`: totals of each crate, and of each file the lines that no seed reaches and the
//! conditions that only ever had one value. Tests of the crates are not in the build, so they count nothing. It also
//! lists the seeds that `cargo xtask test` runs (`selection`).
//!
//! Deliberately not here: what seeds draw (`simnet options`), and goals.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::selection::{self, CRATES};
use crate::steps::{go, root, target};

const DOCUMENT: &str = "docs/judge.md";
const BEGIN: &str = "<!-- coverage: begin, written by `cargo xtask coverage` -->\n";
const END: &str = "<!-- coverage: end -->\n";

/// Seeds that are run, unless told otherwise.
const SEEDS: &str = "300";

/// What a report says of one file.
#[derive(Debug, Default, PartialEq, Eq)]
struct File {
    /// Lines with code, and how often each was reached.
    lines: BTreeMap<u32, u64>,
    /// Conditions by line and place in it: how often each value was seen.
    conditions: BTreeMap<(u32, String), Vec<u64>>,
}

/// Runs the seeds and writes the tables, and the seeds that reach the most.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let seeds = match arguments {
        [] => SEEDS,
        ["--seeds", seeds] => *seeds,
        _ => return Err("cargo xtask coverage takes --seeds N and nothing else".to_owned()),
    };
    let last: u64 = seeds.parse().map_err(|error| format!("{seeds}: {error}"))?;
    llvm_cov(&["clean", "--workspace"])?;
    let build = "run --release --branch --no-report --package simnet -- --version";
    llvm_cov(&build.split(' ').collect::<Vec<_>>())?;
    let folder = target().join("llvm-cov-target");
    let mut runs = Vec::new();
    for seed in 1..=last {
        runs.push(selection::run(&folder, seed)?);
        println!(
            "seed {seed} of {last}: {} counters",
            runs[runs.len() - 1].reached.len()
        );
    }
    selection::write(&runs)?;
    let report = target().join("coverage.lcov");
    let path = report.to_str().ok_or("the target directory is not UTF-8")?;
    llvm_cov(&[
        "report",
        "--release",
        "--branch",
        "--lcov",
        "--output-path",
        path,
    ])?;
    let text = fs::read_to_string(&report).map_err(|error| format!("{path}: {error}"))?;
    write(&files(&text), seeds)
}

fn commit() -> Result<String, String> {
    let mut git = Command::new("git");
    let output = git
        .args(["rev-parse", "--short=8", "HEAD"])
        .current_dir(root())
        .output();
    let output = output.map_err(|error| format!("cannot start git: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn llvm_cov(arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "llvm-cov"]);
    go(command.args(arguments)).map_err(|error| {
        format!(
            "{error}\nit takes `rustup toolchain install nightly --component llvm-tools` and `cargo install \
             cargo-llvm-cov`"
        )
    })
}

/// Reads a report in the format of lcov: of each file of `CRATES` what was reached.
fn files(report: &str) -> BTreeMap<String, File> {
    let mut files = BTreeMap::new();
    let mut name = None;
    for line in report.lines() {
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        if key == "SF" {
            name = of_core(value);
        }
        let Some(name) = &name else {
            continue;
        };
        let file: &mut File = files.entry(name.clone()).or_default();
        let values: Vec<&str> = value.split(',').collect();
        match (key, &values[..]) {
            ("DA", [line, count, ..]) => {
                let (Ok(line), Ok(count)) = (line.parse(), count.parse::<u64>()) else {
                    continue;
                };
                *file.lines.entry(line).or_default() += count;
            }
            ("BRDA", [line, block, branch, count]) => {
                let (Ok(line), Ok(place)) = (line.parse(), branch.parse::<usize>()) else {
                    continue;
                };
                // Two values a condition; `-` is one that no run came to.
                let counts = file
                    .conditions
                    .entry((line, format!("{block} {}", place / 2)))
                    .or_insert_with(|| vec![0, 0]);
                counts[place % 2] += count.parse().unwrap_or(0);
            }
            _ => {}
        }
    }
    files
}

/// The name below the root of a file of the core.
fn of_core(path: &str) -> Option<String> {
    let (_, name) = path.rsplit_once("crates/")?;
    let krate = name.split('/').next()?;
    CRATES.contains(&krate).then(|| format!("crates/{name}"))
}

impl File {
    fn reached(&self) -> usize {
        self.lines.values().filter(|count| **count > 0).count()
    }

    fn branches(&self) -> impl Iterator<Item = u64> {
        self.conditions.values().flatten().copied()
    }

    /// Lines that no seed reaches.
    fn unreached(&self) -> Vec<u32> {
        let lines = self.lines.iter().filter(|(_, count)| **count == 0);
        lines.map(|(line, _)| *line).collect()
    }

    /// Lines with a condition that had only one value.
    fn one_sided(&self) -> Vec<u32> {
        let is_one_sided =
            |counts: &[u64]| counts.contains(&0) && counts.iter().any(|count| *count > 0);
        let conditions = self.conditions.iter();
        let lines = conditions
            .filter(|(_, counts)| is_one_sided(counts))
            .map(|((line, _), _)| *line);
        lines.collect::<BTreeSet<u32>>().into_iter().collect()
    }
}

/// Numbers in their order, runs of them as `3–7`.
fn ranges(numbers: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = numbers;
    while let [first, ..] = rest {
        let run = (*first..)
            .zip(rest)
            .take_while(|(expected, is)| expected == *is)
            .count();
        let separator = if text.is_empty() { "" } else { ", " };
        let _ = match run {
            1 => write!(text, "{separator}{first}"),
            _ => write!(text, "{separator}{first}–{}", rest[run - 1]),
        };
        rest = &rest[run..];
    }
    text
}

fn write(files: &BTreeMap<String, File>, seeds: &str) -> Result<(), String> {
    if files.is_empty() {
        return Err("the report has no file of the core".to_owned());
    }
    let mut tables = format!(
        "Seeds 1 to {seeds} of `simnet check`, at commit {}.\n\n\
         | crate | lines | reached | branches | taken |\n|---|--:|--:|--:|--:|\n",
        commit()?
    );
    for krate in CRATES {
        let of = || {
            files
                .iter()
                .filter(move |(name, _)| of_crate(name) == Some(krate))
                .map(|(_, file)| file)
        };
        let lines: usize = of().map(|file| file.lines.len()).sum();
        let reached: usize = of().map(File::reached).sum();
        let branches = of().flat_map(File::branches).count();
        let taken = of()
            .flat_map(File::branches)
            .filter(|count| *count > 0)
            .count();
        let _ = writeln!(
            tables,
            "| {krate} | {lines} | {} | {branches} | {} |",
            share(reached, lines),
            share(taken, branches)
        );
    }
    tables += "\n| file | lines that no seed reaches | lines with a condition that had only one value |\n|---|---|---|\n";
    for (name, file) in files {
        let (unreached, one_sided) = (ranges(&file.unreached()), ranges(&file.one_sided()));
        if !unreached.is_empty() || !one_sided.is_empty() {
            let _ = writeln!(tables, "| {name} | {unreached} | {one_sided} |");
        }
    }
    replace(&root().join(DOCUMENT), &tables)
}

fn of_crate(name: &str) -> Option<&str> {
    name.split('/').nth(1)
}

fn share(part: usize, all: usize) -> String {
    format!("{:.1} %", 100.0 * part as f64 / all.max(1) as f64)
}

fn replace(document: &Path, tables: &str) -> Result<(), String> {
    let named = |error| format!("{}: {error}", document.display());
    let text = fs::read_to_string(document).map_err(named)?;
    let (before, rest) = text
        .split_once(BEGIN)
        .ok_or("the first mark of the tables is away")?;
    let (_, after) = rest
        .split_once(END)
        .ok_or("the last mark of the tables is away")?;
    fs::write(document, format!("{before}{BEGIN}{tables}{END}{after}")).map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_what_no_seed_reaches() {
        let report = "SF:/x/crates/site/src/a.rs\nDA:1,4\nDA:2,0\nDA:3,0\nDA:5,0\nBRDA:1,0,0,4\nBRDA:1,0,1,-\n\
                      BRDA:2,0,0,-\nBRDA:2,0,1,-\nend_of_record\nSF:/x/crates/model/src/b.rs\nDA:1,0\nend_of_record\n";
        let files = files(report);
        assert_eq!(files.keys().collect::<Vec<_>>(), ["crates/site/src/a.rs"]);
        let file = &files["crates/site/src/a.rs"];
        assert_eq!((file.reached(), file.lines.len()), (1, 4));
        assert_eq!(ranges(&file.unreached()), "2–3, 5");
        assert_eq!(file.one_sided(), [1]);
        assert_eq!(file.branches().filter(|count| *count > 0).count(), 1);
    }
}
