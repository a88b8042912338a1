//! Files of records: unpacked and recognised by their own first bytes.
//!
//! Invariant: a bad line is an item of its own and stops nothing; a file whose format cannot be told
//! is an error and not a guess. Deliberately not here: sending (`send`), growing files (`follow`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context as _, bail};
use fairmesh_records::format::DETECT_BYTES_MAX;
use fairmesh_records::{Format, Options, Reason, Records};
use fairmesh_schedulers::follow::usage_of;

use super::arc::{self, Archive, is_archive};
use super::item::{Bad, Entry, Item, Kind, names};
use super::kept::{Kept, Section, is_kept};
use super::read_options::ReadOptions;
use super::swf;
use super::unpack::{peek, unpacked};

type Input = Box<dyn BufRead>;

/// Where a file of rejects has shown what it is: a path of 4 KiB, a number and a reason.
const PLACE_BYTES_MAX: usize = 8 << 10;

/// A file that is open.
pub(in crate::ask) struct Source {
    reader: Reader,
    /// What it was recognised as.
    pub(in crate::ask) kind: Kind,
    /// What it was packed with.
    pub(in crate::ask) packed: Option<&'static str>,
    /// Its size as it lies on disk; 0 where that is not known.
    pub(in crate::ask) bytes: u64,
    path: PathBuf,
    /// What the command line has.
    given: ReadOptions,
    /// With which options what is read now is read.
    used: ReadOptions,
    /// Whether the texts of good records are kept.
    keeps_all: bool,
    /// Of a file of rejects.
    sections: Option<Rc<RefCell<Kept<Input>>>>,
    lines_before: u64,
    /// With what the records are to be read again, and the header line in that.
    section: Option<(Rc<str>, Option<String>)>,
    ignored: u64,
    /// The same of logs that are not read by `fairmesh-records`.
    passed_over: Rc<Cell<u64>>,
    unread: BTreeMap<String, u64>,
}

enum Reader {
    Records(Box<Records<Input>>),
    Jobs(Box<dyn Iterator<Item = Item>>),
}

impl Source {
    /// Opens a file; `given` is what the command line says of it. With `keeps_all` entries have their texts.
    pub(in crate::ask) fn open(
        path: &Path,
        given: &ReadOptions,
        keeps_all: bool,
        position: Arc<AtomicU64>,
    ) -> anyhow::Result<Self> {
        let (input, packed, bytes) = unpacked(path, position)?;
        let cannot = || format!("cannot read {}", path.display());
        let (beginning, _, input) = peek(input, PLACE_BYTES_MAX);
        let mut source = Self {
            reader: Reader::Jobs(Box::new(std::iter::empty())),
            kind: Kind::Records(Format::Json),
            packed,
            bytes,
            path: path.to_owned(),
            given: given.clone(),
            used: given.clone(),
            keeps_all,
            sections: None,
            lines_before: 0,
            section: None,
            ignored: 0,
            passed_over: Rc::default(),
            unread: BTreeMap::new(),
        };
        if !is_kept(&beginning) {
            source.begin(input)?;
            return Ok(source);
        }
        let mut kept = Kept::new(input);
        let first = kept.next_section().with_context(cannot)?;
        let sections = source.sections.insert(Rc::new(RefCell::new(kept)));
        let section = Section(Rc::clone(sections));
        if let Some((options, lines)) = first {
            source.used = given.clone().or(options);
            source.lines_before = lines;
        }
        source.begin(Box::new(BufReader::new(section)))?;
        Ok(source)
    }

    /// Begins to read with the options that are set.
    fn begin(&mut self, input: Input) -> anyhow::Result<()> {
        let path = self.path.as_path();
        let (beginning, read, input) = peek(input, DETECT_BYTES_MAX);
        let Some(kind) = self.used.kind()?.or_else(|| recognised(&beginning)) else {
            // What breaks off elsewhere is an item behind what could be read.
            read.with_context(|| format!("cannot read {}", path.display()))?;
            if beginning.len() < DETECT_BYTES_MAX && beginning.trim_ascii().is_empty() {
                self.reader = Reader::Jobs(Box::new(std::iter::empty()));
                return Ok(());
            }
            return Err(unrecognised(path, &beginning));
        };
        let options = self.used.for_reader()?;
        self.reader = match kind {
            Kind::Records(format) => {
                let records = Records::new(input, format, &options);
                Reader::Records(Box::new(match self.keeps_all {
                    true => records.keeping_all(),
                    false => records,
                }))
            }
            Kind::Arc => {
                let archive = Archive::open(path, &options.cluster);
                let archive = archive.with_context(|| format!("cannot read {}", path.display()))?;
                Reader::Jobs(Box::new(arc::all_jobs(archive)))
            }
            Kind::Swf => Reader::Jobs(self.swf(&beginning, input, options)?),
        };
        self.kind = kind;
        self.section = None;
        self.used.format = Some(kind.name().to_owned());
        Ok(())
    }

