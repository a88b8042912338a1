//! `fairmesh report --follow`: files and folders that grow, reported as they do.
//!
//! Of a folder the log with the lowest name that was not read to its end is followed, until there is a
//! later one (PBS begins one a day, named by its date; what is named by a day to come does not count).
//!
//! Invariant: the cursor moves only behind what the node has acknowledged, and is durable before
//! anything further is read; a node that is away is waited for. A kill at any moment makes at most one
//! batch come twice, which counts nothing twice.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use fairmesh_model::UsageRecord;
use fairmesh_records::format::DETECT_BYTES_MAX;
use fairmesh_records::{BatchRecord, Format, GridIdentities};
use fairmesh_schedulers::feed::BATCH_RECORDS;
use fairmesh_schedulers::follow::{self, FilePosition, Portion};
use fairmesh_schedulers::state;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::arc::{self, Archive, Place};
use super::read_options::ReadOptions;
use super::rejects::Rejects;
use super::send::{Origin, RefusedForNow};
use super::source::{Entry, Kind, recognised, unrecognised};
use super::tally::FileBody;
use super::{ReportArgs, Reporting, read_identities};
use crate::control::clean;
use crate::driver::wall_now;

/// Time between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// An archive's jobs are looked at again for so long after they ended, seconds: it is not written in the order in
/// which they do.
const OVERLAP_S: i64 = 600;

/// What is remembered of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    /// In a folder, which log.
    #[serde(default)]
    log: Option<PathBuf>,
    format: Option<Format>,
    place: Option<FilePosition>,
    /// In a folder, where the last of the earlier logs were left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<FilePosition>,
    /// In an archive, when the last of the jobs ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_s: Option<i64>,
}

struct Followed {
    path: PathBuf,
    name: String,
    cursor: PathBuf,
    progress: Progress,
    rejects: Rejects,
    read: u64,
    is_archive: bool,
    /// Files of a folder that are no logs. Each is reported once.
    strays: BTreeSet<PathBuf>,
    /// Of an archive, which of the last jobs are acknowledged.
    sent: BTreeSet<Place>,
}

