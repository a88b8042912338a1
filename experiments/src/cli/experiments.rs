//! `simnet quotas` and `simnet placement`: which experiments, with whose draws, and where what they come to goes.
//!
//! Invariant: exit code 0 means that all holds that must.

use simnet::sayln;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;

use crate::campaign::Seeds;
use crate::experiment::{Experiment, Extent};
use crate::{placement, quotas};
use simnet::check::pool;

/// Cores of a site, which a divisor has to leave some of.
const CORES: u64 = 100;

/// Options of `simnet quotas`: strictness, hoarding, cut, skew, liars, factor, fairshare, prices.
#[derive(Debug, clap::Args)]
pub struct Quotas {
    #[command(flatten)]
    chosen: Chosen,
    /// Divides cores, grants and demand, for a quick look.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=CORES))]
    divisor: u64,
}

impl Quotas {
    /// Runs it.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.chosen.run(&quotas::EXPERIMENTS, self.divisor, 0)
    }
}

/// Options of `simnet placement`: gruber, stale, liars, utility.
#[derive(Debug, clap::Args)]
pub struct Placement {
    #[command(flatten)]
    chosen: Chosen,
    /// Jobs of each submit host.
    #[arg(long, default_value_t = 1_000)]
    jobs: usize,
}

impl Placement {
    /// Runs it.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.chosen.run(&placement::EXPERIMENTS, 1, self.jobs)
    }
}

/// Options of both.
#[derive(Debug, clap::Args)]
struct Chosen {
    /// Which experiments, all of them unless given.
    experiments: Vec<String>,
    /// Where tables and pictures go.
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    out: PathBuf,
    /// How many seeds, counted from 1; or which, such as `1..6`.
    #[arg(long, default_value = "10")]
    seeds: Seeds,
}

impl Chosen {
    /// Runs them, prints their tables and writes everything.
    fn run(&self, all: &[Experiment], divisor: u64, jobs: usize) -> anyhow::Result<ExitCode> {
        let extent = Extent {
            seeds: self.seeds.from(1).collect(),
            divisor,
            jobs,
            threads: pool::threads(),
        };
        anyhow::ensure!(!extent.seeds.is_empty(), "--seeds takes at least one seed");
        let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        for name in &self.experiments {
            anyhow::ensure!(
                known.contains(&name.as_str()),
                "there is no experiment `{name}`: {}",
                known.join(", ")
            );
        }
        std::fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make the folder {}", self.out.display()))?;
        let mut all_hold = true;
        for (name, run) in all {
            if !self.experiments.is_empty() && !self.experiments.iter().any(|one| one == name) {
                continue;
            }
            let began = Instant::now();
            let outcome = run(&extent);
            for table in outcome.tables.iter().chain([&outcome.claims_table(name)]) {
                sayln!("{}", table.text());
            }
            outcome.write(name, &self.out)?;
            all_hold &= outcome.holds();
            eprintln!("{name}: {:.0} s", began.elapsed().as_secs_f64());
        }
        sayln!("Tables and pictures are in {}.", self.out.display());
        Ok(ExitCode::from(u8::from(!all_hold)))
    }
}
