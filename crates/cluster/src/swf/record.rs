//! One record of a job log: 18 columns of numbers.
//!
//! Invariant: a `SwfRecord` holds what its line says, with -1 read as "unknown", and nothing that
//! was guessed. Only its methods interpret, and they say how.
//!
//! Deliberately not here: floating point. Mean CPU times are written with decimals; they are kept
//! in milliseconds. Of other times whole seconds are kept. In all other columns decimals must be zeros.

use super::{SWF_COLUMNS, SwfErrorKind};

/// One job. `None` is the format's -1: not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwfRecord {
    /// Column 1.
    pub job: u64,
    /// Column 2: seconds since the log's start.
    pub submit_s: u64,
    /// Column 3: seconds from submit to start. Any negative number is unknown here.
    pub wait_s: Option<u64>,
    /// Column 4: seconds from start to end. Any negative number is unknown here.
    pub run_s: Option<u64>,
    /// Column 5: allocated processors; see [`SwfRecord::cores`].
    pub procs: Option<u64>,
    /// Column 6: mean CPU time per processor, in milliseconds.
    pub cpu_mean_ms: Option<u64>,
    /// Column 7: mean used memory per processor, kilobytes.
    pub memory_kb: Option<u64>,
    /// Column 8.
    pub requested_procs: Option<u64>,
    /// Column 9: the user's wall-clock limit or estimate, in seconds.
    pub requested_s: Option<u64>,
    /// Column 10: kilobytes per processor by the format; some logs use bytes per node.
    pub requested_memory: Option<u64>,
    /// Column 11: 1 completed, 0 failed, 5 cancelled, 2 to 4 parts of a job.
    pub status: Option<u64>,
    /// Column 12.
    pub user: Option<u64>,
    /// Column 13.
    pub group: Option<u64>,
    /// Column 14.
    pub executable: Option<u64>,
    /// Column 15.
    pub queue: Option<u64>,
    /// Column 16.
    pub partition: Option<u64>,
    /// Column 17.
    pub preceding_job: Option<u64>,
    /// Column 18: seconds from the preceding job's end to this one's submit.
    pub think_s: Option<u64>,
}

impl SwfRecord {
    /// Reads a line that is neither blank nor a comment.
    pub(super) fn parse(line: &[u8]) -> Result<Self, SwfErrorKind> {
        let mut columns: [&[u8]; SWF_COLUMNS] = [b""; SWF_COLUMNS];
        let mut found = 0;
        let words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        for (column, word) in columns.iter_mut().zip(words) {
            *column = word;
            found += 1;
        }
        if found < SWF_COLUMNS {
            return Err(SwfErrorKind::TooFewColumns { found });
        }
        let optional = |column: usize| whole(column, columns[column - 1]);
        let known = |column: usize| {
            let missing = || SwfErrorKind::bad_value(column, "must be known", columns[column - 1]);
            optional(column)?.ok_or_else(missing)
        };
        Ok(Self {
            job: known(1)?,
            submit_s: known(2)?,
            wait_s: optional(3)?,
            run_s: optional(4)?,
            procs: optional(5)?,
            cpu_mean_ms: milliseconds(6, columns[5])?,
            memory_kb: optional(7)?,
            requested_procs: optional(8)?,
            requested_s: optional(9)?,
            requested_memory: optional(10)?,
            status: optional(11)?,
            user: optional(12)?,
            group: optional(13)?,
            executable: optional(14)?,
            queue: optional(15)?,
            partition: optional(16)?,
            preceding_job: optional(17)?,
            think_s: optional(18)?,
        })
    }

    /// Processors held: the allocated ones, or else the requested ones; `None` if neither is known
    /// to be more than zero.
    pub fn cores(&self) -> Option<u64> {
        let positive = |procs: &u64| *procs > 0;
        self.procs
            .filter(positive)
            .or(self.requested_procs.filter(positive))
    }

    /// Seconds since the log's start at which the job started: submit plus wait, where an unknown
    /// wait is none.
    pub fn start_s(&self) -> u64 {
        self.submit_s.saturating_add(self.wait_s.unwrap_or(0))
    }

    /// Seconds since the log's start at which the job ended; `None` if it is not known to have run.
    pub fn end_s(&self) -> Option<u64> {
        self.run_s.map(|run_s| self.start_s().saturating_add(run_s))
    }
}

/// A decimal number as written: `-` or not, the digits before the point, the digits after it.
struct Decimal<'a> {
    negative: bool,
    whole: u64,
    decimals: &'a [u8],
}

/// Wait and run time are differences of clocks: real logs hold other negative numbers than -1 there
/// (a start before the submit, an end of 0 for a job that never ended).
const DIFFERENCE_COLUMNS: [usize; 2] = [3, 4];

/// Submit, wait, run, requested and think time, which some writers give with decimals.
const TIME_COLUMNS: [usize; 5] = [2, 3, 4, 9, 18];

/// The job of which a line has a partial execution: of status 2 (to be continued), 3 or 4 (the last one).
pub(super) fn part_of(line: &[u8]) -> Option<u64> {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let job = whole(1, words.next()?).ok().flatten()?;
    let status = whole(11, words.nth(9)?).ok().flatten()?;
    matches!(status, 2..=4).then_some(job)
}

fn whole(column: usize, text: &[u8]) -> Result<Option<u64>, SwfErrorKind> {
    let number = decimal(column, text)?;
    let is_time = TIME_COLUMNS.contains(&column);
    if !is_time && number.decimals.iter().any(|digit| *digit != b'0') {
        return Err(SwfErrorKind::bad_value(column, "not a whole number", text));
    }
    known_or_none(column, text, &number).map(|known| known.then_some(number.whole))
}

fn milliseconds(column: usize, text: &[u8]) -> Result<Option<u64>, SwfErrorKind> {
    let number = decimal(column, text)?;
    let decimals = number.decimals.iter().chain(b"000").take(3);
    let milliseconds = decimals.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let total = number
        .whole
        .checked_mul(1_000)
        .and_then(|ms| ms.checked_add(milliseconds));
    let total = total.ok_or_else(|| SwfErrorKind::bad_value(column, "too large", text))?;
    known_or_none(column, text, &number).map(|known| known.then_some(total))
}

/// Whether the number is a value (and not the -1 for "unknown"), or else an error.
fn known_or_none(column: usize, text: &[u8], number: &Decimal<'_>) -> Result<bool, SwfErrorKind> {
    let zeros = number.decimals.iter().all(|digit| *digit == b'0');
    match (number.negative, number.whole) {
        (false, _) => Ok(true),
        (true, 0) if zeros => Ok(true),
        (true, 1) if zeros => Ok(false),
        (true, _) if DIFFERENCE_COLUMNS.contains(&column) => Ok(false),
        (true, _) => Err(SwfErrorKind::bad_value(
            column,
            "negative, and not -1",
            text,
        )),
    }
}

fn decimal(column: usize, text: &[u8]) -> Result<Decimal<'_>, SwfErrorKind> {
    let bad = |problem| SwfErrorKind::bad_value(column, problem, text);
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let point = digits.iter().position(|byte| *byte == b'.');
    let (whole, decimals) = match point {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &digits[digits.len()..]),
    };
    let all_digits = whole.iter().chain(decimals).all(u8::is_ascii_digit);
    if !all_digits || whole.is_empty() || (point.is_some() && decimals.is_empty()) {
        return Err(bad("not a number"));
    }
    let append = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    let whole = whole
        .iter()
        .try_fold(0, append)
        .ok_or_else(|| bad("too large"))?;
    Ok(Decimal {
        negative,
        whole,
        decimals,
    })
}
