//! `fairmesh slurm hook`: the program of `JobCompType=jobcomp/script`, and the spool that it fills.
//!
//! slurmctld starts it for each job that ended, so it does one thing: it writes the record into a
//! file of its own in the spool, durably, and ends. The feed takes the files from there when the node
//! has acknowledged them; so nothing is lost while the node is away.
//!
//! Invariant: a file that bears a record's name is whole. Deliberately not here: talking to the node,
//! which slurmctld's script must never wait for.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fairmesh_records::{BatchRecord, Options, slurm::script_record};

use super::settings::SPOOL_DEFAULT;
use crate::config::Config;
use crate::output::Exit;

/// How a record's file ends.
const SUFFIX: &str = "json";

/// Leave a finished job for the feed.
#[derive(Debug, clap::Args)]
pub(super) struct HookArgs {
    /// The folder to leave it in [default: slurm.spool of the configuration, or /var/spool/fairmesh]
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// If the environment is not that of a job's script, or the file cannot be written.
pub(super) fn run(args: &HookArgs, config: &Path) -> anyhow::Result<Exit> {
    let spool = args.spool.clone().unwrap_or_else(|| {
        // slurmctld's user need not be able to read the node's configuration.
        let configured = Config::load(config).ok().and_then(|config| config.slurm);
        configured.map_or_else(|| SPOOL_DEFAULT.into(), |slurm| slurm.spool)
    });
    let options = Options {
        cluster: "slurm".to_owned(),
        ..Options::default()
    };
    let record = script_record(|name| std::env::var(name).ok(), &options)
        .context("this is not the environment of a script of jobcomp/script")?;
    leave(&spool, &record).with_context(|| format!("cannot write into {}", spool.display()))?;
    Ok(Exit::Success)
}

fn leave(spool: &Path, record: &BatchRecord) -> anyhow::Result<()> {
    let (job, instance) = (&record.key.job, record.key.instance);
    anyhow::ensure!(
        job.bytes().all(|byte| byte.is_ascii_digit()),
        "the job id `{}` is not a number",
        crate::control::clean(job)
    );
    let name = format!("{job}-{instance}");
    let fresh = spool.join(format!(".{name}.{}", std::process::id()));
    let mut file = File::create(&fresh)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    file.sync_all()?;
    fs::rename(&fresh, spool.join(format!("{name}.{SUFFIX}")))?;
    File::open(spool)?.sync_all()?;
    Ok(())
}

/// What lies in the spool.
pub(super) struct Portion {
    /// The records.
    pub(super) records: Vec<BatchRecord>,
    /// Files that made no sense, and why. They stay for a person to look at, under another name.
    pub(super) bad: Vec<String>,
    /// The files to remove once the records are counted.
    pub(super) files: Vec<PathBuf>,
    /// Whether there are more.
    pub(super) more: bool,
}

/// Reads up to `most` records.
pub(super) fn read(spool: &Path, most: usize) -> io::Result<Portion> {
    let mut portion = Portion {
        records: Vec::new(),
        bad: Vec::new(),
        files: Vec::new(),
        more: false,
    };
    for entry in fs::read_dir(spool)? {
        let path = entry?.path();
        if path.extension().is_none_or(|suffix| suffix != SUFFIX) {
            continue;
        }
        if portion.files.len() >= most {
            portion.more = true;
            break;
        }
        match serde_json::from_slice(&fs::read(&path)?) {
            Ok(record) => {
                portion.records.push(record);
                portion.files.push(path);
            }
            Err(error) => {
                portion.bad.push(format!("{}: {error}", path.display()));
                fs::rename(&path, path.with_extension("bad"))?;
            }
        }
    }
    Ok(portion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_found() -> anyhow::Result<()> {
        let spool = tempfile::tempdir()?;
        let environment = |name: &str| {
            let value = match name {
                "JOBID" => "12",
                "JOBSTATE" => "COMPLETED",
                "SUBMIT" => "1795238180",
                "START" => "1795238184",
                "END" => "1795238190",
                "PROCS" => "4",
                "USERNAME" => "ann",
                "ACCOUNT" => "vo1",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let record = script_record(environment, &Options::default())?;
        leave(spool.path(), &record)?;
        leave(spool.path(), &record)?;
        fs::write(spool.path().join("13-1.json"), "{")?;
        let portion = read(spool.path(), 10)?;
        assert_eq!(portion.records, [record]);
        assert_eq!((portion.files.len(), portion.bad.len()), (1, 1));
        assert!(spool.path().join("13-1.bad").exists());
        assert!(read(spool.path(), 0)?.more);
        Ok(())
    }
}
