//! `simnet scale`: how far and how fast a change travels in large Grids, and what it costs.
//!
//! Invariant: exit code 0 means that changes reached all sites in every Grid; whether the goals of
//! hops and bytes were reached is said, line by line, and does not change the code.
//!
//! Deliberately not here: the measurement (`simnet::scale`).

use std::path::PathBuf;
use std::process::ExitCode;

use comfy_table::Table;

use crate::scale::{Measured, ScaleSpec, Spread, figure, measure};

/// Options of `simnet scale`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sizes of the Grids.
    #[arg(long, value_delimiter = ',', default_value = "100,300,1000")]
    sites: Vec<usize>,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sites that report at once in the burst; a tenth of all unless given.
    #[arg(long)]
    burst: Option<usize>,
    /// Prints one JSON object for each size and nothing else.
    #[arg(long)]
    json: bool,
    /// Folder for the table as CSV and a figure as SVG.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut all = Vec::new();
    for sites in &args.sites {
        anyhow::ensure!(
            (2..=2_000).contains(sites),
            "sizes are 2 to 2000, not {sites}"
        );
        let spec = ScaleSpec {
            sites: *sites,
            burst: args.burst.unwrap_or(sites.div_ceil(10)),
            seed: args.seed,
        };
        let measured = measure(&spec);
        if args.json {
            println!("{}", serde_json::to_string(&measured)?);
        } else {
            println!("{}\n", table(&measured));
        }
        all.push(measured);
    }
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out)?;
        for path in figure(&all).write(out)? {
            eprintln!("wrote {}", path.display());
        }
    }
    Ok(match all.iter().all(Measured::is_complete) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn table(of: &Measured) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.add_row([
        format!("{} sites, seed {}", of.sites, of.seed),
        "one job".to_owned(),
        format!("{} jobs at once", of.burst.jobs),
    ]);
    let spreads = spread_rows(of, &of.single)
        .into_iter()
        .zip(spread_rows(of, &of.burst));
    for ((name, one), (_, many)) in spreads {
        table.add_row([name.to_owned(), one, many]);
    }
    for (name, value) in whole_rows(of) {
        table.add_row([name.to_owned(), value, String::new()]);
    }
    table
}

fn reached(is_so: bool) -> &'static str {
    if is_so { "reached" } else { "missed" }
}

/// What is said of a change.
fn spread_rows(of: &Measured, spread: &Spread) -> Vec<(&'static str, String)> {
    let (limit, copies) = (of.hops_goal(), spread.copies_per_node);
    let hops = reached(f64::from(spread.hops_max) <= limit);
    let (batches, cells) = (spread.against_batches(), spread.against_cells());
    vec![
        (
            "sites that hold it",
            format!("{} of {}", spread.reached, of.sites),
        ),
        ("until the last holds it", format!("{} ms", spread.last_ms)),
        (
            "hops, most and mean",
            format!("{} and {:.1}", spread.hops_max, spread.hops_mean),
        ),
        ("goal 2 × log2(N) hops", format!("{limit:.1}: {hops}")),
        (
            "bytes received a node",
            format!("{:.0}", spread.bytes_per_node),
        ),
        (
            "… of them in later copies",
            format!("{:.0} ({copies:.2} copies)", spread.copy_bytes_per_node),
        ),
        (
            "signed batches once",
            format!("{} ({batches:.2} ×)", spread.batch_bytes),
        ),
        (
            "changed cells once",
            format!("{} ({cells:.2} ×)", spread.cell_bytes),
        ),
        ("goal 2 × cells once", reached(cells <= 2.0).to_owned()),
        (
            "entropy bound",
            format!("{:.1} bytes", spread.entropy_bytes),
        ),
    ]
}

/// What is said of the Grid.
fn whole_rows(of: &Measured) -> [(&'static str, String); 4] {
    let (idle, heartbeats) = (
        of.idle_bytes_per_node_minute,
        of.heartbeat_bytes_per_node_minute,
    );
    let kib = [of.resident_bytes_per_node, of.rows_bytes_per_node].map(|bytes| bytes / 1_024.0);
    let [resident, rows] = kib;
    [
        ("idle traffic", format!("{idle:.0} bytes a node and minute")),
        (
            "heartbeats would add",
            format!("{heartbeats:.0} bytes a node and minute"),
        ),
        (
            "memory a node",
            format!("{resident:.0} KiB resident; its store has {rows:.0} KiB of rows"),
        ),
        ("wall time", format!("{:.1} s", of.wall_s)),
    ]
}
