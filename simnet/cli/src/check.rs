//! `simnet check`.
//!
//! Runs many seeds, prints what was tried and what held, and shows the first failure in full.
//!
//! Invariant: what is printed on standard output is a function of the arguments, but for the time
//! that it took. Deliberately not here: runs and invariants (`check`, `invariants`).

use simnet::sayln;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use fairmesh_cluster::Seed;

use fairmesh_experiments::campaign::{Part, Results, Seeds};
use simnet::check::summary::{Failed, Summary};
use simnet::check::{Run, pool, seeds, shrink};
use simnet::liar::Choice;
use simnet::progress;
use simnet::report;
use simnet::swarm::Options;

mod tell;

pub(crate) use tell::{Time, print, print_failures};

/// Options of `simnet check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many seeds, or which: `100`, `1..101`, `1..=100`.
    #[arg(long, default_value = "100")]
    pub seeds: Seeds,
    /// The first seed, where `--seeds` says how many; the others follow it.
    #[arg(long, conflicts_with = "from_commit")]
    pub seed: Option<u64>,
    /// Take seeds from a commit's hash; `HEAD` is the one that is checked out.
    #[arg(long, value_name = "HASH", value_parser = commit_of)]
    pub from_commit: Option<String>,
    /// Run the seeds of this file first, one a line: see `cargo xtask coverage`.
    #[arg(long, value_name = "FILE", requires = "from_commit", conflicts_with = "out", value_parser = listed)]
    pub first: Option<Listed>,
    /// Sites of each Grid, instead of 2 to 12.
    #[arg(long)]
    pub sites: Option<usize>,
    /// Simulated days of each safety phase, instead of what keeps a seed short.
    #[arg(long)]
    pub days: Option<u64>,
    /// Draw members that lie: `withstood`, in a third of the seeds; in all seeds `all`, or the one named.
    #[arg(long, value_name = "WHICH")]
    pub lies: Option<Choice>,
    /// Draw Grids of days, weeks and months, too, whose documents expire.
    #[arg(long, conflicts_with = "days")]
    pub slow: bool,
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
    /// Leave the sums in this folder, as one part of a campaign: see `simnet merge`. Failures do not
    /// end it.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Seeds that are run at a time, instead of one for each core.
    #[arg(long)]
    pub threads: Option<usize>,
}

/// The hash that the words name.
fn commit_of(words: &str) -> Result<String, std::convert::Infallible> {
    Ok(match words {
        "HEAD" => simnet::report::commit(),
        hash => hash.to_owned(),
    })
}

/// The seeds of a file, in its order.
#[derive(Debug, Clone)]
pub struct Listed(Vec<u64>);

/// Reads a file of seeds, one a line; lines that begin with `#` are comments.
fn listed(file: &str) -> Result<Listed, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let lines = text.lines().enumerate();
    let seeds = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let seeds = seeds.map(|(at, line)| {
        let seed = line.parse::<u64>();
        seed.map_err(|error| format!("{file}:{}: {error}", at + 1))
    });
    seeds.collect::<Result<_, _>>().map(Listed)
}

impl Args {
    /// The numbers of the seeds. Those of a file are counted from 0, and those of a commit follow.
    fn range(&self) -> anyhow::Result<Range<u64>> {
        let is_range = matches!(self.seeds, Seeds::Range(_));
        anyhow::ensure!(
            !is_range || self.seed.is_none(),
            "--seeds says where to begin: leave out --seed"
        );
        anyhow::ensure!(
            !is_range || self.first.is_none(),
            "--first takes a number of seeds, and no range"
        );
        let first = if self.from_commit.is_some() { 0 } else { 1 };
        let numbers = self.seeds.from(self.seed.unwrap_or(first));
        Ok(numbers.start..numbers.end + self.listed().len() as u64)
    }

    fn listed(&self) -> &[u64] {
        self.first.as_ref().map_or(&[], |listed| &listed.0)
    }

    fn seed(&self, number: u64) -> Seed {
        let Some(commit) = &self.from_commit else {
            return Seed(number);
        };
        let listed = self.listed();
        let seed = listed.get(usize::try_from(number).unwrap_or(usize::MAX));
        let of_commit = || seeds::of_commit(commit, number - listed.len() as u64);
        seed.map_or_else(of_commit, |seed| Seed(*seed))
    }

