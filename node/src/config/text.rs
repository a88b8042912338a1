//! The text of a file, and errors that point into it.
//!
//! Invariant: an error names file, line, column (both from 1) and key, says what to do, and shows
//! the line with the place underlined; of a file with a secret key it shows nothing. Deliberately not
//! here: what keys mean.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use anyhow::anyhow;
use serde::de::DeserializeOwned;
use toml::Spanned;

/// Hexadecimal digits of a secret key in its file.
const KEY_DIGITS: usize = 64;

/// A file's name and text.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The name, for errors.
    pub file: &'a str,
    /// The whole content of the file.
    pub text: &'a str,
}

/// The text of a file.
///
/// # Errors
/// With the line where it is none.
pub(super) fn from_utf8(bytes: Vec<u8>, path: &Path) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        anyhow!("{}:{line}: a character is not UTF-8", path.display())
    })
}

/// Why a file was refused. Its author is at fault; nothing of it is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The place of the error, `file:line:column`.
    pub place: String,
    /// The key, where one is at fault.
    pub key: Option<String>,
    /// The problem in one sentence, without the place.
    pub problem: String,
    /// What to do, where that is not clear from the problem.
    pub help: Option<String>,
    /// The line, and the place underlined.
    excerpt: Option<String>,
}

impl Source<'_> {
    /// Parses the text as TOML; unknown keys are errors.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        toml::from_str(self.text).map_err(|error| {
            if self.is_key() {
                let problem = "this is a file with a secret key";
                let help = "name the file that was meant; this one is for --key and `key_file`";
                return self.error(None, None, problem).with_help(help);
            }
            let problem = error.message().trim().replace('\n', "; ");
            self.error(error.span(), None, problem)
        })
    }

    /// Whether the text begins as key files do, and TOML does not.
    fn is_key(&self) -> bool {
        let digits = self.text.trim_start().bytes();
        digits.take_while(u8::is_ascii_hexdigit).count() >= KEY_DIGITS
    }

    /// An error at `span`, or about the whole file.
    pub fn error(
        &self,
        span: Option<Range<usize>>,
        key: Option<&str>,
        problem: impl Into<String>,
    ) -> FileError {
        let located = span.filter(|span| self.text.is_char_boundary(span.start));
        let (line, column) = located
            .as_ref()
            .map_or((1, 1), |span| self.position(span.start));
        FileError {
            place: format!("{}:{line}:{column}", self.file),
            key: key.map(str::to_owned),
            problem: problem.into(),
            help: None,
            excerpt: located.map(|span| self.excerpt(&span, line, column)),
        }
    }

    /// An error at the value of `key`.
    pub fn wrong<T>(&self, key: &str, value: &Spanned<T>, problem: impl Into<String>) -> FileError {
        self.error(Some(value.span()), Some(key), problem)
    }

    /// The line at a place, from 1.
    pub(super) fn line_of(&self, at: usize) -> usize {
        self.position(at).0
    }

    fn position(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }

    fn excerpt(&self, span: &Range<usize>, line: usize, column: usize) -> String {
        let text = self.text.lines().nth(line - 1).unwrap_or_default();
        let room = text.chars().count().saturating_sub(column - 1).max(1);
        let marked = self
            .text
            .get(span.clone())
            .map_or(1, |part| part.chars().count());
        let marks = "^".repeat(marked.clamp(1, room));
        format!("  | {text}\n  | {:column$}{marks}", "", column = column - 1)
    }
}

impl FileError {
    /// All of it but the excerpt, on one line.
    pub fn line(&self) -> String {
        let key = self.key.as_ref().map(|key| format!("`{key}`: "));
        let help = self.help.as_ref().map(|help| format!("; {help}"));
        let [key, help] = [key, help].map(Option::unwrap_or_default);
        format!("{}: {key}{}{help}", self.place, self.problem)
    }

    /// The error with what to do about it.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(key) = &self.key {
            write!(f, "`{key}`: ")?;
        }
        f.write_str(&self.problem)?;
        if let Some(excerpt) = &self.excerpt {
            write!(f, "\n{excerpt}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  = {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for FileError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_where_it_is() {
        let text = "[site]\nname = \"ü\" # ok\ncolour = 7\n";
        let source = Source {
            file: "f.toml",
            text,
        };
        let at = text.find('7').expect("there");
        let error = source
            .error(Some(at..at + 1), Some("site.colour"), "no number")
            .with_help("none");
        let expected =
            "f.toml:3:10: `site.colour`: no number\n  | colour = 7\n  |          ^\n  = none";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_secret_key_is_not_shown() {
        let secret = "4f".repeat(32);
        for text in [
            secret.clone(),
            format!(" {secret}\n"),
            format!("{}\r\n", secret.to_uppercase()),
            format!("{secret}\n{secret}\n"),
        ] {
            let file = "site.key";
            let source = Source { file, text: &text };
            let error = source.parse::<toml::Table>().expect_err("no TOML");
            let told = format!("{error} {error:?}");
            assert!(told.contains("a file with a secret key"), "{told}");
            assert!(!told.to_lowercase().contains("4f4f"), "{told}");
        }
    }
}
