//! How far long work is: what, how much of how much, and how long it will take.
//!
//! Invariant: it is drawn on standard error, and only where that is a terminal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of so many of something, such as `runs`.
///
/// # Panics
/// Never: the template is right.
pub fn bar(count: u64, what: &str) -> ProgressBar {
    let target = match std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} {msg}, {eta} left");
    ProgressBar::with_draw_target(Some(count), target)
        .with_style(style.expect("the template is right"))
        .with_message(what.to_owned())
}