pub(super) async fn run(args: &ReportArgs, job: &mut Reporting) -> anyhow::Result<()> {
    let mut files = args
        .files
        .iter()
        .map(|file| Followed::new(args, job.kind, file))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut identities = modified(&args.identities);
    let mut trouble = String::new();
    loop {
        let newest = modified(&args.identities);
        if newest != identities {
            job.identities = read_identities(&args.identities).unwrap_or_else(|error| {
                eprintln!("fairmesh: {error:#}");
                GridIdentities::default()
            });
            identities = newest;
        }
        let round = async {
            for file in &mut files {
                file.round(job).await?;
            }
            anyhow::Ok(())
        };
        tokio::select! {
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            done = round => tell(done, &mut trouble)?,
        }
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
    for file in files {
        job.tally.files.push(FileBody {
            file: file.name,
            format: match file.is_archive {
                true => Some(Kind::Arc.name()),
                false => file.progress.format.map(Format::name),
            },
            packed: None,
            read: file.read,
            rejects: file.rejects.path.map(|path| path.display().to_string()),
            error: None,
        });
    }
    Ok(())
}

/// Says a trouble once, and that it is over. What waiting will not mend is an error.
fn tell(done: anyhow::Result<()>, trouble: &mut String) -> anyhow::Result<()> {
    let Err(error) = done else {
        if !trouble.is_empty() {
            eprintln!("fairmesh: all is well again");
            trouble.clear();
        }
        return Ok(());
    };
    if error.downcast_ref::<Hopeless>().is_some() {
        return Err(error);
    }
    // The reason may name seconds that pass.
    let key = match error.is::<RefusedForNow>() {
        true => "refused for now".to_owned(),
        false => format!("{error:#}"),
    };
    if *trouble != key {
        eprintln!("fairmesh: {error:#}; trying again");
        *trouble = key;
    }
    Ok(())
}

/// Waiting does not mend it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Hopeless(String);

impl Followed {
    fn new(args: &ReportArgs, kind: Option<Kind>, path: &Path) -> anyhow::Result<Self> {
        let format = match kind {
            Some(Kind::Swf) => bail!("SWF logs are finished works and cannot be followed"),
            Some(Kind::Records(format)) => Some(format),
            Some(Kind::Arc) | None => None,
        };
        if path == Path::new("-") {
            bail!("standard input cannot be followed");
        }
        if args.cursor.is_some() && args.files.len() > 1 {
            bail!("--cursor is for one file; without it each file has its own");
        }
        let beside = || PathBuf::from(format!("{}.fairmesh-cursor", path.display()));
        let cursor = args.cursor.clone().unwrap_or_else(beside);
        let known: Option<Progress> = state::load(&cursor)
            .with_context(|| format!("cannot read the cursor {}", cursor.display()))?;
        let mut progress = known.unwrap_or_default();
        if progress.place.is_none() || format.is_some_and(|format| Some(format) != progress.format)
        {
            progress.format = format;
        }
        // Better to fail now than behind the first batch.
        state::store(&cursor, &progress).context("give --cursor a place that can be written")?;
        Ok(Self {
            path: path.to_owned(),
            name: clean(&path.display().to_string()),
            cursor,
            progress,
            rejects: Rejects::of(path, args.rejects_to.as_deref(), true, true),
            read: 0,
            is_archive: kind == Some(Kind::Arc),
            strays: BTreeSet::new(),
            sent: BTreeSet::new(),
        })
    }

    /// Reports everything that is new.
    async fn round(&mut self, job: &mut Reporting) -> anyhow::Result<()> {
        self.is_archive |= self.progress.format.is_none() && arc::is_archive_at(&self.path);
        if self.is_archive {
            return self.archive_round(job).await;
        }
        loop {
            let (log, later) = self.log()?;
            let Some(log) = log else { return Ok(()) };
            if self.progress.format.is_none() {
                match recognise(&log) {
                    Err(error) if self.path.is_dir() && error.is::<Hopeless>() => {
                        self.skip_stray(log);
                        continue;
                    }
                    format => self.progress.format = format?,
                }
            }
            let Some(format) = self.progress.format else {
                // An empty log is no reason to wait, if there is a later one.
                let Some(later) = later else { return Ok(()) };
                self.progress.log = Some(later);
                continue;
            };
            if self.earlier_log(job, format).await? {
                continue;
            }
            // The log stays the same if a file with a lower name appears.
            if self.progress.place.is_none() && self.path.is_dir() {
                self.progress.log = Some(log.clone());
            }
            let place = self.progress.place.as_ref();
            let read = follow::read(&log, place, format, &job.options, BATCH_RECORDS);
            let mut read = read.with_context(|| format!("cannot read {}", log.display()))?;
            let from = place.cloned();
            self.take(job, &log, (from.as_ref(), &mut read), format)
                .await?;
            let mut next = self.progress.clone();
            next.place = Some(read.next);
            if !read.more
                && let Some(later) = later
            {
                let (mut left, name) = (next.left, log.file_name());
                let name = name.map(|name| name.to_string_lossy().into_owned());
                let place = next.place.unwrap_or_default();
                follow::leave(&mut left, FilePosition { name, ..place });
                next = Progress {
                    log: Some(later),
                    format: next.format,
                    left,
                    ..Progress::default()
                };
                read.more = true;
            }
            if next != self.progress {
                state::store(&self.cursor, &next)?;
                self.progress = next;
            }
            if !read.more {
                return Ok(());
            }
        }
    }

    /// Reports what came to an earlier log of the folder, if anything did.
    async fn earlier_log(&mut self, job: &mut Reporting, format: Format) -> anyhow::Result<bool> {
        let (mut left, before) = (self.progress.left.clone(), self.progress.left.clone());
        let grown = follow::grown(&self.path, &mut left, format, &job.options, BATCH_RECORDS);
        let Some(mut grown) = grown.with_context(|| format!("cannot read {}", self.name))? else {
            return Ok(false);
        };
        let name = grown.next.name.clone();
        let place = before.iter().find(|place| place.name == name);
        let log = self.path.join(name.unwrap_or_default());
        self.take(job, &log, (place, &mut grown), format).await?;
        self.progress.left = left;
        state::store(&self.cursor, &self.progress)?;
        Ok(true)
    }

    /// Reports what was read of a log from a place on.
    async fn take(
        &mut self,
        job: &mut Reporting,
        log: &Path,
        (place, read): (Option<&FilePosition>, &mut Portion),
        format: Format,
    ) -> anyhow::Result<()> {
        if read.lost.is_some() {
            job.way.tell_of_lost_log().await;
        }
        let name = clean(&log.display().to_string());
        let lines_before = place.map_or(0, |place| place.position.lines);
        let records = std::mem::take(&mut read.records).into_iter();
        let records = records.zip(std::mem::take(&mut read.usage));
        let batch = batch(job, records, &name, lines_before)?;
        let count = (batch.len() + read.bad.len()) as u64;
        let section = section(&job.given, format, &read.next);
        let mut from = Origin::new(&name, &mut self.rejects, &section);
        job.send(batch, &mut from).await?;
        for bad in &read.bad {
            job.tally.refuse(&bad.why, &name, bad.line);
            let place = format!("{name}:{}", bad.line);
            eprintln!("fairmesh: {place}: {}", clean(&bad.why));
            self.rejects
                .keep(&section, &place, &clean(&bad.why), &bad.text);
        }
        job.way.tell_of(&mut self.rejects).await;
        self.read += count;
        job.tally.report.read += read.bad.len() as u64;
        Ok(())
    }

    /// The same of an archive.
    async fn archive_round(&mut self, job: &mut Reporting) -> anyhow::Result<()> {
        let from = self.progress.ended_s.unwrap_or(0).saturating_sub(OVERLAP_S);
        self.sent = self.sent.split_off(&arc::before(from));
        let cannot = || format!("cannot read {}", self.name);
        let archive = Archive::open(&self.path, &job.options.cluster).with_context(cannot)?;
        let mut place = arc::before(from);
        loop {
            let mut jobs = archive.behind(place).with_context(cannot)?;
            let Some((last, _)) = jobs.last() else {
                return Ok(());
            };
            place = *last;
            jobs.retain(|(place, _)| !self.sent.contains(place));
            let (places, records): (Vec<Place>, Vec<_>) = jobs.into_iter().unzip();
            let mut batch = Vec::new();
            for (place, record) in places.iter().zip(records) {
                let number = arc::number(*place);
                let entry = job.prepared(arc::entry(record), &self.name, number);
                batch.push((number, entry.map_err(|error| Hopeless(error.to_string()))?));
            }
            let count = batch.len() as u64;
            let mut from = Origin::new(&self.name, &mut self.rejects, "");
            job.send(batch, &mut from).await?;
            job.way.tell_of(&mut self.rejects).await;
            self.read += count;
            self.sent.extend(places);
            if self.progress.ended_s < Some(place.0) {
                self.progress.ended_s = Some(place.0);
                state::store(&self.cursor, &self.progress)?;
            }
        }
    }

    /// Skips a file of the folder that is no log, and warns of it once.
    fn skip_stray(&mut self, file: PathBuf) {
        let name = clean(&file.display().to_string());
        if self.strays.insert(file) {
            eprintln!("fairmesh: {name} is skipped: it is not a log of this folder");
        }
    }

    /// The log to read, and, in a folder, the one behind it.
    fn log(&mut self) -> anyhow::Result<(Option<PathBuf>, Option<PathBuf>)> {
        if !self.path.is_dir() {
            return Ok((Some(self.path.clone()), None));
        }
        let now = wall_now();
        let is_ahead = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            follow::is_ahead(&name.to_string_lossy(), now)
        };
        let is_log = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            path.is_file() && follow::is_log_name(&name.to_string_lossy()) && !is_ahead(path)
        };
        let entries = std::fs::read_dir(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        let logs = entries.flatten().map(|entry| entry.path());
        let mut logs: Vec<PathBuf> = logs.filter(is_log).collect();
        logs.sort();
        if logs.iter().any(|log| is_of_day(log)) {
            let (days, others): (Vec<_>, Vec<_>) = logs.into_iter().partition(|log| is_of_day(log));
            logs = days;
            others.into_iter().for_each(|other| self.skip_stray(other));
            // An earlier release followed any file.
            if self.progress.log.take_if(|log| !is_of_day(log)).is_some() {
                self.progress.place = None;
            }
        }
        logs.retain(|log| !self.strays.contains(log));
        if let Some(newest) = logs.last()
            && let Some(ahead) = self.progress.log.take_if(|log| is_ahead(log))
        {
            let (ahead, log) = (ahead.display(), newest.display());
            eprintln!(
                "fairmesh: {ahead} is of no day that has come: going on in {log}; report the logs before it, \
                 if they have not been"
            );
            self.progress = Progress {
                log: Some(newest.clone()),
                format: self.progress.format,
                ..Progress::default()
            };
        }
        let at = |path: &PathBuf| Some(path) >= self.progress.log.as_ref();
        let mut rest = logs.into_iter().filter(at);
        Ok((rest.next(), rest.next()))
    }
}

