//! `fairmesh slurm setup`: the lines and files that Slurm needs, and what a running cluster lacks.
//!
//! Invariant: nothing outside of `--write`'s folder is changed; an administrator copies what he has
//! read. Exit 1 if something is missing, so that a configuration manager can ask.
//! Deliberately not here: what is looked for (`findings`).

mod findings;
mod quota;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fairmesh_schedulers::slurm::UsageSource;
use fairmesh_schedulers::slurm::cluster::{Cluster, Finished};

use super::Place;
use crate::output::Exit;
use crate::schedulers::check;
use crate::schedulers::command::write_lacks;
use quota::QuotaFiles;

/// Print what Slurm needs, and what a running cluster lacks.
#[derive(Debug, clap::Args)]
pub(super) struct SetupArgs {
    /// Write the files into this folder, too
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// The user that slurmctld runs as
    #[arg(long, default_value = "slurm")]
    slurm_user: String,
}

/// A file, and what to do with it.
struct Part {
    name: &'static str,
    place: String,
    todo: String,
    text: String,
    mode: u32,
}

/// Runs the command.
///
/// # Errors
/// If the configuration is wrong, or a file cannot be written.
pub(super) async fn run(
    args: &SetupArgs,
    place: &Place,
    config: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let cluster = Cluster::ask(&place.pair.scheduler.commands).await;
    let program = std::env::current_exe().context("where this program is")?;
    let (program, config_path) = (program.to_string_lossy(), fs::canonicalize(config)?);
    let cluster_said = cluster.as_ref().ok();
    let quota = quota_files(place, cluster_said, config)?;
    let mut parts = parts(args, (&program, &config_path), place, cluster_said);
    if let Some(files) = &quota {
        parts[0].text.push_str(&files.slurm_conf());
        parts.extend(quota_parts(files));
    }
    for part in &parts {
        match &args.write {
            None => writeln!(out, "==> {} <==\n{}", part.place, part.text)?,
            Some(folder) => {
                let path = folder.join(part.name);
                write_part(&path, part)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                writeln!(out, "{}: {}", path.display(), part.todo)?;
            }
        }
    }
    let is_there = cluster.is_ok();
    let mut findings = findings::of(place, cluster, config, quota.as_ref());
    if is_there {
        findings.extend(check::capacity(&place.pair).await);
    }
    Ok(Exit::of(write_lacks(&findings, out)?))
}

/// What a running cluster lacks: each problem, and its mend.
///
/// # Errors
/// Where this program or its configuration is not to be found.
pub(super) fn lacks(
    place: &Place,
    cluster: Cluster,
    config: &Path,
) -> anyhow::Result<Vec<(String, String)>> {
    let quota = quota_files(place, Some(&cluster), config)?;
    Ok(findings::of(place, Ok(cluster), config, quota.as_ref()))
}

/// The files that hold jobs to quotas, where the configuration asks for it.
fn quota_files(
    place: &Place,
    cluster: Option<&Cluster>,
    config: &Path,
) -> anyhow::Result<Option<QuotaFiles>> {
    if !place.table.slurm.quota {
        return Ok(None);
    }
    let program = std::env::current_exe().context("where this program is")?;
    let config = fs::canonicalize(config)?;
    let (program, config) = (program.to_string_lossy(), config.to_string_lossy());
    Ok(Some(QuotaFiles::of(place, cluster, &program, &config)))
}

/// What holding jobs to quotas lacks at a cluster; nothing where the configuration does not ask for it.
///
/// # Errors
/// Where this program or its configuration is not to be found.
pub(super) fn quota_lacks(
    place: &Place,
    cluster: &Cluster,
    config: &Path,
) -> anyhow::Result<Vec<String>> {
    let files = quota_files(place, Some(cluster), config)?;
    let lacks = files.iter().flat_map(|files| files.findings(cluster));
    Ok(lacks
        .map(|(problem, mend)| format!("{problem}; {mend}"))
        .collect())
}

/// A path that holds wherever the program that uses it was started.
fn absolute(path: &Path) -> PathBuf {
    // It fails for an empty path alone.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn write_part(path: &Path, part: &Part) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, &part.text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(part.mode))
}