    fn swf(
        &mut self,
        beginning: &[u8],
        input: Input,
        options: Options,
    ) -> anyhow::Result<Box<dyn Iterator<Item = Item>>> {
        let cluster = match options.cluster.is_empty() {
            true => stem(&self.path),
            false => options.cluster,
        };
        match swf::start_of(beginning) {
            Some(Some(start_s)) => self.used.unix_start = Some(start_s),
            Some(None) if self.used.unix_start.is_none() => bail!(
                "{}: the header has no UnixStartTime, from which the log's times count: give it with \
                 --unix-start (0 if they are seconds since 1970 already)",
                self.path.display()
            ),
            _ => {}
        }
        self.used.cluster = Some(cluster.clone());
        let (start_s, keeps_all) = (self.used.unix_start, self.keeps_all);
        let passed_over = Rc::clone(&self.passed_over);
        let jobs = swf::all_jobs(input, cluster, start_s, keeps_all, passed_over);
        Ok(Box::new(jobs))
    }

    /// Whether it holds records that were refused before.
    pub(super) fn is_of_rejects(&self) -> bool {
        self.sections.is_some()
    }

    /// What to read the records with that are read now: whole lines. The same `Rc` as long as that is the same.
    pub(super) fn section(&mut self) -> Rc<str> {
        let header = match &self.reader {
            Reader::Records(records) => records.header(),
            Reader::Jobs(_) => None,
        };
        match &self.section {
            Some((section, of)) if of.as_deref() == header => Rc::clone(section),
            _ => {
                let options = self.used.clone().with_zone().to_line();
                let line = header.map_or_else(String::new, |header| format!("{header}\n"));
                let section: Rc<str> = (options + &line).into();
                self.section = Some((Rc::clone(&section), header.map(str::to_owned)));
                section
            }
        }
    }

    /// How many lines were passed over.
    pub(in crate::ask) fn ignored(&self) -> u64 {
        let of_reader = match &self.reader {
            Reader::Records(records) => records.ignored().values().sum(),
            Reader::Jobs(_) => self.passed_over.get(),
        };
        self.ignored + of_reader
    }

    /// Records of which a field that decides nothing could not be read, by the field's name.
    pub(super) fn unread(&self) -> BTreeMap<String, u64> {
        let mut unread = self.unread.clone();
        if let Reader::Records(records) = &self.reader {
            for (field, count) in records.unread() {
                *unread.entry(field.clone()).or_default() += count;
            }
        }
        unread
    }

    /// Goes on with the next section; `None` behind the last.
    fn next_section(&mut self) -> Option<anyhow::Result<()>> {
        let sections = Rc::clone(self.sections.as_ref()?);
        let next = sections.borrow_mut().next_section().transpose()?;
        Some(
            next.map_err(anyhow::Error::from)
                .and_then(|(options, lines)| {
                    (self.ignored, self.unread) = (self.ignored(), self.unread());
                    self.passed_over = Rc::default();
                    self.used = self.given.clone().or(options);
                    self.lines_before = lines;
                    self.begin(Box::new(BufReader::new(Section(sections))))
                }),
        )
    }

    fn item(&mut self) -> Option<Item> {
        let records = match &mut self.reader {
            Reader::Jobs(jobs) => return jobs.next(),
            Reader::Records(records) => records,
        };
        Some(match records.next()? {
            Ok(record) => {
                let usage = usage_of(&record, records.last_line());
                let text = match self.keeps_all {
                    true => records.rejected().to_vec(),
                    false => Vec::new(),
                };
                let entry = Entry {
                    record,
                    usage,
                    text,
                };
                (records.cursor().lines, Ok(Box::new(entry)))
            }
            Err(error) => {
                let bad = Bad {
                    is_end: matches!(error.reason, Reason::Input(_)),
                    why: error.reason.to_string(),
                    text: records.rejected().to_vec(),
                };
                (error.line, Err(bad))
            }
        })
    }
}

impl Iterator for Source {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some((line, item)) = self.item() {
                return Some((line + self.lines_before, item));
            }
            if let Err(error) = self.next_section()? {
                self.reader = Reader::Jobs(Box::new(std::iter::empty()));
                let bad = Bad {
                    why: format!("{error:#}"),
                    text: Vec::new(),
                    is_end: true,
                };
                return Some((self.lines_before, Err(bad)));
            }
        }
    }
}

/// The error about a file whose format is not known, or not read.
pub(super) fn unrecognised(path: &Path, beginning: &[u8]) -> anyhow::Error {
    let path = path.display();
    match fairmesh_records::why_not(beginning) {
        Some(why) => anyhow::anyhow!("{path}: {why}"),
        None => anyhow::anyhow!(
            "{path}: the format cannot be recognised by its beginning: give --format ({}); a list of `sacct` without its \
             header line needs --format slurm-sacct --columns",
            names()
        ),
    }
}

/// What a beginning is plainly of.
pub(in crate::ask) fn recognised(beginning: &[u8]) -> Option<Kind> {
    if is_archive(beginning) {
        return Some(Kind::Arc);
    }
    let format = Format::detect(beginning).map(Kind::Records);
    format.or_else(|| is_swf(beginning).then_some(Kind::Swf))
}

/// Eighteen numbers on the first line that is no comment.
fn is_swf(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with(';'));
    let is_number = |word: &str| word.parse::<i64>().is_ok() || word.parse::<f64>().is_ok();
    first.is_some_and(|line| {
        let words: Vec<&str> = line.split_whitespace().take(18).collect();
        words.len() == 18 && words.into_iter().all(is_number)
    })
}

/// The file's name up to the first dot.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.split('.').next().filter(|stem| !stem.is_empty());
    stem.unwrap_or("swf").to_owned()
}

#[cfg(test)]
mod tests;
