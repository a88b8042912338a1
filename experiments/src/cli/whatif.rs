//! `simnet whatif`: recorded load under an old and a new policy.
//!
//! Invariant: a policy file means here what it means to a node; a trace that cannot be read in full
//! is refused with its line. Deliberately not here: the replay (`simnet::whatif`).

use simnet::sayln;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use comfy_table::{CellAlignment, Table};
use fairmesh_cluster::Trace;
use fairmesh_model::{SharePolicy, Signed};
use fairmesh_policy::SitePolicy;
use flate2::read::GzDecoder;

use crate::whatif::{
    Capacity, Comparison, Knowledge, Replayed, compare, equal_shares, figure, of_policy,
    read_policy, replay,
};
use simnet::length::Length;
use simnet::progress;

/// Options of `simnet whatif`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The new policy: a file with a table `[shares]`, such as `"/VO-1" = 30` and `"/VO-1/U-5" = 50`; or a share
    /// policy of `fairmesh policy new shares`, drafted or signed.
    #[arg(long)]
    policy: PathBuf,
    /// The old policy; equal shares for all VOs, and for all users of each, unless given.
    #[arg(long)]
    old: Option<PathBuf>,
    /// The job log, in Standard Workload Format; may be compressed with gzip.
    #[arg(long)]
    trace: PathBuf,
    /// How many clusters the log's partitions are dealt over.
    #[arg(long, default_value = "6")]
    nodes: NonZeroUsize,
    /// Leaves out what was submitted before, such as `2d`, counted from the first job.
    #[arg(long)]
    from: Option<Length>,
    /// Leaves out what was submitted at that time or later.
    #[arg(long)]
    to: Option<Length>,
    /// Size of the clusters: how busy the load would keep them if it came evenly.
    #[arg(long, default_value_t = 95, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    utilisation_percent: u64,
    /// One site is told everything at once, in place of a node for each cluster that gossips; for
    /// large traces.
    #[arg(long)]
    all_knowing: bool,
    /// Shows so many that gain and so many that lose; all in JSON.
    #[arg(long, default_value_t = 10)]
    top: usize,
    /// Prints JSON and nothing else.
    #[arg(long)]
    json: bool,
    /// Folder for the figure, as CSV and SVG.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let new_policy = policy(&args.policy)?;
    let trace = cut(args, read_trace(&args.trace, args.nodes)?);
    anyhow::ensure!(!trace.jobs.is_empty(), "no job is left of the trace");
    let old_policy = match &args.old {
        Some(file) => policy(file)?,
        None => equal_shares(&trace),
    };
    let capacity = Capacity {
        utilisation_percent: args.utilisation_percent,
    };
    let knowledge = match args.all_knowing {
        true => Knowledge::AllKnowing,
        false => Knowledge::Grid,
    };
    let bar = progress::bar(2 * trace.jobs.len() as u64, "jobs, by both policies");
    let run = |policy: &SitePolicy| -> Replayed {
        fairmesh_model::signed::remember_verdicts();
        fairmesh_model::signed::remember_documents();
        replay(&trace, policy, capacity, knowledge, || bar.inc(1))
    };
    let (old, new) = std::thread::scope(|scope| {
        let old = scope.spawn(|| run(&old_policy));
        let new = run(&new_policy);
        (old.join().expect("it has not panicked"), new)
    });
    bar.finish_and_clear();
    let comparison = compare(&trace, (&old_policy, &old), (&new_policy, &new));
    match args.json {
        true => sayln!("{}", serde_json::to_string(&comparison)?),
        false => print(&comparison, args),
    }
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out)?;
        for path in figure(&comparison).write(out)? {
            eprintln!("wrote {}", path.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn policy(file: &Path) -> anyhow::Result<SitePolicy> {
    let name = file.display().to_string();
    let bytes = std::fs::read(file).with_context(|| name.clone())?;
    let is_whole = |path: &str| {
        let told = "a Grid has one tree: give the policy that divides `/`";
        anyhow::ensure!(path == "/", "{name} divides `{path}` only; {told}");
        Ok(())
    };
    if let Ok(signed) = Signed::<SharePolicy>::parse(&bytes) {
        is_whole(signed.claimed().path.as_str())?;
        return of_policy(signed.claimed()).with_context(|| name.clone());
    }
    let text = String::from_utf8(bytes)
        .with_context(|| format!("{name} is neither a share tree nor a share policy"))?;
    let policy = read_policy(&text, &name)?;
    let draft: toml::Table = text.parse()?;
    let path = draft.get("policy").and_then(|head| head.get("path"));
    is_whole(path.and_then(toml::Value::as_str).unwrap_or("/"))?;
    Ok(policy)
}

fn read_trace(file: &Path, nodes: NonZeroUsize) -> anyhow::Result<Trace> {
    let name = file.display().to_string();
    let input = File::open(file).with_context(|| name.clone())?;
    let input: Box<dyn BufRead> = match file.extension().is_some_and(|ending| ending == "gz") {
        true => Box::new(BufReader::new(GzDecoder::new(input))),
        false => Box::new(BufReader::new(input)),
    };
    Trace::read(input, nodes).context(name)
}

fn cut(args: &Args, trace: Trace) -> Trace {
    let Some(first) = trace.jobs.first().map(|job| job.submit) else {
        return trace;
    };
    let at = |length: Option<Length>| length.and_then(Length::millis).map(|ms| first.after(ms));
    match (at(args.from), at(args.to)) {
        (None, None) => trace,
        (from, to) => {
            let end = fairmesh_model::WallTime(u64::MAX);
            trace.slice(from.unwrap_or(first), to.unwrap_or(end))
        }
    }
}

fn print(of: &Comparison, args: &Args) {
    let top = args.top;
    let cores: Vec<String> = of.cores.iter().map(u32::to_string).collect();
    sayln!(
        "{} jobs of {} accounts in {} days on {} cores ({} left out)",
        of.jobs,
        of.accounts.len(),
        of.days,
        cores.join(" + "),
        of.skipped
    );
    sayln!(
        "mean wait {:.2} h under the old policy, {:.2} h under the new one",
        of.wait_hours.0,
        of.wait_hours.1
    );
    let who = match args.all_knowing {
        true => "one site knows everything at once",
        false => "each cluster goes by its own node, and the nodes gossip",
    };
    sayln!("{who}; jobs count when they have ended\n");
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header([
        "account",
        "jobs",
        "target %",
        "new",
        "used %",
        "new",
        "core-h",
        "change",
        "wait h",
        "new",
        "most on day",
    ]);
    let count = of.accounts.len();
    let shown = (0..top.min(count)).chain(count.saturating_sub(top).max(top)..count);
    for account in shown.map(|index| &of.accounts[index]) {
        let (day, change) = account.most_on_day;
        table.add_row([
            account.account.clone(),
            account.jobs.to_string(),
            percent(account.target_percent.0),
            percent(account.target_percent.1),
            format!("{:.2}", account.actual_percent.0),
            format!("{:.2}", account.actual_percent.1),
            format!("{:.0}", account.core_hours.0),
            format!("{:+.0}", account.gained()),
            format!("{:.2}", account.wait_hours.0),
            format!("{:.2}", account.wait_hours.1),
            format!("{day}: {change:+.0}"),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    sayln!("{table}");
    if count > top * 2 {
        sayln!("and {} between them (--top, --json)", count - top * 2);
    }
    let unlisted = of
        .accounts
        .iter()
        .filter(|of| of.target_percent.1.is_none());
    let unlisted = unlisted.count();
    if unlisted > 0 {
        sayln!("{unlisted} accounts have no entry of their own: they count as those above them");
    }
}

fn percent(target: Option<f64>) -> String {
    target.map_or_else(|| "-".to_owned(), |target| format!("{target:.2}"))
}
