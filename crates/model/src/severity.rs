//! How much something matters that an operator reads.

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For information; nothing to do.
    Info,
    /// Look at it this week.
    Warning,
    /// Look at it today.
    Error,
}
