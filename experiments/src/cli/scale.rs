//! `simnet scale`: how far and how fast a change travels in large Grids, and what it costs.
//!
//! Invariant: exit code 0 means that changes reached all sites in every Grid; whether the goals of
//! hops and bytes were reached is said, line by line, and does not change the code.
//!
//! Deliberately not here: the measurement (`simnet::scale`).

use simnet::sayln;
use std::path::PathBuf;
use std::process::ExitCode;

use comfy_table::Table;

use crate::scale::{CELLS_MAX, Measured, ScaleSpec, Spread, figure, measure};

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
    /// Cells that one site changes at once, for bytes against the minimum.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=CELLS_MAX as i64))]
    cells: u16,
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
            cells: usize::from(args.cells),
            seed: args.seed,
        };
        let measured = measure(&spec);
        if args.json {
            sayln!("{}", serde_json::to_string(&measured)?);
        } else {
            sayln!("{}", table(&measured));
            for (name, value) in whole_rows(&measured) {
                sayln!(" {name:<24} {value}");
            }
            sayln!();
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
        format!("{} sites, one job each", of.burst.jobs),
        format!("{} cells of one site", of.bulk.cells),
    ]);
    let [single, burst, bulk] =
        [&of.single, &of.burst, &of.bulk].map(|of_it| spread_rows(of, of_it));
    for (((name, one), (_, many)), (_, cells)) in single.into_iter().zip(burst).zip(bulk) {
        table.add_row([name.to_owned(), one, many, cells]);
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
            "on the wire, all told",
            format!("{:.0}", spread.wire_bytes_per_node),
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
            "bytes a cell, once",
            format!(
                "{:.1}",
                spread.cell_bytes as f64 / spread.cells.max(1) as f64
            ),
        ),
        (
            "entropy bound",
            format!("{:.1} bytes", spread.entropy_bytes),
        ),
    ]
}

/// What is said of the Grid.
fn whole_rows(of: &Measured) -> [(&'static str, String); 4] {
    let wire = of.idle_wire_bytes_per_node_minute;
    let (idle, heartbeats) = (
        of.idle_bytes_per_node_minute,
        of.heartbeat_bytes_per_node_minute,
    );
    let kib = [of.resident_bytes_per_node, of.rows_bytes_per_node].map(|bytes| bytes / 1_024.0);
    let [resident, rows] = kib;
    [
        (
            "idle traffic",
            format!("{idle:.0} bytes a node and minute, {wire:.0} on the wire"),
        ),
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
