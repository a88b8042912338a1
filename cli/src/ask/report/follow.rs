//! `fairmesh report --follow`: files and folders that grow, reported as they do. The reader of growing logs is
//! [`fairmesh_schedulers::follow`].
//!
//! Invariant: the cursor moves only past records that the node has acknowledged, and is durable before anything further
//! is read. If the node is away or accepts no records for now, they are sent again until it does. After a kill at any
//! moment at most one batch is sent twice, which counts nothing twice. If the node has lost records that it had
//! acknowledged, the cursor goes back to the beginning. Deliberately not here: what the node is told of the rounds
//! (`follower`).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use fairmesh_api::record_log::{LogPlace, LogState};
use fairmesh_model::clean;
use fairmesh_node::driver::wall_now;
use fairmesh_records::format::DETECT_BYTES_MAX;
use fairmesh_records::{Format, GridIdentities};
use fairmesh_schedulers::follow::{FilePosition, Listing, Portion, Reader};
use fairmesh_schedulers::state;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::arc::{self, Archive, Place};
use super::item::{Entry, Kind};
use super::read_options::ReadOptions;
use super::rejects::Rejects;
use super::send::{Origin, RefusedForNow};
use super::source::{recognised, unrecognised};
use super::tally::FileBody;
use super::{ReportArgs, Reporting, read_identities};

/// Time between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// An archive's jobs are looked at again for so long after they ended, seconds: it is not written in the order in
/// which they do.
const OVERLAP_S: i64 = 600;

/// What is remembered of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    format: Option<Format>,
    place: Option<FilePosition>,
    /// In a folder, which log: an earlier release stored this outside the position.
    #[serde(default, skip_serializing)]
    log: Option<PathBuf>,
    /// The same of the positions in other logs.
    #[serde(default, skip_serializing)]
    left: Vec<FilePosition>,
    /// In an archive, when the last of the jobs ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_s: Option<i64>,
    /// The state of the node's record log when all that was acknowledged.
    #[serde(default)]
    record_log: LogPlace,
}

