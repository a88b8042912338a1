//! Ads as XML (`condor_history -xml`), of any layout.
//!
//! Invariant: of an ad its own attributes are kept that are read, up to a length; those of ads and lists within it are
//! not. So a user's attribute of any length or depth loses no ad. Text cannot hold a tag: HTCondor writes `<` as `&lt;`.
//!
//! Source: `ClassAdXMLUnParser` of HTCondor.

use quick_xml::escape::unescape;

use super::ad::{self, Ad};
use super::text::{LINE_BYTES_MAX, unescaped};
use crate::error::Reason;
use crate::format::Format;
use crate::parser::{Found, Ignored, Options, Parser};

/// Pieces up to `>`.
pub(crate) struct AdElements {
    options: Options,
    ad: Ad,
    /// Number of the ad's first line.
    first: u64,
    /// How deep ads and lists lie in each other.
    depth: u32,
    /// The attribute of the ad that is open, if it is read.
    name: Option<String>,
}

impl AdElements {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            ad: Ad::new(),
            first: 0,
            depth: 0,
            name: None,
        }
    }

    fn finish(&mut self, found: &mut Found) {
        (self.depth, self.name) = (0, None);
        let ad = std::mem::take(&mut self.ad);
        found.record(
            self.first,
            ad::record(&ad, Format::HtcondorXml, &self.options),
        );
    }

    fn unclosed(&mut self, found: &mut Found) {
        (self.depth, self.name) = (0, None);
        let problem = "the ad is never closed".to_owned();
        found.record(self.first, Err(Reason::Shape(problem)));
    }

    /// Keeps the value of the attribute that is open.
    fn keep(&mut self, text: &str) {
        if let Some(name) = self.name.take()
            && text.len() <= LINE_BYTES_MAX
            && let Ok(text) = unescape(text)
        {
            self.ad.insert(name, unescaped(&text));
        }
    }
}

impl Parser for AdElements {
    fn line(&mut self, piece: &str, number: u64, found: &mut Found) {
        let at = piece.rfind('<').unwrap_or(piece.len());
        let (text, tag) = piece.split_at(at);
        let tag = tag.trim_start_matches('<').trim_end_matches('>');
        let word = tag.split(char::is_whitespace).next().unwrap_or_default();
        // An ad that was never closed takes no other with it: ads within one are indented.
        if word == "c" && self.depth > 0 && text.ends_with('\n') {
            self.unclosed(found);
        }
        match (word, self.depth) {
            ("c", 0) => {
                found.begin(text);
                let before = text.matches('\n').count() as u64;
                (self.first, self.depth) = (number.saturating_add(before), 1);
                self.ad.clear();
            }
            (_, 0) => found.ignore(Ignored::Decoration),
            ("c" | "l", _) => self.depth += 1,
            ("/c", 1) => self.finish(found),
            ("/c" | "/l", depth) => self.depth = depth.saturating_sub(1).max(1),
            ("a", 1) => {
                let name = tag.split('"').nth(1).map(str::to_ascii_lowercase);
                self.name = name.filter(|name| ad::is_read(name));
            }
            ("/i" | "/r" | "/n" | "/s" | "/e", 1) => self.keep(text),
            ("/a", 1) => self.name = None,
            _ => {}
        }
    }

    fn end(&mut self, _number: u64, found: &mut Found) {
        if self.depth > 0 && !self.options.growing {
            self.unclosed(found);
        }
    }

    /// A piece that is too long is the value of one attribute.
    fn goes_on(&self) -> bool {
        self.depth > 0
    }

    fn is_at_rest(&self) -> bool {
        self.depth == 0
    }
}
