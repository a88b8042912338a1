//! Numbers as priority factors: the higher the number, the smaller the factor.
//!
//! HTCondor divides a pool among submitters by the inverse of their effective priorities. Factors that grow with a number's
//! distance from the best by decades let the order decide, not the division: who stands a hundredth of 10^9 behind has 13
//! times the factor, who stands a tenth behind 10^11 times. A decade has 9,000,000 factors of seven digits, the first is
//! 100; the negotiator, which keeps six digits behind the point and nine all in all, tells every one from its neighbours.
//!
//! Invariant: of two numbers within the range the higher has the smaller factor, and each is read back as itself.
//! Deliberately not here: a submitter's real priority.

/// That of the number 0, and of whoever has none: greater than every other one.
pub(super) const WORST: &str = "1e250";

/// The first digits of a factor, as a whole number of seven.
const FIRST: u64 = 1_000_000;

/// Factors in a decade.
const DECADE: i64 = 9_000_000;

/// The decade of the smallest factor: 10^2.
const SMALLEST: i64 = 2;

/// Digits that are read; the negotiator prints sixteen.
const DIGITS_MAX: usize = 17;

/// The factor of a number.
pub(super) fn of(number: i64, range: i64) -> String {
    if number <= 0 {
        return WORST.to_owned();
    }
    let behind = (range - number).max(0);
    let (whole, rest) = (
        (behind % DECADE) / 1_000_000 + 1,
        behind % DECADE % 1_000_000,
    );
    format!("{whole}.{rest:06}e{}", behind / DECADE + SMALLEST)
}

/// The number of a factor; none of one that is no number.
pub(super) fn number(factor: &str, range: i64) -> Option<i64> {
    Some((range - behind(factor, 1)?).max(0))
}

/// Whether the first is half of the second, as far as factors can be told apart.
pub(super) fn is_half(effective: &str, factor: &str) -> bool {
    let (twice, factor) = (behind(effective, 2), behind(factor, 1));
    twice
        .zip(factor)
        .is_some_and(|(twice, factor)| twice.abs_diff(factor) <= 1)
}

/// Whether a value of the configuration is the wanted one, however the number is written, or has all words of it.
pub fn is_as_wanted(is: &str, wanted: &str) -> bool {
    let (number, wanted_number) = (behind(is.trim(), 1), behind(wanted, 1));
    if wanted_number.is_some() {
        return number == wanted_number;
    }
    let words = |text: &str| -> Vec<String> {
        let words = text.split([' ', ',']).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    let (is, wanted) = (words(is), words(wanted));
    wanted
        .iter()
        .all(|word| word.starts_with('$') || is.contains(word))
}

/// How many factors lie between the smallest and so many times a number such as `100.5` or `1.25E+38`.
fn behind(text: &str, times: u64) -> Option<i64> {
    let (decimal, power) = match text.split_once(['e', 'E']) {
        Some((decimal, power)) => (decimal, power.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (before, after) = decimal.split_once('.').unwrap_or((decimal, ""));
    let all = [before, after].concat();
    let digits = all.trim_start_matches('0');
    let kept = digits.get(..DIGITS_MAX.min(digits.len()))?;
    let length = |digits: &str| i64::try_from(digits.len()).ok();
    let leading = length(before)? - 1 - (length(&all)? - length(digits)?);
    let value = kept.parse::<u64>().ok()?.checked_mul(times)?;
    let longer = length(&value.to_string())? - length(kept)?;
    let (mut first, mut decade) = (seven(value), leading + longer + power);
    if first == 10 * FIRST {
        (first, decade) = (FIRST, decade + 1);
    }
    let first = i64::try_from(first - FIRST).ok()?;
    decade
        .checked_sub(SMALLEST)?
        .checked_mul(DECADE)?
        .checked_add(first)
}

/// The first seven digits, rounded.
fn seven(value: u64) -> u64 {
    let mut unit = 1;
    while value / unit >= 10 * FIRST {
        unit *= 10;
    }
    let mut first = (value + unit / 2) / unit;
    while first < FIRST {
        first *= 10;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: i64 = 1_000_000_000;

    fn decimal(factor: &str) -> f64 {
        factor.parse().expect("a number")
    }

    #[test]
    fn each_number_is_read_back_as_itself_with_the_digits_that_the_negotiator_keeps() {
        let few = [
            0,
            1,
            2,
            499_999_999,
            500_000_000,
            RANGE - 2,
            RANGE - 1,
            RANGE,
        ];
        let many = (0..RANGE).step_by(999_983);
        let decades = (1..111).map(|decade| RANGE - decade * DECADE);
        let decades = decades.flat_map(|at| [at - 1, at, at + 1]);
        for at in few.into_iter().chain(many).chain(decades) {
            let factor = decimal(&of(at, RANGE));
            for kept in [format!("{factor:.6}"), format!("{factor:.8e}")] {
                assert_eq!(number(&kept, RANGE), Some(at), "{kept}");
            }
        }
        assert_eq!(of(RANGE, RANGE), "1.000000e2");
        assert_eq!(of(RANGE + 7, RANGE), "1.000000e2");
        assert_eq!(of(0, RANGE), WORST);
    }

    #[test]
    fn a_higher_number_has_a_smaller_factor() {
        for range in [1_000, RANGE, 2_000_000_000] {
            let step = usize::try_from(range / 997).expect("small");
            for at in (0..range).step_by(step) {
                let [worse, better] = [at, at + 1].map(|at| decimal(&of(at, range)));
                assert!(worse > better && better >= 1.0, "{at} of {range}");
            }
        }
    }

    #[test]
    fn factors_that_others_have_set_are_read() {
        let [hundred, less] = [("100.0", RANGE), ("1.0", RANGE + 2 * DECADE)];
        for (factor, at) in [hundred, less, ("9.9999999e1", RANGE), ("1E+300", 0)] {
            assert_eq!(number(factor, RANGE), Some(at), "{factor}");
        }
        assert_eq!(number("1000.0", RANGE), Some(RANGE - DECADE));
        for no in ["", "0.0", "undefined", "-1.0", "1e999999999999999999"] {
            assert_eq!(number(no, RANGE), None, "{no}");
        }
    }

    /// What HTCondor 23.9.6 printed.
    #[test]
    fn an_effective_priority_shows_whether_the_real_one_stands_still() {
        for (effective, factor) in [
            ("1.699999999839974E+38", "3.399999999679947E+38"),
            ("4.999999997404914E+112", "9.999999994809828E+112"),
            ("6.172834996580486E+112", "1.234566999316097E+113"),
            ("0.6172840000000001", "1.234568"),
            ("50.0", "100.0"),
            ("50.00005", "100.0001"),
        ] {
            assert!(is_half(effective, factor), "{effective} {factor}");
        }
        assert!(!is_half("500.0480000000001", "1000.0"));
        assert!(!is_half("undefined", "1000.0"));
    }

    #[test]
    fn a_value_may_be_written_in_other_words() {
        assert!(is_as_wanted(" 1.0E+250 ", WORST));
        assert!(is_as_wanted("1000000000000000", "1e15"));
        assert!(!is_as_wanted("86400", "1e15"));
        let wanted = "$(X) GPUs Memory";
        assert!(is_as_wanted("Cpus, gpus, Memory", wanted));
        assert!(!is_as_wanted("Cpus GPUs", wanted));
        assert!(is_as_wanted("be one, and two", "be one, and two"));
    }
}
