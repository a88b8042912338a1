//! From a report to cells: what a job is charged, and in which windows.
//!
//! Each moment of a job is charged once. The mark of a job says until when it has been charged, so
//! reports may repeat, overlap and come in any order: an instalment charges from the mark to its
//! own end, the job's last record charges what is left, and both move the mark forward.
//!
//! Invariant: the parts of a charge add up to the whole, to the unit, however it is cut.

use fairmesh_fairshare::{ChargeError, Job, Rate, Tariff};
use fairmesh_model::{
    ChargingRule, Counters, Discounts, Millis, Span, UsageMode, UsageRecord, WallTime,
    WindowLength, mutant, mutated,
};

use crate::config::Charging;
use crate::store::JobMark;

/// The rules that an account's usage is counted under.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) charging: ChargingRule,
    pub(crate) discounts: Discounts,
    pub(crate) window: WindowLength,
    pub(crate) mode: UsageMode,
    /// Whether only jobs that run count, each as a whole.
    pub(crate) whole_jobs: bool,
    /// Spans that end at or before this are too old to count: the beginning of a day.
    pub(crate) horizon: WallTime,
    /// Days before this one are counted as days.
    pub(crate) whole_days_before: u32,
    /// What a batch system whose clock is ahead says of later than this counts as of now: peers would
    /// not believe a later window.
    pub(crate) latest: WallTime,
}

/// What a report adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) parts: Vec<(Span, Counters)>,
    pub(crate) mark: JobMark,
    /// Whether some of the job lies before the horizon.
    pub(crate) late: bool,
}

/// What `record` adds to what `mark` says is charged already; `None` where it says nothing new.
///
/// # Errors
/// That nobody can say what the job costs: nothing is counted, and no mark is set.
pub(crate) fn charge(
    record: &UsageRecord,
    mark: Option<JobMark>,
    rules: &Rules,
    site: &Charging,
) -> Result<Option<Charge>, ChargeError> {
    let mark = mark.unwrap_or(JobMark::at(record.start));
    let ended = mark.ended && !mutated!(EndedJobsAgain);
    if ended
        || (record.running && rules.mode == UsageMode::Historical && !mutated!(RunningCountAlways))
    {
        return Ok(None);
    }
    let from = mark.charged_until.max(record.start);
    let from = mutant!(InstalmentsFromStart, from, record.start);
    let until = record.end.max(from);
    if record.running && until == from {
        return Ok(None);
    }
    let rate = rate(record, rules, site)?;
    let mut charge = Charge {
        parts: Vec::new(),
        mark: JobMark {
            charged_until: until,
            ended: !record.running,
            ..mark
        },
        late: false,
    };
    let mut last = span_at(until.before(Millis(1)).max(record.start), rules);
    // Differences of what was used until then, so that nothing is lost to rounding.
    let used = |until: WallTime| rate.counters(until.since(record.start));
    let mut before = used(from);
    for (span, _, end) in pieces(from, until, rules) {
        let then = used(end);
        let counters = then.minus(std::mem::replace(&mut before, then));
        let lost = u64::from(end == until && mutated!(LastMillisecondLost));
        let counters = counters.minus(Counters {
            charge: lost,
            ..Counters::default()
        });
        charge.mark.charge = charge.mark.charge.saturating_add(counters.charge);
        if span.end(rules.window) <= rules.horizon && !mutated!(LateCounted) {
            charge.late = true;
        } else {
            push(&mut charge.parts, span, counters);
        }
        last = span;
    }
    if !record.running && last.end(rules.window) > rules.horizon {
        push(
            &mut charge.parts,
            last,
            Counters {
                jobs: 1,
                ..Counters::default()
            },
        );
    }
    Ok(Some(charge))
}

/// Spreads what a job was charged evenly over the time that it is charged for, where nobody can say any
/// more by which rules it was charged.
pub(crate) fn spread(
    (start, until): (WallTime, WallTime),
    charged: Counters,
    rules: &Rules,
) -> Vec<(Span, Counters)> {
    let ran = u128::from(until.since(start).0.max(1));
    let by = |at: WallTime| {
        let ms = u128::from(at.since(start).0);
        let part = |all: u64| {
            u64::try_from(u128::from(all) * ms / ran)
                .unwrap_or(all)
                .min(all)
        };
        Counters::from_columns(charged.to_columns().map(part))
    };
    let mut parts = Vec::new();
    for (span, at, end) in pieces(start, until, rules) {
        push(&mut parts, span, by(end).minus(by(at)));
    }
    parts
}

/// A time cut at the ends of the spans that it is counted in: each span, and from when until when. What is later than
/// now counts as of now; all that is too old to count is one piece, in the span that it begins in, so there are no
/// more pieces than the history has spans, however long a job says that it ran.
fn pieces(
    from: WallTime,
    until: WallTime,
    rules: &Rules,
) -> impl Iterator<Item = (Span, WallTime, WallTime)> {
    let mut at = from;
    std::iter::from_fn(move || {
        let (begin, span) = (at, span_at(at, rules));
        at = if begin < rules.horizon {
            rules.horizon.min(until)
        } else if begin < rules.latest {
            mutant!(UsageInFirstWindow, span.end(rules.window), until).min(until)
        } else {
            until
        };
        (begin < until).then_some((span, begin, at))
    })
}

fn push(parts: &mut Vec<(Span, Counters)>, span: Span, counters: Counters) {
    match parts.last_mut().filter(|(last, _)| *last == span) {
        Some((_, sum)) => *sum = sum.plus(counters),
        None => parts.push((span, counters)),
    }
}

fn span_at(at: WallTime, rules: &Rules) -> Span {
    let window = rules.window.window_at(at.min(rules.latest));
    let day = rules.window.day_of(window);
    if day < rules.whole_days_before {
        Span::Day(day)
    } else {
        Span::Window(window)
    }
}

/// What the job is charged in a millisecond.
///
/// # Errors
/// That nobody can say what the job costs.
pub(crate) fn rate(
    record: &UsageRecord,
    rules: &Rules,
    site: &Charging,
) -> Result<Rate, ChargeError> {
    let tariff = Tariff {
        rule: &rules.charging,
        discounts: &rules.discounts,
        prices: &site.prices,
    };
    let job = Job::of(record, |machine| site.class_of(machine));
    fairmesh_fairshare::rate(tariff, &job)
}

#[cfg(test)]
mod tests;
