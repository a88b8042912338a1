//! `simnet check`.
//!
//! Runs many seeds, prints what was tried and what held, and shows the first failure in full.
//!
//! Invariant: what is printed on standard output is a function of the arguments, but for the time
//! that it took. Deliberately not here: runs and invariants (`check`, `invariants`).

use std::fs;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use fairmesh_cluster::Seed;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::check::summary::{Summary, percentile};
use crate::check::{Failure, Run, pool, seeds, shrink};
use crate::invariants::{LIVENESS, TABLE};
use crate::report;
use crate::swarm::Options;

/// Options of `simnet check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    pub seeds: usize,
    /// The first seed; the others follow it.
    #[arg(long, default_value_t = 1, conflicts_with = "from_commit")]
    pub seed: u64,
    /// Take seeds from a commit's hash; `HEAD` is the one that is checked out.
    #[arg(long, value_name = "HASH", value_parser = commit_of)]
    pub from_commit: Option<String>,
    /// Sites of each Grid, instead of 2 to 12.
    #[arg(long)]
    pub sites: Option<usize>,
    /// Simulated days of each safety phase, instead of what keeps a seed short.
    #[arg(long)]
    pub days: Option<u64>,
    /// Run with the options in this file instead of drawing them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sites", "days"])]
    pub options: Option<PathBuf>,
    /// Go on after failures.
    #[arg(long)]
    pub keep_going: bool,
    /// Take away what the first failure does not need, in so many runs at most, and show the rest.
    #[arg(long, value_name = "RUNS")]
    pub shrink: Option<usize>,
    /// Where the report of the first failure goes.
    #[arg(long, value_name = "FOLDER", default_value = "simnet-failure")]
    pub report: PathBuf,
    /// Print the sums as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The hash that the words name.
fn commit_of(words: &str) -> Result<String, std::convert::Infallible> {
    Ok(match words {
        "HEAD" => crate::report::commit(),
        hash => hash.to_owned(),
    })
}

impl Args {
    fn seed(&self, index: usize) -> Seed {
        match &self.from_commit {
            Some(commit) => seeds::of_commit(commit, index as u64),
            None => Seed(self.seed.wrapping_add(index as u64)),
        }
    }

    fn options(&self, seed: Seed, given: Option<&Options>) -> Options {
        let minutes = self.days.map(|days| days * 24 * 60);
        match (given, self.sites, minutes) {
            (Some(given), ..) => given.clone(),
            (None, None, None) => Options::draw(seed),
            (None, Some(sites), _) => Options::draw_of(seed, sites.max(2), minutes),
            (None, None, Some(_)) => Options {
                minutes: minutes.unwrap_or(0),
                ..Options::draw(seed)
            },
        }
    }

    fn given(&self) -> anyhow::Result<Option<Options>> {
        let Some(file) = &self.options else {
            return Ok(None);
        };
        let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
        let options = Options::from_toml(&text).with_context(|| format!("{}", file.display()))?;
        Ok(Some(options))
    }

    /// The arguments that make the same run again.
    fn again(&self, seed: u64) -> String {
        let mut line = format!("cargo run --release -p simnet -- check --seeds 1 --seed {seed}");
        if let Some(sites) = self.sites {
            line += &format!(" --sites {sites}");
        }
        if let Some(days) = self.days {
            line += &format!(" --days {days}");
        }
        if let Some(file) = &self.options {
            line += &format!(" --options {}", file.display());
        }
        line
    }
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let given = args.given()?;
    let bar = bar(args.seeds as u64)?;
    let mut summary = Summary::default();
    let job = |index| {
        let seed = args.seed(index);
        Run::new(seed, args.options(seed, given.as_ref())).finish()
    };
    pool::in_order(args.seeds, pool::threads(), job, |_, outcome| {
        bar.inc(1);
        summary.add(&outcome);
        if let Some(failure) = outcome
            .failure
            .as_ref()
            .filter(|_| args.keep_going && !args.json)
        {
            let (seed, at) = (outcome.seed.0, failure.at_ms / 1_000);
            let line = format!(
                "seed {seed}: {} after {at} s: {}",
                failure.invariant, failure.message
            );
            bar.suspend(|| sayln!("{line}"));
        }
        outcome.failure.is_none() || args.keep_going
    });
    bar.finish_and_clear();
    if args.json {
        sayln!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print_summary(&summary);
        sayln!("It took {:.1} s.", started.elapsed().as_secs_f64());
    }
    let first = summary.failed.first();
    if let Some((seed, failure)) = first.filter(|_| !args.json) {
        let options = args.options(Seed(*seed), given.as_ref());
        print_failure(args, *seed, &options, failure);
        write_report(args, Seed(*seed), options.clone(), failure)?;
        if let Some(runs) = args.shrink {
            print_shrunk(*seed, options, failure, runs);
        }
    }
    Ok(ExitCode::from(u8::from(!summary.failed.is_empty())))
}

