//! How much a site can have run: its declared capacity times the length of the span.
//!
//! Invariant: where a site's cells of a span say more, every reader scales them down by the same exact
//! rule (each counter × limit ÷ sum, rounded down), so no order of arrival matters, a capacity may also
//! shrink, and nothing is lost: a larger capacity shows what was there all the time.
//!
//! Deliberately not here: what a site's capacity is (its charter says).

use std::collections::BTreeMap;

use fairmesh_model::{Counters, Span, WindowLength, mutated};

/// Sixteenths on top of a capacity: jobs are accounted in whole seconds and started a little early.
const SLACK_SIXTEENTHS: u128 = 1;

/// The most that a site can have run at one moment, by the charter in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Cores that it may report as held.
    pub cores: u32,
    /// Cores that it may charge: the same number where a VO charges CPU time, more where its rule can
    /// make a job cost more than its cores.
    pub charge_cores: u32,
}

/// How much more than its capacity a site says of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess {
    /// The span.
    pub span: Span,
    /// What it says: core-milliseconds held or charged, whichever is further beyond.
    pub claimed: u128,
    /// What is counted of it.
    pub limit: u128,
}

impl Capacity {
    /// Core-milliseconds that the site may charge in `windows` of that length.
    pub fn charge_limit(&self, windows: u64, length: WindowLength) -> u128 {
        limit(self.charge_cores, windows, length)
    }

    /// Scales a site's sums down to its capacity, span by span. Returns where that was needed.
    pub fn clamp<P: Ord>(
        &self,
        sums: &mut BTreeMap<(Span, P), Counters>,
        length: WindowLength,
    ) -> Vec<Excess> {
        let mut totals: BTreeMap<Span, [u128; 2]> = BTreeMap::new();
        for ((span, _), counters) in &*sums {
            let total = totals.entry(*span).or_default();
            total[0] += u128::from(counters.charge);
            total[1] += u128::from(counters.cpu_ms);
        }
        let clamps = !mutated!(CapacityUnbounded);
        totals.retain(|span, total| clamps && !self.is_within(*span, *total, length));
        for ((span, _), counters) in &mut *sums {
            if let Some([charge, cpu]) = totals.get(span) {
                let windows = span.windows(length);
                let by_charge = (limit(self.charge_cores, windows, length), *charge);
                let by_cpu = (limit(self.cores, windows, length), *cpu);
                counters.charge = scale(counters.charge, by_charge);
                counters.refunds = scale(counters.refunds, by_charge);
                counters.cpu_ms = scale(counters.cpu_ms, by_cpu);
                counters.gpu_ms = scale(counters.gpu_ms, by_cpu);
                counters.mem_mib_s = scale(counters.mem_mib_s, by_cpu);
            }
        }
        let excess = |(span, [charge, cpu]): (&Span, &[u128; 2])| {
            let windows = span.windows(length);
            let of = |cores, claimed: u128| (claimed, limit(cores, windows, length));
            let (charge, cpu) = (of(self.charge_cores, *charge), of(self.cores, *cpu));
            let beyond = |(claimed, limit): (u128, u128)| claimed.saturating_sub(limit);
            let (claimed, limit) = if beyond(cpu) > beyond(charge) {
                cpu
            } else {
                charge
            };
            Excess {
                span: *span,
                claimed,
                limit,
            }
        };
        totals.iter().map(excess).collect()
    }

    /// Whether sums of charge and cores held in a span need no scaling.
    pub fn is_within(&self, span: Span, [charge, cpu]: [u128; 2], length: WindowLength) -> bool {
        let windows = span.windows(length);
        charge <= limit(self.charge_cores, windows, length)
            && cpu <= limit(self.cores, windows, length)
    }
}

fn limit(cores: u32, windows: u64, length: WindowLength) -> u128 {
    let span_ms = u128::from(windows) * u128::from(length.millis().0);
    u128::from(cores) * span_ms * (16 + SLACK_SIXTEENTHS) / 16
}

fn scale(value: u64, (limit, total): (u128, u128)) -> u64 {
    if total <= limit {
        return value;
    }
    // A limit is below 2^60: 2^32 cores times the milliseconds of a day.
    let scaled = u128::from(value) * limit / total;
    u64::try_from(scaled).unwrap_or(u64::MAX).min(value)
}
