//! Standard output, whose reader may have had enough.
//!
//! Invariant: `simnet … | head` ends without a word once the pipe is closed. Deliberately not here:
//! standard error, which nobody cuts off.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// What a shell reports of a program that a closed pipe has ended: 128 + SIGPIPE.
const PIPE_CLOSED: i32 = 141;

/// Writes to standard output. Ends the process where nobody reads it any more.
///
/// # Panics
/// Where it cannot be written for another reason, as `print!` does.
pub fn write(text: Arguments<'_>) {
    match io::stdout().write_fmt(text) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(PIPE_CLOSED),
        Err(error) => panic!("standard output cannot be written: {error}"),
    }
}

/// As `print!`, but for readers that go away.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::write(format_args!($($text)*))
    };
}

/// As `println!`, but for readers that go away.
#[macro_export]
macro_rules! sayln {
    () => {
        $crate::say!("\n")
    };
    ($($text:tt)*) => {
        $crate::say!("{}\n", format_args!($($text)*))
    };
}
