//! `[history]`: how usage is weighed by its age, in a site's configuration and in a charter.
//!
//! Invariant: exactly one rule comes out; rules that exclude each other are refused.
//! Deliberately not here: weights (`fairshare`).

use fairmesh_model::{HistoryRule, WindowLength};
use serde::Deserialize;
use toml::Spanned;

use super::quantity::{RawDuration, RawPercent};
use super::text::{FileError, Source};

/// Longest history, in windows: what a charter's validation allows too.
const HISTORY_WINDOWS_MAX: u64 = 87_600;

/// The table as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawHistory {
    /// The length of a window, where this table says it.
    pub window: Option<RawDuration>,
    /// The weight halves in this time; `"none"` for no decay.
    pub half_life: Option<RawDuration>,
    /// Usage is forgotten after this time.
    pub horizon: Option<RawDuration>,
    /// Intervals of falling weight, as in Maui and FSGrid.
    pub windows: Option<RawIntervals>,
    /// Only running jobs count.
    #[serde(default)]
    pub running_only: bool,
}

/// Intervals of falling weight.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawIntervals {
    /// Length of an interval.
    pub length: RawDuration,
    /// How many count.
    pub count: Spanned<u32>,
    /// Weight of an interval, in percent of the next newer one's.
    pub factor: RawPercent,
}

impl RawHistory {
    /// The rule, in windows of `window`.
    pub fn rule(&self, source: Source<'_>, window: WindowLength) -> Result<HistoryRule, FileError> {
        let given = u8::from(self.half_life.is_some())
            + u8::from(self.windows.is_some())
            + u8::from(self.running_only);
        let horizon_without_use =
            self.horizon.is_some() && (self.windows.is_some() || self.running_only);
        if given > 1 || horizon_without_use {
            let place = self
                .horizon
                .as_ref()
                .or(self.half_life.as_ref())
                .map(RawDuration::span);
            let problem = "more than one way to weigh usage";
            let help = "keep one: half_life (with horizon), windows, or running_only";
            return Err(source
                .error(place, Some("history"), problem)
                .with_help(help));
        }
        if self.running_only {
            return Ok(HistoryRule::RunningOnly);
        }
        if let Some(intervals) = &self.windows {
            return intervals.rule(source, window);
        }
        let day = u32::try_from(window.per_day()).expect("a day has at most 86400 windows");
        let horizon = match &self.horizon {
            Some(raw) => {
                let windows = source.in_windows("history.horizon", raw, window)?;
                bounded(source, "history.horizon", raw, u64::from(windows))?;
                windows
            }
            None => (90 * day).min(u32::try_from(HISTORY_WINDOWS_MAX).expect("small")),
        };
        match &self.half_life {
            Some(raw) if raw.get_ref() == "none" => Ok(HistoryRule::None { horizon }),
            Some(raw) => Ok(HistoryRule::HalfLife {
                windows: source.in_windows("history.half_life", raw, window)?,
                horizon,
            }),
            None => Ok(HistoryRule::HalfLife {
                windows: 7 * day,
                horizon,
            }),
        }
    }
}

impl RawIntervals {
    fn rule(&self, source: Source<'_>, window: WindowLength) -> Result<HistoryRule, FileError> {
        let length = source.in_windows("history.windows.length", &self.length, window)?;
        let (count, key) = (*self.count.get_ref(), "history.windows.count");
        let windows = u64::from(length) * u64::from(count);
        bounded(source, key, &self.count, windows)?;
        let factor = source.percent("history.windows.factor", &self.factor)?;
        Ok(HistoryRule::Windows {
            length,
            count,
            factor,
        })
    }
}

fn bounded<T>(
    source: Source<'_>,
    key: &str,
    value: &Spanned<T>,
    windows: u64,
) -> Result<(), FileError> {
    if (1..=HISTORY_WINDOWS_MAX).contains(&windows) {
        return Ok(());
    }
    let problem =
        format!("a history of {windows} windows; 1 to {HISTORY_WINDOWS_MAX} are possible");
    Err(source.wrong(key, value, problem))
}

#[cfg(test)]
mod tests {
    use fairmesh_model::Share;

    use super::*;

    fn rule(text: &str) -> Result<HistoryRule, FileError> {
        let source = Source {
            file: "h.toml",
            text,
        };
        source
            .parse::<RawHistory>()?
            .rule(source, WindowLength::HOUR)
    }

    #[test]
    fn each_rule_can_be_written() {
        let percent = |percent| Share::from_percent(percent).expect("at most 100");
        for (text, expected) in [
            ("", HistoryRule::default()),
            (
                "half_life = \"1d\"\nhorizon = \"2d\"",
                HistoryRule::HalfLife {
                    windows: 24,
                    horizon: 48,
                },
            ),
            (
                "half_life = \"none\"\nhorizon = \"2d\"",
                HistoryRule::None { horizon: 48 },
            ),
            ("running_only = true", HistoryRule::RunningOnly),
            (
                "windows = { length = \"1d\", count = 7, factor = 90 }",
                HistoryRule::Windows {
                    length: 24,
                    count: 7,
                    factor: percent(90),
                },
            ),
        ] {
            assert_eq!(rule(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for (text, problem) in [
            (
                "half_life = \"1d\"\nrunning_only = true",
                "more than one way",
            ),
            ("horizon = \"1d\"\nrunning_only = true", "more than one way"),
            ("half_life = \"90m\"", "whole number of windows"),
            ("horizon = \"40 years\"", "not a length of time"),
            ("horizon = \"87601h\"", "87600 are possible"),
            (
                "windows = { length = \"1d\", count = 0, factor = 90 }",
                "0 windows",
            ),
            (
                "windows = { length = \"1d\", count = 7, factor = 120 }",
                "outside 0..100",
            ),
        ] {
            let error = rule(text).expect_err(text).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
