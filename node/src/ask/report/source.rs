//! Files of records: unpacked and recognised by their own first bytes.
//!
//! Invariant: a bad line is an item of its own and stops nothing; a file whose format cannot be told
//! is an error and not a guess. Deliberately not here: sending (`send`), growing files (`follow`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, bail};
use fairmesh_model::UsageRecord;
use fairmesh_records::format::DETECT_BYTES_MAX;
use fairmesh_records::{BatchRecord, Format, Options, Records};
use fairmesh_schedulers::follow::usage_of;
use flate2::bufread::MultiGzDecoder;

use super::arc::{self, Archive, is_archive};
use super::rejects::{Kept, is_place};
use super::swf::{self, lacks_start};

/// How a file is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ask) enum Kind {
    /// One of the formats of `fairmesh-records`.
    Records(Format),
    /// Standard Workload Format.
    Swf,
    /// The accounting archive of ARC's A-REX.
    Arc,
}

impl Kind {
    /// By its name on the command line; `None` for `auto`.
    pub(in crate::ask) fn parse(name: &str) -> anyhow::Result<Option<Self>> {
        Ok(match name {
            "auto" => None,
            "swf" => Some(Self::Swf),
            "arc" => Some(Self::Arc),
            name => Some(Self::Records(name.parse().map_err(|_| {
                anyhow::anyhow!("no format `{}`; there are {}", name.escape_debug(), names())
            })?)),
        })
    }

    pub(in crate::ask) fn name(self) -> &'static str {
        match self {
            Self::Records(format) => format.name(),
            Self::Swf => "swf",
            Self::Arc => "arc",
        }
    }
}

/// All formats.
fn names() -> String {
    let formats = Format::all().map(Format::name);
    let all: Vec<&str> = ["auto"]
        .into_iter()
        .chain(formats)
        .chain(["swf", "arc"])
        .collect();
    all.join(", ")
}

/// A job, in the words that the node is to hear.
#[derive(Debug, Clone)]
pub(in crate::ask) struct Entry {
    pub(in crate::ask) record: BatchRecord,
    /// The usage record that it was read from, if it was one: sent as it is.
    pub(in crate::ask) usage: Option<UsageRecord>,
}

/// What was found at a line: a job, or why there is none and what stands there.
pub(in crate::ask) type Item = (u64, Result<Box<Entry>, (String, Vec<u8>)>);

/// A file that is open.
pub(in crate::ask) struct Source {
    reader: Reader,
    /// What it was recognised as.
    pub(in crate::ask) kind: Kind,
    /// What it was packed with.
    pub(in crate::ask) packed: Option<&'static str>,
    /// Its size as it lies on disk; 0 where that is not known.
    pub(in crate::ask) bytes: u64,
}

enum Reader {
    Records(Box<Records<Box<dyn BufRead>>>),
    /// Jobs, and the number of lines that were ignored.
    Jobs(Box<dyn Iterator<Item = Item>>, Arc<AtomicU64>),
}

struct Counting<R> {
    inner: R,
    position: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.position.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A file as it is inside, what it was packed with, and its size outside. `-` is standard input.
pub(in crate::ask) fn unpacked(
    path: &Path,
    position: Arc<AtomicU64>,
) -> anyhow::Result<(Box<dyn BufRead>, Option<&'static str>, u64)> {
    let cannot = || format!("cannot read {}", path.display());
    let (raw, bytes): (Box<dyn Read>, u64) = if path == Path::new("-") {
        (Box::new(io::stdin()), 0)
    } else {
        let file = File::open(path).with_context(cannot)?;
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        (Box::new(file), bytes)
    };
    let mut input = BufReader::new(Counting {
        inner: raw,
        position,
    });
    let magic = input.fill_buf().with_context(cannot)?;
    let (is_gzip, is_zstd) = (
        magic.starts_with(&[0x1f, 0x8b]),
        magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]),
    );
    Ok(if is_gzip {
        let inside = BufReader::new(MultiGzDecoder::new(input));
        (Box::new(inside), Some("gzip"), bytes)
    } else if is_zstd {
        let decoder = zstd::Decoder::with_buffer(input).with_context(cannot)?;
        (Box::new(BufReader::new(decoder)), Some("zstd"), bytes)
    } else {
        (Box::new(input), None, bytes)
    })
}

