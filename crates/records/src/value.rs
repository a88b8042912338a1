//! The numbers of accounting logs: durations, sizes and decimals, read as integers.
//!
//! Invariant: nothing here passes through a float or overflows; what does not fit is no number. A
//! fraction below the unit asked for is cut off.

use fairmesh_model::Millis;

/// `text` (`12`, `1.5`, `1.9E+01`) times ten to the `scale`, without what is left behind the point.
/// `None` for anything else, below zero included.
pub(crate) fn decimal(text: &str, scale: i32) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_prefix('+').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    if digits().next().is_none() || !digits().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let wanted = i32::try_from(whole.len())
        .ok()?
        .checked_add(exponent)?
        .checked_add(scale)?;
    // Digits behind the unit are dropped, places that were not written are zeros.
    let mut value = 0_u64;
    let mut written = digits();
    for _ in 0..wanted.max(0) {
        let digit = match written.next() {
            Some(byte) => byte - b'0',
            None if value == 0 => break,
            None => 0,
        };
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Seconds, perhaps with a fraction, or `[days-]hours:minutes:seconds` with leading parts left out.
pub(crate) fn duration(text: &str) -> Option<Millis> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text),
    };
    let parts: Vec<&str> = clock.split(':').collect();
    // `1-12` are a day and twelve hours, `1-12:30` and a half.
    let (hours, minutes, seconds) = match (parts.as_slice(), days > 0 || text.contains('-')) {
        ([hours], true) => (*hours, "0", "0"),
        ([hours, minutes], true) => (*hours, *minutes, "0"),
        ([hours, minutes, seconds], _) => (*hours, *minutes, *seconds),
        ([minutes, seconds], false) => ("0", *minutes, *seconds),
        ([seconds], false) => ("0", "0", *seconds),
        _ => return None,
    };
    let whole = |text: &str, seconds: u64| text.parse::<u64>().ok()?.checked_mul(seconds);
    let seconds_before = days
        .checked_mul(86_400)?
        .checked_add(whole(hours, 3_600)?)?
        .checked_add(whole(minutes, 60)?)?;
    let millis = seconds_before
        .checked_mul(1_000)?
        .checked_add(decimal(seconds, 3)?)?;
    Some(Millis(millis))
}

/// A size with a unit (`62.50G`, `2031040kb`, `4gb`, `600mb`) in bytes; `unit` is what a bare
/// number counts.
pub(crate) fn bytes(text: &str, unit: u64) -> Option<u64> {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = text[number.len()..].to_ascii_lowercase();
    let factor = match suffix.trim_end_matches('b').trim_end_matches('i') {
        "" if suffix.is_empty() => unit,
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        "p" => 1 << 50,
        "e" => 1 << 60,
        "w" | "kw" | "mw" | "gw" | "tw" => return words(number, &suffix),
        _ => return None,
    };
    scaled(number, factor)
}

/// PBS counts in words of 8 bytes, too.
fn words(number: &str, suffix: &str) -> Option<u64> {
    let factor = match suffix {
        "w" => 8,
        "kw" => 8 << 10,
        "mw" => 8 << 20,
        "gw" => 8 << 30,
        _ => 8 << 40,
    };
    scaled(number, factor)
}

/// A decimal times a whole factor, rounded down: `0.000213` times 2^20 are 223.
pub(crate) fn scaled(number: &str, factor: u64) -> Option<u64> {
    // Nine digits behind the point leave room for 18 in front of it in a whole number only.
    if number.bytes().all(|byte| byte.is_ascii_digit()) {
        return number.parse::<u64>().ok()?.checked_mul(factor);
    }
    // They are more than any log prints.
    let billionths = u128::from(decimal(number, 9)?);
    u64::try_from(billionths * u128::from(factor) / 1_000_000_000).ok()
}

/// A whole number, `12`, or one with a decimal unit (Slurm prints 20480 CPUs as `20K`).
pub(crate) fn count(text: &str) -> Option<u64> {
    let text = text.trim();
    let number = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let factor = match &text[number.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return None,
    };
    scaled(number, factor)
}

/// How many numbers `1-3,7` are.
pub(crate) fn ranges(list: &str) -> Option<u64> {
    list.split(',').try_fold(0_u64, |total, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        total.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_cut_at_the_unit() {
        assert_eq!(decimal("12", 0), Some(12));
        assert_eq!(decimal("20365.78", 3), Some(20_365_780));
        assert_eq!(decimal("0.0129985", 3), Some(12));
        assert_eq!(decimal("1.900000000000000E+01", 0), Some(19));
        assert_eq!(decimal("5e-4", 3), Some(0));
        assert_eq!(decimal("0e2000000000", 3), Some(0));
        assert_eq!(decimal("18446744073709551616", 0), None);
        for wrong in ["", ".", "-1", "1.2.3", "0x1", "e5", "1e", "1 2"] {
            assert_eq!(decimal(wrong, 3), None, "{wrong}");
        }
    }

    #[test]
    fn whole_numbers_are_read_up_to_the_largest() {
        assert_eq!(bytes("20000000000", 1), Some(20_000_000_000));
        assert_eq!(count("18446744073709551615"), Some(u64::MAX));
        assert_eq!(bytes("18446744073709551615k", 1), None);
        assert_eq!(bytes("", 1), None);
    }

    #[test]
    fn durations_of_all_spellings() {
        let seconds = |text| duration(text).map(|length| length.0 / 1_000);
        assert_eq!(seconds("10-13:27:06"), Some(912_426));
        assert_eq!(seconds("00:10:00"), Some(600));
        assert_eq!(seconds("0:02"), Some(2));
        assert_eq!(seconds("19:23:4"), Some(69_784));
        assert_eq!(seconds("12767"), Some(12_767));
        assert_eq!(seconds("1-12"), Some(129_600));
        assert_eq!(seconds("2-0:30"), Some(174_600));
        assert_eq!(duration("01:02.500"), Some(Millis(62_500)));
        for wrong in ["UNLIMITED", "", "1:2:3:4", "-5", "a:b"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_in_bytes() {
        assert_eq!(bytes("62.50G", 1), Some(64_000 << 20));
        assert_eq!(bytes("2031040kb", 1), Some(2_031_040 << 10));
        assert_eq!(bytes("100", 1 << 20), Some(100 << 20));
        assert_eq!(bytes("100b", 1 << 20), Some(100));
        assert_eq!(bytes("4GiB", 1), Some(4 << 30));
        assert_eq!(bytes("2mw", 1), Some(16 << 20));
        assert_eq!(bytes("4q", 1), None);
        assert_eq!(count("20K"), Some(20_480));
        assert_eq!(scaled("0.000213", 1 << 20), Some(223));
    }

    #[test]
    fn ranges_are_counted() {
        assert_eq!(ranges("1-3,7"), Some(4));
        for wrong in ["", "1-", "3-1", "a", "0-18446744073709551615"] {
            assert_eq!(ranges(wrong), None, "{wrong}");
        }
    }
}
