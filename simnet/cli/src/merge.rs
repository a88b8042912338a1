//! `simnet merge`.
//!
//! Reads the result files of a campaign and prints what one run of the whole would have.
//!
//! Invariant: a campaign with a gap, an overlap or parts that were not made alike is refused, and the
//! file and the seed are named. Deliberately not here: the rules themselves (`campaign`).

use simnet::sayln;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::{check, mutants};
use fairmesh_experiments::campaign::{self, Results, Seeds};
use fairmesh_experiments::cli::paper;

/// Options of `simnet merge`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folders with result files, or the files.
    #[arg(required = true, value_name = "DIR")]
    places: Vec<PathBuf>,
    /// The seeds that must be there, such as 1..10001; without it the first and the last file decide.
    #[arg(long, value_name = "A..B")]
    seeds: Option<Seeds>,
    /// Print the merged result file.
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shards = campaign::read(&args.places)?;
    let parts = shards.len();
    let whole = args.seeds.as_ref().map(|seeds| seeds.from(1));
    let merged = campaign::merge(shards, whole.map(|range| (range.start, range.end)))?;
    if args.json {
        sayln!("{}", serde_json::to_string_pretty(&merged)?);
        return Ok(ExitCode::SUCCESS);
    }
    sayln!(
        "{parts} parts of `simnet {}` at {}.\n",
        merged.results.kind(),
        merged.commit
    );
    let time = check::Time {
        wall_ms: merged.wall_ms,
        cpu_ms: merged.cpu_ms,
    };
    Ok(match &merged.results {
        Results::Check(summary) => {
            check::print(summary, time);
            check::print_failures(summary);
            ExitCode::from(u8::from(!summary.failed.is_empty()))
        }
        Results::Mutants(hunted) => {
            let all = mutants::print(hunted);
            sayln!("{} s of CPU.", merged.cpu_ms / 1_000);
            ExitCode::from(u8::from(!all))
        }
        Results::Paper { days, runs } => paper::print_merged(*days, runs),
    })
}