impl Source {
    /// Opens a file; `kind` is what it is, unless its beginning is to tell. `swf_start_s` is when an
    /// SWF log began that does not say so.
    pub(in crate::ask) fn open(
        path: &Path,
        kind: Option<Kind>,
        options: &Options,
        swf_start_s: Option<u64>,
        position: Arc<AtomicU64>,
    ) -> anyhow::Result<Self> {
        let (mut input, packed, bytes) = unpacked(path, position)?;
        let begins = input.fill_buf();
        if is_place(begins.with_context(|| format!("cannot read {}", path.display()))?) {
            input = Box::new(BufReader::new(Kept::new(input)));
        }
        let mut beginning = Vec::new();
        let looked_at = input.by_ref().take(DETECT_BYTES_MAX as u64);
        // What fails here fails again behind it, where it is an item.
        let broke = { looked_at }.read_to_end(&mut beginning).err();
        let Some(kind) = kind.or_else(|| recognised(&beginning)) else {
            if let Some(error) = broke {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
            if beginning.len() < DETECT_BYTES_MAX && beginning.trim_ascii().is_empty() {
                return Ok(Self::empty(packed, bytes));
            }
            return Err(unrecognised(path, &beginning));
        };
        if kind == Kind::Swf && swf_start_s.is_none() && lacks_start(&beginning) {
            bail!(
                "{}: the header has no UnixStartTime, from which the log's times count: give it with \
                 --unix-start (0 if they are seconds since 1970 already)",
                path.display()
            );
        }
        let whole: Box<dyn BufRead> = Box::new(BufReader::new(Cursor::new(beginning).chain(input)));
        let ignored = Arc::default();
        let reader = match kind {
            Kind::Records(format) => {
                Reader::Records(Box::new(Records::new(whole, format, options)))
            }
            Kind::Arc => {
                let archive = Archive::open(path, &options.cluster);
                let archive = archive.with_context(|| format!("cannot read {}", path.display()))?;
                Reader::Jobs(Box::new(arc::all_jobs(archive)), ignored)
            }
            Kind::Swf => {
                let cluster = if options.cluster.is_empty() {
                    stem(path)
                } else {
                    options.cluster.clone()
                };
                let counted = Arc::clone(&ignored);
                let jobs = swf::all_jobs(whole, cluster, swf_start_s, counted);
                Reader::Jobs(Box::new(jobs), ignored)
            }
        };
        Ok(Self {
            reader,
            kind,
            packed,
            bytes,
        })
    }

    fn empty(packed: Option<&'static str>, bytes: u64) -> Self {
        let kind = Kind::Records(Format::Json);
        let nothing: Box<dyn BufRead> = Box::new(io::empty());
        let records = Records::new(nothing, Format::Json, &Options::default());
        Self {
            reader: Reader::Records(Box::new(records)),
            kind,
            packed,
            bytes,
        }
    }

    /// How many lines were passed over.
    pub(in crate::ask) fn ignored(&self) -> u64 {
        match &self.reader {
            Reader::Records(records) => records.ignored().values().sum(),
            Reader::Jobs(_, ignored) => ignored.load(Ordering::Relaxed),
        }
    }
}

impl Source {
    /// Records of which a field that decides nothing could not be read, by the field's name.
    pub(super) fn unread(&self) -> BTreeMap<String, u64> {
        match &self.reader {
            Reader::Records(records) => records.unread().clone(),
            Reader::Jobs(..) => BTreeMap::new(),
        }
    }
}

impl Iterator for Source {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let records = match &mut self.reader {
            Reader::Jobs(jobs, _) => return jobs.next(),
            Reader::Records(records) => records,
        };
        Some(match records.next()? {
            Ok(record) => {
                let usage = usage_of(&record, records.last_line());
                let line = records.cursor().lines;
                (line, Ok(Box::new(Entry { record, usage })))
            }
            Err(error) => {
                let text = records.rejected().to_vec();
                (error.line, Err((error.reason.to_string(), text)))
            }
        })
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
mod tests {
    use super::*;

    #[test]
    fn logs_of_18_numbers_are_swf() {
        let numbers = "1 0 -1 60 1 0.5 -1 1 60 -1 1 3 2 -1 -1 7 -1 -1";
        let log = format!("; UnixStartTime: 1131000000\n\n  {numbers}\n");
        assert_eq!(recognised(log.as_bytes()), Some(Kind::Swf));
        assert_eq!(recognised(b"1 2 3\n"), None);
        assert_eq!(recognised(b""), None);
    }

