//! What is left of a failure: a folder that shows it, and the command that repeats it.
//!
//! `report.txt` is for people; `events.txt` has the last events; `node-<n>.json` has each node's
//! state. The folder must not be old: files of a larger Grid would stay in it.
//!
//! Invariant: one seed gives one report, byte for byte: no wall time and no machine is in it, only
//! the commit that was run.
//!
//! Deliberately not here: finding failures, and making them smaller.

mod commit;
mod node;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use fairmesh_cluster::Seed;

use crate::event_log::clock_text;
use crate::world::World;

pub use commit::commit;
pub use node::node_state;

/// Events that `report.txt` shows; all that are remembered are in `events.txt`.
const EVENTS_SHOWN: usize = 40;

/// What failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: Seed,
    /// Which invariant, or which expectation.
    pub invariant: String,
    /// At which node, if at one.
    pub node: Option<usize>,
    /// What is the case instead.
    pub why: String,
    /// All drawn options, by name.
    pub options: Vec<(String, String)>,
    /// The one command that repeats it.
    pub command: String,
    /// What was told before; may be empty.
    pub story: Vec<String>,
}

/// A report that was not written. The machine is at fault; some files may be there.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct ReportError {
    /// The file or folder.
    pub path: PathBuf,
    /// Why.
    pub error: io::Error,
}

/// Writes the report of a failure into `folder`, which is made.
pub fn write(folder: &Path, failure: &Failure, world: &World) -> Result<(), ReportError> {
    let at = |path: PathBuf| move |error| ReportError { path, error };
    std::fs::create_dir_all(folder).map_err(at(folder.to_owned()))?;
    let put = |name: String, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(at(path))
    };
    put("report.txt".to_owned(), text(failure, world))?;
    put(
        "events.txt".to_owned(),
        world.log().lines().join("\n") + "\n",
    )?;
    for node in 0..world.nodes().len() {
        let state = serde_json::to_string_pretty(&node_state(world, node));
        let state = state.expect("keys are texts") + "\n";
        put(format!("node-{node}.json"), state)?;
    }
    Ok(())
}

/// The report for people.
pub fn text(failure: &Failure, world: &World) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        writeln!(text, "{name:<14} {value}").expect("a string takes all text");
    };
    line("broken", &failure.invariant);
    line("because", &failure.why);
    if let Some(node) = failure.node {
        line("at", &format!("site {node} (node-{node}.json)"));
    }
    line("simulated time", &clock_text(world.now().0));
    line("step", &world.steps().to_string());
    line("seed", &failure.seed.0.to_string());
    line("commit", &commit());
    line("trace", &format!("{:032x}", world.trace_hash()));
    line("repeat with", &failure.command);
    section(&mut text, "Options");
    for (name, value) in &failure.options {
        writeln!(text, "{name} = {value}").expect("a string takes all text");
    }
    if !failure.story.is_empty() {
        section(&mut text, "Story");
        text.push_str(&failure.story.join("\n"));
        text.push('\n');
    }
    section(&mut text, "Faults");
    for (word, count) in world.faults().iter() {
        writeln!(text, "{count:>8}  {word}").expect("a string takes all text");
    }
    section(&mut text, "Last events");
    let lines = world.log().lines();
    let shown = &lines[lines.len().saturating_sub(EVENTS_SHOWN)..];
    text.push_str(&shown.join("\n"));
    text.push('\n');
    text
}

fn section(text: &mut String, title: &str) {
    writeln!(text, "\n{title}\n{}", "-".repeat(title.len())).expect("a string takes all text");
}
