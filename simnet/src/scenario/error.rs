//! Why a scenario file was refused.
//!
//! Invariant: an error names the file, the line and the key, and says what would be right.
//! Deliberately not here: steps that fail when they are run; those are outcomes.

use std::fmt;

/// A scenario file that was not understood. Its author is at fault; nothing was run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file.
    pub file: String,
    /// The line, from 1; 0 where it is the file as a whole.
    pub line: usize,
    /// The key, where there is one.
    pub key: Option<String>,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
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
    /// The line of a byte of the text.
    pub(super) fn line(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }

    pub(super) fn error(
        &self,
        at: usize,
        key: impl Into<Option<&'static str>>,
        problem: impl Into<String>,
    ) -> ScenarioError {
        ScenarioError {
            file: self.file.to_owned(),
            line: self.line(at),
            key: key.into().map(str::to_owned),
            problem: problem.into(),
        }
    }
}
