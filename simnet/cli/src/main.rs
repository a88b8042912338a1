//! The simulator's command line: see `simnet_cli`.

use std::process::ExitCode;

use clap::Parser;

/// Many sites in one process allocate all the time: a run takes a third longer with glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    simnet_cli::Cli::parse().run().unwrap_or_else(|error| {
        eprintln!("simnet: {error:#}");
        ExitCode::from(2)
    })
}
