//! Files of records: unpacked and recognised by their own first bytes.
//!
//! Invariant: a bad line is an item of its own and stops nothing; a file whose format cannot be told
//! is an error and not a guess. Deliberately not here: sending (`send`), growing files (`follow`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context as _, bail};
use fairmesh_model::UsageRecord;
use fairmesh_records::format::DETECT_BYTES_MAX;
use fairmesh_records::{BatchRecord, Format, Options, Reason, Records};
use fairmesh_schedulers::follow::usage_of;

use super::arc::{self, Archive, is_archive};
use super::kept::{Kept, Section, is_kept};
use super::read_options::ReadOptions;
use super::swf;
use super::unpack::{peek, unpacked};

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
    /// As it was read, where that is asked for and there is such a text.
    pub(in crate::ask) text: Vec<u8>,
}

/// Why there is no job where one should be.
#[derive(Debug)]
pub(in crate::ask) struct Bad {
    pub(in crate::ask) why: String,
    /// What stands there.
    pub(in crate::ask) text: Vec<u8>,
    /// Whether the file cannot be read on.
    pub(in crate::ask) is_end: bool,
}

/// What was found at a line.
pub(in crate::ask) type Item = (u64, Result<Box<Entry>, Bad>);

type Input = Box<dyn BufRead>;

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
        let (mut input, packed, bytes) = unpacked(path, position)?;
        let cannot = || format!("cannot read {}", path.display());
        let begins = input.fill_buf().with_context(cannot)?;
        let is_kept = is_kept(begins);
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
            unread: BTreeMap::new(),
        };
        if !is_kept {
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
        let jobs = swf::all_jobs(input, cluster, self.used.unix_start, self.keeps_all);
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
        self.ignored
            + match &self.reader {
                Reader::Records(records) => records.ignored().values().sum(),
                Reader::Jobs(_) => 0,
            }
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
mod tests {
    use std::io;

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
    fn a_log_without_a_start_is_refused_as_a_whole_unless_it_is_given() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("METACENTRUM.swf");
        let open = |text: &str, start: Option<u64>| {
            std::fs::write(&path, text).expect("written");
            let given = ReadOptions {
                unix_start: start,
                ..ReadOptions::default()
            };
            Source::open(&path, &given, false, Arc::default())
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

    fn open(path: &Path, bytes: &[u8]) -> anyhow::Result<Source> {
        std::fs::write(path, bytes).expect("written");
        Source::open(path, &ReadOptions::default(), false, Arc::default())
    }

    fn line(job: u64) -> String {
        format!(
            "{{\"cluster\":\"c\",\"job\":\"{job}\",\"user\":\"u\",\"start_ms\":1,\"end_ms\":2,\"cores\":1}}\n"
        )
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        io::Write::write_all(&mut encoder, text).expect("packed");
        encoder.finish().expect("packed")
    }

    fn bzip2(text: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
        io::Write::write_all(&mut encoder, text).expect("packed");
        encoder.finish().expect("packed")
    }

    fn xz(text: &[u8]) -> Vec<u8> {
        let options = lzma_rust2::XzOptions::with_preset(0);
        let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).expect("options");
        io::Write::write_all(&mut encoder, text).expect("packed");
        encoder.finish().expect("packed")
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        zstd::encode_all(text, 0).expect("packed")
    }

    const PACKERS: [(&str, fn(&[u8]) -> Vec<u8>); 4] =
        [("gzip", gzip), ("bzip2", bzip2), ("xz", xz), ("zstd", zstd)];

    #[test]
    fn files_are_unpacked_by_their_first_bytes_however_many_parts_they_have() {
        let halves = [line(1), line(2) + "nonsense\n"];
        let folder = tempfile::tempdir().expect("a folder");
        let packed = PACKERS.map(|(name, pack)| {
            let parts = halves.iter().map(|half| pack(half.as_bytes()));
            (Some(name), parts.collect::<Vec<_>>().concat())
        });
        let plain = (None, halves.concat().into_bytes());
        for (packed, bytes) in [plain].into_iter().chain(packed) {
            let source = open(&folder.path().join("jobs"), &bytes).expect("opened");
            assert_eq!((source.packed, source.kind.name()), (packed, "jsonl"));
            let items: Vec<Item> = source.collect();
            let whole = |item: &Item| item.1.as_ref().is_ok_and(|entry| entry.usage.is_some());
            assert!(whole(&items[0]) && whole(&items[1]), "{packed:?}");
            let (line, bad) = &items[2];
            let bad = bad.as_ref().expect_err("nonsense");
            assert_eq!((*line, bad.text.as_slice()), (3, &b"nonsense"[..]));
        }
    }

    #[test]
    fn a_packed_file_that_was_cut_is_read_as_far_as_it_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        // So much that each packing has several blocks.
        let numbers = (0..20_000_u64).map(|job| job.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let text: String = numbers.map(line).collect();
        for (name, pack) in PACKERS {
            let mut bytes = pack(text.as_bytes());
            bytes.truncate(bytes.len() * 9 / 10);
            let mut source = open(&folder.path().join("jobs"), &bytes).expect(name);
            let read = source.by_ref().take_while(|(_, item)| item.is_ok()).count();
            assert!((1..20_000).contains(&read), "{name}: {read} records");
            bytes.truncate(20);
            let opened = open(&folder.path().join("jobs"), &bytes);
            assert!(opened.is_err(), "{name}: nothing can be read");
        }
        let bytes = [gzip(line(1).as_bytes()), b"\x1f\x8b\x08".to_vec()].concat();
        let items: Vec<Item> = open(&folder.path().join("jobs"), &bytes)
            .expect("opened")
            .collect();
        let last = items[1].1.as_ref().expect_err("cut");
        assert!(last.is_end, "{last:?}");
    }

    #[test]
    fn other_packings_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut tar = vec![0; 1024];
        tar[257..262].copy_from_slice(b"ustar");
        let marks: [(&str, &[u8]); 5] = [
            ("zip", b"PK\x03\x04jobs"),
            ("rar", b"Rar!\x1a\x07\x01"),
            ("lzma", b"\x5d\x00\x00\x80\x00"),
            ("tar", &tar),
            ("tar", &gzip(&tar)),
        ];
        for (packing, bytes) in marks {
            let error = open(&folder.path().join("jobs"), bytes)
                .err()
                .expect("refused");
            let expected = format!("jobs: packed with {packing}: unpack it first");
            assert!(error.to_string().ends_with(&expected), "{error}");
        }
    }

    #[test]
    fn text_is_read_in_utf_16_and_with_marks() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = line(1)
            .replace("\"u\"", "\"j\u{f6}rg\u{1f600}\"")
            .repeat(600);
        let units = || text.encode_utf16();
        let le: Vec<u8> = units().flat_map(u16::to_le_bytes).collect();
        let be: Vec<u8> = units().flat_map(u16::to_be_bytes).collect();
        let marked = |mark: &[u8], bytes: &[u8]| [mark, bytes].concat();
        for bytes in [
            le.clone(),
            be.clone(),
            marked(b"\xff\xfe", &le),
            marked(b"\xfe\xff", &be),
            marked(b"\xef\xbb\xbf", text.as_bytes()),
            gzip(&marked(b"\xff\xfe", &le)),
        ] {
            let source = open(&folder.path().join("jobs"), &bytes).expect("opened");
            let users = source.map(|(_, item)| item.expect("a job").record.origin.user);
            let users: Vec<String> = users.flatten().collect();
            assert_eq!(users, vec!["j\u{f6}rg\u{1f600}"; 600]);
        }
    }

    /// What is written of refused records is read again as they were, each list with its own columns.
    #[test]
    fn sections_of_rejects_are_read_as_the_files_that_they_are_of() {
        let folder = tempfile::tempdir().expect("a folder");
        let sacct = |user: &str| {
            format!(
                "7;{user};COMPLETED;2026-11-01T00:00:00;2026-11-01T00:00:10;2026-11-01T01:00:10;4\n"
            )
        };
        let header = "JobIDRaw;User;State;Submit;Start;End;NCPUS\n";
        let lists = folder.path().join("lists");
        let text = [
            header,
            &sacct("ann"),
            "x\n",
            "JobIDRaw|State|Submit\n",
            "y\n",
        ]
        .concat();
        std::fs::write(&lists, text).expect("written");
        let given = ReadOptions {
            cluster: Some("c1".to_owned()),
            tz: Some("Europe/Prague".to_owned()),
            ..ReadOptions::default()
        };
        let mut source = Source::open(&lists, &given, true, Arc::default()).expect("opened");
        let swf = folder.path().join("old.swf");
        let job = "1 10 -1 60 1 0.5 -1 1 60 -1 1 3 2 -1 -1 7 -1 -1\n";
        std::fs::write(&swf, format!("; UnixStartTime: 500\n{job}")).expect("written");
        let none = ReadOptions::default();
        let log = Source::open(&swf, &none, true, Arc::default()).expect("opened");
        let (mut kept, mut submits) = (String::new(), Vec::new());
        let mut sources = vec![log];
        while let Some((_, item)) = source.next() {
            let text = item.map_or_else(|bad| bad.text, |entry| entry.text);
            kept += &source.section();
            kept += &format!("# a:1: why\n{}\n", String::from_utf8_lossy(&text));
        }
        for source in &mut sources {
            while let Some((_, item)) = source.next() {
                let entry = item.expect("a job");
                kept += &source.section();
                kept += &String::from_utf8_lossy(&entry.text);
                submits.push(entry.record.submit);
            }
        }
        let rejects = open(&folder.path().join("x.rejects"), kept.as_bytes()).expect("opened");
        assert!(rejects.is_of_rejects());
        let items: Vec<Item> = rejects.collect();
        let jobs: Vec<&Box<Entry>> = items.iter().flat_map(|(_, item)| item).collect();
        assert_eq!(items.len() - jobs.len(), 2, "{items:?}");
        assert_eq!(jobs[0].record.origin.user.as_deref(), Some("ann"));
        assert_eq!(jobs[0].record.key.cluster, "c1");
        let start = jobs[0].record.start.expect("a start").0;
        assert_eq!(start, 1_793_487_610_000, "in the zone that was given");
        assert_eq!(jobs[1].record.key.cluster, "old");
        assert_eq!(jobs[1].record.submit, submits[0]);
        // Lines keep their numbers.
        let line = |at: usize| kept.lines().nth(items[at].0 as usize - 1);
        assert_eq!([line(1), line(2)], [Some("x"), Some("y")]);
        assert!(line(3).is_some_and(|line| line.starts_with("1 10 ")));
    }
}
