//! `fairmesh emulate`: targets, actual shares, deviations, priorities and ranks of a share tree and
//! a list of charges, offline.
//!
//! It runs the engine that a node runs, so that a policy can be tried before anyone signs it, and
//! that anyone can check a published number.
//!
//! Invariant: ranks are exact, whatever the size of the charges; numbers are printed as [`decimal`]
//! says, with no float on the way. Deliberately not here: time (every charge weighs the same),
//! running jobs, and the scopes of a real site.
//! Source: FSGrid (Elmroth and Gardfjäll, 2005).

pub mod decimal;
pub mod engine;
pub mod jobs;
mod tree;
pub mod usage;

mod report;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fairmesh_fairshare::TreeReader;
use fairmesh_model::{AccountPath, Distance};
use fairmesh_node::projection::ProjectionName;

pub use engine::{Emulated, EmulatedEntry, Unknown, emulate};
pub use jobs::{EmulatedJob, Jobs};
pub use tree::ShareTree;
pub use usage::Charges;

use crate::output::{Exit, OutputArgs};

/// Compute priorities from a share tree and a list of charges, without any mesh
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
TREE.toml lists shares, which are weights among siblings:
    [shares]
    \"/VO-A\" = 30
    \"/VO-A/P-A1\" = 50

USAGE.csv lists charges, which are whole numbers of any one unit; repeated paths add up:
    path,charge
    /VO-A/P-A1,3600000

JOBS.csv lists jobs, with an importance from 0 to 200 (100 where it is empty), which orders jobs of one
entry:
    path,job,importance
    /VO-A/P-A1,4711,150")]
pub struct EmulateArgs {
    /// The share tree; or share policies, drafted or signed, that make one
    #[arg(long, value_name = "TREE.toml", num_args = 1.., required = true)]
    pub policy: Vec<PathBuf>,
    /// The charges
    #[arg(long, value_name = "USAGE.csv")]
    pub usage: PathBuf,
    /// Jobs that wait: show these instead, in the order in which they are served
    #[arg(long, value_name = "JOBS.csv")]
    pub jobs: Option<PathBuf>,
    /// How a deviation is measured: absolute, relative, or mix:K, which is
    /// K x absolute + (1 - K) x relative with K from 0 to 1
    #[arg(long, default_value = "absolute")]
    pub distance: Distance,
    /// How one number is made of the deviations
    #[arg(long, value_enum, default_value_t)]
    pub projection: ProjectionName,
    /// The form of the answer.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Reads files that make one tree: share trees, and share policies drafted or signed.
pub type ReadTree<'a> = &'a dyn Fn(&[PathBuf]) -> anyhow::Result<ShareTree>;

/// Runs the command; `read_tree` reads what `policy plan` reads.
pub fn run(
    args: &EmulateArgs,
    out: &mut dyn Write,
    read_tree: ReadTree<'_>,
) -> anyhow::Result<Exit> {
    let tree = read_tree(&args.policy)?;
    let charges = read_as(&args.usage, Charges::parse)?;
    let jobs = match &args.jobs {
        Some(file) => read_as(file, Jobs::parse)?,
        None => Jobs::default(),
    };
    let emulated = emulate(
        &tree,
        &charges,
        &jobs,
        args.distance,
        args.projection,
        Unknown::Refuse,
    )?;
    report::write(&emulated, args, out)?;
    Ok(Exit::Success)
}

/// Reads a whole text file.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Reads a whole text file as what `parse` makes of its text; it takes the file's name for its errors.
pub(crate) fn read_as<T, E>(
    path: &Path,
    parse: impl FnOnce(&str, &str) -> Result<T, E>,
) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    Ok(parse(&read(path)?, &path.display().to_string())?)
}

fn unknown_path(reader: &TreeReader, path: &AccountPath) -> String {
    let deepest = path.ancestors().find(|above| reader.entry(above).is_some());
    format!(
        "`{path}` is not in the tree; the deepest entry above it is `{}`: name that, or add \
         `\"{path}\" = <share>` to the tree",
        deepest.unwrap_or_else(AccountPath::root)
    )
}

#[cfg(test)]
mod tests;
