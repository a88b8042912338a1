//! Records that are JSON objects: each alone, in an array, or in the list of a document.
//!
//! Invariant: one object is held at a time, and of it the members that its format reads: a job's other members may be
//! larger than [`RECORD_BYTES_MAX`]. An object that is not JSON costs itself alone. Objects are distinguished by their
//! brackets; a line that begins with a brace begins a new one, so that one left open swallows no other.
//!
//! Between two records nothing of the document is remembered, so that reading can continue there: outside of records,
//! a key and its value belong to the document's end, and are passed over.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::blocks::Gathered;
use crate::error::{Reason, quoted};
use crate::lines::RECORD_BYTES_MAX;
use crate::parser::{Found, Ignored, Parser};
use crate::record::BatchRecord;

/// A format whose records are JSON objects.
pub(crate) trait ObjectFormat: Send {
    /// Keys of the objects around records: their value is a list of records, or one.
    const AROUND: &'static [&'static str];

    /// Whether a member of this name is read.
    fn is_read(&self, key: &str) -> bool;

    fn record(&self, object: &Object<'_>) -> Result<Result<BatchRecord, Ignored>, Reason>;
}

/// The members of an object, as they are written.
#[derive(Debug, Default)]
pub(crate) struct Object<'a>(pub(crate) BTreeMap<String, &'a RawValue>);

impl<'a> Object<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, Reason> {
        let object = serde_json::from_str(text);
        object
            .map(Self)
            .map_err(|error| Reason::Shape(format!("not a JSON object: {error}")))
    }

    /// A string's text, or any other value but `null` as it is written.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let raw = self.0.get(name)?.get();
        let text = serde_json::from_str::<String>(raw).unwrap_or_else(|_| raw.to_owned());
        Some(text).filter(|text| text != "null")
    }

    /// The object of this name; an empty one if there is none.
    pub(crate) fn object(&self, name: &str) -> Object<'a> {
        let raw = self.0.get(name).copied().map(RawValue::get);
        raw.and_then(|raw| Self::parse(raw).ok())
            .unwrap_or_default()
    }

    /// The items of the list of this name; a value that is no list is one item.
    pub(crate) fn list(&self, name: &str) -> Vec<&'a RawValue> {
        let Some(raw) = self.0.get(name).copied() else {
            return Vec::new();
        };
        serde_json::from_str(raw.get()).unwrap_or_else(|_| vec![raw])
    }
}

/// Where in a record the last character was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    BeforeKey,
    InKey,
    /// In a member that is kept.
    Kept,
    /// In a member that is not.
    Passed,
    /// Before the value of a key that is around records.
    Around,
}

/// What a character of a record does.
enum Step {
    Nothing,
    BeginsKey,
    EndsKey,
    /// A member that is not kept ends before it.
    EndsPassed,
    /// What it opens holds the records.
    Enters,
    Closes,
}

pub(crate) struct Objects<F> {
    format: F,
    growing: bool,
    gathered: Gathered,
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// Whether the last character was a line end (or there was none yet).
    at_line_start: bool,
    place: Place,
    key: String,
    /// Outside of records: whether the last word was a key of the document.
    after_key: bool,
    /// Outside of records: one more than the depth in such a key's value.
    tail_depth: u32,
}

/// No key that is read is longer.
const KEY_BYTES_MAX: usize = 64;

impl<F: ObjectFormat> Objects<F> {
    pub(crate) fn new(growing: bool, format: F) -> Self {
        Self {
            format,
            growing,
            gathered: Gathered::default(),
            depth: 0,
            in_string: false,
            escaped: false,
            at_line_start: true,
            place: Place::BeforeKey,
            key: String::new(),
            after_key: false,
            tail_depth: 0,
        }
    }

    fn reset(&mut self) {
        (self.depth, self.tail_depth, self.place) = (0, 0, Place::BeforeKey);
        (self.in_string, self.escaped, self.after_key) = (false, false, false);
    }

    fn begin(&mut self, line: u64) {
        self.reset();
        self.gathered = Gathered::default();
        (self.gathered.first, self.depth) = (line, 1);
    }

    fn finish(&mut self, found: &mut Found) {
        self.reset();
        let (first, text) = self.gathered.take();
        let record = text.and_then(|text| self.format.record(&Object::parse(&text)?));
        match record {
            Ok(Err(why)) => found.ignore(why),
            Ok(Ok(record)) => found.record(first, Ok(record)),
            Err(reason) => found.record(first, Err(reason)),
        }
    }

    fn keep(&mut self, text: &str) {
        if matches!(self.place, Place::BeforeKey | Place::Kept) {
            self.gathered.push_piece(text);
        }
    }

    /// Whether the character belongs to a string, which it may end.
    fn in_string(&mut self, c: char) -> bool {
        match c {
            _ if !self.in_string => return false,
            _ if self.escaped => self.escaped = false,
            '\\' => self.escaped = true,
            '"' => self.in_string = false,
            _ => {}
        }
        true
    }

