//! Why a scenario file was refused.
//!
//! Invariant: an error names the file, the line and the key, and says what would be right.
//! Deliberately not here: steps that fail when they are run; those are outcomes.

use std::fmt;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

/// A scenario file that was not understood. Its author is at fault; nothing was run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key, where there is one.
    pub key: Option<String>,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        match &self.key {
            Some(key) => write!(f, ": `{key}`: {}", self.problem),
            None => write!(f, ": {}", self.problem),
        }
    }
}

impl std::error::Error for ScenarioError {}

/// A file's name and text, to say where something stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// Reads a value; an error stands where it is wrong.
    pub(super) fn value<T: DeserializeOwned>(
        &self,
        value: Spanned<DeValue<'_>>,
    ) -> Result<T, ScenarioError> {
        T::deserialize(ValueDeserializer::from(value)).map_err(|error| self.wrong(&error))
    }

    /// The line of a byte of the text.
    pub(super) fn line(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }

    /// An error at a byte of the text; its key is the one of that line unless it is given.
    pub(super) fn error<'k>(
        &self,
        at: usize,
        key: impl Into<Option<&'k str>>,
        problem: impl Into<String>,
    ) -> ScenarioError {
        let line = self.line(at);
        let written = self.text.lines().nth(line - 1).unwrap_or_default();
        let of_line = written.split_once('=').map(|(key, _)| key.trim());
        ScenarioError {
            file: self.file.to_owned(),
            line,
            key: key.into().or(of_line).map(str::to_owned),
            problem: problem.into(),
        }
    }

    /// What serde or TOML has found.
    pub(super) fn wrong(&self, error: &toml::de::Error) -> ScenarioError {
        let at = error.span().map_or(0, |span| span.start);
        self.error(at, None, error.message())
    }
}
