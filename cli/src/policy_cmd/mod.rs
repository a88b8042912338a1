//! `fairmesh policy`: an authority's whole work, from keys to published documents.
//!
//! A draft is TOML that people edit; signing makes it a document, whose bytes never change again
//! except by more signatures. k-of-n signatures are added one by one on different machines: the
//! same draft gives the same payload everywhere.
//!
//! Invariant: nothing here trusts a document's own word; what is printed as valid was verified.
//! Files that are there are not overwritten, except to add a signature to a document. Who reads the output may go
//! away: all that was asked for is done.
//! Deliberately not here: which documents a node has (`fairmesh status` and `peers`).

mod allocation_draft;
mod charter_draft;
mod clock;
mod document;
mod draft;
mod fields;
mod lost;
mod members;
mod plan;
mod publish;
mod shares_draft;
mod show;
mod sign;
mod snapshot;
mod snapshot_draft;
mod start;
mod verify;

use std::io::Write;
use std::path::{Path, PathBuf};

pub use allocation_draft::allocation_toml;
pub(crate) use allocation_draft::parse_core_hours;
pub use charter_draft::charter_toml;
pub(crate) use clock::now;
pub use document::PolicyDocument;
pub(crate) use document::read_bytes;
pub use draft::Draft;
pub use plan::read_tree;
pub(crate) use publish::may_publish;
pub use shares_draft::shares_toml;
pub(crate) use sign::sign_draft;
pub(crate) use snapshot::by_vo;

use crate::init::generate_key;
use crate::output::{Exit, Finishing};

/// Make, sign, check, compare and publish a VO's charters, share policies, allocations and snapshots
#[derive(Debug, Clone, clap::Args)]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// The steps of an authority's work.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum PolicyCommand {
    /// Make a signing key (a new file of mode 0600) and print its id
    Keygen {
        /// The file to make
        file: PathBuf,
    },
    /// Make a draft to edit
    #[command(subcommand)]
    New(start::NewCommand),
    /// Sign a draft, or add a signature to a document
    Sign(sign::SignArgs),
    /// Print a document as a draft, with who signed it
    Show(show::ShowArgs),
    /// Check signatures and succession: exit 0 if all is in order, 1 if not
    Verify(verify::VerifyArgs),
    /// Compare two sets of share trees: who gains and who loses; or two charters: which sites leave, join and change
    /// keys
    Plan(plan::PlanArgs),
    /// Hand signed documents to a node, which spreads them
    Publish(publish::PublishArgs),
    /// Sign a snapshot of all that is in force at a node, and publish it there: for a timer
    Snapshot(snapshot::SnapshotArgs),
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or are not what they should be, and a node that does not answer.
pub async fn run(args: &PolicyArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut out = Finishing::new(out);
    let exit = done(args, &mut out).await?;
    out.finish(exit)
}

async fn done(args: &PolicyArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        PolicyCommand::Keygen { file } => keygen(file, out),
        PolicyCommand::New(args) => start::run(args, out),
        PolicyCommand::Sign(args) => sign::run(args, out),
        PolicyCommand::Show(args) => show::run(args, out),
        PolicyCommand::Verify(args) => verify::run(args, out),
        PolicyCommand::Plan(args) => plan::run(args, out).await,
        PolicyCommand::Publish(args) => publish::run(args, out).await,
        PolicyCommand::Snapshot(args) => snapshot::run(args, out).await,
    }
}

fn keygen(file: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let key = generate_key(file)?;
    writeln!(out, "{}", key.key_id().checked())?;
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests;
