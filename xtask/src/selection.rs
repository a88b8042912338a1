//! The seeds that `cargo xtask test` runs: those that reach the most of the core in a third of the time.
//!
//! A seed reaches a counter of the compiler if the counter is not 0 after it. The selection takes the seed that adds
//! most counters for its time, again and again, until nothing is added or the time is over. Seeds of the commit's hash
//! follow, so that each commit tries some that no run has seen.
//!
//! Deliberately not here: what is reached of which file (`coverage`).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::steps::{SEEDS, go, root};

/// The crates that make up a simulated site, without those that only hold types.
pub(crate) const CRATES: [&str; 6] = ["site", "gossip", "quota", "usage", "policy", "round"];

/// Time of the selection, as seeds of mean length. With `FRESH_SEEDS` it is a third of the 60 seeds that ran before
/// there was a selection.
const LISTED: usize = 15;

pub(crate) struct Run {
    seed: u64,
    /// Wall time in seconds.
    cost: f64,
    /// Hashes of the counters of the core that it reached.
    pub(crate) reached: BTreeSet<(u64, u32)>,
}

/// Runs one seed with the program that counts.
pub(crate) fn run(folder: &Path, seed: u64) -> Result<Run, String> {
    let raw = folder.join(format!("seed-{seed}.profraw"));
    let start = Instant::now();
    let mut check = Command::new(folder.join("release/simnet"));
    check.args(["check", "--seeds", "1", "--threads", "1", "--seed"]);
    check.arg(seed.to_string()).env("LLVM_PROFILE_FILE", &raw);
    go(check.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let cost = start.elapsed().as_secs_f64();
    let text = folder.join("seed.proftext");
    let mut merge = Command::new(profdata()?);
    merge.args(["merge", "--text", "--sparse", "-o"]);
    go(merge.arg(&text).arg(&raw))?;
    let text = fs::read_to_string(&text).map_err(|error| format!("{}: {error}", text.display()))?;
    Ok(Run {
        seed,
        cost,
        reached: counters(&text),
    })
}

/// The program of the nightly toolchain that reads counters.
fn profdata() -> Result<std::path::PathBuf, String> {
    let mut rustc = Command::new("rustup");
    let output = rustc.args(["run", "nightly", "rustc", "--print", "target-libdir"]);
    let output = output
        .output()
        .map_err(|error| format!("cannot start rustup: {error}"))?;
    let libraries = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(Path::new(&libraries)
        .with_file_name("bin")
        .join("llvm-profdata"))
}

/// The counters of the core that are not 0, in LLVM's text format: name, hash, number of counters and counters of
/// each function, with a comment before each of the last three.
fn counters(text: &str) -> BTreeSet<(u64, u32)> {
    let mut reached = BTreeSet::new();
    for function in text.split("\n\n") {
        let name = function.lines().find(|line| !line.starts_with([':', '#']));
        let Some(name) = name.filter(|name| is_of_core(name)) else {
            continue;
        };
        let Some((_, values)) = function.split_once("# Counter Values:\n") else {
            continue;
        };
        let id = hash(name);
        let values = values.lines().take_while(|line| !line.starts_with('#'));
        let taken = (0..).zip(values).filter(|(_, value)| *value != "0");
        reached.extend(taken.map(|(at, _)| (id, at)));
    }
    reached
}

fn is_of_core(name: &str) -> bool {
    CRATES
        .iter()
        .any(|krate| name.contains(&format!("fairmesh_{krate}")))
}

fn hash(name: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Selects, prints what the selection reaches, and writes it.
pub(crate) fn write(runs: &[Run]) -> Result<(), String> {
    let mean = runs.iter().map(|run| run.cost).sum::<f64>() / runs.len().max(1) as f64;
    let chosen = select(runs, mean * LISTED as f64);
    let all = |runs: &[&Run]| {
        runs.iter()
            .flat_map(|run| &run.reached)
            .collect::<BTreeSet<_>>()
            .len()
    };
    let first: Vec<&Run> = runs.iter().take(60).collect();
    let every: Vec<&Run> = runs.iter().collect();
    let summary = format!(
        "{} seeds reach {} counters of the core in the time of {:.1} mean seeds; seeds 1 to {} reach {}, and all {} {}",
        chosen.len(),
        all(&chosen),
        chosen.iter().map(|run| run.cost).sum::<f64>() / mean,
        first.len(),
        all(&first),
        every.len(),
        all(&every),
    );
    println!("{summary}");
    let mut text = format!("# Written by `cargo xtask coverage`: {summary}.\n");
    for run in chosen {
        text += &format!("{}\n", run.seed);
    }
    fs::write(root().join(SEEDS), text).map_err(|error| format!("{SEEDS}: {error}"))
}

fn select(runs: &[Run], budget: f64) -> Vec<&Run> {
    let (mut chosen, mut reached, mut spent) = (Vec::new(), BTreeSet::new(), 0.0);
    loop {
        let worth = |run: &Run| run.reached.difference(&reached).count() as f64 / run.cost;
        let affordable = runs.iter().filter(|run| spent + run.cost <= budget);
        let best = affordable.max_by(|one, other| worth(one).total_cmp(&worth(other)));
        let Some(best) = best.filter(|best| worth(best) > 0.0) else {
            return chosen;
        };
        spent += best.cost;
        reached.extend(best.reached.iter().copied());
        chosen.push(best);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_core_are_read() {
        let text = ":ir\n_R_13fairmesh_site_a\n# Func Hash:\n7\n# Num Counters:\n3\n# Counter Values:\n4\n0\n1\n\n\
                    _R_14fairmesh_model_b\n# Func Hash:\n7\n# Num Counters:\n1\n# Counter Values:\n4\n";
        let places: Vec<u32> = counters(text).into_iter().map(|(_, at)| at).collect();
        assert_eq!(places, [0, 2]);
    }

    #[test]
    fn seeds_that_add_most_for_their_time_are_taken_until_it_is_over() {
        let run = |seed, cost, reached: &[u32]| Run {
            seed,
            cost,
            reached: reached.iter().map(|at| (0, *at)).collect(),
        };
        let runs = [
            run(1, 1.0, &[1, 2]),
            run(2, 2.0, &[1, 2, 3, 4, 5, 6]),
            run(3, 1.0, &[7]),
            run(4, 1.0, &[5, 6]),
            run(5, 9.0, &[8, 9]),
        ];
        let seeds: Vec<u64> = select(&runs, 4.0).iter().map(|run| run.seed).collect();
        assert_eq!(seeds, [2, 3]);
    }
}
