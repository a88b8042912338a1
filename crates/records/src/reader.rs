//! A stream of records out of a stream of bytes, whatever the format.
//!
//! Invariant: every line ends up in a record, in an error, or in the counts of what was ignored;
//! after an error the next call reads on; and a reader that starts at a [`Cursor`] gives what this
//! one would have given from there.
//!
//! Deliberately not here: opening, unpacking and following files.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde::{Deserialize, Serialize};

use crate::apel::ApelBlock;
use crate::auditor::AuditorRecord;
use crate::blocks::Blocks;
use crate::cluster_cockpit::CockpitJob;
use crate::error::{Reason, RecordError};
use crate::flux::FluxJob;
use crate::format::Format;
use crate::grid_engine::GridEngineLine;
use crate::htcondor::{AdElements, AdLines, AdObject, FieldLine};
use crate::json::JsonLine;
use crate::lines::{Line, Lines};
use crate::lsf::LsfLines;
use crate::objects::Objects;
use crate::ogf::UsageRecordPieces;
use crate::parser::{EachLine, Found, Ignored, Options, Parser};
use crate::pbs::PbsLine;
use crate::record::BatchRecord;
use crate::rejected::{Outcome, Rejected};
use crate::slurm;

/// Where to go on: kept together with what was counted, it makes reading resumable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cursor {
    /// Bytes (after decompression) that need not be read again.
    pub bytes: u64,
    /// Lines within the records that were read.
    pub lines: u64,
    /// The columns that the header line named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<String>,
}

/// Reads records one by one. After an error about a record, the next call reads the next one; after
/// an error of the input itself, there is nothing more.
pub struct Records<R> {
    lines: Lines<R>,
    parser: Box<dyn Parser>,
    found: Found,
    rejected: Rejected,
    cursor: Cursor,
    /// Where the record that is open began, if that is behind the cursor: bytes and lines.
    open_at: Option<(u64, u64)>,
    /// Whether good records, too, are kept as they were read.
    keeps_all: bool,
    ended: bool,
}

impl<R: BufRead> Records<R> {
    /// Reads from the beginning.
    pub fn new(input: R, format: Format, options: &Options) -> Self {
        Self::resume(input, format, options, Cursor::default())
    }

    /// Reads on from a cursor; `input` begins at [`Cursor::bytes`].
    pub fn resume(input: R, format: Format, options: &Options, cursor: Cursor) -> Self {
        let mut options = options.clone();
        options.columns = cursor.columns.clone().or(options.columns);
        let lines = Lines::new(input, cursor.bytes, cursor.lines, options.growing);
        Self {
            lines: match format {
                Format::HtcondorJson
                | Format::SlurmSacctJson
                | Format::SlurmJobcompJson
                | Format::Flux
                | Format::ClusterCockpit
                | Format::Auditor => lines.in_pieces(b'}'),
                Format::OgfUsageRecord | Format::HtcondorXml => lines.in_pieces(b'>'),
                _ => lines,
            },
            parser: parser(format, options),
            found: Found::default(),
            rejected: Rejected::default(),
            cursor,
            open_at: None,
            keeps_all: false,
            ended: false,
        }
    }

    /// Keeps good records, too, as they were read.
    #[must_use]
    pub fn keeping_all(self) -> Self {
        let keeps_all = true;
        Self { keeps_all, ..self }
    }

    /// Where to go on after the records given out so far.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Lines that were passed over, by why.
    pub fn ignored(&self) -> &BTreeMap<Ignored, u64> {
        &self.found.ignored
    }

    /// Records of which a field that decides nothing could not be read, by the field's name.
    pub fn unread(&self) -> &BTreeMap<String, u64> {
        &self.found.unread
    }

    /// The line (or, of a format that is read in pieces, the piece) that was read last.
    pub fn last_line(&self) -> &[u8] {
        self.lines.text()
    }

    /// The header line of the list, without which its records cannot be read.
    pub fn header(&self) -> Option<&str> {
        self.parser.header()
    }

    /// What the last error (or with [`Self::keeping_all`], the last item) is about, as it was read: the whole record,
    /// with the line that ends it. Empty where it was too long.
    pub fn rejected(&self) -> &[u8] {
        self.rejected.last()
    }