    /// What decides the results beside the seeds.
    fn set_up(&self, given: Option<&Options>) -> String {
        let word = |name: &str, value: Option<String>| value.map(|value| format!("{name} {value}"));
        let words = [
            word("seeds of commit", self.from_commit.clone()),
            word("sites", self.sites.map(|sites| sites.to_string())),
            word("days", self.days.map(|days| days.to_string())),
            word("lies", self.lies.map(|choice| choice.to_string())),
            self.slow.then(|| "slow".to_owned()),
            word("options", given.map(Options::to_toml)),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        words.join(", ")
    }

    fn options(&self, seed: Seed, given: Option<&Options>) -> Options {
        let options = self.options_of(seed, given);
        if given.is_some() {
            return options;
        }
        let options = match self.lies {
            Some(choice) => options.with_lies(seed, choice),
            None => options,
        };
        if self.slow {
            options.with_pace(seed)
        } else {
            options
        }
    }

    fn options_of(&self, seed: Seed, given: Option<&Options>) -> Options {
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
        if let Some(choice) = self.lies {
            line += &format!(" --lies {choice}");
        }
        if self.slow {
            line += " --slow";
        }
        if let Some(file) = &self.options {
            line += &format!(" --options {}", file.display());
        }
        line
    }
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (given, range) = (args.given()?, args.range()?);
    let part = Part::begin(args.set_up(given.as_ref()), range.start, range.end, None);
    let count = range.end - range.start;
    let goes_on = args.keep_going || args.out.is_some();
    let bar = progress::bar(count, "seeds");
    let mut summary = Summary::default();
    let job = |index: usize| {
        let seed = args.seed(range.start + index as u64);
        let options = args.options(seed, given.as_ref());
        (Run::new(seed, options.clone()).finish(), options)
    };
    let threads = args.threads.unwrap_or_else(pool::threads);
    pool::in_order(
        usize::try_from(count)?,
        threads,
        job,
        |_, (outcome, options)| {
            bar.inc(1);
            summary.add(&outcome, &options);
            if let Some(failure) = outcome.failure.as_ref().filter(|_| goes_on && !args.json) {
                let line = tell::failure(outcome.seed.0, failure);
                bar.suspend(|| sayln!("{line}"));
            }
            outcome.failure.is_none() || goes_on
        },
    );
    bar.finish_and_clear();
    let shard = part.end(Results::Check(summary.clone()))?;
    if args.json {
        sayln!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        tell::print(&summary, Time::of(&shard));
    }
    if let Some(folder) = &args.out {
        let file = shard.write(folder)?;
        if !args.json {
            sayln!("It is in {}.", file.display());
        }
    } else if let Some(first) = summary.failed.first().filter(|_| !args.json) {
        explain(args, first)?;
    }
    Ok(ExitCode::from(u8::from(!summary.failed.is_empty())))
}

/// Shows a failure in full, and what is left of it when it is made smaller.
fn explain(args: &Args, failed: &Failed) -> anyhow::Result<()> {
    let options = Options::from_toml(&failed.options);
    let options = options.map_err(|error| anyhow::anyhow!("{error}"))?;
    print_failure(args, failed);
    write_report(args, failed, options.clone())?;
    if let Some(runs) = args.shrink {
        print_shrunk(failed, options, runs);
    }
    Ok(())
}

fn print_failure(args: &Args, failed: &Failed) {
    let Failed {
        seed,
        options,
        failure,
    } = failed;
    sayln!(
        "\nSeed {seed} fails `{}` after {} ms.",
        failure.invariant,
        failure.at_ms
    );
    let node = failure
        .node
        .map_or("The Grid".to_owned(), |node| format!("Site {node}"));
    sayln!("{node}: {}", failure.message);
    sayln!("\nOptions:\n{options}");
    sayln!("Last events:\n{}", failure.last_events.join("\n"));
    sayln!("\nRun it again with\n  {}", args.again(*seed));
}

/// Runs the seed once more, up to where it fails, and writes down what is there then.
fn write_report(args: &Args, failed: &Failed, options: Options) -> anyhow::Result<()> {
    let (seed, failure) = (Seed(failed.seed), &failed.failure);
    let table: toml::Table = toml::from_str(&failed.options)?;
    let mut run = Run::new(seed, options);
    while run.step() {}
    let told = report::Failure {
        seed,
        invariant: failure.invariant.clone(),
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

fn print_shrunk(failed: &Failed, options: Options, runs: usize) {
    let seed = Seed(failed.seed);
    let options = shrink::shrink(seed, options, &failed.failure.invariant, runs);
    sayln!("\nThis still fails it:\n{}", options.to_toml());
    if let Some(failure) = Run::new(seed, options).finish().failure {
        sayln!("After {} ms: {}", failure.at_ms, failure.message);
        sayln!("{}", failure.last_events.join("\n"));
    }
}
