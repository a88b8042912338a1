//! Which commit runs.
//!
//! Invariant: nothing that is run depends on it; it is for people who read a report.
//! Deliberately not here: whether the tree has changes that are not committed.

use std::process::Command;

/// The commit of the working directory, or `unknown` where git or a repository is not there.
pub fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let text = output
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok());
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
