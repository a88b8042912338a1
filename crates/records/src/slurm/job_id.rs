//! Slurm's job ids as they are printed: `12`, `12_7`, `12_[1-3,7%2]`, `12+1`, `12.batch`.
//!
//! Invariant: only what is a job id of Slurm is taken for one.

use crate::value;

/// Most tasks that are listed one by one: Slurm's own highest `MaxArraySize` is four million.
const TASKS_MAX: u64 = 4_194_304;

/// What is behind the number of a job id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Job,
    /// A step of a job, or of a task or component of one.
    Step,
    /// A task of an array, or several that wait: `7`, `[1-3,7]`.
    Tasks(&'a str),
    /// A component of a heterogeneous job.
    Component,
}

/// The number of a job id and what follows it; `None` if it is no job id.
pub(crate) fn parse(text: &str) -> Option<(u64, Part<'_>)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    let rest = &text[end..];
    if rest.contains('.') {
        return Some((number, Part::Step));
    }
    let part = match rest.chars().next() {
        None => Part::Job,
        Some('_') if !rest[1..].is_empty() => Part::Tasks(&rest[1..]),
        Some('+') if rest[1..].parse::<u64>().is_ok() => Part::Component,
        _ => return None,
    };
    Some((number, part))
}

/// The tasks that a job id stands for: 1, 2 and 3 for `12_[1-3]`, 7 for `12_7`, none for `12`.
/// `None` if it is no job id, or names more tasks than Slurm allows.
pub fn array_tasks(job_id: &str) -> Option<Vec<u64>> {
    let (_, Part::Tasks(tasks)) = parse(job_id)? else {
        return Some(Vec::new());
    };
    let list = match tasks.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None => tasks,
    };
    let list = list.split_once('%').map_or(list, |(list, _)| list);
    if value::ranges(list)? > TASKS_MAX {
        return None;
    }
    let mut all = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        all.extend(first.parse::<u64>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}
