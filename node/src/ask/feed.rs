//! Files of usage, as lines of JSON records: JSON lines as they are, SWF converted; gzip by itself.
//!
//! Invariant: a bad line is an item of its own and stops nothing; no line of more than
//! [`LINE_BYTES_MAX`] bytes is kept. Deliberately not here: sending them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use fairmesh_cluster::{SwfError, SwfReader, SwfRecord};
use fairmesh_model::{JobKey, Origin, UsageRecord, WallTime};
use flate2::bufread::MultiGzDecoder;

use crate::control::not_a_record;

/// Longest line: what the node takes.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// One item of a feed: its line, and the record or why there is none.
pub(super) type Item = (u64, Result<UsageRecord, String>);

/// The items of a file and its size; `position` tells how far it is read.
pub(super) struct Feed {
    pub(super) items: Box<dyn Iterator<Item = Item>>,
    pub(super) bytes: u64,
}

struct Counting<R> {
    inner: R,
    position: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.position
            .fetch_add(u64::try_from(read).unwrap_or(0), Ordering::Relaxed);
        Ok(read)
    }
}

/// Opens a file; `-` is standard input, which is JSON lines unless `swf` says otherwise.
pub(super) fn open(
    path: &Path,
    swf: Option<bool>,
    cluster: Option<&str>,
    position: Arc<AtomicU64>,
) -> anyhow::Result<Feed> {
    let (raw, bytes): (Box<dyn Read>, u64) = if path == Path::new("-") {
        (Box::new(io::stdin()), 0)
    } else {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        (Box::new(file), bytes)
    };
    let mut input = BufReader::new(Counting {
        inner: raw,
        position,
    });
    let zipped = input.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    let input: Box<dyn BufRead> = match zipped {
        true => Box::new(BufReader::new(MultiGzDecoder::new(input))),
        false => Box::new(input),
    };
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let is_swf = swf.unwrap_or_else(|| name.ends_with(".swf") || name.ends_with(".swf.gz"));
    let items: Box<dyn Iterator<Item = Item>> = if is_swf {
        let cluster = cluster.map_or_else(
            || name.split('.').next().unwrap_or("swf").to_owned(),
            str::to_owned,
        );
        Box::new(Swf {
            reader: SwfReader::new(input),
            cluster,
            number: 0,
        })
    } else {
        Box::new(JsonLines { input, number: 0 })
    };
    Ok(Feed { items, bytes })
}

struct JsonLines {
    input: Box<dyn BufRead>,
    number: u64,
}

impl Iterator for JsonLines {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            let mut line = Vec::new();
            self.number += 1;
            let read = (&mut self.input)
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line);
            match read {
                Ok(0) => return None,
                Ok(_) if !line.ends_with(b"\n") && line.len() as u64 == LINE_BYTES_MAX => {
                    let skipped = self.input.skip_until(b'\n');
                    let why = skipped.err().map_or_else(
                        || format!("longer than {LINE_BYTES_MAX} bytes"),
                        |error| error.to_string(),
                    );
                    return Some((self.number, Err(why)));
                }
                Ok(_) if line.trim_ascii().is_empty() => {}
                Ok(_) => return Some((self.number, checked(serde_json::from_slice(&line)))),
                Err(error) => {
                    // Nothing more can be read: the next call finds an empty input.
                    self.input = Box::new(io::empty());
                    return Some((self.number, Err(format!("the input failed: {error}"))));
                }
            }
        }
    }
}

fn checked(record: serde_json::Result<UsageRecord>) -> Result<UsageRecord, String> {
    let record = record.map_err(|error| not_a_record(&error))?;
    record.validate().map_err(|error| error.to_string())?;
    Ok(record)
}

struct Swf {
    reader: SwfReader<Box<dyn BufRead>>,
    cluster: String,
    number: u64,
}

impl Iterator for Swf {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let item = self.reader.next()?;
        self.number += 1;
        Some(match item {
            Ok(record) => {
                let start_s = self.reader.header().unix_start_s;
                (self.number, convert(&record, start_s, &self.cluster))
            }
            Err(SwfError { line, kind }) => (line, Err(kind.to_string())),
        })
    }
}

fn convert(
    record: &SwfRecord,
    log_start_s: Option<u64>,
    cluster: &str,
) -> Result<UsageRecord, String> {
    let log_start_s = log_start_s.ok_or("the log's header has no UnixStartTime")?;
    let at = |seconds: u64| WallTime::from_unix_secs(log_start_s.saturating_add(seconds));
    let end_s = record.end_s().ok_or("the job is not known to have run")?;
    let cores = record.cores().ok_or("the job's processors are not known")?;
    let memory_kb = record.memory_kb.unwrap_or(0).saturating_mul(cores);
    Ok(UsageRecord {
        key: JobKey {
            cluster: cluster.to_owned(),
            job: record.job.to_string(),
            instance: log_start_s.saturating_add(record.submit_s),
        },
        origin: Origin {
            user: record.user.map(|user| format!("u{user}")),
            group: record.group.map(|group| format!("g{group}")),
            ..Origin::default()
        },
        start: at(record.start_s()),
        end: at(end_s),
        cores: u32::try_from(cores).map_err(|_| format!("{cores} processors are too many"))?,
        gpus: 0,
        mem_mib: memory_kb / 1_024,
        placement: fairmesh_model::Placement::default(),
        running: false,
    })
}
