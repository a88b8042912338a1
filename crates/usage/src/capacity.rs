//! How much a site can have run: what its charter declares, times the length of the span.
//!
//! Invariant: of each account what was taken back is gone first ([`Counters::left`]). Where a site's
//! accounts say more of a span than it can have run, in charge, cores, GPUs or memory, every reader scales
//! that column by the same exact rule (each number × limit ÷ sum, rounded down). So no order of arrival
//! matters, a capacity may also shrink, what was taken back leaves its room to others, and nothing is
//! lost: a larger capacity shows what was there all the time.
//!
//! Deliberately not here: what a site's capacity is (its charter says).

use std::collections::BTreeSet;

use fairmesh_model::{Counters, Span, WindowLength, mutant, mutated};

/// Sixteenths on top of a capacity: jobs are accounted in whole seconds and started a little early.
const SLACK_SIXTEENTHS: u128 = 1;

/// Seconds of a run that the most memory is counted by: counters of memory are MiB-seconds.
const MS_PER_SECOND: u128 = 1_000;

/// MiB of a GiB.
const MIB_PER_GIB: u128 = 1_024;

/// Columns that a capacity bounds: charge, cores, GPUs, memory.
const BOUNDED: usize = 4;

/// The most that a site can have run at one moment, by the charter in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Cores that it may report as held.
    pub cores: u32,
    /// GPUs that it may report as held; any number where the charter does not say.
    pub gpus: Option<u32>,
    /// Memory that it may report as held, GiB; any amount where the charter does not say.
    pub mem_gib: Option<u32>,
    /// Cores that it may charge: the same number where a VO charges CPU time, more where its rule can
    /// make a job cost more than its cores.
    pub charge_cores: u32,
}

/// What a site says of a span in the columns that a capacity bounds, summed over its accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Total([u128; BOUNDED]);

impl Total {
    /// Adds what an account says. `counters` are all that the site says of it in the span: what was
    /// taken back is taken from the account's own charge, and not from others'.
    pub fn add(&mut self, counters: Counters) {
        let counters = mutant!(ClampBeforeNet, counters.left(), counters);
        for (sum, value) in self.0.iter_mut().zip(bounded(counters)) {
            *sum += u128::from(value);
        }
    }

    /// Takes away what an account says, which was added.
    pub fn remove(&mut self, counters: Counters) {
        let counters = mutant!(ClampBeforeNet, counters.left(), counters);
        for (sum, value) in self.0.iter_mut().zip(bounded(counters)) {
            *sum -= u128::from(value);
        }
    }

    /// CPU time, core-milliseconds.
    pub fn cpu_ms(&self) -> u128 {
        self.0[1]
    }
}

impl Capacity {
    /// A site that may report anything.
    pub const UNBOUNDED: Self = Self::of_cores(u32::MAX);

    /// A site of so many cores, of which nothing else is declared, under a rule that charges CPU time.
    pub const fn of_cores(cores: u32) -> Self {
        Self {
            cores,
            gpus: None,
            mem_gib: None,
            charge_cores: cores,
        }
    }

    /// Core-milliseconds that the site may charge in `windows` of that length.
    pub fn charge_limit(&self, windows: u64, length: WindowLength) -> u128 {
        u128::from(self.charge_cores) * slack_ms(windows, length)
    }

    /// Scales a site's sums, which are in the order of their spans, down to its capacity, span by span.
    /// Returns where that was needed.
    pub fn clamp<P>(
        &self,
        sums: &mut [((Span, P), Counters)],
        length: WindowLength,
    ) -> BTreeSet<Span> {
        let mut beyond = BTreeSet::new();
        for of_span in sums.chunk_by_mut(|((a, _), _), ((b, _), _)| a == b) {
            let ((span, _), _) = of_span[0];
            let mut total = Total::default();
            for (_, counters) in &*of_span {
                total.add(*counters);
            }
            if mutated!(CapacityUnbounded) || self.is_within(span, total, length) {
                continue;
            }
            let windows = mutant!(DayAsWindow, span.windows(length), 1);
            let limits = self.limits(windows, length);
            for (_, counters) in of_span {
                *counters = scaled(*counters, limits, total);
            }
            beyond.insert(span);
        }
        beyond
    }

    /// Whether what is said of a span needs no scaling.
    pub fn is_within(&self, span: Span, total: Total, length: WindowLength) -> bool {
        let limits = self.limits(span.windows(length), length);
        total.0.iter().zip(limits).all(|(sum, limit)| *sum <= limit)
    }

    /// The most of each bounded column in `windows` of that length. A limit is below 2^62, or none: 2^32
    /// cores times the milliseconds of a day, 2^42 MiB times its seconds.
    fn limits(&self, windows: u64, length: WindowLength) -> [u128; BOUNDED] {
        let ms = slack_ms(windows, length);
        let mem = |gib: u32| u128::from(gib) * MIB_PER_GIB * ms / MS_PER_SECOND;
        [
            u128::from(self.charge_cores) * ms,
            u128::from(self.cores) * ms,
            self.gpus.map_or(u128::MAX, |gpus| u128::from(gpus) * ms),
            mutant!(MemoryUnbounded, self.mem_gib, None).map_or(u128::MAX, mem),
        ]
    }
}

/// The length of `windows`, with the slack.
fn slack_ms(windows: u64, length: WindowLength) -> u128 {
    u128::from(windows)
        * u128::from(length.millis().0)
        * (16 + mutant!(SlackForgotten, SLACK_SIXTEENTHS, 0))
        / 16
}

fn bounded(counters: Counters) -> [u64; BOUNDED] {
    [
        counters.charge,
        counters.cpu_ms,
        counters.gpu_ms,
        counters.mem_mib_s,
    ]
}

/// An account's counters with each column that is beyond its limit scaled. What was taken back stays to
/// be seen: what counts is the difference, as ever.
fn scaled(counters: Counters, limits: [u128; BOUNDED], total: Total) -> Counters {
    let mut columns = bounded(counters.left());
    for ((value, limit), sum) in columns.iter_mut().zip(limits).zip(total.0) {
        if sum > limit {
            // Of a sum beyond it a limit is below 2^62, and a number is at most its sum.
            let product = u128::from(*value) * limit;
            let share = mutant!(ScaledUp, product / sum, product.div_ceil(sum));
            *value = u64::try_from(share).unwrap_or(u64::MAX).min(*value);
        }
    }
    let [charge, cpu_ms, gpu_ms, mem_mib_s] = columns;
    let refunds = counters.refunds.min(counters.charge);
    Counters {
        charge: mutant!(ScaledLosesRefunds, charge.saturating_add(refunds), charge),
        refunds,
        cpu_ms,
        gpu_ms,
        mem_mib_s,
        ..counters
    }
}
