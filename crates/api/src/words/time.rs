//! Moments and lengths of time for people.
//!
//! Invariant: a moment is printed in UTC with its zone, an age in at most two units, rounded down.

use fairmesh_model::{Millis, WallTime};
use jiff::Timestamp;

/// A moment in UTC, as in `2026-11-21T01:45:00Z`, with milliseconds where there are any.
pub fn timestamp(at: WallTime) -> String {
    let moment = i64::try_from(at.0)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok());
    moment.map_or_else(|| format!("{at} s"), |moment| moment.to_string())
}

/// When something that expires does so, or did: `in 20 days`, `3 hours ago`. Of a unit there are two or more, or it is told
/// in the next smaller one.
pub fn until(at: WallTime, now: WallTime) -> String {
    match at > now {
        true => format!("in {}", roughly(at.since(now))),
        false => format!("{} ago", roughly(now.since(at))),
    }
}

fn roughly(time: Millis) -> String {
    const UNITS: [(u64, &str); 3] = [
        (86_400_000, "days"),
        (3_600_000, "hours"),
        (60_000, "minutes"),
    ];
    let unit = UNITS.into_iter().find(|(length, _)| time.0 >= 2 * length);
    unit.map_or_else(
        || format!("{} seconds", time.0 / 1_000),
        |(length, name)| format!("{} {name}", time.0 / length),
    )
}

/// A length of time in its two largest units: `350ms`, `12s`, `3m 5s`, `2d 4h`.
pub fn age(age: Millis) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    let Some(first) = UNITS.iter().position(|(length, _)| age.0 >= *length) else {
        return format!("{}ms", age.0);
    };
    let (length, unit) = UNITS[first];
    let (whole, rest) = (age.0 / length, age.0 % length);
    match UNITS
        .get(first + 1)
        .map(|(length, unit)| (rest / length, unit))
    {
        Some((part, unit_below)) if part > 0 => format!("{whole}{unit} {part}{unit_below}"),
        _ => format!("{whole}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_expires_is_told_in_whole_units() {
        let now = WallTime(1_000 * 86_400_000);
        let day = 86_400_000;
        for (at, text) in [
            (now.0 + 20 * day + 1, "in 20 days"),
            (now.0 + 2 * day - 1, "in 47 hours"),
            (now.0 + 90_000, "in 90 seconds"),
            (now.0, "0 seconds ago"),
            (now.0 - 3 * day, "3 days ago"),
        ] {
            assert_eq!(until(WallTime(at), now), text);
        }
    }

    #[test]
    fn ages_print_in_two_units() {
        for (millis, text) in [
            (0, "0ms"),
            (350, "350ms"),
            (12_000, "12s"),
            (185_999, "3m 5s"),
            (3_600_000, "1h"),
            (187_200_000, "2d 4h"),
        ] {
            assert_eq!(age(Millis(millis)), text);
        }
    }
}
