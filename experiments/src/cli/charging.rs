//! `simnet charging`: a recorded log under several rules of charging, as a table and as pictures.
//!
//! Invariant: exit code 0 means that every line of the log was charged or counted as one that was
//! not. Deliberately not here: the charges (`simnet::charging`).

use simnet::sayln;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use comfy_table::Table;
use flate2::read::GzDecoder;

use crate::charging::{
    Comparison, MEMORY_CLASSES_GIB, Sums, by_memory, by_rule, by_user, machines,
};

/// Options of `simnet charging`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// MetaCentrum's log of 21 columns; `.gz` is unpacked.
    log: PathBuf,
    /// Its machines: lines of `id name nodes CPUs speed KiB`.
    #[arg(long)]
    machines: PathBuf,
    /// Folder for three pictures as SVG, the one of all rules with its numbers.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let unreadable = |path: &PathBuf| format!("cannot read {}", path.display());
    let list =
        std::fs::read_to_string(&args.machines).with_context(|| unreadable(&args.machines))?;
    let prices = machines(&list)?;
    let file = File::open(&args.log).with_context(|| unreadable(&args.log))?;
    let log: Box<dyn BufRead> = match args.log.extension().is_some_and(|suffix| suffix == "gz") {
        true => Box::new(BufReader::new(GzDecoder::new(file))),
        false => Box::new(BufReader::new(file)),
    };
    let comparison = Comparison::read(log, &prices).with_context(|| unreadable(&args.log))?;
    sayln!("{}", table(&comparison));
    let Comparison {
        misfits,
        not_run,
        unreadable,
        ..
    } = &comparison;
    sayln!(
        "fit no machine: {} jobs, {} core hours; did not run: {not_run}; unreadable lines: {unreadable}",
        misfits.0,
        hours(misfits.1)
    );
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out)?;
        for figure in [by_user(&comparison), by_memory(&comparison)] {
            let path = out.join(format!("{}.svg", figure.name));
            std::fs::write(&path, figure.to_svg()?)?;
            eprintln!("wrote {}", path.display());
        }
        for path in by_rule(&comparison).write(out)? {
            eprintln!("wrote {}", path.display());
        }
    }
    Ok(ExitCode::from(u8::from(*unreadable > 0)))
}

fn hours(core_ms: u128) -> u128 {
    core_ms / 3_600_000
}

fn table(of: &Comparison) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    let head = ["", "jobs", "core hours", "%", "penalty hours", "%", "ratio"];
    table.add_row(head);
    let percent = |part: u128, whole: u128| 100.0 * part as f64 / whole.max(1) as f64;
    let mut row = |name: String, sums: &Sums| {
        table.add_row([
            name,
            sums.jobs.to_string(),
            hours(sums.cpu_time).to_string(),
            format!("{:.2}", percent(sums.cpu_time, of.total.cpu_time)),
            hours(sums.penalty).to_string(),
            format!("{:.2}", percent(sums.penalty, of.total.penalty)),
            format!("{:.2}", sums.penalty as f64 / sums.cpu_time.max(1) as f64),
        ]);
    };
    row("all".to_owned(), &of.total);
    for (index, sums) in of.memory.iter().enumerate() {
        let name = match MEMORY_CLASSES_GIB.get(index) {
            Some(gib) => format!("up to {gib} GiB a core"),
            None => "more".to_owned(),
        };
        row(name, sums);
    }
    let mut users: Vec<_> = of.users.iter().collect();
    users.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.penalty));
    for (user, sums) in users {
        row(format!("u{user}"), sums);
    }
    table
}
