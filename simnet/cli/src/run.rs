//! `simnet run`: tells the story of a scenario file, with one seed or several.
//!
//! Invariant: exit code 0 means that everything which the file expects held with every seed, and so
//! did what all scenarios end with; a failure leaves a report and names the command that repeats it.
//!
//! Deliberately not here: what scenarios are (`simnet::scenario`).

use simnet::sayln;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use comfy_table::Table;
use fairmesh_cluster::Seed;

use simnet::event_log::clock_text;
use simnet::length::length;
use simnet::report::{Failure, write};
use simnet::scenario::{Invariants, Line, Outcome, Plan, Scenario, Verdict, run as run_scenario};

/// Options of `simnet run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The scenario, such as `configs/scenarios/bridge-only.toml`.
    scenario: PathBuf,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, one after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Prints one JSON object for each seed and nothing else.
    #[arg(long)]
    json: bool,
    /// Folder for reports of failures.
    #[arg(long, default_value = "simnet-reports")]
    report: PathBuf,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let scenario = read(&args.scenario)?;
    if !args.json {
        sayln!("{}\n{}\n", scenario.title, scenario.shows);
    }
    let mut all_good = true;
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let mut lines = Vec::new();
        let mut tell = |line: &Line| {
            if !args.json {
                sayln!("{}", text(line));
            }
            lines.push(text(line));
        };
        if !args.json {
            sayln!("seed {seed}");
        }
        let outcome = run_scenario(
            &scenario,
            Seed(seed),
            Plan::default(),
            &mut Invariants::new(&scenario),
            &mut tell,
        );
        match args.json {
            true => sayln!("{}", to_json(&scenario, &outcome)),
            false => sayln!("{}\n", summary(&outcome)),
        }
        if !outcome.is_good() {
            all_good = false;
            let folder = report(args, &scenario, &outcome, lines)?;
            eprintln!("report: {}", folder.display());
        }
    }
    Ok(match all_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Reads a scenario file.
pub(super) fn read(file: &Path) -> anyhow::Result<Scenario> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Ok(Scenario::parse(&text, &file.display().to_string())?)
}

/// A line of the story as it is printed.
pub(super) fn text(line: &Line) -> String {
    let at = clock_text(line.at.0);
    match &line.verdict {
        None => format!("{at}  {}", line.what),
        Some(Verdict::Held(remark)) if remark.is_empty() => {
            format!("{at}  expect: {} … ok", line.what)
        }
        Some(Verdict::Held(remark)) => format!("{at}  expect: {} … ok ({remark})", line.what),
        Some(Verdict::Failed(why)) => format!("{at}  expect: {} … FAILED: {why}", line.what),
    }
}

fn summary(outcome: &Outcome) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    let failed = outcome.failed.len();
    row(
        "expectations",
        format!("{} held, {failed} failed", outcome.held),
    );
    row("longest convergence", length(outcome.convergence));
    row("records acknowledged", outcome.records.to_string());
    row("node-years", format!("{:.3}", outcome.node_years()));
    row("steps", outcome.world.steps().to_string());
    let faults: Vec<String> = outcome
        .faults()
        .iter()
        .map(|(word, count)| format!("{word} {count}"))
        .collect();
    row("faults", faults.join(", "));
    row("trace", format!("{:032x}", outcome.world.trace_hash()));
    table
}

fn to_json(scenario: &Scenario, outcome: &Outcome) -> serde_json::Value {
    let faults: serde_json::Map<String, serde_json::Value> = outcome
        .faults()
        .iter()
        .map(|(word, count)| (word.to_owned(), count.into()))
        .collect();
    serde_json::json!({
        "scenario": scenario.name,
        "seed": outcome.seed.0,
        "good": outcome.is_good(),
        "held": outcome.held,
        "failed": outcome.failed.iter().map(text).collect::<Vec<_>>(),
        "convergence_ms": outcome.convergence.0,
        "records": outcome.records,
        "node_years": outcome.node_years(),
        "steps": outcome.world.steps(),
        "faults": faults,
        "trace": format!("{:032x}", outcome.world.trace_hash()),
    })
}

fn report(
    args: &Args,
    scenario: &Scenario,
    outcome: &Outcome,
    story: Vec<String>,
) -> anyhow::Result<PathBuf> {
    let first = &outcome.failed[0];
    let Some(Verdict::Failed(why)) = &first.verdict else {
        unreachable!("only what failed is listed");
    };
    let place = match first.line {
        0 => first.what.clone(),
        line => format!("{} (line {line})", first.what),
    };
    let failure = Failure {
        seed: outcome.seed,
        invariant: place,
        node: None,
        why: why.clone(),
        options: vec![("scenario".to_owned(), args.scenario.display().to_string())],
        command: format!(
            "simnet run {} --seed {}",
            args.scenario.display(),
            outcome.seed.0
        ),
        story,
    };
    let folder = args
        .report
        .join(format!("{}-{}", scenario.name, outcome.seed.0));
    write(&folder, &failure, &outcome.world)?;
    Ok(folder)
}
