//! `fairmesh policy sign`: the first signature on a draft, or one more on a document.
//!
//! Invariant: a signed document's payload is what the draft said, and a file holds either the old
//! signatures or the old and the new ones, whenever the machine stops. Deliberately not here:
//! whether the signatures are enough for a node; `verify` says so.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use fairmesh_model::{Charter, Discounts, MemberSite, Role};
use fairmesh_schedulers::state::replace;

use super::document::{PolicyDocument, as_text, read_bytes};
use super::draft::Draft;
use super::members;
use crate::init::{load_key, write_new};
use crate::output::Exit;

/// Options of `sign`.
#[derive(Debug, Clone, clap::Args)]
pub struct SignArgs {
    /// A draft (TOML) or a document that lacks signatures
    #[arg(value_name = "DRAFT.toml|DOC.cbor")]
    pub file: PathBuf,
    /// A file with a secret key; repeat it for several
    #[arg(long = "key", value_name = "FILE", required = true)]
    pub keys: Vec<PathBuf>,
    /// Where the document goes [default: the draft's name with .cbor; a document is replaced]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Signs a draft beside it, or adds signatures to a document; a document without keys stays as it is. Where the
/// document is.
pub(crate) fn sign_draft(
    file: &Path,
    keys: &[PathBuf],
    out: &mut dyn Write,
) -> anyhow::Result<PathBuf> {
    let is_draft = as_text(&read_bytes(file)?).is_some();
    ensure!(
        !keys.is_empty() || !is_draft,
        "{} is a draft: name the keys that sign it with --key",
        file.display()
    );
    if !keys.is_empty() {
        let args = SignArgs {
            file: file.to_owned(),
            keys: keys.to_vec(),
            out: None,
        };
        run(&args, out)?;
    }
    Ok(match is_draft {
        true => file.with_extension("cbor"),
        false => file.to_owned(),
    })
}

pub(super) fn run(args: &SignArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let keys = args
        .keys
        .iter()
        .map(|file| load_key(file))
        .collect::<Result<Vec<_>, _>>()?;
    let bytes = read_bytes(&args.file)?;
    let draft = as_text(&bytes);
    let mut document = match draft {
        Some(text) => Draft::parse(text, &args.file.display().to_string())?.into_document()?,
        None => PolicyDocument::parse(&bytes)
            .with_context(|| format!("{} is neither a draft nor a document", args.file.display()))?
            .whole()?,
    };
    let target = match (&args.out, draft) {
        (Some(out), _) => out.clone(),
        (None, Some(_)) => args.file.with_extension("cbor"),
        (None, None) => args.file.clone(),
    };
    for key in &keys {
        let id = key.key_id();
        if document.signers().contains(&id) {
            ensure!(
                document.count_valid(&BTreeSet::from([id])) == 1,
                "{}: what stands there as the signature of {id} is none: somebody has changed the file; sign it as it \
                 was before that",
                args.file.display()
            );
            writeln!(out, "note: {id} has signed it already")?;
        }
        document.add_signature(key)?;
    }
    if target == args.file {
        let replaced = replace(&target, document.bytes(), Some(0o644));
        replaced.with_context(|| format!("cannot replace {}", target.display()))?;
    } else {
        ensure!(
            !target.exists(),
            "{} is there already: sign that to add a signature, or give another name with -o",
            target.display()
        );
        write_new(&target, document.bytes(), 0o644)?;
    }
    writeln!(out, "{}: {}", target.display(), document.name())?;
    writeln!(
        out,
        "VO    {}\nhash  {}",
        document.vo().checked(),
        document.hash()
    )?;
    if let PolicyDocument::Charter(charter) = &document {
        write_terms(charter.claimed(), out)?;
        let folder = args.file.parent().unwrap_or(Path::new(""));
        write_changes(charter.claimed(), folder, out)?;
    }
    write_signatures(&document, out)?;
    if let Some(role) = document.own_role() {
        for key in keys
            .iter()
            .map(|key| key.key_id())
            .filter(|key| !role.keys.contains(key))
        {
            writeln!(out, "note: {key} is no key of this charter's authority")?;
        }
    }
    Ok(Exit::Success)
}

/// What lets others into a charter, so that no officer lets them in unseen.
fn write_terms(charter: &Charter, out: &mut dyn Write) -> std::io::Result<()> {
    let more = |count: Option<u32>, unit: &str| {
        count.map_or_else(String::new, |count| format!(", {count} {unit}"))
    };
    let site = |of: &MemberSite| {
        let (gpus, mem) = (more(of.gpus, "GPUs"), more(of.mem_gib, "GiB"));
        format!("{} ({} CPUs{gpus}{mem})", of.name, of.cores)
    };
    let sites: Vec<String> = charter.sites.iter().map(site).collect();
    let role = |of: &Role| format!("{} of {}", of.threshold, of.keys.len());
    let (authority, policy) = (role(&charter.authority), role(&charter.policy));
    let snapshots = charter.snapshot.as_ref();
    let snapshots = snapshots.map_or_else(|| "none".to_owned(), role);
    let Discounts { preemptible, idle } = charter.discounts;
    let discounts = match charter.discounts == Discounts::NONE {
        true => "no discounts".to_owned(),
        false => format!("preemptible {preemptible} %, idle {idle} %"),
    };
    writeln!(
        out,
        "sites {}\nkeys  authority {authority}, policy {policy}, snapshots {snapshots}\n\
         terms {discounts}, {} readers; all else: fairmesh policy show FILE",
        sites.join(", "),
        charter.readers.len()
    )
}

/// What the charter changes of the sites of the one before, which officers keep beside it.
fn write_changes(charter: &Charter, folder: &Path, out: &mut dyn Write) -> std::io::Result<()> {
    let Some(previous) = charter.previous else {
        return Ok(());
    };
    let Some(before) = members::charter_beside(folder, previous) else {
        return writeln!(
            out,
            "note: charter {} is not in this folder, so which sites leave, join or change keys is not shown here: \
             fairmesh policy plan --old BEFORE.cbor --new FILE",
            charter.version.saturating_sub(1)
        );
    };
    let changes = members::changes(&before, charter);
    changes
        .iter()
        .try_for_each(|change| writeln!(out, "      {change}"))
}

fn write_signatures(document: &PolicyDocument, out: &mut dyn Write) -> std::io::Result<()> {
    match document.own_role() {
        Some(role) => {
            let (valid, needed) = (document.count_valid(&role.keys), role.threshold);
            writeln!(
                out,
                "{valid} of {needed} needed signatures of its own authority"
            )?;
            if u32::try_from(valid).is_ok_and(|valid| valid < needed) {
                writeln!(
                    out,
                    "the others add theirs to this file: fairmesh policy sign FILE --key THEIR.key"
                )?;
            }
            if document.version() > 1 {
                writeln!(
                    out,
                    "and it needs those of the authority of charter {}",
                    document.version() - 1
                )?;
            }
            Ok(())
        }
        None => writeln!(
            out,
            "{} valid so far; whether that is enough: fairmesh policy verify FILE --charter CHARTER.cbor",
            document.count_valid(&document.signers())
        ),
    }
}
