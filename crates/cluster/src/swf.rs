//! A streaming reader of job logs in the Standard Workload Format (SWF).
//!
//! Invariant: no input makes it panic or hold more than one line of [`SWF_LINE_BYTES_MAX`] bytes
//! (and a header of [`SWF_PARTITIONS_MAX`] names), and after a bad line it goes on with the next.
//!
//! Deliberately not here: opening and unpacking files, and what the records mean to a Grid (see
//! [`crate::trace`]). Format: Feitelson's Parallel Workloads Archive, version 2.2. Records may have
//! more than 18 columns (Alea's logs do); what follows the 18th is ignored.

mod error;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, BufRead};

pub use error::{SwfError, SwfErrorKind};
pub use record::SwfRecord;

/// Columns of the format; a record may have more.
pub const SWF_COLUMNS: usize = 18;

/// What the columns mean, for error messages.
const SWF_COLUMN_NAMES: [&str; SWF_COLUMNS] = [
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "mean CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
];

/// Longest line, in bytes. The lines of real logs end below 1,400 bytes, node lists of 64 hosts
/// included; 64 KiB leave room for jobs 40 times as wide. Without it, one file without line ends
/// would be held in memory whole.
pub const SWF_LINE_BYTES_MAX: usize = 65_536;

/// Most `Partition` lines kept of a header: bounds what comments can make us hold. The largest
/// known log names 170; names beyond the limit are dropped, and their partitions go by number.
pub const SWF_PARTITIONS_MAX: usize = 65_536;

/// What the comments above the first record say about the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SwfHeader {
    /// `UnixStartTime`: what the records' times are relative to, seconds since the Unix epoch.
    pub unix_start_s: Option<u64>,
    /// `MaxProcs`: processors of the machine or Grid.
    pub max_procs: Option<u64>,
    /// `Partition: N name`.
    pub partitions: BTreeMap<u64, String>,
}

/// Reads records one by one. After an error about a line, the next call reads the next line; after
/// an error of the input itself, there is nothing more.
#[derive(Debug)]
pub struct SwfReader<R> {
    input: R,
    header: SwfHeader,
    in_header: bool,
    ended: bool,
    line: Vec<u8>,
    line_number: u64,
    /// The last job whose own line was read.
    whole_job: Option<u64>,
    parts_skipped: u64,
}

enum Line {
    End,
    Whole,
    TooLong,
}

impl<R: BufRead> SwfReader<R> {
    /// A reader at the beginning of `input`.
    pub fn new(input: R) -> Self {
        Self {
            input,
            header: SwfHeader::default(),
            in_header: true,
            ended: false,
            line: Vec::new(),
            line_number: 0,
            whole_job: None,
            parts_skipped: 0,
        }
    }

    /// What the header said: complete once the first record was read, for comments further down
    /// are not part of it.
    pub fn header(&self) -> &SwfHeader {
        &self.header
    }

    /// The line that was read last, without its end; empty where it was too long.
    pub fn last_line(&self) -> &[u8] {
        &self.line
    }

    /// Its number, from 1.
    pub fn line_number(&self) -> u64 {
        self.line_number
    }

    /// Lines of a job's partial executions that were skipped because the line of the whole job precedes them.
    pub fn parts_skipped(&self) -> u64 {
        self.parts_skipped
    }

    /// Reads one line into the buffer, without its end. Of a line that is too long nothing is kept
    /// but the fact.
    fn read_line(&mut self) -> io::Result<Line> {
        self.line.clear();
        let (mut any, mut too_long) = (false, false);
        loop {
            let chunk = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                chunk => chunk?,
            };
            if chunk.is_empty() {
                break;
            }
            any = true;
            let line_end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..line_end.unwrap_or(chunk.len())];
            too_long |= self.line.len() + part.len() > SWF_LINE_BYTES_MAX;
            if !too_long {
                self.line.extend_from_slice(part);
            }
            let used = line_end.map_or(chunk.len(), |at| at + 1);
            self.input.consume(used);
            if line_end.is_some() {
                break;
            }
        }
        Ok(match (any, too_long) {
            (false, _) => Line::End,
            (true, false) => Line::Whole,
            (true, true) => Line::TooLong,
        })
    }

    /// The record in the buffered line; `None` for a blank line or a comment.
    fn handle_line(&mut self) -> Result<Option<SwfRecord>, SwfErrorKind> {
        let text = self.line.trim_ascii();
        match text.strip_prefix(b";") {
            Some(comment) if self.in_header => self.header.read_comment(comment).map(|()| None),
            Some(_) => Ok(None),
            None if text.is_empty() => Ok(None),
            None => {
                self.in_header = false;
                // A checkpointed job has one line with all of its time, and then one for each part of it.
                let part = record::part_of(text);
                if part.is_some() && part == self.whole_job {
                    self.parts_skipped += 1;
                    return Ok(None);
                }
                let job = SwfRecord::parse(text)?;
                if part.is_none() {
                    self.whole_job = Some(job.job);
                }
                Ok(Some(job))
            }
        }
    }
}

impl<R: BufRead> Iterator for SwfReader<R> {
    type Item = Result<SwfRecord, SwfError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            self.line_number += 1;
            let outcome = match self.read_line() {
                Ok(Line::End) => {
                    self.ended = true;
                    return None;
                }
                Ok(Line::TooLong) => Err(SwfErrorKind::LineTooLong),
                Ok(Line::Whole) => self.handle_line(),
                Err(error) => {
                    self.ended = true;
                    Err(SwfErrorKind::Input(error))
                }
            };
            match outcome {
                Ok(Some(record)) => return Some(Ok(record)),
                Ok(None) => {}
                Err(kind) => {
                    return Some(Err(SwfError {
                        line: self.line_number,
                        kind,
                    }));
                }
            }
        }
        None
    }
}

impl SwfHeader {
    /// Takes over a directive. Comments are mostly prose, so what cannot be read is prose too, but
    /// for the start time: to miss that would move every job.
    fn read_comment(&mut self, comment: &[u8]) -> Result<(), SwfErrorKind> {
        let comment = String::from_utf8_lossy(comment);
        let Some((name, value)) = comment.split_once(':') else {
            return Ok(());
        };
        let (first, rest) = first_word(value);
        let number = first.parse::<u64>().ok();
        match (name.trim(), number) {
            ("UnixStartTime", None) => return Err(SwfErrorKind::bad_start_time(first)),
            ("UnixStartTime", Some(_)) => self.unix_start_s = number,
            ("MaxProcs", Some(_)) => self.max_procs = number,
            ("Partition", Some(partition)) => self.name_partition(partition, rest),
            _ => {}
        }
        Ok(())
    }

    fn name_partition(&mut self, partition: u64, name: &str) {
        if !name.is_empty() && self.partitions.len() < SWF_PARTITIONS_MAX {
            self.partitions.insert(partition, name.to_owned());
        }
    }
}

fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (first, rest.trim())
}