    fn step(&mut self) {
        match self.lines.read() {
            Ok(Line::Whole) => {
                let number = self.lines.number;
                // The writer of a log that was truncated may go on at its old offset: the log then begins with NULs.
                let raw = self.lines.text();
                let nuls = raw.iter().take_while(|byte| **byte == 0).count();
                self.found.passed = nuls;
                let mut text = fairmesh_model::record::text(&raw[nuls..]);
                if number == 1 && text.starts_with('\u{feff}') {
                    text = text[3..].to_owned().into();
                }
                let was_open = !self.parser.is_at_rest();
                self.parser.line(&text, number, &mut self.found);
                drop(text);
                self.after_line(was_open);
                return;
            }
            Ok(Line::TooLong) if self.parser.goes_on() => return,
            Ok(Line::TooLong) => {
                self.parser.lost();
                self.found.record(self.lines.number, Err(Reason::TooLong));
            }
            Ok(Line::End) => {
                self.ended = true;
                self.parser.end(self.lines.number, &mut self.found);
            }
            Err(error) => {
                self.ended = true;
                self.found.record(self.lines.number, Err(error.into()));
            }
        }
        let (_, errors) = self.found.errors(0, self.keeps_all);
        self.rejected.close(errors);
    }

    /// Keeps what a line leaves open, and what is refused with it.
    fn after_line(&mut self, was_open: bool) {
        let begun = self.found.begun.take();
        let begins_at = begun.map_or(0, |begun| self.lines.offset(begun.ascii_before));
        if begun.is_some() {
            self.open_at = Some(self.lines.place(begins_at));
        }
        let ready_before = begun.map_or(0, |begun| begun.ready_before);
        let (errors_before, errors) = self.found.errors(ready_before, self.keeps_all);
        let open = !self.parser.is_at_rest();
        if was_open || open || errors_before + errors > 0 {
            let outcome = Outcome {
                errors_before,
                errors,
                begins: begun.is_some(),
                begins_at,
                open,
            };
            let end = self.lines.own_end();
            self.rejected.take(self.lines.text(), end, outcome);
        }
    }

    /// One line may give several records: the cursor moves when the last of them is given out.
    fn move_cursor(&mut self) {
        if !self.found.ready.is_empty() {
            return;
        }
        if self.parser.is_at_rest() {
            self.open_at = Some((self.lines.position, self.lines.lines_before()));
        }
        if let Some((bytes, lines)) = self.open_at.take() {
            (self.cursor.bytes, self.cursor.lines) = (bytes, lines);
            let columns = self.parser.columns();
            if self.cursor.columns.as_deref() != columns {
                self.cursor.columns = columns.map(str::to_owned);
            }
        }
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = Result<BatchRecord, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.found.ready.is_empty() && !self.ended {
            self.step();
            self.move_cursor();
        }
        let item = self.found.ready.pop_front();
        if item
            .as_ref()
            .is_some_and(|item| self.keeps_all || item.is_err())
        {
            self.rejected.next();
        }
        self.move_cursor();
        item
    }
}

fn parser(format: Format, options: Options) -> Box<dyn Parser> {
    let growing = options.growing;
    match format {
        Format::SlurmSacct => Box::new(slurm::SacctLines::new(options)),
        Format::SlurmSacctJson => Box::new(Objects::new(growing, slurm::SacctJob(options))),
        Format::SlurmJobcomp => Box::new(EachLine(slurm::JobcompLine(options))),
        Format::SlurmJobcompJson => {
            Box::new(Objects::new(growing, slurm::JobcompDocument(options)))
        }
        Format::SlurmScript => Box::new(Blocks::of(growing, slurm::ScriptBlock(options))),
        Format::SlurmSqueue => Box::new(EachLine(slurm::SqueueLine(options))),
        Format::SlurmScontrol => Box::new(Blocks::of(growing, slurm::ScontrolJob(options))),
        Format::Pbs => Box::new(EachLine(PbsLine(options))),
        Format::GridEngine => Box::new(EachLine(GridEngineLine(options))),
        Format::Lsf => Box::new(LsfLines::new(options)),
        Format::HtcondorJson => Box::new(Objects::new(growing, AdObject(options))),
        Format::HtcondorAds => Box::new(Blocks::of(growing, AdLines(options))),
        Format::HtcondorXml => Box::new(AdElements::new(options)),
        Format::HtcondorFields => Box::new(EachLine(FieldLine(options))),
        Format::OgfUsageRecord => Box::new(UsageRecordPieces::new(options)),
        Format::ApelJob => Box::new(Blocks::of(growing, ApelBlock(options))),
        Format::Flux => Box::new(Objects::new(growing, FluxJob(options))),
        Format::ClusterCockpit => Box::new(Objects::new(growing, CockpitJob(options))),
        Format::Auditor => Box::new(Objects::new(growing, AuditorRecord(options))),
        Format::Json => Box::new(EachLine(JsonLine)),
    }
}
