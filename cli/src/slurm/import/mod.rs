//! `fairmesh slurm import`: Slurm's accounts as a share tree and identity rules.
//!
//! The order of users under `projection = "fairtree"` is then the one of Slurm's Fair Tree.
//! Invariant: text in, text out (`assoc`, `tree`, `rules`, `text` know no files); no file is replaced unless `--force`
//! says so. Deliberately not here: usage, which `fairmesh slurm feed` and `fairmesh report` bring.

mod assoc;
mod rules;
mod text;
mod tree;

use std::fs;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use fairmesh_schedulers::slurm::Slurm;
use fairmesh_schedulers::slurm::cluster::Cluster;

use crate::init::write_new;
use crate::output::Exit;
use tree::Tree;

/// Make a share tree and identity rules of Slurm's accounts.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
FILE is what this printed, on a machine that has sacctmgr:
    sacctmgr -P show assoc where cluster=hpc1 \\
        format=account,parentname,user,fairshare,partition
Further columns, such as maxjobs or qos, are listed as having no counterpart.")]
pub(super) struct ImportArgs {
    /// What `sacctmgr -P show assoc` printed; - is standard input [default: ask sacctmgr]
    file: Option<PathBuf>,
    /// Write shares.toml and identity.toml into this folder, instead of printing them
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// Replace these files where they are there
    #[arg(long, requires = "write")]
    force: bool,
}

/// A share tree and rules.
struct Imported {
    shares: String,
    identity: String,
    report: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// If Slurm is away or the list is wrong, or a file is there or cannot be written.
pub(super) async fn run(
    args: &ImportArgs,
    slurm: impl FnOnce() -> anyhow::Result<Slurm>,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let (name, listed, notes) = match &args.file {
        Some(file) => (file.display().to_string(), read(file)?, Vec::new()),
        None => {
            let (listed, notes) = ask(&slurm()?).await?;
            ("sacctmgr".to_owned(), listed, notes)
        }
    };
    let imported = import(&listed, &name)?;
    match &args.write {
        None => write!(out, "{}\n{}", imported.shares, imported.identity)?,
        Some(folder) => {
            let shares = folder.join("shares.toml");
            let identity = folder.join("identity.toml");
            let files = [(&shares, &imported.shares), (&identity, &imported.identity)];
            write_files(folder, &files, args.force)?;
            writeln!(
                out,
                "{}: name it in policy_file of fairmesh.toml",
                shares.display()
            )?;
            writeln!(out, "{}: append it to fairmesh.toml", identity.display())?;
        }
    }
    let lines = imported.report.iter().chain(&notes);
    lines.for_each(|line| note!("{line}"));
    Ok(Exit::Success)
}

fn import(listed: &str, name: &str) -> anyhow::Result<Imported> {
    let listing = assoc::parse(listed, name)?;
    let tree = Tree::new(&listing.associations, name)?;
    let rules = rules::rules(&tree.places)?;
    Ok(Imported {
        shares: text::shares(&tree),
        identity: text::identity(&rules),
        report: text::report(&listing, &tree, &rules),
    })
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = match file == Path::new("-") {
        true => std::io::stdin().read_to_string(&mut text),
        false => fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
    };
    read.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text)
}

/// The cluster's associations, and what else about its fairshare has no counterpart here.
async fn ask(slurm: &Slurm) -> anyhow::Result<(String, Vec<String>)> {
    let commands = &slurm.commands;
    let cluster = Cluster::ask(commands).await?;
    ensure!(
        cluster.has_slurmdbd(),
        "this Slurm has no slurmdbd, and so no accounts to import"
    );
    let name = cluster.value("ClusterName").unwrap_or_default();
    let of_cluster = format!("cluster={name}");
    // Without `wopl` the limits of an account would be listed for each of its users, too.
    let arguments = [
        "-P",
        "show",
        "assoc",
        "where",
        &of_cluster,
        assoc::FORMAT,
        "wopl",
    ];
    let listed = commands.ask("sacctmgr", &arguments).await?;
    let arguments = ["-nP", "show", "qos", "format=name,usagefactor"];
    let qos = commands.ask("sacctmgr", &arguments).await?;
    let partitions = commands
        .ask("scontrol", &["show", "partition", "-o"])
        .await?;
    Ok((listed, notes(&cluster, &qos, &partitions)))
}

/// What Slurm weighs beside shares and usage.
fn notes(cluster: &Cluster, qos: &str, partitions: &str) -> Vec<String> {
    let mut notes = Vec::new();
    let flags = cluster.value("PriorityFlags").unwrap_or_default();
    if flags.split(',').any(|flag| flag == "NO_FAIR_TREE") {
        notes.push(
            "PriorityFlags has NO_FAIR_TREE: this cluster's order is not Fair Tree's, and no projection has it"
                .to_owned(),
        );
    }
    let factors = qos.lines().filter_map(|line| line.rsplit_once('|'));
    let weighed =
        factors.filter(|(_, factor)| factor.parse::<f64>().is_ok_and(|factor| factor != 1.0));
    let weighed: Vec<String> = weighed
        .map(|(qos, factor)| format!("{qos} {factor}"))
        .collect();
    if !weighed.is_empty() {
        notes.push(format!(
            "without a counterpart: UsageFactor of the QOS {}",
            weighed.join(", ")
        ));
    }
    let weights = partitions
        .lines()
        .filter(|line| line.contains("TRESBillingWeights="));
    let names = weights.filter_map(|line| {
        line.split_whitespace()
            .next()?
            .strip_prefix("PartitionName=")
    });
    let names: Vec<&str> = names.collect();
    if !names.is_empty() {
        notes.push(format!(
            "not imported: TRESBillingWeights of {}; what jobs cost is under [charging] in fairmesh.toml",
            names.join(", ")
        ));
    }
    notes
}

/// Writes all files, or none where one is there that must not be replaced.
fn write_files(folder: &Path, files: &[(&PathBuf, &String)], force: bool) -> anyhow::Result<()> {
    let there = files.iter().find(|(file, _)| file.exists() && !force);
    if let Some((file, _)) = there {
        anyhow::bail!(
            "{} is there already: nothing was written; --force replaces it",
            file.display()
        );
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (file, text) in files {
        match force {
            false => write_new(file, text.as_bytes(), 0o644)?,
            true => {
                fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
