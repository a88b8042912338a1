//! The most that a site can have run in a span: the capacity in its charter × the length of the span.
//!
//! Invariant: refunds are subtracted first, account by account ([`Counters::left`]). If a site's accounts then show
//! more for a span than it can have run, in charge, cores, GPUs or memory, every reader scales that column by the
//! same exact rule (each number × limit ÷ sum, rounded down). So the order of arrival does not matter, a capacity may
//! shrink, refunded usage leaves its room to others, and nothing is lost: a larger capacity shows the original
//! numbers again.
//!
//! Deliberately not here: what a site's capacity is (its charter says).

use std::collections::BTreeSet;

use fairmesh_model::{Counters, Span, WindowLength, mutant, mutated};

/// Sixteenths on top of a capacity: jobs are accounted in whole seconds and started a little early.
const SLACK_SIXTEENTHS: u128 = 1;

/// Milliseconds in a second: memory is counted in MiB-seconds, spans in milliseconds.
const MS_PER_SECOND: u128 = 1_000;

/// MiB in a GiB: charters declare memory in GiB.
const MIB_PER_GIB: u128 = 1_024;

/// Columns that a capacity bounds: charge, cores, GPUs, memory.
const BOUNDED: usize = 4;

/// The most that a site can have run at one moment, by the charter in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Cores that its jobs may occupy at a time.
    pub cores: u32,
    /// GPUs that its jobs may occupy at a time; `None` for any number.
    pub gpus: Option<u32>,
    /// Memory in GiB that its jobs may occupy at a time; `None` for any amount.
    pub mem_gib: Option<u32>,
    /// Cores that it may charge at a time: `cores` if the VO charges CPU time, more if its charging rule can make a
    /// job cost more than its cores.
    pub charge_cores: u32,
}

/// The sums over a site's accounts for one span, of the columns that a capacity bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Total([u128; BOUNDED]);

impl Total {
    /// Adds an account. `counters` must be all of the account's counters in the span: its refunds reduce its own charge
    /// only, never that of other accounts.
    pub fn add(&mut self, counters: Counters) {
        let counters = mutant!(ClampBeforeNet, counters.left(), counters);
        for (sum, value) in self.0.iter_mut().zip(bounded(counters)) {
            *sum += u128::from(value);
        }
    }

    /// Subtracts an account that was added with the same counters.
    pub fn remove(&mut self, counters: Counters) {
        let counters = mutant!(ClampBeforeNet, counters.left(), counters);
        for (sum, value) in self.0.iter_mut().zip(bounded(counters)) {
            *sum -= u128::from(value);
        }
    }

    /// The sum of CPU time in core-milliseconds.
    pub fn cpu_ms(&self) -> u128 {
        self.0[1]
    }
}

impl Capacity {
    /// No bound in practice, for sites without a declared capacity.
    pub const UNBOUNDED: Self = Self::of_cores(u32::MAX);

    /// `cores` cores, any number of GPUs and any amount of memory, under a rule that charges CPU time.
    pub const fn of_cores(cores: u32) -> Self {
        Self {
            cores,
            gpus: None,
            mem_gib: None,
            charge_cores: cores,
        }
    }

    /// Core-milliseconds that the site may charge in `windows` windows, with the slack.
    pub fn charge_limit(&self, windows: u64, length: WindowLength) -> u128 {
        u128::from(self.charge_cores) * slack_ms(windows, length)
    }

    /// Scales a site's sums, sorted by span, down to its capacity. Returns the spans that needed it.
    pub fn clamp<P>(
        &self,
        sums: &mut [((Span, P), Counters)],
        length: WindowLength,
    ) -> BTreeSet<Span> {
        let mut beyond = BTreeSet::new();
        for of_span in sums.chunk_by_mut(|((a, _), _), ((b, _), _)| a == b) {
            let ((span, _), _) = of_span[0];
            // The total first: each account is scaled by the excess of all, not by its own.
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

    /// Whether the sums of a span need no scaling.
    pub fn is_within(&self, span: Span, total: Total, length: WindowLength) -> bool {
        let limits = self.limits(span.windows(length), length);
        total.0.iter().zip(limits).all(|(sum, limit)| *sum <= limit)
    }

    /// The limit of each bounded column for `windows` windows. A limit is below 2^62 or `u128::MAX` for none: 2^32
    /// cores × the milliseconds of a day, 2^42 MiB × its seconds. So [`scaled`] cannot overflow.
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

/// An account's counters, scaled in each column whose sum exceeds its limit. Refunds are added to the charge again,
/// so that the difference counts as everywhere else and the refunds stay visible.
fn scaled(counters: Counters, limits: [u128; BOUNDED], total: Total) -> Counters {
    let mut columns = bounded(counters.left());
    for ((value, limit), sum) in columns.iter_mut().zip(limits).zip(total.0) {
        if sum > limit {
            // Fits: a limit that a sum can exceed is below 2^62. Rounded down, so that the scaled sum never exceeds
            // the limit.
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
