//! Points in time as batch systems write them: local or absolute, in digits or spelt out.
//!
//! Invariant: a local time that came twice (when clocks are put back) is read as the earlier of the
//! two unless that would put it before what must precede it; one that never came (when they are put
//! forward) is read by the offset from before. Nothing here knows the machine's own zone.
//!
//! Deliberately not here: the calendar and the zones, which are `jiff`'s.

use fairmesh_model::WallTime;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

const LOCAL_TIME_BYTES: usize = 19;

/// The time zone that a log's local times are in.
#[derive(Debug, Clone)]
pub struct Zone(TimeZone);

impl Default for Zone {
    fn default() -> Self {
        Self::utc()
    }
}

impl Zone {
    /// A zone by a `jiff` value, so that the caller chooses where zones come from.
    pub const fn new(zone: TimeZone) -> Self {
        Self(zone)
    }

    /// The zone UTC, without daylight saving.
    pub const fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The moment of `2024-12-21T17:58:09`, of the same with a zone or offset, or of seconds since
    /// the epoch. `None` if it is neither, or lies before the epoch.
    pub(crate) fn parse(&self, text: &str, not_before: Option<WallTime>) -> Option<WallTime> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().map(WallTime::from_unix_secs);
        }
        // What is longer than a local time to the second may bear a zone.
        if text.len() > LOCAL_TIME_BYTES
            && let Ok(moment) = text.parse::<Timestamp>()
        {
            return to_wall(moment);
        }
        self.local(text.parse().ok()?, not_before)
    }

    /// The moment of a local time in another notation, as of `strptime`.
    pub(crate) fn parse_as(&self, notation: &str, text: &str) -> Option<WallTime> {
        let parts = BrokenDownTime::parse(notation, text).ok()?;
        self.local(parts.to_datetime().ok()?, None)
    }

    fn local(&self, time: DateTime, not_before: Option<WallTime>) -> Option<WallTime> {
        let candidates = match self.0.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Unambiguous { offset } => [offset, offset],
            AmbiguousOffset::Gap { before, .. } => [before, before],
            AmbiguousOffset::Fold { before, after } => [before, after],
        };
        let [earlier, later] = candidates.map(|offset| to_wall(offset.to_timestamp(time).ok()?));
        match (earlier, not_before) {
            (Some(moment), Some(bound)) if moment < bound => later,
            _ => earlier,
        }
    }
}

fn to_wall(moment: Timestamp) -> Option<WallTime> {
    u64::try_from(moment.as_millisecond()).ok().map(WallTime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(zone: &Zone, text: &str, not_before: Option<u64>) -> Option<u64> {
        let bound = not_before.map(WallTime::from_unix_secs);
        zone.parse(text, bound).map(|moment| moment.0 / 1_000)
    }

    #[test]
    fn absolute_times_need_no_zone() {
        let utc = Zone::utc();
        assert_eq!(seconds(&utc, "1435460150", None), Some(1_435_460_150));
        assert_eq!(
            seconds(&utc, "2015-06-28T02:55:50", None),
            Some(1_435_460_150)
        );
        assert_eq!(
            seconds(&utc, "2015-06-28T04:55:50+02:00", None),
            Some(1_435_460_150)
        );
        for wrong in ["", "Unknown", "2015-06-31T00:00:00", "1950-01-01T00:00:00"] {
            assert_eq!(seconds(&utc, wrong, None), None, "{wrong}");
        }
    }

    /// Central European summer time ended on 25 October 2026 at 3:00, and began on 29 March at 2:00.
    #[test]
    fn hours_that_come_twice_or_never() {
        let prague = Zone::new(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone"));
        let twice = "2026-10-25T02:30:00";
        let first = seconds(&prague, twice, None).expect("a time");
        assert_eq!(first, 1_792_888_200);
        assert_eq!(seconds(&prague, twice, Some(first)), Some(first));
        assert_eq!(
            seconds(&prague, twice, Some(first + 1)),
            Some(first + 3_600)
        );
        let never = seconds(&prague, "2026-03-29T02:30:00", None);
        assert_eq!(never, seconds(&prague, "2026-03-29T03:30:00", None));
    }
}
