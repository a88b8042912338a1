//! OGF Usage Records, GFD.98 and its successors: XML elements `JobUsageRecord` or `UsageRecord`.
//!
//! Invariant: each record is cut out by its own tags and read alone, so a document of any length is
//! never held, and a record that is no XML costs itself alone. Prefixes and name spaces are not
//! looked at; there are no entities but XML's own five.
//!
//! Deliberately not here: signatures, and fields that nothing downstream uses.

mod record;

use crate::blocks::Gathered;
use crate::error::Reason;
use crate::parser::{Found, Ignored, Options, Parser};

pub(crate) struct UsageRecordPieces {
    options: Options,
    gathered: Gathered,
    in_comment: bool,
}

impl UsageRecordPieces {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            gathered: Gathered::default(),
            in_comment: false,
        }
    }

    fn finish(&mut self, closed: bool, found: &mut Found) {
        let (first, text) = self.gathered.take();
        let record = text.and_then(|text| {
            if !closed {
                return Err(Reason::Shape("the usage record is never closed".to_owned()));
            }
            record::parse(&text, &self.options)
        });
        found.record(first, record);
    }

    /// Passes over comments between records, which may hold tags.
    fn is_comment(&mut self, piece: &str) -> bool {
        if !self.in_comment && self.gathered.is_empty() {
            let tag = piece.rfind("<!--").map(|at| &piece[at..]);
            self.in_comment = tag.is_some_and(|tag| !tag.ends_with("-->"));
            return tag.is_some();
        }
        if self.in_comment {
            self.in_comment = !piece.ends_with("-->");
            return true;
        }
        false
    }
}

impl Parser for UsageRecordPieces {
    /// A piece is text and the tag that ends it.
    fn line(&mut self, piece: &str, number: u64, found: &mut Found) {
        if self.is_comment(piece) {
            return found.ignore(Ignored::Decoration);
        }
        let tag_at = piece.rfind('<').unwrap_or(piece.len());
        let tag = &piece[tag_at..];
        let is_record = is_record_tag(tag);
        let closes = tag.starts_with("</");
        if is_record && !closes {
            if !self.gathered.is_empty() {
                self.finish(false, found);
                found.begin(&piece[..tag_at]);
            }
            let before = piece[..tag_at].matches('\n').count();
            self.gathered.first = number.saturating_add(before as u64);
            self.gathered.push_piece(tag);
            if tag.ends_with("/>") {
                self.finish(true, found);
            }
        } else if self.gathered.is_empty() {
            found.ignore(Ignored::Decoration);
        } else {
            self.gathered.push_piece(piece);
            if is_record {
                self.finish(true, found);
            }
        }
    }

    fn end(&mut self, _number: u64, found: &mut Found) {
        if !self.gathered.is_empty() && !self.options.growing {
            self.finish(false, found);
        }
    }

    fn lost(&mut self) {
        self.gathered = Gathered::default();
        self.in_comment = false;
    }

    fn is_at_rest(&self) -> bool {
        self.gathered.is_empty() && !self.in_comment
    }
}

/// Whether a tag is a record's, whatever its prefix.
fn is_record_tag(tag: &str) -> bool {
    let name = tag.trim_start_matches(['<', '/']);
    let end = name.find(|c: char| c.is_whitespace() || c == '>' || c == '/');
    let name = &name[..end.unwrap_or(name.len())];
    let local = name.rsplit(':').next().unwrap_or(name);
    matches!(local, "JobUsageRecord" | "UsageRecord") && tag.starts_with('<')
}
