//! `simnet mutants`.
//!
//! Plants each fault of the table in turn, runs seeds until something finds it, and prints what did.
//!
//! Invariant: the rows are those of the table in its order, whichever thread was first; the last line
//! is `K of N found`. Deliberately not here: the faults (`mutants`) and the hooks (the crates).

use simnet::sayln;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use simnet::mutants::{Hunted, Layer, Mutant, TABLE};

/// Faults of a hundred that must be found.
const FOUND_PERCENT: usize = 95;

/// Options of `simnet mutants`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Most seeds that are run for each fault.
    #[arg(long, default_value_t = 100)]
    pub seeds: u64,
    /// The first seed; the others follow it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only the fault of this name; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Only faults of this layer.
    #[arg(long)]
    pub layer: Option<Layer>,
    /// Run the Grids that `check` draws, instead of small ones of which the faults make the most.
    #[arg(long)]
    pub as_check: bool,
    /// Print the outcome as JSON.
    #[arg(long)]
    pub json: bool,
    /// Leave the outcome in this folder, as one part of a campaign: see `simnet merge`.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Only share I of N of the faults, counted from 1.
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    pub shard: Share,
    /// Faults that are looked for at a time, instead of one for each core.
    #[arg(long)]
    pub threads: Option<usize>,
}

/// Share `number` of `of`, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    number: usize,
    of: usize,
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, of) = text.split_once('/').ok_or("write I/N, such as 2/4")?;
        let parse = |text: &str| text.parse::<usize>().map_err(|error| error.to_string());
        let (number, of) = (parse(number)?, parse(of)?);
        if (1..=of).contains(&number) {
            Ok(Self { number, of })
        } else {
            Err(format!("shares are counted from 1 to {of}"))
        }
    }
}

impl Args {
    /// The faults of this share, in the order of the table.
    #[cfg_attr(not(feature = "mutants"), expect(dead_code))]
    fn chosen(&self) -> anyhow::Result<Vec<&'static Mutant>> {
        for name in &self.only {
            let is_there = TABLE.iter().any(|mutant| mutant.name == *name);
            anyhow::ensure!(is_there, "there is no fault `{name}` in the table");
        }
        let is_wanted = |mutant: &&Mutant| {
            (self.only.is_empty() || self.only.contains(&mutant.name))
                && self.layer.is_none_or(|layer| mutant.layer == layer)
        };
        let wanted = TABLE.iter().filter(is_wanted);
        Ok(wanted
            .skip(self.shard.number - 1)
            .step_by(self.shard.of)
            .collect())
    }
}

/// Runs it.
#[cfg(not(feature = "mutants"))]
pub fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!(
        "faults cannot be planted in this build: \
         cargo run --release -p simnet --features mutants -- mutants"
    )
}

/// Runs it.
#[cfg(feature = "mutants")]
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    use fairmesh_experiments::campaign::{Part, Results};
    use simnet::check::pool;
    use simnet::mutants::hunt::{hunt, hunt_as_check};

    let chosen = args.chosen()?;
    let set_up = format!(
        "{} seeds from {}, layer {:?}, only {:?}, as check {}",
        args.seeds, args.seed, args.layer, args.only, args.as_check
    );
    let (number, of) = (args.shard.number as u64, args.shard.of as u64);
    let part = Part::begin(set_up, number, number + 1, Some(of));
    // A panic of the code under test is an outcome, and is told in the table.
    std::panic::set_hook(Box::new(|_| {}));
    let hunt = if args.as_check { hunt_as_check } else { hunt };
    let job = |index: usize| hunt(chosen[index], fairmesh_cluster::Seed(args.seed), args.seeds);
    let mut hunted = Vec::new();
    let threads = args.threads.unwrap_or_else(pool::threads);
    let bar = simnet::progress::bar(chosen.len() as u64, "faults");
    pool::in_order(chosen.len(), threads, job, |_, one| {
        bar.inc(1);
        if !args.json {
            bar.suspend(|| eprintln!("{}", line(&one)));
        }
        hunted.push(one);
        true
    });
    bar.finish_and_clear();
    let shard = part.end(Results::Mutants(hunted.clone()))?;
    if let Some(folder) = &args.out {
        shard.write(folder)?;
    }
    if args.json {
        sayln!("{}", serde_json::to_string_pretty(&hunted)?);
        return Ok(ExitCode::from(u8::from(!are_found(&hunted))));
    }
    sayln!("{:.0} s of CPU.", shard.cpu_ms as f64 / 1_000.0);
    Ok(ExitCode::from(u8::from(!print(&hunted))))
}

#[cfg(feature = "mutants")]
fn line(hunted: &Hunted) -> String {
    let (name, seeds) = (&hunted.name, hunted.seeds);
    match &hunted.found {
        Some(found) => format!(
            "{name}: seed {}, {}: {}",
            found.seed, found.by, found.message
        ),
        None => format!(
            "{name}: nothing in {seeds} seeds, {} came by it",
            hunted.reached
        ),
    }
}

/// Whether enough of them were found.
fn are_found(hunted: &[Hunted]) -> bool {
    let found = hunted.iter().filter(|one| one.found.is_some()).count();
    found * 100 >= hunted.len() * FOUND_PERCENT
}

/// Prints the table, in Markdown; true where enough were found.
pub(super) fn print(hunted: &[Hunted]) -> bool {
    let mut rows = Table::new();
    rows.load_style(ASCII_MARKDOWN);
    rows.set_header([
        "Fault",
        "Layer",
        "Meant for",
        "Seeds",
        "Last seed",
        "Found by",
    ]);
    let mut survivors = Vec::new();
    for mutant in TABLE.iter() {
        let Some(one) = hunted.iter().find(|one| one.name == mutant.name) else {
            continue;
        };
        let layer = format!("{:?}", mutant.layer).to_lowercase();
        let (seed, by) = match &one.found {
            Some(found) => (found.seed.to_string(), found.by.clone()),
            None => (String::new(), "nothing".to_owned()),
        };
        let (name, meant) = (mutant.name.clone(), mutant.meant.clone());
        rows.add_row([name, layer, meant, one.seeds.to_string(), seed, by]);
        if one.found.is_none() {
            survivors.push((mutant, one));
        }
    }
    sayln!("{rows}\n");
    for (mutant, one) in &survivors {
        let why = mutant.survives.as_deref().unwrap_or("it is not known why");
        let (name, says, reached) = (&mutant.name, &mutant.says, one.reached);
        sayln!("- `{name}` ({says}) survives; {reached} seeds came by it: {why}.");
    }
    sayln!(
        "\n{} of {} found",
        hunted.len() - survivors.len(),
        hunted.len()
    );
    are_found(hunted)
}
