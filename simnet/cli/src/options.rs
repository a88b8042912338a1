//! `simnet options`.
//!
//! Draws options of many seeds, runs none, and prints how often each option has another value than its usual one.
//!
//! Invariant: what is printed is a function of the number of seeds. Deliberately not here: the draws (`swarm`).

use simnet::say;
use std::process::ExitCode;

use simnet::swarm::Drawn;

/// Options of `simnet options`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 2_000)]
    pub seeds: u64,
}

/// Runs it.
pub fn run(args: &Args) -> ExitCode {
    say!("{}", Drawn::of_seeds(args.seeds).table());
    ExitCode::SUCCESS
}
