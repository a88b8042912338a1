//! The final record of a job replaces what its instalments charged.
//!
//! An instalment may be wrong: a list of running jobs leaves out GPUs, or a batch system shows a job for weeks that
//! is long dead. So of each job that is charged while it runs the site keeps what the charge was for. A final record
//! that says the same adds what is left, as an instalment would. One that contradicts it is charged as a whole, and
//! what the instalments charged beyond that is refunded in the spans in which they charged it.
//!
//! Invariant: a job whose final record came counts what that record comes to, whatever its instalments said, unless
//! they were charged to another account, or before a loss of the store.

use std::collections::BTreeMap;

use fairmesh_model::{
    ContentHash, Counters, Placement, Span, UsageRecord, WallTime, cbor, mutant, mutated,
};

use crate::charge::{Charge, Rules, spread};
use crate::config::Charging;
use crate::store::JobMark;

/// What the charge of a running job was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instalments {
    start: WallTime,
    /// Since when it holds what it holds.
    pub(crate) since: WallTime,
    /// Held until then: core-, GPU- and MiB-milliseconds.
    before: [u64; 3],
    /// Held since: cores, GPUs, MiB.
    holds: [u64; 3],
    /// Digest of where and on which terms it runs; 0 where instalments disagree.
    place: u64,
}

impl Instalments {
    pub(crate) fn first(record: &UsageRecord) -> Self {
        Self {
            start: record.start,
            since: record.start,
            before: [0; 3],
            holds: held(record),
            place: place(&record.placement),
        }
    }

    /// With another instalment, of a job that is charged until `until`.
    pub(crate) fn and(self, record: &UsageRecord, until: WallTime) -> Self {
        let place = if place(&record.placement) == self.place {
            self.place
        } else {
            0
        };
        if held(record) == self.holds && record.start <= until {
            return Self { place, ..self };
        }
        // Between the two nothing is charged, if the record states a later start.
        Self {
            since: mutant!(HeldSinceStart, until.max(record.start), self.since),
            before: self.until(until),
            holds: held(record),
            place,
            ..self
        }
    }

    /// What was held until then.
    fn until(&self, until: WallTime) -> [u64; 3] {
        let ms = until.since(self.since).0;
        std::array::from_fn(|of| self.before[of].saturating_add(self.holds[of].saturating_mul(ms)))
    }

    /// Whether a final record says something else of the time until when the job is charged.
    fn contradicts(&self, record: &UsageRecord, until: WallTime) -> bool {
        let ms = until.since(record.start).0;
        let held = held(record).map(|amount| amount.saturating_mul(ms));
        record.start != self.start || record.end < until || held != self.until(until)
    }

    /// What `whole` adds to them, by span, and what of them is to be refunded.
    fn replaced_by(&self, whole: Charge, mark: JobMark, rules: &Rules) -> (Charge, Refunds) {
        let [cpu_ms, gpu_ms, mib_ms] = self.until(mark.charged_until);
        let charged = Counters {
            charge: mark.charge,
            cpu_ms,
            gpu_ms,
            mem_mib_s: mib_ms / 1_000,
            ..Counters::default()
        };
        let before = spread((self.start, mark.charged_until), charged, rules);
        let mut of_spans: BTreeMap<Span, [Counters; 2]> = BTreeMap::new();
        for (which, parts) in [before, whole.parts].into_iter().enumerate() {
            for (span, counters) in parts {
                of_spans.entry(span).or_default()[which] = counters;
            }
        }
        let more = of_spans
            .iter()
            .map(|(span, [before, after])| (*span, after.minus(*before)));
        let parts = more.filter(|(_, counters)| !counters.is_zero()).collect();
        let less = of_spans
            .iter()
            .map(|(span, [before, after])| (*span, before.charge.saturating_sub(after.charge)));
        let less = less.filter(|(_, charge)| *charge > 0).collect();
        let less = mutant!(InstalmentsUncredited, less, Refunds::new());
        (Charge { parts, ..whole }, less)
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let times = [self.start.0, self.since.0, self.place];
        let numbers = times.into_iter().chain(self.before).chain(self.holds);
        numbers.flat_map(u64::to_be_bytes).collect()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let numbers = bytes
            .chunks(8)
            .map(|number| Some(u64::from_be_bytes(number.try_into().ok()?)));
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        let [start, since, place, b0, b1, b2, h0, h1, h2] = numbers[..] else {
            return None;
        };
        Some(Self {
            start: WallTime(start),
            since: WallTime(since),
            before: [b0, b1, b2],
            holds: [h0, h1, h2],
            place,
        })
    }
}

/// How much of a charge is refunded in which span.
pub(crate) type Refunds = Vec<(Span, u64)>;

/// What a record adds to a job that is charged as `mark` says, if nothing of that was lost, and what is to be
/// refunded of it. `charge` is what it adds if it is believed from there on only.
pub(crate) fn settled(
    charged: Option<&Instalments>,
    record: &UsageRecord,
    mark: Option<JobMark>,
    charge: Charge,
    (payer, rules): (u64, &Rules),
    charging: &Charging,
) -> (Charge, Refunds) {
    let charged = mark.zip(charged).filter(|(mark, charged)| {
        let start = (record.start, charged.start);
        !record.running && !mark.ended && replaces(mark.payer == payer, start)
    });
    let Some((mark, charged)) = charged else {
        return (charge, Vec::new());
    };
    let until = mark.charged_until;
    let is_held = charged.contradicts(record, until);
    // If only the rules have changed since, what was charged by the former stays.
    let is_placed = charged.place != place(&record.placement) && !mutated!(OtherQueueUnsettled);
    if !is_held && !is_placed {
        return (charge, Vec::new());
    }
    match crate::charge::charge(record, None, rules, charging) {
        Ok(Some(whole)) if is_held || whole.mark.charge != charge.mark.charge => {
            charged.replaced_by(whole, mark, rules)
        }
        _ => (charge, Vec::new()),
    }
}

/// Whether the final record of a job replaces what its instalments charged: if the same account pays, and the record
/// covers the time from their start on. Otherwise it is charged for the time after them only. `starts` are the record's
/// and that of the first instalment.
pub fn replaces(is_same_payer: bool, starts: (WallTime, WallTime)) -> bool {
    let (record, first) = starts;
    (is_same_payer || mutated!(ReplacesOthers)) && (record <= first || mutated!(LaterStartReplaces))
}

fn held(record: &UsageRecord) -> [u64; 3] {
    [record.cores.into(), record.gpus.into(), record.mem_mib]
}

/// A digest of the placement; never 0, which stands for none.
fn place(placement: &Placement) -> u64 {
    let placement = Placement {
        next_instance: None,
        ..placement.clone()
    };
    let hash = ContentHash::of(&cbor::to_vec(&placement));
    let digest = hash
        .as_bytes()
        .first_chunk()
        .copied()
        .map_or(0, u64::from_be_bytes);
    digest.max(1)
}
