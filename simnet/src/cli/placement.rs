//! `simnet placement`: the experiments on where jobs should run, as tables, figures and claims.
//!
//! Invariant: exit code 0 means that every claim that is required holds. Deliberately not here: the experiments
//! (`simnet::placement`).

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use crate::figures::Figure;
use crate::placement::report::{self, Claim, Table};
use crate::placement::{gruber, liars, stale, utility};

/// Most seeds: a seed takes half a minute.
const SEEDS_MAX: u64 = 1_000;

/// Options of `simnet placement`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where tables and figures go.
    #[arg(long, value_name = "DIR", default_value = "placement-figures")]
    out: PathBuf,
    /// Seeds of each experiment, counted from 1.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    seeds: u64,
    /// Jobs of each submit host.
    #[arg(long, default_value_t = 1_000)]
    jobs: usize,
    /// Only these experiments.
    #[arg(long, num_args = 1.., value_enum)]
    only: Vec<Part>,
}

/// One experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// GRUBER's six selectors, its tables and its figure of completion.
    Gruber,
    /// Views of different ages.
    Stale,
    /// Sites that say that all their CPUs are free.
    Liars,
    /// Partial utility, one option a requirement, all or nothing.
    Utility,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    std::fs::create_dir_all(&args.out)?;
    let wanted = |part: Part| args.only.is_empty() || args.only.contains(&part);
    let mut claims = Vec::new();
    if wanted(Part::Gruber) {
        claims.extend(run_gruber(args)?);
    }
    if wanted(Part::Stale) {
        let rows = stale::rows(args.seeds, args.jobs);
        tell(args, "staleness", &stale::table(&rows))?;
        draw(args, &stale::figures(&rows))?;
        claims.extend(stale::claims(&rows));
    }
    if wanted(Part::Liars) {
        let rows = liars::rows(args.seeds, args.jobs);
        tell(args, "liars", &liars::table(&rows))?;
        claims.extend(liars::claims(&rows));
    }
    if wanted(Part::Utility) {
        let rows = utility::rows(args.seeds);
        tell(args, "utility-all", &utility::table(&rows))?;
        utility::figure(&rows).write(&args.out)?;
        tell(
            args,
            "utility-sweep",
            &utility::table(&utility::sweep(args.seeds)),
        )?;
        claims.extend(utility::claims(&rows));
    }
    say!("{}", report::claims(&claims));
    let required = || claims.iter().filter(|claim| claim.required);
    let held = required().filter(|claim| claim.holds).count();
    sayln!(
        "\n{held} of {} claims that are required hold.",
        required().count()
    );
    eprintln!(
        "{} s; tables and figures are in {}",
        began.elapsed().as_secs(),
        args.out.display()
    );
    Ok(ExitCode::from(u8::from(held < required().count())))
}

fn run_gruber(args: &Args) -> anyhow::Result<Vec<Claim>> {
    let outcome = gruber::Outcome::of(args.seeds, args.jobs);
    outcome.table().write(&args.out, "gruber")?;
    for hosts in [1, 4] {
        sayln!("{hosts}x1K, mean (sd) of {} Grids\n", args.seeds);
        sayln!("{}", outcome.compared(hosts).markdown());
    }
    sayln!("{}", outcome.equal_runs().markdown());
    draw(args, &outcome.figures())?;
    Ok(outcome.claims())
}

fn tell(args: &Args, name: &str, table: &Table) -> anyhow::Result<()> {
    table.write(&args.out, name)?;
    sayln!("{}", table.markdown());
    Ok(())
}

fn draw(args: &Args, figures: &[Figure]) -> anyhow::Result<()> {
    for figure in figures {
        figure.write(&args.out)?;
    }
    Ok(())
}