    #[test]
    fn parts_of_a_job_in_swf_are_ignored_where_its_whole_line_is_there() {
        let line = |job: u64, submit: &str, status: u64| {
            format!("{job} {submit} 10 1200 4 -1 -1 4 1200 -1 {status} 1 1 -1 1 1 -1 -1\n")
        };
        let parts = [line(2, "0", 1), line(2, "0", 2), line(2, "-1", 3)];
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log.swf");
        std::fs::write(&path, parts.concat()).expect("written");
        let source = Source::open(&path, None, &Options::default(), Some(0), Arc::default());
        let mut source = source.expect("opened");
        assert_eq!((source.by_ref().count(), source.ignored()), (1, 2));
    }

    #[test]
    fn a_log_without_a_start_is_refused_as_a_whole_unless_it_is_given() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("METACENTRUM.swf");
        let open = |text: &str, start: Option<u64>| {
            std::fs::write(&path, text).expect("written");
            Source::open(&path, None, &Options::default(), start, Arc::default())
        };
        let job = "1 10 -1 60 1 0.5 -1 1 60 -1 1 3 2 -1 -1 7 -1 -1\n";
        let refused = open(&format!("; Note: none\n{job}{job}"), None).err();
        let why = refused.expect("refused").to_string();
        for word in ["METACENTRUM.swf", "UnixStartTime", "--unix-start"] {
            assert!(why.contains(word), "{why}");
        }
        let submit = |source: Source| {
            let items: Vec<Item> = source.collect();
            let (_, job) = &items[0];
            let entry = job.as_ref().expect("a job");
            entry.record.submit.expect("a time").0 / 1_000
        };
        let given = open(job, Some(1_000)).expect("opened");
        assert_eq!(submit(given), 1_010);
        let both = open(&format!("; UnixStartTime: 500\n{job}"), Some(1_000));
        assert_eq!(submit(both.expect("opened")), 510, "the header knows best");
        assert!(open("; nothing but a header\n", None).is_err());
        let blank = |lines: usize| open(&("\n".repeat(lines) + job), None).map(|_| ());
        assert!(
            blank(DETECT_BYTES_MAX).is_err(),
            "what lies behind is no news"
        );
    }

    #[test]
    fn every_format_has_a_name_on_the_command_line() {
        for format in Format::all() {
            let kind = Kind::parse(format.name()).expect("known");
            assert_eq!(kind, Some(Kind::Records(format)));
        }
        assert_eq!(Kind::parse("auto").expect("known"), None);
        assert!(Kind::parse("punch-cards").is_err());
    }

    #[test]
    fn files_are_unpacked_by_their_first_bytes_however_many_parts_they_have() {
        let line = |job: u64| {
            format!(
                "{{\"cluster\":\"c\",\"job\":\"{job}\",\"user\":\"u\",\"start_ms\":1,\"end_ms\":2,\"cores\":1}}\n"
            )
        };
        let halves = [line(1), line(2) + "nonsense\n"];
        let gzip = |half: &String| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            io::Write::write_all(&mut encoder, half.as_bytes()).expect("packed");
            encoder.finish().expect("packed")
        };
        let zstd = |half: &String| zstd::encode_all(half.as_bytes(), 0).expect("packed");
        let folder = tempfile::tempdir().expect("a folder");
        for (packed, bytes) in [
            (None, halves.concat().into_bytes()),
            (Some("gzip"), halves.iter().flat_map(gzip).collect()),
            (Some("zstd"), halves.iter().flat_map(zstd).collect()),
        ] {
            let path = folder.path().join("jobs");
            std::fs::write(&path, bytes).expect("written");
            let source = Source::open(&path, None, &Options::default(), None, Arc::default());
            let source = source.expect("opened");
            assert_eq!((source.packed, source.kind.name()), (packed, "jsonl"));
            let items: Vec<Item> = source.collect();
            let whole = |item: &Item| item.1.as_ref().is_ok_and(|entry| entry.usage.is_some());
            assert!(whole(&items[0]) && whole(&items[1]), "{packed:?}");
            let (line, bad) = &items[2];
            let (_, text) = bad.as_ref().expect_err("nonsense");
            assert_eq!((*line, text.as_slice()), (3, &b"nonsense"[..]));
        }
    }
}
