//! The simulator's command line: one module for each command. Those of the experiments are in
//! `fairmesh_experiments::cli`.
//!
//! Invariant: a command's exit code is 0 where everything that it claims holds, 1 where something
//! does not, and 2 where it could not be run as asked; what it prints names the next command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fairmesh_experiments::cli::{charging, experiments, paper, scale, whatif};

pub mod check;
pub mod merge;
pub mod mutants;
pub mod options;
pub mod replay;
pub mod run;

/// Fairmesh sites under simulated time, broken networks, broken disks and real load.
#[derive(Debug, Parser)]
#[command(name = "simnet", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Draws a world from each of many seeds, breaks it, heals it, and checks every invariant.
    Check(check::Args),
    /// Draws the options of many seeds, and prints how often each option has which value.
    Options(options::Args),
    /// Plants faults in the code under test, one by one, and tells what finds each.
    Mutants(mutants::Args),
    /// Puts the result files of a campaign together, and prints what one run would have.
    Merge(merge::Args),
    /// Runs a scenario file.
    Run(run::Args),
    /// Runs one seed again and shows what happened.
    Replay(replay::Args),
    /// Runs the evaluation of the FSGrid paper on gossip, and draws its figures.
    Paper(paper::Args),
    /// Runs the experiments on quotas: how strict they are, what a cut costs, how much to hold, and fairshare.
    Quotas(experiments::Quotas),
    /// Replays recorded load under an old and a new policy: who gains, who loses, when.
    Whatif(whatif::Args),
    /// Charges recorded jobs by CPU time and by MetaCentrum's penalty: who pays more, and for what.
    Charging(charging::Args),
    /// Runs the experiments on where jobs should run: selectors, old views, sites that lie.
    Placement(experiments::Placement),
    /// Measures how far and how fast a change travels among 100, 300 and 1,000 sites.
    Scale(scale::Args),
}

impl Cli {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.command {
            Command::Check(args) => check::run(args),
            Command::Merge(args) => merge::run(args),
            Command::Mutants(args) => mutants::run(args),
            Command::Run(args) => run::run(args),
            Command::Replay(args) => replay::run(args),
            Command::Options(args) => Ok(options::run(args)),
            Command::Paper(args) => paper::run(args),
            Command::Quotas(args) => args.run(),
            Command::Whatif(args) => whatif::run(args),
            Command::Charging(args) => charging::run(args),
            Command::Placement(args) => args.run(),
            Command::Scale(args) => scale::run(args),
        }
    }
}