/// What to read records of a log with, as far as a position in it.
fn section(given: &ReadOptions, format: Format, next: &FilePosition) -> String {
    let of_log = ReadOptions {
        columns: next.position.columns.clone(),
        ..ReadOptions::of_format(format.name())
    };
    of_log.or(given.clone()).with_zone().to_line()
}

/// The records, made ready. Their lines are counted on from those before; where records have several
/// lines that is near enough to find them.
fn batch(
    job: &mut Reporting,
    records: impl Iterator<Item = (BatchRecord, Option<UsageRecord>)>,
    name: &str,
    lines_before: u64,
) -> anyhow::Result<Vec<(u64, Box<Entry>)>> {
    let numbered = records.zip(lines_before + 1..);
    let entry = |((record, usage), line)| {
        let text = Vec::new();
        let entry = Box::new(Entry {
            record,
            usage,
            text,
        });
        let entry = job.prepared(entry, name, line);
        Ok((line, entry.map_err(|error| Hopeless(error.to_string()))?))
    };
    numbered.map(entry).collect()
}

/// The format of a log; `None` while it is empty.
fn recognise(log: &Path) -> anyhow::Result<Option<Format>> {
    let mut beginning = Vec::new();
    let file = File::open(log).with_context(|| format!("cannot read {}", log.display()))?;
    file.take(DETECT_BYTES_MAX as u64)
        .read_to_end(&mut beginning)?;
    match recognised(&beginning) {
        Some(Kind::Records(format)) => Ok(Some(format)),
        None if !beginning.contains(&b'\n') => Ok(None),
        _ => Err(Hopeless(unrecognised(log, &beginning).to_string()).into()),
    }
}

