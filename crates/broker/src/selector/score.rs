//! Numbers that candidates are compared by.
//!
//! Invariant: compared exactly, in integers; what is not known counts against a site, never for it.

use std::cmp::Ordering;

use fairmesh_model::{Factor, Millis};

use super::Candidate;

/// Compares fractions `used / total`. A site without CPUs is wholly used.
pub(super) fn compare_used(a: (u64, u64), b: (u64, u64)) -> Ordering {
    let ends = |of: (u64, u64)| (of.1 == 0).cmp(&false);
    let times = |x: u64, y: u64| u128::from(x) * u128::from(y);
    ends(a)
        .cmp(&ends(b))
        .then(times(a.0, b.1).cmp(&times(b.0, a.1)))
}

/// `factor / 2 − wait / (2 × longest wait)`, times twice the longest wait, so that nothing is divided.
pub(super) fn fair(of: &Candidate<'_>, wait_max: Millis) -> i128 {
    let wait_max = i128::from(wait_max.0.max(1));
    let wait = match (of.now, of.wait) {
        (true, _) => 0,
        (false, Some(wait)) => i128::from(wait.0),
        (false, None) => wait_max,
    };
    i128::from(of.factor.unwrap_or(0)) * wait_max - wait * i128::from(Factor::UNITS)
}

/// Milliseconds until a job that asks for `wall` ends there: its wait, and its time by the site's speed.
pub(super) fn ends_after(of: &Candidate<'_>, wall: Millis) -> u128 {
    let wait = match (of.now, of.wait) {
        (true, _) => 0,
        (false, Some(wait)) => u128::from(wait.0),
        (false, None) => u128::from(u64::MAX),
    };
    let runs = u128::from(wall.0) * u128::from(Factor::UNITS);
    wait + runs / u128::from(of.spec.millionths().max(1))
}
