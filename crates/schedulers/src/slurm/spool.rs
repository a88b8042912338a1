//! The spool that `fairmesh slurm hook` fills, the program of `JobCompType=jobcomp/script`.
//!
//! slurmctld starts it for each job that ended, so it does one thing: it writes the record into a
//! file of its own in the spool, durably, and ends. The feed takes the files from there when the node
//! has acknowledged them; so nothing is lost while the node is away.
//!
//! Invariant: a file that bears a record's name is whole. Deliberately not here: talking to the node,
//! which slurmctld's script must never wait for.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fairmesh_model::clean;
use fairmesh_records::{BatchRecord, JobState, Options, slurm::script_record};

use crate::feed::{Cursor, Portion};
use crate::state;

/// How a record's file ends.
const SUFFIX: &str = "json";

/// Leaves the job of the environment of a script of `jobcomp/script`, which `variable` looks up.
///
/// # Errors
/// If the environment is not that of such a script, or the file cannot be written.
pub fn leave_job(spool: &Path, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
    let options = Options {
        cluster: "slurm".to_owned(),
        ..Options::default()
    };
    let record = script_record(variable, &options)
        .context("this is not the environment of a script of jobcomp/script")?;
    leave(spool, &record).with_context(|| format!("cannot write into {}", spool.display()))
}

fn leave(spool: &Path, record: &BatchRecord) -> anyhow::Result<()> {
    let (job, instance) = (&record.key.job, record.key.instance);
    anyhow::ensure!(
        job.bytes().all(|byte| byte.is_ascii_digit()),
        "the job id `{}` is not a number",
        clean(job)
    );
    // The parts of a job that was resized bear its key, and their names sort before that of the last one.
    let part = match record.state {
        JobState::Resized => format!("-{}", record.end.map_or(0, |end| end.0 / 1_000)),
        _ => String::new(),
    };
    let path = spool.join(format!("{job}-{instance}{part}.{SUFFIX}"));
    Ok(state::replace(&path, &serde_json::to_vec(record)?, None)?)
}

/// Reads up to `most` records behind the cursor, and all parts of the last job. Files that make no sense stay for a person
/// to look at, under another name.
pub(super) fn read(spool: &Path, cursor: &Cursor, most: usize) -> io::Result<Portion> {
    let mut portion = Portion {
        cursor: cursor.clone(),
        ..Portion::default()
    };
    let entries = fs::read_dir(spool)?.collect::<io::Result<Vec<_>>>()?;
    let paths = entries.into_iter().map(|entry| entry.path());
    let is_record = |path: &PathBuf| {
        path.extension().is_some_and(|suffix| suffix == SUFFIX)
            && cursor.spooled.as_ref().is_none_or(|last| path > last)
    };
    let mut paths: Vec<PathBuf> = paths.filter(is_record).collect();
    paths.sort_unstable();
    let last = most
        .checked_sub(1)
        .and_then(|last| run_of(paths.get(last)?));
    let is_next = |path: &PathBuf| last.is_some() && run_of(path) == last;
    let most = most
        + paths
            .iter()
            .skip(most)
            .take_while(|path| is_next(path))
            .count();
    portion.more = paths.len() > most;
    for path in paths.into_iter().take(most) {
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
    let last = portion.files.last().cloned();
    portion.cursor.spooled = last.or(portion.cursor.spooled);
    Ok(portion)
}

/// The job and the submit time that a file is named by, whichever part of a run it has.
fn run_of(path: &Path) -> Option<(&str, &str)> {
    let mut words = path.file_stem()?.to_str()?.split('-');
    Some((words.next()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
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
    }

    #[test]
    fn what_is_left_is_found() -> anyhow::Result<()> {
        let spool = tempfile::tempdir()?;
        let record = script_record(environment, &Options::default())?;
        leave(spool.path(), &record)?;
        leave(spool.path(), &record)?;
        fs::write(spool.path().join("13-1.json"), "{")?;
        let portion = read(spool.path(), &Cursor::default(), 10)?;
        assert_eq!(portion.records, [record]);
        assert_eq!((portion.files.len(), portion.bad.len()), (1, 1));
        assert!(spool.path().join("13-1.bad").exists());
        assert!(read(spool.path(), &Cursor::default(), 0)?.more);
        Ok(())
    }

    /// The last part is settled by what the ones before it say.
    #[test]
    fn the_parts_of_a_run_are_read_together() -> anyhow::Result<()> {
        let spool = tempfile::tempdir()?;
        let record = script_record(environment, &Options::default())?;
        let record = serde_json::to_vec(&record)?;
        for name in ["11-5", "12-1-3", "12-1-4", "12-1", "12-10", "120-1"] {
            fs::write(spool.path().join(format!("{name}.json")), &record)?;
        }
        let first = read(spool.path(), &Cursor::default(), 2)?;
        assert_eq!((first.files.len(), first.more), (4, true));
        assert!(first.files[3].ends_with("12-1.json"), "{:?}", first.files);
        let rest = read(spool.path(), &first.cursor, 2)?;
        assert_eq!((rest.files.len(), rest.more), (2, false));
        assert!(rest.files[1].ends_with("120-1.json"), "{:?}", rest.files);
        Ok(())
    }
}
