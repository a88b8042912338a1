//! How much usage of a past window counts: fixed-point weights by age, the same on every machine.
//!
//! Invariants: a weight is at most [`ONE`]; it never rises with age; it depends on nothing but the
//! rule, the window length and the two windows. From [`OLD_DAYS`] days on, all windows of one day
//! weigh what the day's middle window weighs, so that the cells of hours and the cell of their day
//! make the same sum, bit for bit.
//!
//! How it is exact: `2^-(r/h)` is the product of `2^-(1/2), 2^-(1/4), …` picked by the binary
//! digits of `r/h`, each made by an integer square root; the product carries 62 fractional bits, and
//! neighbouring weights differ by more than its error before it is cut to 32 bits.
//! Deliberately not here: stored decayed sums; decay is computed when usage is read.
//! Source: FSGrid (windows and factor, as in Maui); Slurm (half-life).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ethnum::U256;
use fairmesh_model::{HistoryRule, Share, Span, Window, WindowLength, mutant, mutated};

/// The weight of present usage: weights are in units of 2^-32.
pub const ONE: u64 = 1 << 32;

/// From this many days on, a window weighs what the middle window of its day weighs. A site
/// writes a day's table in place of its hours after two days, so three leave a day of slack.
pub const OLD_DAYS: u32 = 3;

/// Longest table of weights that are worked out once, in windows. Bounds memory to 32 KiB a rule, whatever a
/// charter says; older ages are computed from the same formula when asked for.
const TABLE_WINDOWS_MAX: u32 = 4_096;

/// Fractional bits of the product of roots.
const ROOT_BITS: u32 = 62;

/// Fractional bits of powers of a factor.
const POWER_BITS: u32 = 126;

/// The weights of one history rule over windows of one length. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WeightTable {
    rule: HistoryRule,
    length: WindowLength,
    roots: Arc<[u64]>,
    /// Weights that were asked for, plus one, by age; zero where none was: a tree asks for few of them.
    near: Arc<[AtomicU64]>,
}

