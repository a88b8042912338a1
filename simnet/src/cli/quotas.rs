//! `simnet quotas`.

use std::process::ExitCode;

use super::experiments::Chosen;
use crate::check::pool;
use crate::quotas::{EXPERIMENTS, Extent};

/// Cores of a site, which a divisor has to leave some of.
const CORES: u64 = 100;

/// Options of `simnet quotas`: strictness, hoarding, cut, skew, liars, factor, fairshare, prices.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// Divides cores, grants and demand, for a quick look.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=CORES))]
    divisor: u64,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let extent = Extent {
        seeds: args.chosen.seeds()?,
        divisor: args.divisor,
        threads: pool::threads(),
    };
    args.chosen.run(&EXPERIMENTS, &extent)
}
