//! Fractions of whole numbers as decimal text.
//!
//! Invariant: the text is the exact number where it ends within its decimals, and otherwise the
//! nearest one, halves to the even digit. There are [`DECIMALS`] decimals, and as many more as make
//! [`SIGNIFICANT`] digits of a number near zero; zeros at the end are left out. A number that is
//! not zero thus never reads as zero. Deliberately not here: percent signs and columns.

use ethnum::U256;

/// Decimals at least, unless the number ends before.
pub const DECIMALS: usize = 24;

/// Digits at least from the first that is not zero, unless the number ends before.
pub const SIGNIFICANT: usize = 15;

/// `±numerator / denominator` as decimal text. The denominator is positive and below 2^250.
pub fn decimal(negative: bool, numerator: U256, denominator: U256) -> String {
    let (mut whole, mut rest) = numerator.div_rem(denominator);
    let mut digits: Vec<u8> = Vec::new();
    let mut significant = 0;
    while rest != U256::ZERO && (digits.len() < DECIMALS || significant < SIGNIFICANT) {
        let (digit, next) = (rest * U256::new(10)).div_rem(denominator);
        digits.push(u8::try_from(digit).expect("a remainder is below its denominator"));
        rest = next;
        if significant > 0 || whole != U256::ZERO || digits.last() != Some(&0) {
            significant += 1;
        }
    }
    if rounds_up(rest, denominator, digits.last()) {
        whole += U256::from(u8::from(carry(&mut digits)));
    }
    while digits.last() == Some(&0) {
        digits.pop();
    }
    let sign = if negative && numerator != U256::ZERO {
        "-"
    } else {
        ""
    };
    let point = if digits.is_empty() { "" } else { "." };
    let decimals: String = digits
        .iter()
        .map(|digit| char::from(b'0' + digit))
        .collect();
    format!("{sign}{whole}{point}{decimals}")
}

/// Whether what is left is more than half a digit, or half of one behind an odd digit.
fn rounds_up(rest: U256, denominator: U256, last: Option<&u8>) -> bool {
    let twice = rest * U256::new(2);
    twice > denominator || (twice == denominator && last.is_some_and(|digit| digit % 2 == 1))
}

/// Adds one to the last digit; returns whether the whole number must take one too.
fn carry(digits: &mut [u8]) -> bool {
    for digit in digits.iter_mut().rev() {
        if *digit < 9 {
            *digit += 1;
            return false;
        }
        *digit = 0;
    }
    true
}

/// `text`, a decimal number, cut to `decimals` for a table: people compare, programs read JSON.
pub fn cut(text: &str, decimals: usize) -> String {
    let Some((whole, rest)) = text.split_once('.') else {
        return text.to_owned();
    };
    let kept: String = rest.chars().take(decimals).collect();
    match kept.trim_end_matches('0') {
        "" if rest.bytes().any(|byte| byte != b'0') && matches!(whole, "0" | "-0") => {
            let sign = whole.strip_suffix('0').unwrap_or_default();
            format!("{sign}<0.{:0>decimals$}", 1)
        }
        "" => whole.to_owned(),
        kept => format!("{whole}.{kept}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(numerator: u128, denominator: u128) -> String {
        decimal(false, U256::new(numerator), U256::new(denominator))
    }

    #[test]
    fn numbers_are_exact_or_rounded_half_to_even() {
        assert_eq!(text(0, 7), "0");
        assert_eq!(text(30, 1), "30");
        assert_eq!(text(1, 8), "0.125");
        assert_eq!(text(2, 3), "0.666666666666666666666667");
        assert_eq!(text(100, 3), "33.333333333333333333333333");
        assert_eq!(text(10u128.pow(25) - 1, 10u128.pow(25)), "1");
        let half = |odd: u128| text(2 * odd + 1, 2 * 10u128.pow(24));
        assert_eq!(half(10u128.pow(23)), "0.1");
        assert_eq!(half(10u128.pow(23) + 1), "0.100000000000000000000002");
        assert_eq!(decimal(true, U256::ZERO, U256::ONE), "0");
        assert_eq!(decimal(true, U256::new(5), U256::new(2)), "-2.5");
    }

    #[test]
    fn a_number_near_zero_keeps_its_digits() {
        let tiny = decimal(
            true,
            U256::new(5_000),
            U256::new(246_913_578_024_691_357_801) * 100,
        );
        assert_eq!(tiny, "-0.0000000000000000002025000018225");
        assert_eq!(cut(&tiny, 4), "-<0.0001");
        assert_eq!(cut("33.333333", 4), "33.3333");
        assert_eq!(cut("5.0000001", 4), "5");
    }
}