impl WeightTable {
    /// The weights of `rule` over windows of `length`. A zero in a field that must be at least 1
    /// is read as 1.
    pub fn new(rule: HistoryRule, length: WindowLength) -> Self {
        let ages = horizon_windows(rule).min(u64::from(TABLE_WINDOWS_MAX));
        Self {
            rule,
            length,
            roots: roots(),
            near: (0..ages).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The length of the windows that the ages are counted in.
    pub const fn length(&self) -> WindowLength {
        self.length
    }

    /// The rule that the weights follow.
    pub const fn rule(&self) -> HistoryRule {
        self.rule
    }

    /// How many windows back usage can still count. Whole days are weighed from their middle, so
    /// keep raw amounts a day longer than this.
    pub fn horizon_windows(&self) -> u64 {
        horizon_windows(self.rule)
    }

    /// The weight of usage `age` windows old, in units of 2^-32.
    pub fn weight_at_age(&self, age: u32) -> u64 {
        let age = mutant!(DecayOneWindowOff, age, age.saturating_add(1));
        let near = usize::try_from(age).ok().and_then(|age| self.near.get(age));
        let Some(near) = near else {
            return self.compute(age);
        };
        // Whoever else asks meanwhile works out the same number.
        match near.load(Ordering::Relaxed) {
            0 => {
                let weight = self.compute(age);
                near.store(weight + 1, Ordering::Relaxed);
                weight
            }
            known => known - 1,
        }
    }

    /// The weight of usage in `window`, seen from `reference`, in units of 2^-32. Usage ahead of
    /// the reference weighs as present usage does.
    pub fn weight(&self, window: Window, reference: Window) -> u64 {
        let day = self.length.day_of(window);
        let is_old = self.is_old_day(day, reference) && !mutated!(OldHoursWeighAlone);
        let seen_from = if is_old {
            self.length.middle_of_day(day)
        } else {
            window
        };
        self.weight_at_age(reference.since(seen_from))
    }

    /// The weight of usage in `span`, seen from `reference`, in units of 2^-32. A day is always
    /// weighed from its middle window.
    pub fn weight_of_span(&self, span: Span, reference: Window) -> u64 {
        match span {
            Span::Window(window) => self.weight(window, reference),
            Span::Day(day) => self.weight_at_age(reference.since(self.length.middle_of_day(day))),
        }
    }

    /// Whether the windows of `day` weigh alike, seen from `reference`.
    pub fn is_old_day(&self, day: u32, reference: Window) -> bool {
        self.length.day_of(reference).saturating_sub(day) >= OLD_DAYS
    }

    /// `span`, counted in windows of `from`, as a span of this table's windows: the window at its
    /// middle. Needed where a site's own rule weighs the usage of a VO with other windows.
    pub fn convert(&self, span: Span, from: WindowLength) -> Span {
        match span {
            Span::Window(window) if from != self.length => {
                let half = mutant!(ConvertedByStart, u64::from(from) / 2, 0);
                let middle = from.start_of(window).0 + half;
                Span::Window(self.length.window_at(fairmesh_model::WallTime(middle)))
            }
            same => same,
        }
    }

    fn compute(&self, age: u32) -> u64 {
        let horizon = self.horizon_windows();
        if u64::from(age) >= mutant!(HorizonOneLong, horizon, horizon.saturating_add(1)) {
            return 0;
        }
        match self.rule {
            HistoryRule::Windows { length, factor, .. } => {
                power(factor, mutant!(DecayEachWindow, age / length.max(1), age))
            }
            HistoryRule::HalfLife { windows, .. } => half_life(&self.roots, age, windows.max(1)),
            HistoryRule::None { .. } => ONE,
            HistoryRule::RunningOnly => 0,
        }
    }
}

/// How many windows back usage can count by a rule.
pub fn horizon_windows(rule: HistoryRule) -> u64 {
    match rule {
        HistoryRule::Windows { length, count, .. } => {
            u64::from(length.max(1)).saturating_mul(u64::from(count.max(1)))
        }
        HistoryRule::HalfLife { horizon, .. } | HistoryRule::None { horizon } => {
            u64::from(horizon.max(1))
        }
        HistoryRule::RunningOnly => 0,
    }
}

/// `2^-(1/2), 2^-(1/4), …` in units of 2^-62, each rounded down.
fn roots() -> Arc<[u64]> {
    let half = 1u128 << (ROOT_BITS - 1);
    std::iter::successors(Some(half), |previous| Some((previous << ROOT_BITS).isqrt()))
        .skip(1)
        .take(usize::try_from(ROOT_BITS).expect("a small number"))
        .map(|root| u64::try_from(root).expect("a root of a fraction is a fraction"))
        .collect()
}

/// `2^-(age/windows)` in units of 2^-32, rounded down.
fn half_life(roots: &[u64], age: u32, windows: u32) -> u64 {
    let halvings = age / windows;
    let rest = mutant!(HalvedInSteps, age % windows, 0);
    let rest = (u128::from(rest) << ROOT_BITS) / u128::from(windows);
    let mut product = 1u128 << ROOT_BITS;
    for (root, bit) in roots.iter().zip((0..ROOT_BITS).rev()) {
        if (rest >> bit) & 1 == 1 {
            product = (product * u128::from(*root)) >> ROOT_BITS;
        }
    }
    let shift = halvings.saturating_add(ROOT_BITS - 32);
    u64::try_from(product.checked_shr(shift).unwrap_or(0)).expect("a weight is at most one")
}

/// `factor^exponent` in units of 2^-32, rounded down.
fn power(factor: Share, mut exponent: u32) -> u64 {
    let mut base = (U256::from(factor.units()) << POWER_BITS) / U256::from(Share::ONE);
    let mut product = U256::ONE << POWER_BITS;
    while exponent > 0 {
        if exponent & 1 == 1 {
            product = (product * base) >> POWER_BITS;
        }
        base = (base * base) >> POWER_BITS;
        exponent >>= 1;
    }
    u64::try_from(product >> (POWER_BITS - 32)).expect("a weight is at most one")
}

#[cfg(test)]
mod tests;