    fn inside(&mut self, c: char) -> Step {
        if self.in_string(c) {
            if self.place != Place::InKey {
                return Step::Nothing;
            }
            if !self.in_string {
                return Step::EndsKey;
            }
            if self.key.len() < KEY_BYTES_MAX {
                self.key.push(c);
            }
            return Step::Nothing;
        }
        match c {
            '"' => {
                self.in_string = true;
                if self.place == Place::BeforeKey && self.depth == 1 {
                    return Step::BeginsKey;
                }
            }
            '{' | '[' if self.place == Place::Around => return Step::Enters,
            '{' | '[' => self.depth += 1,
            '}' | ']' => self.depth -= 1,
            _ => {}
        }
        match c {
            _ if self.depth == 0 => return Step::Closes,
            ',' if self.depth == 1 && matches!(self.place, Place::Passed | Place::Around) => {
                return Step::EndsPassed;
            }
            ',' if self.depth == 1 => self.place = Place::BeforeKey,
            c if self.place == Place::Around && c != ':' && !c.is_whitespace() => {
                self.place = Place::Passed;
            }
            _ => {}
        }
        Step::Nothing
    }

    /// Whether a record begins, or a key of the document; what belongs to neither is added to `stray`.
    fn outside(&mut self, c: char, stray: &mut String) -> bool {
        if self.in_string(c) {
            self.after_key = !self.in_string && self.tail_depth == 0;
            return false;
        }
        let is_document = !F::AROUND.is_empty();
        let after_key = self.after_key;
        self.after_key &= c.is_whitespace();
        match (c, self.tail_depth) {
            ('"', depth) if is_document => {
                self.in_string = true;
                return depth == 0;
            }
            (':', 0) if after_key => self.tail_depth = 1,
            ('{', 0) => return true,
            ('}', 0) if is_document => {}
            ('[' | ']' | ',', 0) | (',', 1) => self.tail_depth = 0,
            (c, 0) if !c.is_whitespace() => stray.push(c),
            (_, 0) => {}
            ('{' | '[', _) => self.tail_depth += 1,
            ('}' | ']', _) => self.tail_depth -= 1,
            _ => {}
        }
        false
    }

    /// Closes the key, and keeps its member if it is read.
    fn end_key(&mut self) {
        let is_read = self.format.is_read(&self.key);
        let piece = match is_read {
            true => format!("\"{}\"", self.key),
            // The object stays whole without the value.
            false => "\"\":null".to_owned(),
        };
        self.gathered.push_piece(&piece);
        self.place = match is_read {
            true => Place::Kept,
            false if F::AROUND.contains(&self.key.as_str()) => Place::Around,
            false => Place::Passed,
        };
    }
}

impl<F: ObjectFormat> Parser for Objects<F> {
    fn line(&mut self, piece: &str, number: u64, found: &mut Found) {
        let (mut line, mut from, mut stray) = (number, 0, String::new());
        // Between two records there is never so much.
        if piece.len() >= RECORD_BYTES_MAX && self.depth == 0 && !piece.contains('{') {
            self.reset();
            return found.record(number, Err(Reason::TooLong));
        }
        for (at, c) in piece.char_indices() {
            let begins_line = std::mem::replace(&mut self.at_line_start, c == '\n');
            if c == '{' && begins_line {
                if self.depth > 0 {
                    self.keep(&piece[from..at]);
                    self.finish(found);
                }
                self.reset();
            }
            if self.depth == 0 {
                if self.outside(c, &mut stray) {
                    report_stray(&mut stray, number, found);
                    found.begin(&piece[..at]);
                    if c == '{' {
                        self.begin(line);
                        from = at;
                    }
                }
                line += u64::from(c == '\n');
                continue;
            }
            match self.inside(c) {
                Step::Nothing => {}
                Step::BeginsKey => {
                    self.keep(&piece[from..at]);
                    self.key.clear();
                    self.place = Place::InKey;
                }
                Step::EndsKey => {
                    self.end_key();
                    from = at + 1;
                }
                Step::EndsPassed => (self.place, from) = (Place::BeforeKey, at),
                Step::Enters if c == '{' => {
                    found.begin(&piece[..at]);
                    self.begin(line);
                    from = at;
                }
                Step::Enters => {
                    self.reset();
                    self.gathered = Gathered::default();
                }
                Step::Closes => {
                    if matches!(self.place, Place::Passed | Place::Around) {
                        (self.place, from) = (Place::Kept, at);
                    }
                    self.keep(&piece[from..=at]);
                    self.finish(found);
                }
            }
            line += u64::from(c == '\n');
        }
        if self.depth > 0 {
            self.keep(&piece[from..]);
        }
        report_stray(&mut stray, number, found);
    }

    fn end(&mut self, _number: u64, found: &mut Found) {
        if !self.gathered.is_empty() && !self.growing {
            self.finish(found);
        }
    }

    fn is_at_rest(&self) -> bool {
        self.depth == 0 && self.tail_depth == 0 && !self.in_string && !self.after_key
    }
}

fn report_stray(stray: &mut String, number: u64, found: &mut Found) {
    if !stray.is_empty() {
        let text = quoted(&std::mem::take(stray));
        let reason = Reason::Shape(format!("`{text}` is no JSON object"));
        found.record(number, Err(reason));
    }
}
