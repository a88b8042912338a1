//! What people see: a live terminal, or tables where there is none; and a page at the end.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use fairmesh_node::log::say;
use tokio::sync::mpsc;

use super::grid::Grid;
use super::live::Live;
use super::measure::{NodeState, ShareLine, distinct};
use super::play::Key;
use super::report::Report;

/// Most entries drawn; a trace may have hundreds.
const LINES_MAX: usize = 24;

/// What to do after it.
const NEXT: &str = "Next: `fairmesh init mysite --cpus 96` makes a site of your own; README.md has a mesh of two real ones.";

/// Where the demonstration stands.
pub(super) struct Progress<'a> {
    pub(super) elapsed: Duration,
    pub(super) length: Duration,
    pub(super) jobs: u64,
    /// Of each site; nothing of one whose node is stopped.
    pub(super) states: &'a [Option<NodeState>],
    pub(super) shares: &'a [ShareLine],
    pub(super) cut: bool,
}

/// A terminal, a file, or nobody.
pub(super) struct Screen {
    quiet: bool,
    live: Option<Live>,
    drawn: u32,
}

impl Screen {
    /// `quiet` for machines: words go to standard error only.
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            quiet,
            live: None,
            drawn: 0,
        }
    }

    /// Takes the whole terminal, where there is one; what is pressed comes out. `foot` are lines that stay below.
    pub(super) fn go_live(&mut self, foot: Vec<String>) -> Option<mpsc::Receiver<Key>> {
        let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        if self.quiet || !is_terminal {
            return None;
        }
        let (live, keys) = Live::start(foot)?;
        self.live = Some(live);
        Some(keys)
    }

    /// Says a line that stays.
    pub(super) fn say(&mut self, line: &str) {
        match &mut self.live {
            Some(live) => live.say(line),
            None => note!("{line}"),
        }
    }

    /// Draws how it stands: each time on a terminal, every fifth elsewhere.
    pub(super) fn draw(&mut self, grid: &Grid, progress: &Progress<'_>) -> std::io::Result<()> {
        self.drawn += 1;
        if let Some(live) = &mut self.live {
            let names = grid.nodes.iter().map(|node| node.name.as_str());
            return live.draw(&headline(progress), names, progress);
        }
        if self.quiet || self.drawn % 5 != 1 {
            return Ok(());
        }
        let mut page = String::new();
        let _ = writeln!(page, "{}", headline(progress));
        let _ = writeln!(page, "{}", share_table(progress.shares));
        let _ = writeln!(page, "{}", site_table(grid, progress.states));
        let mut out = std::io::stdout().lock();
        // A reader that has gone away needs no table.
        let _ = out.write_all(page.as_bytes());
        let _ = out.flush();
        Ok(())
    }

    /// Gives the terminal back; what was said on it stays below.
    pub(super) fn leave(&mut self) {
        if let Some(live) = self.live.take() {
            live.leave().iter().for_each(|line| note!("{line}"));
        }
    }

    /// Prints the page at the end.
    pub(super) fn finish(&self, report: &Report) {
        if !self.quiet {
            let shares = share_table(&report.shares);
            say(&format!("{shares}\n\n{}\n{NEXT}", report.words()));
        }
    }
}

fn headline(progress: &Progress<'_>) -> String {
    let views = distinct(progress.states);
    let agreement = match (progress.cut, views) {
        (true, _) => format!("the mesh is CUT in two: {views} different views"),
        (false, 1) => "all nodes hold the same view".to_owned(),
        (false, views) => format!("{views} views, a head apart"),
    };
    format!(
        "{:>3} of {} s · {} jobs ended · {agreement}",
        progress.elapsed.as_secs(),
        progress.length.as_secs(),
        progress.jobs
    )
}

fn share_table(lines: &[ShareLine]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "ENTRY",
        "TARGET %",
        "ACTUAL %",
        "OFF BY",
        "CORE-HOURS",
    ]);
    for line in lines.iter().take(LINES_MAX) {
        table.add_row([
            line.path.to_string(),
            line.target.clone(),
            percent(line.actual_milli_percent),
            off_by(line),
            (line.usage_ms / 3_600_000).to_string(),
        ]);
    }
    if lines.len() > LINES_MAX {
        table.add_row([format!("… and {} more", lines.len() - LINES_MAX)]);
    }
    for column in 1..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn site_table(grid: &Grid, states: &[Option<NodeState>]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "SITE",
        "PEERS",
        "KNOWN",
        "OLDEST DATA (its own time)",
        "VIEW",
    ]);
    for (node, state) in grid.nodes.iter().zip(states) {
        let Some(state) = state else {
            table.add_row([node.name.clone(), "stopped".to_owned()]);
            continue;
        };
        table.add_row([
            node.name.clone(),
            state.connected.to_string(),
            format!("{} of {}", state.known, grid.nodes.len()),
            format!("{} s", state.oldest_ms / 1_000),
            state.holdings.short(),
        ]);
    }
    table
}

/// Thousandths of a percent with two decimals.
pub(super) fn percent(milli: u64) -> String {
    let hundredths = (milli + 5) / 10;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn off_by(line: &ShareLine) -> String {
    let target: f64 = line.target.parse().unwrap_or(0.0);
    let actual = line.actual_milli_percent as f64 / 1_000.0;
    // Adding zero turns "-0.00" into "+0.00".
    let rounded = ((actual - target) * 100.0).round() / 100.0 + 0.0;
    format!("{rounded:+.2}")
}
