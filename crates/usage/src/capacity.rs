//! How much a site may claim: its declared capacity times the length of the span.
//!
//! Invariant: [`Totals`] holds, per site and window, the sum over all its incarnations of what its
//! live cells claim, and per site and day the sum over the day's windows *and* its day cells, so
//! that nobody can claim a day twice, once in hours and once as a day. A check costs a look-up per
//! span that a batch touches.
//!
//! Deliberately not here: what a site's capacity is (its charter says).

use std::collections::BTreeMap;

use fairmesh_model::{Counters, SiteId, Span, WindowLength, mutated};

use crate::edit::Edit;
use crate::refused::Refused;

/// The most that a site may claim at one moment, by the charter in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Cores that it may report as held (`cpu_ms`).
    pub cores: u32,
    /// Cores that it may charge (`charge`): the same number where a VO charges CPU time, more where
    /// its weights can make a job cost more than its cores. Only charge makes priorities, so this
    /// is what a lie is worth.
    pub charge_cores: u32,
    /// Sixteenths on top: jobs are accounted in whole seconds and started a little early.
    pub slack_sixteenths: u32,
}

impl Bound {
    /// `cores` held and `charge_cores` charged, with a slack of one sixteenth.
    pub const fn new(cores: u32, charge_cores: u32) -> Self {
        Self {
            cores,
            charge_cores,
            slack_sixteenths: 1,
        }
    }

    fn of(self, cores: u32, span: Span, length: WindowLength) -> u128 {
        let span_ms = u128::from(span.windows(length)) * u128::from(length.millis().0);
        u128::from(cores) * span_ms * (16 + u128::from(self.slack_sixteenths)) / 16
    }
}

/// What a site claims in a span, and by how much an edit moves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Claim {
    cpu_ms: i128,
    charge: i128,
}

impl Claim {
    fn of(counters: Counters) -> Self {
        Self {
            cpu_ms: i128::from(counters.cpu_ms),
            charge: i128::from(counters.charge),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            cpu_ms: self.cpu_ms + other.cpu_ms,
            charge: self.charge + other.charge,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            cpu_ms: self.cpu_ms - other.cpu_ms,
            charge: self.charge - other.charge,
        }
    }
}

/// By how much some edits moved a site's claims, span by span.
#[derive(Debug, Default)]
pub(crate) struct Moved(BTreeMap<Span, Claim>);

impl Moved {
    /// Adds the edits up, windows also into their day.
    pub(crate) fn by(edits: &[Edit], length: WindowLength) -> Self {
        let mut moved = Self::default();
        for run in edits.chunk_by(|a, b| a.span == b.span) {
            let sum = run.iter().fold(Claim::default(), |sum, edit| {
                let claim = |counters: Option<Counters>| Claim::of(counters.unwrap_or_default());
                sum.plus(claim(edit.after)).minus(claim(edit.before))
            });
            let span = run[0].span;
            moved.add(span, sum);
            if let Span::Window(window) = span {
                moved.add(Span::Day(length.day_of(window)), sum);
            }
        }
        moved
    }

    fn add(&mut self, span: Span, claim: Claim) {
        let sum = self.0.entry(span).or_default();
        *sum = sum.plus(claim);
    }
}

/// Running totals of every site's claims.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals(BTreeMap<SiteId, BTreeMap<Span, Claim>>);

impl Totals {
    pub(crate) fn shift(&mut self, site: SiteId, moved: &Moved) {
        let spans = self.0.entry(site).or_default();
        for (span, claim) in &moved.0 {
            let total = spans.entry(*span).or_default();
            *total = total.plus(*claim);
            if *total == Claim::default() {
                spans.remove(span);
            }
        }
        if spans.is_empty() {
            self.0.remove(&site);
        }
    }

    /// Refuses claims that grew beyond `bound`. Those that stood above it before, say because the
    /// declared capacity shrank, are let be.
    pub(crate) fn check(
        &self,
        site: SiteId,
        moved: &Moved,
        bound: Bound,
        length: WindowLength,
    ) -> Result<(), Refused> {
        for (span, grown) in &moved.0 {
            let total = self
                .0
                .get(&site)
                .and_then(|spans| spans.get(span))
                .copied()
                .unwrap_or_default();
            let claims = [
                ("cpu_ms", grown.cpu_ms, total.cpu_ms, bound.cores),
                ("charge", grown.charge, total.charge, bound.charge_cores),
            ];
            for (counter, grown, total, cores) in claims {
                let (claimed, bound) = (total.unsigned_abs(), bound.of(cores, *span, length));
                if grown > 0 && claimed > bound && !mutated!(CapacityUnbounded) {
                    return Err(Refused::OverCapacity {
                        site,
                        span: *span,
                        counter,
                        claimed,
                        bound,
                    });
                }
            }
        }
        Ok(())
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let spans: usize = self.0.values().map(BTreeMap::len).sum();
        spans * (size_of::<Span>() + size_of::<Claim>()) * 3 / 2
    }
}
