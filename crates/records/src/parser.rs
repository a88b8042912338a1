//! What every format's reader gets and gives: lines and options in, records and errors out.
//!
//! Invariant: a parser turns every line into a record, an error or a count of what was ignored.
//! Deliberately not here: the formats, and which of them a stream is read in ([`crate::reader`]).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::error::{Reason, RecordError};
use crate::record::BatchRecord;
use crate::zone::Zone;

/// What the input does not say about itself.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The cluster, for formats (or lines) that name none.
    pub cluster: String,
    /// The zone of local times.
    pub zone: Zone,
    /// `sacct` without a header line: the fields of its `--format`, by `,` or `|`.
    pub columns: Option<String>,
    /// `sacct`: what stands between two fields, unless the header line shows it.
    pub delimiter: Option<String>,
    /// Whether the input may still grow: a last line without its end is then left alone.
    pub growing: bool,
    /// HTCondor: whether the schedd's note of a job's last slot replaces what was provisioned, which the job's user may
    /// edit. The reader then ignores the queue, kind of machine, count of hosts and disk that a user may set at
    /// submission.
    pub noted_slots: bool,
}

/// Lines that are no records and no errors either, by why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ignored {
    /// Blank lines, comments, headers, rulers.
    Decoration,
    /// Steps of a job: the job's own line has it all.
    Step,
    /// Events other than the end of a run (PBS's `Q` and `S`, LSF's `JOB_NEW`).
    OtherEvent,
    /// Lines of a list that was refused as a whole, for its columns.
    OfRefusedList,
}

/// What a parser makes of a line.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) ready: VecDeque<Result<BatchRecord, RecordError>>,
    pub(crate) ignored: BTreeMap<Ignored, u64>,
    pub(crate) unread: BTreeMap<String, u64>,
    pub(crate) begun: Option<Begun>,
    /// NULs before the line.
    pub(crate) passed: usize,
}

/// A record that begins within a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    /// So many ASCII characters of the line precede it.
    pub(crate) ascii_before: usize,
    /// What the line gave before it.
    pub(crate) ready_before: usize,
}

impl Found {
    /// A record begins where this much of the line precedes it, and all before is given out.
    pub(crate) fn begin(&mut self, before: &str) {
        self.begun = Some(Begun {
            ascii_before: self.passed + before.bytes().filter(u8::is_ascii).count(),
            ready_before: self.ready.len(),
        });
    }

    /// Errors (or `all` items) that are ready, before and from an item on.
    pub(crate) fn errors(&self, from: usize, all: bool) -> (usize, usize) {
        let count = |items: &mut dyn Iterator<Item = &Result<BatchRecord, RecordError>>| {
            items.filter(|item| all || item.is_err()).count()
        };
        let before = count(&mut self.ready.iter().take(from));
        (before, count(&mut self.ready.iter().skip(from)))
    }

    pub(crate) fn record(&mut self, line: u64, record: Result<BatchRecord, Reason>) {
        for field in record.iter().flat_map(|record| &record.unread) {
            *self.unread.entry(field.clone()).or_default() += 1;
        }
        self.ready
            .push_back(record.map_err(|reason| RecordError { line, reason }));
    }

    pub(crate) fn ignore(&mut self, why: Ignored) {
        *self.ignored.entry(why).or_default() += 1;
    }
}

/// A format's reader of lines. The line has no end, and is valid UTF-8 but for what was replaced.
pub(crate) trait Parser: Send {
    /// Takes the line of this number.
    fn line(&mut self, line: &str, number: u64, found: &mut Found);

    /// The input has ended.
    fn end(&mut self, _number: u64, _found: &mut Found) {}

    /// Whether what is open goes on behind a line that was too long.
    fn goes_on(&self) -> bool {
        false
    }

    /// A line was too long, and whatever it belonged to is lost.
    fn lost(&mut self) {}

    /// Whether everything taken so far has been given out, so that reading can go on from here.
    fn is_at_rest(&self) -> bool {
        true
    }

    /// The columns that a header named.
    fn columns(&self) -> Option<&str> {
        None
    }

    /// The header line, as it was read.
    fn header(&self) -> Option<&str> {
        None
    }
}

/// A format whose records are lines that know nothing of each other.
pub(crate) trait LineFormat: Send {
    fn record(&self, line: &str) -> Result<Result<BatchRecord, Ignored>, Reason>;
}

pub(crate) struct EachLine<F>(pub(crate) F);

impl<F: LineFormat> Parser for EachLine<F> {
    fn line(&mut self, line: &str, number: u64, found: &mut Found) {
        if line.trim().is_empty() {
            return found.ignore(Ignored::Decoration);
        }
        match self.0.record(line) {
            Ok(Ok(record)) => found.record(number, Ok(record)),
            Ok(Err(why)) => found.ignore(why),
            Err(reason) => found.record(number, Err(reason)),
        }
    }
}
