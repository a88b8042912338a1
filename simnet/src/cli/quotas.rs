//! `simnet quotas`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;

use crate::campaign::Seeds;
use crate::quotas::{EXPERIMENTS, Extent};

/// Cores of a site, which a divisor has to leave some of.
const CORES: u64 = 100;

/// Options of `simnet quotas`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which experiments: strictness, cut, factor, fairshare; all of them unless given.
    experiments: Vec<String>,
    /// Where tables and pictures go.
    #[arg(long, value_name = "DIR", default_value = "quota-figures")]
    out: PathBuf,
    /// How many seeds, counted from 1; or which, such as `1..6`.
    #[arg(long, default_value = "10")]
    seeds: Seeds,
    /// Divides cores, grants and demand, for a quick look.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=CORES))]
    divisor: u64,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let extent = Extent {
        seeds: args.seeds.from(1).collect(),
        divisor: args.divisor,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    anyhow::ensure!(!extent.seeds.is_empty(), "--seeds takes at least one seed");
    for name in &args.experiments {
        let known = EXPERIMENTS.map(|(known, _)| known);
        anyhow::ensure!(
            known.contains(&name.as_str()),
            "there is no experiment `{name}`: {}",
            known.join(", ")
        );
    }
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the folder {}", args.out.display()))?;
    let is_wanted = |name: &str| {
        args.experiments.is_empty() || args.experiments.iter().any(|wanted| wanted == name)
    };
    let mut all_hold = true;
    for (name, run) in EXPERIMENTS {
        if !is_wanted(name) {
            continue;
        }
        let began = Instant::now();
        let outcome = run(&extent);
        for table in outcome.tables.iter().chain([&outcome.claims_table(name)]) {
            sayln!("{}", table.text());
        }
        outcome.write(name, &args.out)?;
        all_hold &= outcome.holds();
        eprintln!("{name}: {:.0} s", began.elapsed().as_secs_f64());
    }
    sayln!("Tables and pictures are in {}.", args.out.display());
    Ok(ExitCode::from(u8::from(!all_hold)))
}
