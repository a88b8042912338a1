//! From a report to cells: what a job is charged, and in which windows.
//!
//! Each moment of a job is charged once. The mark of a job says until when it has been charged, so
//! reports may repeat, overlap and come in any order: an instalment charges from the mark to its
//! own end, the job's last word settles what is left, and both move the mark forward.
//!
//! Invariant: the parts of a charge add up to the whole, to the unit, however it is cut.

use fairmesh_fairshare::Resources;
use fairmesh_model::{
    ChargingRule, Counters, Millis, Span, UsageMode, UsageRecord, WallTime, WindowLength,
};

use crate::store::JobMark;

/// The rules that an account's usage is counted under.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) charging: ChargingRule,
    pub(crate) window: WindowLength,
    pub(crate) mode: UsageMode,
    /// Spans that end at or before this are too old to count.
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
pub(crate) fn charge(record: &UsageRecord, mark: Option<JobMark>, rules: &Rules) -> Option<Charge> {
    let mark = mark.unwrap_or(JobMark {
        charged_until: record.start,
        ended: false,
    });
    if mark.ended || (record.running && rules.mode == UsageMode::Historical) {
        return None;
    }
    let from = mark.charged_until.max(record.start);
    let until = record.end.max(from);
    if record.running && until == from {
        return None;
    }
    let mut charge = Charge {
        parts: Vec::new(),
        mark: JobMark {
            charged_until: until,
            ended: !record.running,
        },
        late: false,
    };
    let mut last = span_at(until.before(Millis(1)).max(record.start), rules);
    let mut at = from;
    while at < until {
        let span = span_at(at, rules);
        let end = if at < rules.latest {
            span.end(rules.window).min(until)
        } else {
            until
        };
        let counters = held_until(record, end, rules).minus(held_until(record, at, rules));
        if span.end(rules.window) <= rules.horizon {
            charge.late = true;
        } else {
            push(&mut charge.parts, span, counters);
        }
        last = span;
        at = end;
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
    Some(charge)
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

/// What the job held from its start until `at`. Parts are differences of these, so that nothing
/// is lost to rounding.
fn held_until(record: &UsageRecord, at: WallTime, rules: &Rules) -> Counters {
    held(record, at.since(record.start), &rules.charging)
}

/// What the job holds in `wall` time, and what that is charged.
pub(crate) fn held(record: &UsageRecord, wall: Millis, rule: &ChargingRule) -> Counters {
    let resources = Resources {
        cores: u64::from(record.cores),
        gpus: u64::from(record.gpus),
        mem_mib: record.mem_mib,
    };
    fairmesh_fairshare::charge(rule, resources, wall)
}
