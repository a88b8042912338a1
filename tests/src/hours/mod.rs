//! Two hours of a mesh of twelve: one without faults, in which nothing may be reported, and one of named faults.
//!
//! `cargo xtask hours` runs them and writes the table of `docs/reference/faults.md`. The nodes are real processes with the
//! default timing. Deliberately not here: tests, which use shorter intervals and show one state each
//! (`tests/tests/nodes`).

mod document;
mod documents;
mod fault;
mod feeds;
mod machines;
mod mesh;
mod network;
mod quiet;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};

use fault::{Fault, Row};
use mesh::Mesh;

/// How long nodes may take to be in sync after their first start.
const START_MAX: Duration = Duration::from_secs(300);

/// Minutes of the part without faults.
const MINUTES: u64 = 60;

/// What `--only` calls that part, and the one of all faults.
const QUIET: &str = "quiet";
const FAULTS: &str = "faults";

/// All faults, in their order.
fn faults() -> impl Iterator<Item = &'static Fault> {
    let groups: [&[Fault]; 4] = [
        network::FAULTS,
        machines::FAULTS,
        documents::FAULTS,
        feeds::FAULTS,
    ];
    groups.into_iter().flatten()
}

/// What the command line chooses.
#[derive(Debug)]
struct Options {
    minutes: u64,
    only: Vec<String>,
}

impl Options {
    fn parse(words: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            minutes: MINUTES,
            only: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words
                .next()
                .with_context(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--minutes" => options.minutes = value.parse()?,
                "--only" => options.only = value.split(',').map(str::to_owned).collect(),
                _ => bail!("unknown option {word}: --minutes N, --only NAME[,NAME]"),
            }
        }
        for name in &options.only {
            let names = [QUIET, FAULTS].into_iter();
            let names: Vec<&str> = names.chain(faults().map(|fault| fault.name)).collect();
            if !names.contains(&name.as_str()) {
                bail!("no fault is named {name}: choose from {}", names.join(", "));
            }
        }
        Ok(options)
    }
}

/// Runs both parts with the program that `FAIRMESH_PROGRAM` names; whether all is as it should be. With `--only` it runs
/// one part, or the faults that are named. The page gets the table of a part, and the rows of faults that ran again.
///
/// # Errors
/// If the mesh does not start, or a fault cannot be made.
pub fn main(words: &[String]) -> anyhow::Result<bool> {
    let options = Options::parse(words)?;
    let program =
        std::env::var_os("FAIRMESH_PROGRAM").context("FAIRMESH_PROGRAM names no program")?;
    let program = std::fs::canonicalize(PathBuf::from(program))?;
    let mut mesh = Mesh::start(&program)?;
    if !watch::await_usage_of_all(&mut mesh, START_MAX)? {
        bail!("not every node has usage of all sites after {START_MAX:?}");
    }
    if let Err(why) = watch::await_clear(&mut mesh, START_MAX)? {
        bail!("the mesh does not start: {why}");
    }
    eprintln!("twelve nodes are in sync");
    let is_chosen = |name: &str| options.only.iter().any(|of| of == name);
    let is_whole = |part| options.only.is_empty() || is_chosen(part);
    let quiet = match is_whole(QUIET) {
        true => Some(quiet::run(&mut mesh, options.minutes)?),
        false => None,
    };
    if let Some(quiet) = &quiet {
        let is_hour = quiet.minutes >= MINUTES;
        document::show(QUIET, &document::of_quiet(quiet), is_hour)?;
    }
    let chosen = faults().filter(|fault| is_whole(FAULTS) || is_chosen(fault.name));
    let mut rows = Vec::new();
    for fault in chosen {
        eprintln!("{}: {}", fault.name, fault.done);
        let began = std::time::Instant::now();
        let row = fault.run(&mut mesh).with_context(|| fault.name)?;
        let took = began.elapsed().as_secs();
        eprintln!("{}({took} s)", document::line(&row));
        rows.push(row);
    }
    if !rows.is_empty() {
        document::show(FAULTS, &document::of_faults(&rows), is_whole(FAULTS))?;
    }
    let is_quiet = quiet.is_none_or(|quiet| quiet.warnings.is_empty());
    Ok(is_quiet && rows.iter().all(|row: &Row| row.wrong.is_empty()))
}