pub(super) struct Followed {
    path: PathBuf,
    name: String,
    cursor: PathBuf,
    progress: Progress,
    rejects: Rejects,
    read: u64,
    is_archive: bool,
    /// Whether the command line has the format, so no log has to show it.
    is_format_given: bool,
    /// Files of a folder that have shown the format.
    logs: BTreeSet<String>,
    /// Files of a folder that are no logs. Each is reported once.
    strays: BTreeSet<String>,
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
    job.tell().await;
    let is_by_hand = loop {
        let newest = modified(&args.identities);
        if newest != identities {
            job.identities = read_identities(&args.identities).unwrap_or_else(|error| {
                note!("fairmesh: {error:#}");
                GridIdentities::default()
            });
            identities = newest;
        }
        let done = tokio::select! {
            biased;
            _ = terminate.recv() => break false,
            _ = interrupt.recv() => break true,
            done = job.round(&mut files) => done,
        };
        if let Err(error) = tell(done, &mut trouble) {
            job.end(false).await;
            return Err(error);
        }
        job.tell().await;
        tokio::select! {
            _ = terminate.recv() => break false,
            _ = interrupt.recv() => break true,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    };
    job.end(is_by_hand).await;
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
            note!("fairmesh: all is well again");
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
        note!("fairmesh: {error:#}; trying again");
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
        let mut progress = known.unwrap_or_default().updated();
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
            is_format_given: format.is_some(),
            logs: BTreeSet::new(),
            strays: BTreeSet::new(),
            sent: BTreeSet::new(),
        })
    }

    /// If the node has lost records that it had acknowledged, begins again: what it still knows counts once. Returns
    /// whether it does.
    pub(super) fn compare(&mut self, now: &LogState) -> anyhow::Result<bool> {
        let before = self.progress.record_log;
        let loss = before.loss(now);
        if let Some(loss) = loss {
            note!("fairmesh: {loss}: {} is reported again", self.name);
            (self.progress.place, self.progress.ended_s) = (None, None);
            self.sent.clear();
            self.progress.record_log = before.at(now);
        } else {
            self.progress.record_log = before.refreshed(now);
        }
        if self.progress.record_log != before {
            state::store(&self.cursor, &self.progress)?;
        }
        Ok(loss.is_some())
    }

    /// Notes how far the log has come with what was just acknowledged. It may have been restored since the round began.
    async fn note_log(&mut self, job: &Reporting) -> anyhow::Result<()> {
        let now = job.log_state().await?;
        if let Some(loss) = self.progress.record_log.loss(&now) {
            return Err(loss.into());
        }
        self.progress.record_log = self.progress.record_log.at(&now);
        Ok(())
    }

    /// Reports everything that is new.
    pub(super) async fn round(&mut self, job: &mut Reporting) -> anyhow::Result<()> {
        self.is_archive |= self.progress.format.is_none() && arc::is_archive_at(&self.path);
        if self.is_archive {
            return self.archive_round(job).await;
        }
        loop {
            let mut listing = self.list()?;
            self.progress.format = self.format(listing.as_mut())?;
            let Some(format) = self.progress.format else {
                return Ok(());
            };
            let (path, place) = (&self.path, self.progress.place.as_ref());
            let reader = Reader::new(format, &job.options);
            let read = match &listing {
                Some(listing) => reader.read_folder(path, listing, place),
                None => reader.read(path, place),
            };
            let mut read = read.with_context(|| format!("cannot read {}", self.name))?;
            // If the log is rotated before the node accepts its first records, they are read from where it is then.
            if place.is_none() {
                self.keep(read.start.clone())?;
            }
            if self.take(job, &mut read, format).await? > 0 {
                self.note_log(job).await?;
            }
            self.keep(read.next)?;
            if !read.more {
                return Ok(());
            }
        }
    }

    fn keep(&mut self, place: FilePosition) -> anyhow::Result<()> {
        if self.progress.place.as_ref() != Some(&place) {
            self.progress.place = Some(place);
            state::store(&self.cursor, &self.progress)?;
        }
        Ok(())
    }

    /// Reports what was read of a log. The lines of its records are counted from those before; where records have
    /// several lines that is near enough to find them. Returns how many records there were.
    async fn take(
        &mut self,
        job: &mut Reporting,
        read: &mut Portion,
        format: Format,
    ) -> anyhow::Result<usize> {
        let log = match &read.start.name {
            Some(name) => self.path.join(name),
            None => self.path.clone(),
        };
        let name = clean(&log.display().to_string());
        let records = std::mem::take(&mut read.records).into_iter();
        let records = records.zip(std::mem::take(&mut read.usage));
        let mut batch = Vec::new();
        for ((record, usage), line) in records.zip(read.start.position.lines + 1..) {
            let text = Vec::new();
            let entry = Box::new(Entry {
                record,
                usage,
                text,
            });
            let entry = job.prepared(entry, &name, line);
            batch.push((line, entry.map_err(|error| Hopeless(error.to_string()))?));
        }
        let records = batch.len();
        let of_log = ReadOptions {
            columns: read.columns.take(),
            ..ReadOptions::of_format(format.name())
        };
        let section = of_log.or(job.given.clone()).with_zone().to_line();
        let mut from = Origin::new(&name, &mut self.rejects, &section);
        job.send(batch, &mut from).await?;
        for bad in &read.bad {
            job.tally.refuse(&bad.why, &name, bad.line);
            let place = format!("{name}:{}", bad.line);
            note!("fairmesh: {place}: {}", clean(&bad.why));
            self.rejects
                .keep(&section, &place, &clean(&bad.why), &bad.text);
        }
        job.way.tell_of(&mut self.rejects).await;
        // Once, however often the batch was sent.
        if read.lost.is_some() {
            job.follower.lost += 1;
        }
        self.read += (records + read.bad.len()) as u64;
        job.tally.report.read += read.bad.len() as u64;
        Ok(records)
    }

    /// The same of an archive.
    async fn archive_round(&mut self, job: &mut Reporting) -> anyhow::Result<()> {
        let from = self.progress.ended_s.unwrap_or(0).saturating_sub(OVERLAP_S);
        self.sent = self.sent.split_off(&arc::before(from));
        let name = self.name.clone();
        let cannot = || format!("cannot read {name}");
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
            if count > 0 {
                self.note_log(job).await?;
            }
            self.sent.extend(places);
            if self.progress.ended_s < Some(place.0) {
                self.progress.ended_s = Some(place.0);
                state::store(&self.cursor, &self.progress)?;
            }
        }
    }

    /// The logs of a folder.
    fn list(&mut self) -> anyhow::Result<Option<Listing>> {
        if !self.path.is_dir() {
            return Ok(None);
        }
        let listing = Listing::new(&self.path, wall_now());
        let mut listing = listing.with_context(|| format!("cannot read {}", self.name))?;
        listing.logs.retain(|log| !self.strays.contains(log));
        for stray in std::mem::take(&mut listing.strays) {
            self.skip_stray(stray);
        }
        Ok(Some(listing))
    }

    /// The format of the file, or of the first log of the folder that shows it; `None` while they are empty. A file
    /// of the folder that shows none, or another one, is a stray.
    fn format(&mut self, listing: Option<&mut Listing>) -> anyhow::Result<Option<Format>> {
        let Some(listing) = listing.filter(|_| !self.is_format_given) else {
            let known = self.progress.format;
            return known.map_or_else(|| recognise(&self.path), |known| Ok(Some(known)));
        };
        let mut known = self.progress.format;
        for name in listing.logs.clone() {
            if self.logs.contains(&name) {
                continue;
            }
            let found = match recognise(&self.path.join(&name)) {
                Err(error) if error.is::<Hopeless>() => None,
                Ok(None) => continue,
                found => found?.filter(|found| known.is_none_or(|known| known == *found)),
            };
            if found.is_some() {
                known = found;
                self.logs.insert(name);
            } else {
                listing.logs.remove(&name);
                self.skip_stray(name);
            }
        }
        Ok(known)
    }

    /// Skips a file of the folder that is no log, and warns of it once.
    fn skip_stray(&mut self, file: String) {
        if !self.strays.contains(&file) {
            let name = clean(&self.path.join(&file).display().to_string());
            note!("fairmesh: {name} is skipped: it is not a log of this folder");
            self.strays.insert(file);
        }
    }
}

