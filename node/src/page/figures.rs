//! Figures for people: amounts, percentages, and which side of its target something is on.

use fairmesh_fairshare::EntryId;
use fairmesh_fairshare::explain::{LevelExplanation, levels};
use fairmesh_model::Share;

use super::page_data::PageData;

/// An entry and its figures.
pub(super) struct Figures {
    pub(super) entry: EntryId,
    pub(super) path: String,
    /// The last name of the path.
    pub(super) name: String,
    /// 1 is served first.
    pub(super) rank: u32,
    /// What it should have of its parent, percent.
    pub(super) target: f64,
    /// What it has, percent.
    pub(super) used: f64,
    /// Weighted usage, in core-milliseconds.
    pub(super) usage: f64,
    pub(super) balance: Balance,
    /// How many entries are below it.
    pub(super) below: usize,
}

/// What was used against the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Balance {
    /// Nobody of its level has used anything.
    Idle,
    /// From -3, less than a quarter of the target, to 3, four times as much and more.
    By(i8),
}

/// How far from its target an entry is in each step, at least: used over target.
const STEPS: [f64; 3] = [1.25, 2.0, 4.0];

impl Figures {
    pub(super) fn of(data: &PageData, entry: EntryId) -> Self {
        let snapshot = data.moment.snapshot();
        let path = snapshot.path(entry);
        // Only the root has no level: it is all there is.
        let level = levels(snapshot, entry).pop();
        let sums = level.as_ref();
        let target = sums.map_or(100.0, |level| share(level.target) * 100.0);
        let used = sums.map_or(100.0, |level| share(level.actual) * 100.0);
        Self {
            entry,
            path: path.to_string(),
            name: path.name().unwrap_or("all").to_owned(),
            rank: data.moment.order.ranking().rank(entry),
            target,
            used,
            usage: sums.map_or(0.0, |level| amount(level.usage)),
            balance: sums.map_or(Balance::By(0), Balance::of),
            below: snapshot.subtree(entry).count() - 1,
        }
    }

    /// What is told of it in a line.
    pub(super) fn words(&self) -> String {
        format!(
            "target {} %, used {} %: {}",
            percent(self.target),
            percent(self.used),
            self.balance.words()
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn amount(core_ms: u128) -> f64 {
    core_ms as f64
}

impl Balance {
    fn of(level: &LevelExplanation) -> Self {
        if level.parent_usage == 0 {
            return Self::Idle;
        }
        Self::between(
            amount(level.usage) / amount(level.parent_usage),
            share(level.target),
        )
    }

    fn between(used: f64, target: f64) -> Self {
        let beyond = |more: f64, less: f64| {
            let steps = STEPS.iter().take_while(|step| more >= less * **step);
            i8::try_from(steps.count()).unwrap_or(0)
        };
        match (used > target, target > 0.0 || used > 0.0) {
            (_, false) => Self::By(0),
            (true, _) => Self::By(beyond(used, target)),
            (false, _) => Self::By(-beyond(target, used)),
        }
    }

    /// The class of its colour.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::By(-3) => "m3",
            Self::By(-2) => "m2",
            Self::By(-1) => "m1",
            Self::By(1) => "p1",
            Self::By(2) => "p2",
            Self::By(3) => "p3",
            Self::By(_) => "on",
        }
    }

    /// The same for who sees no colour.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Idle => "nobody here has used anything",
            Self::By(-3) => "less than a quarter of its target",
            Self::By(-2) => "less than half of its target",
            Self::By(-1) => "below its target",
            Self::By(1) => "above its target",
            Self::By(2) => "twice its target or more",
            Self::By(3) => "four times its target or more",
            Self::By(_) => "near its target",
        }
    }

    /// All, for the legend.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (-3..=3).map(Self::By).chain([Self::Idle])
    }
}

/// Of the whole, which is 1.
pub(super) fn share(share: Share) -> f64 {
    f64::from(share.units()) / f64::from(Share::ONE)
}

/// A percentage with as many digits as it takes to see it.
pub(super) fn percent(value: f64) -> String {
    let digits = if value >= 0.095 { 1 } else { 3 };
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Core-milliseconds as core-hours, with a comma behind each thousand.
pub(super) fn hours(core_ms: f64) -> String {
    let hours = core_ms / 3_600_000.0;
    let text = match hours {
        h if h >= 1_000.0 || h == 0.0 => format!("{h:.0}"),
        h if h >= 10.0 => format!("{h:.1}"),
        h => format!("{h:.2}"),
    };
    let (whole, rest) = match text.split_once('.') {
        Some((whole, rest)) => (whole, format!(".{rest}")),
        None => (text.as_str(), String::new()),
    };
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_against_target_has_seven_steps() {
        for (used, target, step) in [
            (0.0, 0.5, -3),
            (0.2, 0.5, -2),
            (0.3, 0.5, -1),
            (0.45, 0.5, 0),
            (0.5, 0.5, 0),
            (0.6, 0.5, 0),
            (0.7, 0.5, 1),
            (0.5, 0.25, 2),
            (1.0, 0.25, 3),
            (0.1, 0.0, 3),
            (0.0, 0.0, 0),
        ] {
            let balance = Balance::between(used, target);
            assert_eq!(balance, Balance::By(step), "{used} of {target}");
        }
    }

    #[test]
    fn figures_are_as_long_as_they_need_to_be() {
        let hour = 3_600_000.0;
        let told = [0.0, 0.25, 12.34, 1_234.5, 1_234_567.0].map(|h| hours(h * hour));
        assert_eq!(told, ["0", "0.25", "12.3", "1,234", "1,234,567"]);
        let told = [0.0, 0.001, 0.1, 33.333, 60.0, 100.0].map(percent);
        assert_eq!(told, ["0", "0.001", "0.1", "33.3", "60", "100"]);
    }
}
