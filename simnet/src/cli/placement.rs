//! `simnet placement`.

use std::process::ExitCode;

use super::experiments::Chosen;
use crate::check::pool;
use crate::placement::{EXPERIMENTS, Extent};

/// Options of `simnet placement`: gruber, stale, liars, utility.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// Jobs of each submit host.
    #[arg(long, default_value_t = 1_000)]
    jobs: usize,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let extent = Extent {
        seeds: args.chosen.seeds()?,
        jobs: args.jobs,
        threads: pool::threads(),
    };
    args.chosen.run(&EXPERIMENTS, &extent)
}
