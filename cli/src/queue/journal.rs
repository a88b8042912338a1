//! The journal of a queue: records as lines of JSON, synced before anything is done by them.
//!
//! Invariants: one process writes it at a time; a line that was cut by a kill at the end was followed by nothing,
//! and is dropped; any other line that cannot be read is an error, and nothing is guessed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fairmesh_broker::queue::Record;
use serde::{Deserialize, Serialize};

use crate::attempt::Life;

/// Name and version of the file, in its first line.
const SCHEMA: &str = "fairmesh.queue/1";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    schema: String,
    vo: String,
}

/// An open journal, locked for as long as it lives.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    unsynced: bool,
}

/// What a journal holds.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) vo: String,
    pub(super) records: Vec<Record>,
    /// Bytes of whole lines.
    length: u64,
}

impl Journal {
    /// Opens or makes the journal of a queue of `vo`, and gives what is written there.
    pub(super) fn open(path: &Path, vo: &str) -> anyhow::Result<(Self, Vec<Record>)> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        lock(&file, path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let found = parse(&text, path)?;
        let mut journal = Self {
            file,
            unsynced: false,
        };
        let Some(found) = found else {
            // Nothing was written, or not even the first line whole.
            journal.cut(0)?;
            let header = Header {
                schema: SCHEMA.to_owned(),
                vo: vo.to_owned(),
            };
            journal.append(&header)?;
            journal.sync()?;
            let folder = path.parent().expect("a file is in a folder");
            File::open(folder)?.sync_all()?;
            return Ok((journal, Vec::new()));
        };
        if found.vo != vo {
            bail!(
                "{}: this queue is of VO `{}`, not `{vo}`",
                path.display(),
                found.vo
            );
        }
        journal.cut(found.length)?;
        Ok((journal, found.records))
    }

    /// Writes a record, which is durable behind the next [`Journal::sync`].
    pub(super) fn write(&mut self, record: &Record, life: &mut Life) -> anyhow::Result<()> {
        life.step()?;
        self.append(record)
    }

    pub(super) fn sync(&mut self) -> anyhow::Result<()> {
        if std::mem::take(&mut self.unsynced) {
            self.file.sync_data().context("cannot sync the journal")?;
        }
        Ok(())
    }

    fn append(&mut self, line: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.unsynced = true;
        self.file
            .write_all(&text)
            .context("cannot write the journal")
    }

    fn cut(&mut self, length: u64) -> anyhow::Result<()> {
        self.file.set_len(length)?;
        self.file.seek(SeekFrom::End(0))?;
        Ok(())
    }
}

/// Locks a journal. A command that a killed manager was about to start has its lock for a moment.
fn lock(file: &File, path: &Path) -> anyhow::Result<()> {
    for wait in [0, 10, 100, 1_000] {
        std::thread::sleep(Duration::from_millis(wait));
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(error).context("cannot lock the journal");
            }
        }
    }
    bail!("{}: this queue is run by another process", path.display())
}

/// What the journal of a queue holds, without opening it for writing; `None` where there is none.
pub(super) fn look(path: &Path) -> anyhow::Result<Option<Found>> {
    match std::fs::read(path) {
        Ok(text) => parse(&text, path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn parse(text: &[u8], path: &Path) -> anyhow::Result<Option<Found>> {
    let whole = text
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |last| last + 1);
    let mut lines = text[..whole]
        .split_inclusive(|byte| *byte == b'\n')
        .enumerate();
    let Some((_, first)) = lines.next() else {
        return Ok(None);
    };
    let place = |index: usize| {
        format!(
            "{}:{}: this is no line of a queue's journal",
            path.display(),
            index + 1
        )
    };
    let header: Header = serde_json::from_slice(first).with_context(|| place(0))?;
    if header.schema != SCHEMA {
        bail!(
            "{}:1: this journal is of form `{}`, not `{SCHEMA}`",
            path.display(),
            header.schema
        );
    }
    let records =
        lines.map(|(index, line)| serde_json::from_slice(line).with_context(|| place(index)));
    Ok(Some(Found {
        vo: header.vo,
        records: records.collect::<anyhow::Result<_>>()?,
        length: whole as u64,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(job: &str) -> Record {
        Record::Ended {
            job: job.to_owned(),
            attempt: 1,
        }
    }

    #[test]
    fn a_torn_line_is_dropped_and_a_wrong_one_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let (mut journal, found) = Journal::open(&path, "vo").expect("a new one");
        assert!(found.is_empty());
        journal
            .write(&record("a"), &mut Life::default())
            .expect("writes");
        journal
            .write(&record("b"), &mut Life::default())
            .expect("writes");
        journal.sync().expect("syncs");
        let second = Journal::open(&path, "vo")
            .expect_err("it is open")
            .to_string();
        assert!(second.ends_with("run by another process"), "{second}");
        drop(journal);
        let text = std::fs::read(&path).expect("readable");
        let lines = text
            .split_inclusive(|byte| *byte == b'\n')
            .map(<[u8]>::len)
            .scan(0, |sum, length| {
                *sum += length;
                Some(*sum)
            });
        let ends: Vec<usize> = lines.collect();
        for cut in 0..=text.len() {
            std::fs::write(&path, &text[..cut]).expect("writes");
            let (mut journal, found) = Journal::open(&path, "vo").expect("any cut");
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(found, [record("a"), record("b")][..whole.saturating_sub(1)]);
            journal
                .write(&record("c"), &mut Life::default())
                .expect("writes");
            drop(journal);
            let (_, found) = Journal::open(&path, "vo").expect("whole again");
            assert_eq!(found.last(), Some(&record("c")), "cut at {cut}");
        }
        let other = Journal::open(&path, "other")
            .expect_err("another VO")
            .to_string();
        assert!(
            other.ends_with("this queue is of VO `vo`, not `other`"),
            "{other}"
        );
        std::fs::write(
            &path,
            [&text[..ends[1]], b"{}\n", &text[ends[1]..]].concat(),
        )
        .expect("writes");
        let error = Journal::open(&path, "vo")
            .expect_err("a wrong line")
            .to_string();
        assert!(
            error.ends_with("journal:3: this is no line of a queue's journal"),
            "{error}"
        );
    }

    #[test]
    fn an_attempt_that_none_can_follow_is_refused_by_its_line() {
        let head = br#"{"schema":"fairmesh.queue/1","vo":"vo"}"#;
        let line = |attempt: u32| {
            let record = Record::Assigned {
                job: "a".to_owned(),
                attempt,
                site: "s".to_owned(),
                at: fairmesh_model::WallTime(0),
            };
            serde_json::to_vec(&record).expect("written")
        };
        let read = |attempt: u32| {
            let text = [&head[..], b"\n", &line(attempt), b"\n"].concat();
            parse(&text, Path::new("journal"))
        };
        assert!(read(u32::MAX - 1).is_ok());
        let error = format!("{:#}", read(u32::MAX).expect_err("it would overflow"));
        assert!(
            error.starts_with("journal:2: ") && error.contains("no attempt can follow"),
            "{error}"
        );
    }
}
