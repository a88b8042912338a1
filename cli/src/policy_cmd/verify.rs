//! `fairmesh policy verify`: would a node take these documents?
//!
//! It offers them to the code that a node runs: charters in order of version, then share policies
//! from the top down, then allocations, then snapshots. Invariant: exit 0 only where every one was adopted or known already.
//! Deliberately not here: what a certain node has; a node may know a higher version.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use fairmesh_api::words::until;
use fairmesh_policy::{Adopted, VoPolicies};

use super::clock;
use super::document::PolicyDocument;
use crate::output::Exit;

/// Options of `verify`.
#[derive(Debug, Clone, clap::Args)]
pub struct VerifyArgs {
    /// Documents of one VO
    #[arg(value_name = "DOC.cbor", required = true)]
    pub documents: Vec<PathBuf>,
    /// More of them: the charters that they rest on, from the first
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub charter: Vec<PathBuf>,
}

/// What became of one document: its file and name, and the reason where it was refused.
pub(super) type Verdict = (String, Result<Adopted, String>);

pub(super) fn run(args: &VerifyArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let files: Vec<PathBuf> = args
        .charter
        .iter()
        .chain(&args.documents)
        .cloned()
        .collect();
    let (policies, verdicts) = chain_of(&files)?;
    writeln!(out, "VO {}", policies.vo())?;
    let mut exit = Exit::Success;
    for (name, verdict) in &verdicts {
        match verdict {
            Ok(Adopted::InForce | Adopted::Known) => writeln!(out, "ok       {name}")?,
            Ok(Adopted::Concurrent(alarm)) => {
                exit = Exit::Failure;
                writeln!(out, "RIVAL    {name}: {alarm}")?;
            }
            Err(reason) => {
                exit = Exit::Failure;
                writeln!(out, "REFUSED  {name}: {reason}")?;
            }
        }
    }
    let now = clock::now();
    if let Some((at, document)) = policies.expiries().first().filter(|(at, _)| *at > now) {
        writeln!(
            out,
            "note     {document} is the first to expire, {}",
            until(*at, now)
        )?;
    }
    let of_snapshot = policies.snapshot_warnings(now);
    for warning in policies.warnings(now).into_iter().chain(of_snapshot) {
        writeln!(out, "note     {warning}")?;
    }
    Ok(exit)
}

/// The documents of these files, each behind those that it may rest on.
pub(super) fn in_order(files: &[PathBuf]) -> anyhow::Result<Vec<(String, PolicyDocument)>> {
    let read = |file: &PathBuf| Ok((file.display().to_string(), PolicyDocument::read(file)?));
    let mut documents = files.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    documents.sort_by_key(|(_, document)| match document {
        PolicyDocument::Charter(_) => (0, 0, document.version()),
        PolicyDocument::Shares(shares) => (1, shares.claimed().path.depth(), document.version()),
        PolicyDocument::Allocation(of) => {
            let is_part = of.claimed().part_of.is_some();
            (2, usize::from(is_part), document.version())
        }
        PolicyDocument::Snapshot(_) => (3, 0, document.version()),
    });
    Ok(documents)
}

/// What is in force of these files, and what became of each.
pub(super) fn chain_of(files: &[PathBuf]) -> anyhow::Result<(VoPolicies, Vec<Verdict>)> {
    let documents = in_order(files)?;
    let vo = documents.first().context("no document was given")?.1.vo();
    let has_charter = documents
        .iter()
        .any(|(_, document)| document.own_role().is_some());
    ensure!(
        has_charter,
        "nothing says who may sign: give the VO's charters, from the first, with --charter"
    );
    let mut policies = VoPolicies::new(vo);
    let mut verdicts = Vec::new();
    for (file, document) in &documents {
        let verdict = document
            .adopt(&mut policies)
            .map_err(|error| error.to_string());
        verdicts.push((format!("{file}: {}", document.name()), verdict));
    }
    Ok((policies, verdicts))
}
