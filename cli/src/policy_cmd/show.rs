//! `fairmesh policy show`: a document as the draft that would make it, and who signed it.
//!
//! Invariant: a signature is called valid only after it was verified. Deliberately not here:
//! succession (`verify`).

use std::io::Write;
use std::path::PathBuf;

use fairmesh_api::words::{timestamp, until};

use super::allocation_draft::allocation_toml;
use super::charter_draft::charter_toml;
use super::document::PolicyDocument;
use super::shares_draft::shares_toml;
use super::snapshot_draft::snapshot_toml;
use super::{clock, verify::chain_of};
use crate::output::Exit;

/// Options of `show`.
#[derive(Debug, Clone, clap::Args)]
pub struct ShowArgs {
    /// The document
    #[arg(value_name = "DOC.cbor")]
    pub document: PathBuf,
    /// Documents that say who must sign it: charters, and policies that delegate
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub charter: Vec<PathBuf>,
    /// Print the VO's id and nothing else
    #[arg(long, conflicts_with = "charter")]
    pub id: bool,
}

pub(super) fn run(args: &ShowArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let document = PolicyDocument::read(&args.document)?;
    if args.id {
        writeln!(out, "{}", document.vo().checked())?;
        return Ok(Exit::Success);
    }
    writeln!(
        out,
        "# {}\n# VO    {}\n# hash  {}",
        document.name(),
        document.vo().checked(),
        document.hash()
    )?;
    for signer in document.signers() {
        let valid = document.count_valid(&[signer].into()) == 1;
        writeln!(
            out,
            "# signed by {signer}, {}",
            if valid { "valid" } else { "NOT VALID" }
        )?;
    }
    let (expires, now) = (document.expires(), clock::now());
    let verb = if expires > now { "expires" } else { "expired" };
    writeln!(
        out,
        "# {verb} {}, {}",
        timestamp(expires),
        until(expires, now)
    )?;
    let role = match document.own_role() {
        None if !args.charter.is_empty() => {
            let (policies, _) = chain_of(&args.charter)?;
            document.role(&policies).cloned()
        }
        own => own.cloned(),
    };
    match role {
        Some(role) => {
            let (valid, needed) = (document.count_valid(&role.keys), role.threshold);
            writeln!(
                out,
                "# {valid} of {needed} needed signatures of its role are valid"
            )?;
        }
        None => writeln!(
            out,
            "# its role is not known: give the VO's charters with --charter"
        )?,
    }
    match &document {
        PolicyDocument::Charter(charter) => write!(out, "\n{}", charter_toml(charter.claimed()))?,
        PolicyDocument::Shares(shares) => write!(out, "\n{}", shares_toml(shares.claimed()))?,
        PolicyDocument::Allocation(body) => write!(out, "\n{}", allocation_toml(body.claimed()))?,
        PolicyDocument::Snapshot(body) => write!(out, "\n{}", snapshot_toml(body.claimed()))?,
    }
    Ok(Exit::Success)
}
