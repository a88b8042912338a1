//! `simnet paper`.

use simnet::{say, sayln};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::Context as _;
use indicatif::ProgressBar;

use crate::campaign::{Part, Results, Seeds};
use crate::paper::check::{Check, checks};
use crate::paper::experiment::{Experiment, Extent};
use crate::paper::measure::RunMeasures;
use crate::paper::outcome::{Measured, Measures, Outcome, Row, Witness, summary};
use crate::paper::{chart, open_ends, printed, text};
use simnet::progress;

/// Days that the bands were set for.
const DAYS_CHECKED: u64 = 7;

/// Most seeds in one process: a run takes seconds.
const SEEDS_MAX: u64 = 10_000;

/// Options of `simnet paper`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where figures and tables go.
    #[arg(long, value_name = "DIR", default_value = "paper-figures")]
    out: PathBuf,
    /// How many seeds, counted from 1; or which, such as `1..6`, as one part of a campaign: then what
    /// was measured is left in the folder instead of figures, for `simnet merge`.
    #[arg(long, default_value = "10")]
    seeds: Seeds,
    /// Simulated days of each run.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=30))]
    days: u64,
    /// Only these figures, 5 to 14, and nothing is checked.
    #[arg(long, value_name = "N", num_args = 1.., value_parser = clap::value_parser!(u32).range(5..=14))]
    figure: Vec<u32>,
    /// The figures as the paper has them, under the exact order and as Slurm gets it; nothing is checked.
    #[arg(long, conflicts_with = "figure")]
    printed: bool,
    /// What the thesis leaves open, as experiments; nothing is checked.
    #[arg(long, conflicts_with_all = ["figure", "printed", "json"])]
    open_ends: bool,
    /// Print the summary and the checks as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let seeds = args.seeds.from(1);
    anyhow::ensure!(
        (1..=SEEDS_MAX).contains(&(seeds.end - seeds.start)),
        "--seeds takes 1 to {SEEDS_MAX} seeds"
    );
    let set_up = format!(
        "{} days, figures {:?}, {}",
        args.days, args.figure, args.printed
    );
    let part = Part::begin(set_up, seeds.start, seeds.end, None);
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the folder {}", args.out.display()))?;
    if args.open_ends {
        return run_open_ends(args);
    }
    let outcome = simulate(args)?;
    if let Seeds::Range(_) = args.seeds {
        let (days, runs) = (args.days, outcome.measured());
        let file = part.end(Results::Paper { days, runs })?.write(&args.out)?;
        sayln!("What was measured is in {}.", file.display());
        return Ok(ExitCode::SUCCESS);
    }
    let rows = summary(&outcome.measures());
    let checks = checked(args.days, &outcome.measures());
    write_files(args, &outcome, &rows)?;
    if args.json {
        let report = text::Report::new(&outcome, &rows, &checks);
        sayln!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        say!("{}", text::summary(&rows));
        print_checks(args.days, &checks);
        let seconds = began.elapsed().as_secs_f64();
        let (runs, jobs) = (outcome.runs.values().flatten().count(), outcome.jobs());
        sayln!("{runs} runs with {jobs} jobs in {seconds:.0} s.");
        sayln!(
            "Figures, summary.csv and runs.csv are in {}.",
            args.out.display()
        );
    }
    let all_hold = checks.iter().all(|check| check.holds);
    Ok(if all_hold {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_open_ends(args: &Args) -> anyhow::Result<ExitCode> {
    let seeds: Vec<u64> = args.seeds.from(1).collect();
    for picture in open_ends::pictures(args.days, &seeds, threads())? {
        let [table, _] = picture.write(&args.out)?;
        say!("{}\n{}\n", picture.title, std::fs::read_to_string(table)?);
    }
    sayln!("Pictures and their numbers are in {}.", args.out.display());
    Ok(ExitCode::SUCCESS)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The checks, where enough was run for them.
fn checked(days: u64, measures: &Measures) -> Vec<Check> {
    let all = Experiment::all();
    let is_whole = all
        .iter()
        .all(|experiment| measures.contains_key(experiment));
    match is_whole && days >= DAYS_CHECKED {
        true => checks(measures),
        false => Vec::new(),
    }
}

/// Prints what parts of a campaign have measured as one run does, but for figures: those need all that
/// happened in each run.
pub fn print_merged(days: u64, runs: &[Measured]) -> ExitCode {
    let mut measures = Measures::new();
    for run in runs {
        let seeds = measures.entry(run.experiment).or_default();
        seeds.push(run.measures.clone());
    }
    say!("{}", text::summary(&summary(&measures)));
    let checks = checked(days, &measures);
    print_checks(days, &checks);
    ExitCode::from(u8::from(!checks.iter().all(|check| check.holds)))
}

fn print_checks(days: u64, checks: &[Check]) {
    if checks.is_empty() {
        let days = days.max(DAYS_CHECKED);
        sayln!("Nothing was checked: that takes all figures and {days} days.");
        return;
    }
    sayln!("{}\n", text::checks(checks));
    let held = checks.iter().filter(|check| check.holds).count();
    sayln!("{held} of {} checks hold.", checks.len());
}

fn numbers(args: &Args) -> Vec<u32> {
    match args.figure.is_empty() {
        true if args.printed => Vec::new(),
        true => chart::NUMBERS.collect(),
        false => args.figure.clone(),
    }
}

fn simulate(args: &Args) -> anyhow::Result<Outcome> {
    let experiments = if args.printed {
        Experiment::printed()
    } else {
        let of_figures = args.figure.iter().copied().flat_map(chart::experiments_of);
        let wanted: BTreeSet<Experiment> = of_figures.collect();
        let mut all = Experiment::all();
        all.retain(|experiment| args.figure.is_empty() || wanted.contains(experiment));
        all
    };
    let seeds: Vec<u64> = args.seeds.from(1).collect();
    let days = args.days * seeds.len() as u64 * experiments.len() as u64;
    let log = RunLog::begin(args, progress::bar(days, "simulated days"))?;
    let extent = Extent::days(args.days);
    let outcome = Outcome::of(&experiments, extent, &seeds, threads(), &log)?;
    log.bar.finish_and_clear();
    let failed = log.failed.into_inner().expect("no thread has panicked");
    match failed {
        None => Ok(outcome),
        Some(error) => Err(error.context(format!("cannot write {}", log.path.display()))),
    }
}

/// What ended runs measured, in `runs.csv`, as they end: an evaluation that is cut short leaves that.
struct RunLog {
    bar: ProgressBar,
    path: PathBuf,
    file: File,
    failed: Mutex<Option<anyhow::Error>>,
}

impl RunLog {
    fn begin(args: &Args, bar: ProgressBar) -> anyhow::Result<Self> {
        let path = args.out.join(match &args.seeds {
            Seeds::Count(_) => "runs.csv".to_owned(),
            Seeds::Range(seeds) => format!("runs-{}..{}.csv", seeds.start, seeds.end),
        });
        let begun = File::create(&path).and_then(|mut file| {
            file.write_all(text::RUN_COLUMNS.as_bytes())?;
            Ok(file)
        });
        Ok(Self {
            bar,
            file: begun.with_context(|| format!("cannot write {}", path.display()))?,
            path,
            failed: Mutex::new(None),
        })
    }
}

impl Witness for RunLog {
    fn day(&self) {
        self.bar.inc(1);
    }

    fn run(&self, experiment: &Experiment, seed: u64, measures: &RunMeasures) {
        let lines = text::run(experiment, seed, measures).map_err(anyhow::Error::from);
        let written = lines.and_then(|lines| Ok((&self.file).write_all(lines.as_bytes())?));
        if let Err(error) = written {
            let mut failed = self.failed.lock().expect("no other thread has panicked");
            failed.get_or_insert(error);
        }
    }
}

fn write_files(args: &Args, outcome: &Outcome, rows: &[Row]) -> anyhow::Result<()> {
    for figure in printed::figures(outcome).iter().filter(|_| args.printed) {
        figure.write(&args.out)?;
    }
    for comparison in printed::comparisons(outcome)
        .iter()
        .filter(|_| args.printed)
    {
        comparison.write(&args.out)?;
    }
    for number in numbers(args) {
        for figure in chart::figures(outcome, number) {
            figure.write(&args.out)?;
        }
        if number == chart::COMPARISON
            && let Some(comparison) = chart::comparison(outcome)
        {
            comparison.write(&args.out)?;
        }
    }
    let file = args.out.join("summary.csv");
    std::fs::write(&file, text::csv(rows)?)
        .with_context(|| format!("cannot write {}", file.display()))
}
