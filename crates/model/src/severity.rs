//! How much something matters that an operator reads.

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know.
    Info,
    /// Look at it this week.
    Warning,
    /// Look at it today.
    Error,
}