fn bar(count: u64) -> anyhow::Result<ProgressBar> {
    let bar = ProgressBar::new(count);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = "{bar:40} {pos} of {len}, {eta} left";
    bar.set_style(ProgressStyle::with_template(style)?);
    Ok(bar)
}

fn table(header: [&str; 2]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(header);
    table
}

fn print_summary(summary: &Summary) {
    sayln!(
        "{} seeds, {:.2} node-years, {} steps, {} failed.",
        summary.seeds,
        summary.node_years(),
        summary.steps,
        summary.failed.len()
    );
    let mut checks = table(["Invariant", "Checks"]);
    for name in TABLE.iter().map(|entry| entry.name).chain([LIVENESS]) {
        let count = summary.checks.get(name).copied().unwrap_or(0);
        checks.add_row([name.to_owned(), count.to_string()]);
    }
    sayln!("{checks}");
    let mut faults = table(["Fault", "Times"]);
    for (kind, count) in &summary.faults {
        faults.add_row([kind.clone(), count.to_string()]);
    }
    sayln!("{faults}");
    let of = |percent| percentile(&summary.healed_ms, percent).unwrap_or(0) as f64 / 1_000.0;
    sayln!(
        "One view after the heal: p50 {:.1} s, p95 {:.1} s, p99 {:.1} s, max {:.1} s.",
        of(50),
        of(95),
        of(99),
        of(100)
    );
    if let Some(count) = summary.one_in() {
        sayln!("Fewer than one seed in {count} fails, with 95 % confidence.");
    }
}

fn print_failure(args: &Args, seed: u64, options: &Options, failure: &Failure) {
    sayln!(
        "\nSeed {seed} fails `{}` after {} ms.",
        failure.invariant,
        failure.at_ms
    );
    let node = failure
        .node
        .map_or("The Grid".to_owned(), |node| format!("Site {node}"));
    sayln!("{node}: {}", failure.message);
    sayln!("\nOptions:\n{}", options.to_toml());
    sayln!("Last events:\n{}", failure.last_events.join("\n"));
    sayln!("\nRun it again with\n  {}", args.again(seed));
}

/// Runs the seed once more, up to where it fails, and writes down what is there then.
fn write_report(
    args: &Args,
    seed: Seed,
    options: Options,
    failure: &Failure,
) -> anyhow::Result<()> {
    let table: toml::Table = toml::from_str(&options.to_toml())?;
    let mut run = Run::new(seed, options);
    while run.step() {}
    let told = report::Failure {
        seed,
        invariant: failure.invariant.to_owned(),
        node: failure.node,
        why: failure.message.clone(),
        options: table
            .into_iter()
            .map(|(name, value)| (name, value.to_string()))
            .collect(),
        command: args.again(seed.0),
        story: Vec::new(),
    };
    report::write(&args.report, &told, run.world())?;
    sayln!("The report is in {}.", args.report.display());
    Ok(())
}

fn print_shrunk(seed: u64, options: Options, failure: &Failure, runs: usize) {
    let options = shrink::shrink(Seed(seed), options, failure.invariant, runs);
    sayln!("\nThis still fails it:\n{}", options.to_toml());
    if let Some(failure) = Run::new(Seed(seed), options).finish().failure {
        sayln!("After {} ms: {}", failure.at_ms, failure.message);
        sayln!("{}", failure.last_events.join("\n"));
    }
}
