//! Numbers for people. Floating point is for printing only.

use fairmesh_model::Share;

/// Core-milliseconds (a decimal string) in core-hours with two decimals.
pub fn core_hours(core_ms: &str) -> String {
    format!("{:.2}", number(core_ms) / 3_600_000.0)
}

/// Core-milliseconds in the unit that shows them: core-hours, or core-seconds where it is less.
pub fn amount(core_ms: &str) -> String {
    let seconds = number(core_ms) / 1_000.0;
    if seconds < 360.0 {
        format!("{seconds:.1} core-seconds")
    } else {
        format!("{} core-hours", core_hours(core_ms))
    }
}

/// Core-milliseconds in whole core-seconds, as Slurm's RawUsage.
pub fn core_seconds(core_ms: &str) -> String {
    core_ms
        .parse::<u128>()
        .map_or_else(|_| core_ms.to_owned(), |ms| (ms / 1_000).to_string())
}

/// A percentage as a fraction with six decimals.
pub fn fraction(percent: &str) -> String {
    let units = Share::parse_percent(percent).map_or(0, Share::units);
    format!("{}.{:06}", units / Share::ONE, units % Share::ONE / 1_000)
}

/// A decimal fraction without the zeros behind its sixth decimal: so different ones print differently.
pub fn factor(fraction: &str) -> &str {
    let shown = fraction.trim_end_matches('0').len();
    let six = fraction.find('.').map_or(0, |point| point + 7);
    &fraction[..shown.max(six).min(fraction.len())]
}

/// A decimal number; 0 where it is none.
pub fn number(text: &str) -> f64 {
    text.parse().unwrap_or(0.0)
}

/// A percentage with two decimals.
pub fn percent(text: &str) -> String {
    text.parse::<f64>()
        .map_or_else(|_| text.to_owned(), |value| format!("{value:.2}"))
}
