//! What a command tells the shell.
//!
//! Invariant: 0 means that what was asked for holds or was done; 1 that it was understood and does
//! not hold (a signature is missing, a site is stale); 2 that it could not be asked. Errors, and words that were
//! not understood, are not here: they are `Err`, which is 2 or, where the reader of the output went away, 141
//! (`cli`), and clap's 2.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command did what was asked, or its answer is yes.
    Success,
    /// Understood and not true.
    Failure,
    /// Nobody could be asked; what there is to say of that has been written.
    Unasked,
}

impl Exit {
    /// By whether what was asked for holds.
    pub(crate) const fn of(holds: bool) -> Self {
        match holds {
            true => Self::Success,
            false => Self::Failure,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Failure => Self::FAILURE,
            Exit::Unasked => Self::from(2),
        }
    }
}
