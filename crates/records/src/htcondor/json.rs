//! Ads as JSON: one array of them, or one on each line, laid out in any way.
//!
//! Invariant: an ad that is not JSON costs itself alone. Objects are told apart by their brackets;
//! a line that begins with a bracket begins a new ad, so that one left open swallows no other.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::ad::{self, Ad};
use crate::blocks::Gathered;
use crate::error::{Reason, quoted};
use crate::format::Format;
use crate::reader::{Found, Options, Parser};
use crate::record::BatchRecord;

pub(crate) struct AdObjects {
    options: Options,
    gathered: Gathered,
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// Whether the last character was a line end (or there was none yet).
    at_line_start: bool,
}

impl AdObjects {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            gathered: Gathered::default(),
            depth: 0,
            in_string: false,
            escaped: false,
            at_line_start: true,
        }
    }

    fn finish(&mut self, found: &mut Found) {
        (self.depth, self.in_string, self.escaped) = (0, false, false);
        let (first, text) = self.gathered.take();
        let record = text.and_then(|text| self.record(&text));
        found.record(first, record);
    }

    fn record(&self, text: &str) -> Result<BatchRecord, Reason> {
        let object: BTreeMap<String, &RawValue> = serde_json::from_str(text)
            .map_err(|error| Reason::Shape(format!("not a JSON object: {error}")))?;
        let value = |raw: &RawValue| {
            let raw = raw.get();
            serde_json::from_str::<String>(raw).unwrap_or_else(|_| raw.to_owned())
        };
        let ad: Ad = object
            .iter()
            .map(|(name, raw)| (name.to_ascii_lowercase(), value(raw)))
            .collect();
        ad::record(&ad, Format::HtcondorJson, &self.options)
    }

    /// Whether the character closes the ad.
    fn step(&mut self, c: char) -> bool {
        if self.in_string {
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = true,
                '"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match c {
            '"' => self.in_string = true,
            '{' => self.depth += 1,
            '}' => self.depth -= 1,
            _ => {}
        }
        self.depth == 0
    }
}

impl Parser for AdObjects {
    fn line(&mut self, piece: &str, number: u64, found: &mut Found) {
        let mut line = number;
        let mut start = 0;
        let mut stray = String::new();
        for (at, c) in piece.char_indices() {
            let begins_line = std::mem::replace(&mut self.at_line_start, c == '\n');
            if c == '{' && begins_line && self.depth > 0 {
                self.gathered.push_piece(&piece[start..at]);
                self.finish(found);
            }
            if self.depth == 0 {
                match c {
                    '{' => {
                        report_stray(&mut stray, number, found);
                        found.begin(&piece[..at]);
                        (self.gathered.first, start) = (line, at);
                        self.step(c);
                    }
                    '[' | ']' | ',' => {}
                    c if c.is_whitespace() => {}
                    c => stray.push(c),
                }
            } else if self.step(c) {
                self.gathered.push_piece(&piece[start..=at]);
                self.finish(found);
            }
            line += u64::from(c == '\n');
        }
        if self.depth > 0 {
            self.gathered.push_piece(&piece[start..]);
        }
        report_stray(&mut stray, number, found);
    }

    fn end(&mut self, _number: u64, found: &mut Found) {
        if !self.gathered.is_empty() && !self.options.growing {
            self.finish(found);
        }
    }

    fn lost(&mut self) {
        let options = std::mem::take(&mut self.options);
        *self = Self::new(options);
    }

    fn is_at_rest(&self) -> bool {
        self.gathered.is_empty()
    }
}

/// Text between ads that is none.
fn report_stray(stray: &mut String, number: u64, found: &mut Found) {
    if !stray.is_empty() {
        let text = quoted(&std::mem::take(stray));
        let reason = Reason::Shape(format!("`{text}` is no job ad"));
        found.record(number, Err(reason));
    }
}
