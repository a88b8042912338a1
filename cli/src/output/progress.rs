//! How far long work is: what, how much of how much, and how long it will take.
//!
//! Invariant: it is drawn on standard error, only where that is a terminal, and only of work that has taken
//! [`PROGRESS_AFTER`] already; what a program reads is the same with it and without.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How long work may take without a word.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);

/// A bar that appears only if it is worth it; gone when it is dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
}

impl Progress {
    /// Of so many bytes of a file.
    pub(crate) fn of_bytes(bytes: u64, file: &str) -> Self {
        Self::new(
            bytes,
            "{bar:40} {bytes} of {total_bytes} of {msg}, {eta} left",
            file,
        )
    }

    /// Of so many of something, such as `steps`.
    pub(crate) fn of_count(count: u64, what: &str) -> Self {
        Self::new(count, "{bar:40} {pos} of {len} {msg}, {eta} left", what)
    }

    fn new(count: u64, template: &str, what: &str) -> Self {
        let style = ProgressStyle::with_template(template).expect("the template is right");
        let bar = ProgressBar::with_draw_target(Some(count), ProgressDrawTarget::hidden());
        Self {
            bar: bar.with_style(style).with_message(what.to_owned()),
            started: Instant::now(),
        }
    }

    /// So much is done.
    pub(crate) fn show(&self, position: u64) {
        let due = self.bar.is_hidden() && self.started.elapsed() > PROGRESS_AFTER;
        if due && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(position);
    }

    pub(crate) fn step(&self) {
        self.show(self.bar.position() + 1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
