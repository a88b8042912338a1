//! What `simnet quotas` and `simnet placement` share: which experiments, with whose draws, and where what they come
//! to goes.
//!
//! Invariant: exit code 0 means that all holds that must.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;

use crate::campaign::Seeds;
use crate::experiment::Experiment;

/// Options of both.
#[derive(Debug, clap::Args)]
pub(super) struct Chosen {
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
    pub(super) fn seeds(&self) -> anyhow::Result<Vec<u64>> {
        let seeds: Vec<u64> = self.seeds.from(1).collect();
        anyhow::ensure!(!seeds.is_empty(), "--seeds takes at least one seed");
        Ok(seeds)
    }

    /// Runs them, prints their tables and writes everything.
    pub(super) fn run<E>(&self, all: &[Experiment<E>], extent: &E) -> anyhow::Result<ExitCode> {
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
            let outcome = run(extent);
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
