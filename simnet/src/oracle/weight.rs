//! How much usage weighs at its age.
//!
//! A weight is the exact value of its rule, cut to 32 bits behind the point. Usage of a window is as
//! old as the window's middle is in windows of whoever weighs it; from the third day on it is as old
//! as the middle window of its day.
//!
//! Invariant: powers and roots are carried with 120 bits, so the 32 that are kept are those of the
//! exact value. Source: FSGrid (windows and factor); Slurm (half-life).

use std::sync::OnceLock;

use ethnum::U256;
use fairmesh_model::{HistoryRule, Share, Span, WindowLength};

/// Bits behind the point while a weight is worked out.
const BITS: u32 = 120;

/// Days after which a whole day weighs alike.
const DAYS: u32 = 3;

const DAY_MS: u64 = 86_400_000;

/// How old usage of `span`, in windows of `from`, is in windows of `to`, seen from `reference`.
pub fn age(span: Span, from: WindowLength, to: WindowLength, reference: u32) -> u32 {
    let (from, to) = (from.millis().0, to.millis().0);
    let middle_of = |day: u64| (day * DAY_MS + DAY_MS / 2) / to;
    let day_of_reference = u64::from(reference) * to / DAY_MS;
    let window = match span {
        Span::Day(day) => middle_of(u64::from(day)),
        Span::Window(window) => {
            let middle = u64::from(window.0) * from + from / 2;
            let day = middle / DAY_MS;
            if day_of_reference >= day + u64::from(DAYS) {
                middle_of(day)
            } else {
                middle / to
            }
        }
    };
    u32::try_from(u64::from(reference).saturating_sub(window)).unwrap_or(u32::MAX)
}

/// The weight of usage so many windows old, in units of 2^-32.
pub fn weight(rule: HistoryRule, age: u32) -> u64 {
    let one = U256::ONE << BITS;
    let exact = match rule {
        HistoryRule::Windows {
            length,
            count,
            factor,
        } => {
            let interval = age / length.max(1);
            if interval >= count.max(1) {
                return 0;
            }
            (0..interval).fold(one, |weight, _| {
                weight * U256::from(factor.units()) / U256::from(Share::ONE)
            })
        }
        HistoryRule::HalfLife { horizon, .. } | HistoryRule::None { horizon }
            if age >= horizon.max(1) =>
        {
            return 0;
        }
        HistoryRule::HalfLife { windows, .. } => {
            let (halvings, rest) = (age / windows.max(1), age % windows.max(1));
            let shift = halvings.min(255);
            power_of_half(rest, windows.max(1)) >> shift
        }
        HistoryRule::None { .. } => one,
        HistoryRule::RunningOnly => return 0,
    };
    u64::try_from(exact >> (BITS - 32)).expect("a weight is at most one")
}

/// `2^-(part/whole)`, for a part below the whole: the exponential series of `-ln 2 × part/whole`.
fn power_of_half(part: u32, whole: u32) -> U256 {
    let one = U256::ONE << BITS;
    if part == 0 {
        return one;
    }
    let x = ln_2() * U256::from(part) / U256::from(whole);
    let (mut plus, mut minus) = (U256::ZERO, U256::ZERO);
    let mut term = one;
    for k in 1u32.. {
        if term == U256::ZERO {
            break;
        }
        if k % 2 == 1 {
            plus += term;
        } else {
            minus += term;
        }
        term = ((term * x) >> BITS) / U256::from(k);
    }
    plus - minus
}

/// The series `Σ 1/(k 2^k)`.
fn ln_2() -> U256 {
    static LN_2: OnceLock<U256> = OnceLock::new();
    *LN_2.get_or_init(|| {
        let one = U256::ONE << BITS;
        (1..=BITS).fold(U256::ZERO, |sum, k| sum + ((one >> k) / U256::from(k)))
    })
}

#[cfg(test)]
mod tests {
    use fairmesh_model::Window;

    use super::*;

    const ONE: u64 = 1 << 32;

    #[test]
    fn weights_are_those_of_the_paper() {
        let windows = HistoryRule::Windows {
            length: 2,
            count: 3,
            factor: Share::from_percent(50).expect("a share"),
        };
        let ages = [0, 1, 2, 3, 4, 5, 6];
        let of = ages.map(|age| weight(windows, age));
        assert_eq!(of, [ONE, ONE, ONE / 2, ONE / 2, ONE / 4, ONE / 4, 0]);
        let half_life = HistoryRule::HalfLife {
            windows: 2,
            horizon: 5,
        };
        // 2^32 × √½ is 3,037,000,499.97605.
        let of = [0, 1, 2, 3, 4, 5].map(|age| weight(half_life, age));
        let root = 3_037_000_499;
        assert_eq!(of, [ONE, root, ONE / 2, root / 2, ONE / 4, 0]);
        assert_eq!(weight(HistoryRule::None { horizon: 3 }, 2), ONE);
        assert_eq!(weight(HistoryRule::None { horizon: 3 }, 3), 0);
        assert_eq!(weight(HistoryRule::RunningOnly, 0), 0);
    }

    #[test]
    fn old_days_weigh_from_their_middle() {
        let hour = WindowLength::HOUR;
        let quarter = WindowLength::from_millis(900_000).expect("divides a day");
        let window = |index| Span::Window(Window(index));
        // In the fourth day's first hour the first day is three days old, the second is not.
        assert_eq!(age(window(5), hour, hour, 72), 60);
        assert_eq!(age(Span::Day(0), hour, hour, 72), 60);
        assert_eq!(age(window(25), hour, hour, 72), 47);
        // Quarters of an hour in hours, and the other way round from the hour's middle.
        assert_eq!(age(window(4 * 25 + 3), quarter, hour, 72), 47);
        assert_eq!(age(window(70), hour, quarter, 288), 288 - 282);
        assert_eq!(age(window(80), hour, hour, 72), 0);
    }
}
