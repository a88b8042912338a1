//! Rejects that wait to be corrected, as the node is told of them: `status` and `doctor` report them.
//!
//! Invariant: what the node is told counts all records of the file, also those of earlier runs.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::hash::BuildHasher as _;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use fairmesh_api::{RejectsBody, WaitingBody};
use fairmesh_node::driver::wall_now;
use foldhash::quality::FixedState;

use super::kept::reason;
use super::read_options::OPTIONS_MARK;

/// Most reasons that are counted one by one.
const REASONS_MAX: usize = 100;

/// How many records wait in a file of rejects, and why.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    count: u64,
    reasons: BTreeMap<String, u64>,
    /// Hashes of the records.
    texts: HashSet<u64, FixedState>,
    /// What the node was told last.
    told: Option<u64>,
}

impl Waiting {
    /// Those of a file that has some already.
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        let mut waiting = Self::default();
        let mut lines = BufReader::new(File::open(path)?);
        let (mut line, mut record) = (Vec::new(), None);
        loop {
            line.clear();
            let is_end = lines.read_until(b'\n', &mut line)? == 0;
            let why = reason(&line);
            if is_end || why.is_some() || line.starts_with(OPTIONS_MARK) {
                let last = record.take();
                last.into_iter().for_each(|text| _ = waiting.is_new(text));
            } else if let Some(text) = &mut record {
                Vec::extend_from_slice(text, &line);
            }
            if is_end {
                return Ok(waiting);
            }
            if let Some(why) = why {
                waiting.add(&String::from_utf8_lossy(why));
                record = Some(Vec::new());
            }
        }
    }

    /// Whether no such record waits yet; it does from now on.
    pub(super) fn is_new(&mut self, text: Vec<u8>) -> bool {
        text.is_empty() || self.texts.insert(FixedState::default().hash_one(text))
    }

    pub(super) fn add(&mut self, why: &str) {
        self.count += 1;
        let is_known = self.reasons.len() < REASONS_MAX || self.reasons.contains_key(why);
        let why = if is_known { why } else { "other reasons" };
        *self.reasons.entry(why.to_owned()).or_default() += 1;
    }

    /// What the node is to be told, if that is news.
    pub(super) fn news(&self, path: &Path) -> Option<RejectsBody> {
        if self.told == Some(self.count) {
            return None;
        }
        let file = std::path::absolute(path).ok()?;
        // The same file by whichever way to its folder; the file itself may be removed.
        let folder = file.parent().and_then(|folder| folder.canonicalize().ok());
        let file = folder
            .zip(file.file_name())
            .map_or(file.clone(), |(folder, name)| folder.join(name));
        let most = self.reasons.iter().max_by_key(|(_, count)| **count);
        Some(RejectsBody {
            file: file.to_str()?.to_owned(),
            lines: WaitingBody {
                count: self.count,
                since_ms: wall_now().0,
                reason: most.map(|(why, _)| why.clone()).unwrap_or_default(),
            },
        })
    }

    pub(super) fn is_told(&mut self) {
        self.told = Some(self.count);
    }
}