/// Whether a log is named by a day (`20260101`), as PBS names its logs.
fn is_of_day(log: &Path) -> bool {
    let name = log.file_name().unwrap_or_default();
    follow::is_day(&name.to_string_lossy())
}

fn modified(files: &[PathBuf]) -> Vec<Option<(SystemTime, u64)>> {
    let of = |file: &PathBuf| {
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    files.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_days_are_read_in_a_folder_of_days() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        let strays = [
            "20260101.bak",
            "20260101~",
            "20260101.20260102",
            "README",
            "core.1234",
            "old.tar",
        ];
        for name in ["20260101", "20260102"].iter().chain(&strays) {
            std::fs::write(path(name), "")?;
        }
        let mut followed = Followed {
            path: folder.path().to_owned(),
            name: String::new(),
            cursor: path(".cursor"),
            progress: Progress {
                log: Some(path("README")),
                ..Progress::default()
            },
            rejects: Rejects::of(folder.path(), None, true, true),
            read: 0,
            is_archive: false,
            strays: BTreeSet::new(),
            sent: BTreeSet::new(),
        };
        let both = (Some(path("20260101")), Some(path("20260102")));
        assert_eq!(followed.log()?, both);
        assert_eq!(followed.strays, strays.map(path).into_iter().collect());
        Ok(())
    }

    #[test]
    fn a_folder_is_followed_past_a_log_of_a_day_to_come() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        for name in ["20260101", "20260102", "99990101"] {
            std::fs::write(path(name), "")?;
        }
        let mut followed = Followed {
            path: folder.path().to_owned(),
            name: String::new(),
            cursor: path(".cursor"),
            progress: Progress::default(),
            rejects: Rejects::of(folder.path(), None, true, true),
            read: 0,
            is_archive: false,
            strays: BTreeSet::new(),
            sent: BTreeSet::new(),
        };
        let (first, second) = (Some(path("20260101")), Some(path("20260102")));
        assert_eq!(followed.log()?, (first, second.clone()));
        // One that has come as far as that already.
        followed.progress.log = Some(path("99990101"));
        followed.progress.place = Some(FilePosition::default());
        assert_eq!(followed.log()?, (second.clone(), None));
        assert_eq!(
            (followed.progress.log, followed.progress.place),
            (second, None)
        );
        Ok(())
    }
}
