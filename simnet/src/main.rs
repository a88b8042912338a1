//! The simulator's command line: see `simnet::cli`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    simnet::cli::Cli::parse().run().unwrap_or_else(|error| {
        eprintln!("simnet: {error:#}");
        ExitCode::from(2)
    })
}
