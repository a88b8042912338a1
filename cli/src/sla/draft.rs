//! Drafts of SLAs from what a batch system is configured to do.
//!
//! What has no counterpart stands as a comment, so that nothing is lost silently. Where an SLA is given beside it, what
//! differs is said with both values.
//!
//! Invariant: a draft is read back by whoever reads SLAs. Deliberately not here: asking batch systems; their words come
//! from files or from standard input, so that a draft can be made anywhere.

mod condor;
mod lsf;
mod pbs;
mod slurm;

use std::io::{Read as _, Write};
use std::path::Path;

use fairmesh_broker::Sla;
use fairmesh_broker::sla::{Amount, Bound, EPOCH, Grant, SlaEntry};
use fairmesh_model::{AccountPath, Share};

use super::DraftArgs;
use crate::emulate::{read, read_as};
use crate::output::Exit;

/// A draft, and what could not be said in it.
#[derive(Debug)]
struct Draft {
    sla: Sla,
    comments: Vec<String>,
}

pub(super) fn draft(args: &DraftArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    type Read = fn(&str, &str) -> anyhow::Result<Draft>;
    let others: [(_, Read, _); 3] = [
        (&args.condor, condor::draft, "HTCondor"),
        (&args.pbs, pbs::draft, "PBS"),
        (&args.lsf, lsf::draft, "LSF"),
    ];
    let mut others = others.into_iter();
    let other = others.find_map(|(file, read, name)| Some((file.as_ref()?, read, name)));
    let (draft, system) = match other {
        Some((file, read, name)) => {
            let (text, file) = text_of(file)?;
            (read(&text, &file)?, name)
        }
        None => {
            let (text, file) = text_of(args.associations.as_deref().unwrap_or(Path::new("-")))?;
            let accounts = slurm::read(&text, &file)?;
            let partitions = args.partitions.as_deref().map(|file| {
                let (text, file) = text_of(file)?;
                slurm::read_partitions(&text, &file)
            });
            let partitions = partitions.transpose()?.unwrap_or_default();
            (slurm::of_accounts(&accounts, &partitions)?, "Slurm")
        }
    };
    let Some(signed) = &args.sla else {
        write!(out, "{}", draft.sla.to_toml())?;
        for comment in draft.comments {
            writeln!(out, "# {comment}")?;
        }
        return Ok(Exit::Success);
    };
    let differences = differences(&read_as(signed, Sla::parse)?, &draft.sla, system);
    for difference in &differences {
        writeln!(out, "{difference}")?;
    }
    Ok(Exit::of(differences.is_empty()))
}

/// A target: so many shares of all that siblings have.
fn target(shares: u64, of_all: u64) -> Grant {
    let amount = Amount::Percent(Share::from_ratio(shares, of_all));
    let interval = EPOCH;
    Grant {
        share: Some(Bound { amount, interval }),
        ..Grant::default()
    }
}

/// What stands in a file, and how it is called in errors.
fn text_of(file: &Path) -> anyhow::Result<(String, String)> {
    if file.to_str() == Some("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok((text, "standard input".to_owned()));
    }
    Ok((read(file)?, file.display().to_string()))
}

/// Entries that say something else than is configured.
fn differences(signed: &Sla, configured: &Sla, system: &str) -> Vec<String> {
    let line = |entry: Option<&SlaEntry>| {
        entry.map_or_else(
            || "nothing".to_owned(),
            |entry| {
                let cpu = entry
                    .cpu
                    .map(|cpu| cpu.to_text(fairmesh_broker::sla::Resource::Cpu));
                let most = entry.at_most.map(|cpus| format!("at most {cpus} CPUs"));
                let parts: Vec<String> = [cpu, most].into_iter().flatten().collect();
                match parts.is_empty() {
                    true => "no limit".to_owned(),
                    false => parts.join(", "),
                }
            },
        )
    };
    let paths = signed.entries.keys().chain(configured.entries.keys());
    let paths: std::collections::BTreeSet<&AccountPath> = paths.collect();
    let differ = paths.into_iter().filter_map(|path| {
        let (says, does) = (
            line(signed.entries.get(path)),
            line(configured.entries.get(path)),
        );
        (says != does)
            .then(|| format!("{path}: the SLA says {says}, and {system} is configured to {does}"))
    });
    differ.collect()
}