fn parts(
    args: &SetupArgs,
    (program, config): (&str, &Path),
    place: &Place,
    cluster: Option<&Cluster>,
) -> Vec<Part> {
    let spool = absolute(&place.table.slurm.spool);
    let (config, spool) = (config.display(), spool.display());
    let has_slurmdbd = cluster.is_some_and(Cluster::has_slurmdbd);
    let with_hook = place.table.slurm.usage == UsageSource::Hook && !has_slurmdbd;
    let hook = "/etc/slurm/fairmesh-jobcomp";
    let unit = "/etc/systemd/system/fairmesh-slurm.service";
    let has_plugin = cluster.is_some_and(Cluster::has_our_plugin);
    let command = if has_plugin { "feed" } else { "run" };
    let text = slurm_conf(place, cluster, with_hook.then_some(hook));
    let then = match needs_restart(cluster, &text) {
        true => "restart slurmctld",
        false => "run `scontrol reconfigure`",
    };
    let mut parts = vec![Part {
        name: "slurm.conf",
        place: format!("slurm.conf: add these lines, then {then}"),
        todo: format!("add these lines to slurm.conf, then {then}"),
        text,
        mode: 0o644,
    }];
    if with_hook {
        parts.push(Part {
            name: "fairmesh-jobcomp",
            place: hook.to_owned(),
            todo: format!("copy to {hook}"),
            text: format!("#!/bin/sh\nexec {program} slurm hook --spool {spool}\n"),
            mode: 0o755,
        });
    }
    parts.push(Part {
        name: "fairmesh-slurm.service",
        place: unit.to_owned(),
        todo: format!("copy to {unit}"),
        text: include_str!("fairmesh-slurm.service")
            .replace("{USER}", &args.slurm_user)
            .replace("{PROGRAM}", program)
            .replace("{COMMAND}", command)
            .replace("{CONFIG}", &config.to_string())
            .replace("{SPOOL}", &spool.to_string()),
        mode: 0o644,
    });
    parts
}

/// Whether slurmctld takes over these lines only when it starts: another priority plug-in, or another one for completed
/// jobs (tried with 22.05). It reads the other lines again, and the plug-ins of job submission.
fn needs_restart(cluster: Option<&Cluster>, lines: &str) -> bool {
    let kind = cluster.and_then(|cluster| cluster.value("PriorityType"));
    kind != Some("priority/multifactor") || lines.contains("JobCompType=")
}

fn quota_parts(files: &QuotaFiles) -> [Part; 3] {
    let part = |name, (path, text): &(std::path::PathBuf, String), mode| Part {
        name,
        place: path.display().to_string(),
        todo: format!("copy to {}", path.display()),
        text: text.clone(),
        mode,
    };
    [
        part("job_submit.lua", &files.job_submit, 0o644),
        part("fairmesh-quota.lua", &files.check, 0o644),
        part("fairmesh-prolog", &files.prolog, 0o755),
    ]
}

fn slurm_conf(place: &Place, cluster: Option<&Cluster>, hook: Option<&str>) -> String {
    let mut text =
        "# Fairmesh sets the site factor; Slurm's own fairshare would count a second time.\n\
                    PriorityType=priority/multifactor\nPriorityWeightFairshare=0\n"
            .to_owned();
    // What the cluster does already is left as it is.
    let source = cluster.and_then(|cluster| cluster.finished(&place.table.slurm).ok());
    let lines = match (hook, source) {
        (Some(hook), _) => format!("JobCompType=jobcomp/script\nJobCompLoc={hook}\n"),
        (None, Some(Finished::Sacct)) => "# Finished jobs are read with sacct.\n".to_owned(),
        (None, Some(Finished::File(path) | Finished::Spool(path))) => {
            format!("# Finished jobs are read from {}.\n", path.display())
        }
        (None, None) => {
            "JobCompType=jobcomp/filetxt\nJobCompLoc=/var/log/slurm/jobcomp.log\n".to_owned()
        }
    };
    text.push_str(&lines);
    text
}

/// What is missing, and what to do about it.
fn finding(problem: impl Into<String>, mend: impl Into<String>) -> (String, String) {
    (problem.into(), mend.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_asked_for_only_where_a_plugin_changes() {
        let (good, basic) = ["multifactor", "basic"]
            .map(|kind| Cluster::parse(&format!("PriorityType = priority/{kind}\n")))
            .into();
        let weights = "PriorityType=priority/multifactor\nPriorityWeightFairshare=0\n";
        assert!(!needs_restart(Some(&good), weights));
        assert!(needs_restart(Some(&basic), weights) && needs_restart(None, weights));
        let file = "JobCompType=jobcomp/filetxt\n";
        assert!(needs_restart(Some(&good), file));
    }
}