impl Progress {
    /// The same, where an earlier release stored it.
    fn updated(mut self) -> Self {
        if let Some(name) = self.log.take().as_deref().and_then(Path::file_name) {
            let place = self.place.get_or_insert_default();
            place.name = Some(name.to_string_lossy().into_owned());
            place.left = std::mem::take(&mut self.left);
        }
        self
    }
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
        let strays = [
            "20260101.bak",
            "20260101~",
            "20260101.20260102",
            "README",
            "core.1234",
            "old.tar",
        ];
        let (days, ahead) = (["20260101", "20260102"], ["99990101"]);
        for name in days.iter().chain(&strays).chain(&ahead) {
            std::fs::write(folder.path().join(name), "")?;
        }
        let mut followed = Followed {
            path: folder.path().to_owned(),
            name: String::new(),
            cursor: folder.path().join(".cursor"),
            progress: Progress::default(),
            rejects: Rejects::of(folder.path(), None, true, true),
            read: 0,
            is_archive: false,
            is_format_given: false,
            logs: BTreeSet::new(),
            strays: BTreeSet::new(),
            sent: BTreeSet::new(),
        };
        let listing = followed.list()?.context("a folder")?;
        assert_eq!(listing.logs, days.map(str::to_owned).into());
        assert_eq!(followed.strays, strays.map(str::to_owned).into());
        Ok(())
    }

    #[test]
    fn a_cursor_of_an_earlier_release_continues_in_its_log() -> anyhow::Result<()> {
        let place = r#"{"inode": 7, "position": {"bytes": 9, "lines": 1}}"#;
        let other = r#"{"name": "20260101", "inode": 6, "position": {"bytes": 8, "lines": 1}}"#;
        let cursor = format!(
            r#"{{"log": "/logs/20260102", "format": "pbs", "place": {place}, "left": [{other}]}}"#
        );
        let progress: Progress = serde_json::from_str(&cursor)?;
        let place = progress.updated().place.context("a position")?;
        assert_eq!((place.name.as_deref(), place.inode), (Some("20260102"), 7));
        assert_eq!(place.left, [serde_json::from_str(other)?]);
        Ok(())
    }
}
