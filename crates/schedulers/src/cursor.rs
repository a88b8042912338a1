//! How far a feed has come in its source, and the portion of the source that it reads next.
//!
//! Invariant: a cursor moves with a portion, and only after the node has acknowledged the portion's records.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fairmesh_api::record_log::LogPlace;
use fairmesh_records::{BatchRecord, Format, Options};
use serde::{Deserialize, Serialize};

use crate::follow::{self, FilePosition, Reader};

/// How far the feed has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The newest end of the jobs of `sacct` that were seen, in seconds since 1970.
    pub sacct_until: Option<u64>,
    /// Up to when the days behind it have been asked for. Not kept: a feed that starts asks for them again.
    #[serde(skip)]
    pub sacct_asked: Option<u64>,
    /// Seconds of the past in one call, while days are left of which whole ones were too much.
    #[serde(skip)]
    pub sacct_step: Option<u64>,
    /// A file of records: which, and how far.
    pub file: Option<FilePosition>,
    /// The last file of a spool that this round has read: those that are refused for now stay, and hold no others up.
    #[serde(skip)]
    pub spooled: Option<PathBuf>,
    /// Seconds for which jobs were seen to be suspended, by number and submit time, until their end
    /// is known: job completion files do not say it.
    #[serde(default)]
    pub suspended: BTreeMap<String, u64>,
    /// When runs were last resized, by number and submit time.
    #[serde(default)]
    pub resized: BTreeMap<String, Resized>,
    /// The state of the node's record log when all this was acknowledged.
    #[serde(flatten)]
    pub log: LogPlace,
    /// Jobs of the queue whose records could not be read: the queue has the last word on them.
    #[serde(default)]
    pub unread: BTreeSet<u64>,
}

/// The last change of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resized {
    /// When, in seconds since 1970.
    pub at: u64,
    /// For how long it had been suspended until then, in seconds.
    pub stopped: u64,
}

impl Cursor {
    /// The same, where its source is read up to another place.
    pub(crate) fn at(self, place: Self) -> Self {
        Self {
            sacct_until: place.sacct_until,
            sacct_asked: place.sacct_asked,
            sacct_step: place.sacct_step,
            file: place.file,
            spooled: place.spooled,
            ..self
        }
    }
}

/// What a source gave.
#[derive(Debug, Default)]
pub struct Portion {
    /// Jobs that have ended, and others.
    pub records: Vec<BatchRecord>,
    /// What made no sense, and why.
    pub bad: Vec<String>,
    /// The jobs that this may have been of.
    pub unread: Vec<u64>,
    /// Where the cursor is once the node has acknowledged.
    pub cursor: Cursor,
    /// In a file: where reading started.
    pub start: Option<FilePosition>,
    /// The files to remove then.
    pub files: Vec<PathBuf>,
    /// What ended later than this, in seconds since 1970, will be given again.
    pub again_from_s: Option<u64>,
    /// Whether there is more.
    pub more: bool,
    /// Whether a log was gone before it was known to be read to its end.
    pub is_lost: bool,
}

impl Portion {
    /// Reads on in a file that grows, behind the cursor.
    pub(crate) fn read(
        path: &Path,
        cursor: &Cursor,
        format: Format,
        mut options: Options,
    ) -> anyhow::Result<Self> {
        options.growing = true;
        let read = Reader::new(format, &options).read(path, cursor.file.as_ref());
        let read = read.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self::of_file(read, cursor))
    }

    /// What was read on in a file, behind the cursor.
    pub(crate) fn of_file(read: follow::Portion, cursor: &Cursor) -> Self {
        let log = read.start.name.as_ref().map(|name| format!(" ({name})"));
        let log = log.unwrap_or_default();
        let show = |bad: &follow::Bad| format!("line {}: {}{log}", bad.line, bad.why);
        Self {
            bad: read.bad.iter().map(show).collect(),
            start: Some(read.start),
            records: read.records,
            more: read.more,
            is_lost: read.lost.is_some(),
            cursor: Cursor {
                file: Some(read.next),
                ..cursor.clone()
            },
            ..Self::default()
        }
    }
}

/// Forgets the runs that were submitted first, where there are too many.
pub(crate) fn bound<T>(runs: &mut BTreeMap<String, T>, most: usize) {
    while runs.len() > most {
        let oldest = runs.keys().min_by_key(|name| submitted(name)).cloned();
        runs.remove(&oldest.unwrap_or_default());
    }
}

/// When the run of a mark was submitted.
fn submitted(mark: &str) -> Option<u64> {
    mark.rsplit_once('-')?.1.parse().ok()
}
