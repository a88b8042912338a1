//! Grid Engine's `accounting` file, of Sun's and its descendants: fields by `:`.
//!
//! Invariant: fields go by their place, which all dialects share up to `io`, and all that is charged stands there.
//! Behind it is the category, in which users write what they ask for, with every `:` of theirs; so what follows it
//! goes by its place from the end. Times are in seconds, or in milliseconds where they could not be seconds (Univa).
//! A record of a task of a parallel job on another host is a step: the job's own record counts all of its slots.
//!
//! Source: `man accounting` of Grid Engine 6.1, 6.2 and 8.1, and of Univa 8.1 and 8.2; lines of 8.1.9 (`docs/gridengine.md`).

mod json;

use fairmesh_model::{JobKey, Millis, WallTime};

use crate::error::Reason;
use crate::fields;
use crate::format::Format;
use crate::parser::{Ignored, LineFormat, Options};
use crate::record::{BatchRecord, Exit};
use crate::state::JobState;
use crate::value;

/// Fields up to `maxvmem`, behind which the oldest dialect ends.
const FIELDS_MIN: usize = 43;

/// The first field behind a category without a `:`.
const BEHIND: usize = 40;

/// How many fields follow the category: up to `maxvmem` before 6.2, then an advance reservation's, then a job class, too.
const BEHIND_COUNTS: [usize; 3] = [3, 5, 6];

/// Fields of Univa's lines since its times are in milliseconds. It writes no `:` of a submit command as such.
const UNIVA_COUNTS: [usize; 3] = [52, 54, 55];

/// In seconds this lies in the year 5138, in milliseconds in 1973.
const SECONDS_MAX: u64 = 100_000_000_000;

/// The value of `failed` after which the job runs once more.
const FAILED_RESCHEDULING: i64 = 25;

pub(crate) struct GridEngineLine(pub(crate) Options);

impl LineFormat for GridEngineLine {
    fn record(&self, line: &str) -> Result<Result<BatchRecord, Ignored>, Reason> {
        if line.starts_with('#') {
            return Ok(Err(Ignored::Decoration));
        }
        if line.starts_with('{') {
            return json::record(line, &self.0.cluster);
        }
        let row: Vec<&str> = line.split(':').collect();
        let (row, name) = with_one_name(row)?;
        if row.len() < FIELDS_MIN {
            let found = row.len();
            return Err(Reason::Shape(format!(
                "{found} fields, where at least {FIELDS_MIN} are expected"
            )));
        }
        // No queue is called so: a user has put words of the protocol of verifiers before his own (docs/gridengine.md).
        if row[0].contains(' ') {
            return Err(Reason::field("qname", row[0], "a name without blanks"));
        }
        let behind = behind(&row)?;
        if given(behind[1]).is_some() {
            return Ok(Err(Ignored::Step));
        }
        // Fields go by their place: if this one is no number, those before it have moved, and with them the times.
        let failed = integer("failed", row[11])?;
        let mut record = BatchRecord::new(Format::GridEngine, self.key(&row)?, JobState::Completed);
        let code = record.if_read(integer("exit_status", row[12]).map(Some));
        record.state = match (failed, code) {
            (FAILED_RESCHEDULING, _) => JobState::Requeued,
            (0, code) => code.map_or(JobState::Completed, JobState::of_exit),
            _ => JobState::Failed,
        };
        record.submit = record.if_read(moment("submission_time", row[8]));
        record.start = moment("start_time", row[9])?;
        record.end = moment("end_time", row[10])?;
        record.wall = record.if_read(length("ru_wallclock", row[13]));
        record.cpu_time = record.if_read(length("cpu", row[36]));
        record.origin.group = fields::name(row[2]);
        record.origin.user = fields::name(row[3]);
        let account = Some(row[6]).filter(|account| *account != "sge");
        record.origin.account = given(row[31]).or(account).and_then(fields::name);
        record.name = fields::name(&name);
        record.queue = fields::name(row[0]);
        record.hosts = fields::name(row[1]);
        record.exit = code.map(|code| Exit {
            code,
            // The shell's way of naming a signal.
            signal: u32::try_from(code - 128).unwrap_or(0),
        });
        let slots = row[34].parse().ok();
        record.cpus = Some(slots.ok_or_else(|| Reason::field("slots", row[34], "a number"))?);
        record.memory_kib_s = value::scaled(row[37], 1 << 20);
        let peak = value::bytes(behind[2], 1);
        let peak = peak.ok_or_else(|| Reason::field("maxvmem", behind[2], "a number of bytes"));
        record.virtual_peak_bytes = record.if_read(peak.map(Some));
        record.memory_peak_bytes = value::bytes(row[16], 1 << 10).filter(|bytes| *bytes > 0);
        record.checked().map(Ok)
    }
}

/// The field of the job's name, in which some sites' users have written a `:`.
const NAME: usize = 4;

/// The fields with the job's name as one of them, and that name with its colons. Behind it stand the job's number, a word
/// and numbers. A line where that fits at several places is refused: a name can be made to look like these fields.
fn with_one_name(mut row: Vec<&str>) -> Result<(Vec<&str>, String), Reason> {
    let is_number = |text: &&str| {
        let digits = text.trim_start_matches('-');
        // A number that overflows is one, too.
        let is_long = digits.len() > 18 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_long || value::decimal(digits, 0).is_some()
    };
    let is_word = |text: &&str| !is_number(text) && !matches!(*text, "" | "nan" | "-nan" | "inf");
    let fits = |name_ends: &usize| {
        let behind = row.get(name_ends + 1..name_ends + 7);
        behind.is_some_and(|behind| {
            is_number(&behind[0]) && is_word(&behind[1]) && behind[2..].iter().all(is_number)
        })
    };
    // So many fields more than the shortest line there are in the name at most.
    let more = row.len().saturating_sub(FIELDS_MIN);
    let ends: Vec<usize> = (NAME..=NAME + more).filter(fits).collect();
    if ends.len() > 1 {
        let problem = "the job's name holds what may be fields of a record";
        return Err(Reason::Shape(problem.to_owned()));
    }
    let end = ends.first().copied().unwrap_or(NAME);
    let name = row.get(NAME..=end).unwrap_or_default().join(":");
    if end > NAME {
        row.drain(NAME + 1..=end);
    }
    Ok((row, name))
}

impl GridEngineLine {
    /// A task of an array is a job of its own.
    fn key(&self, row: &[&str]) -> Result<JobKey, Reason> {
        let number = |field, text: &str| {
            let number: Option<u64> = text.parse().ok();
            number.ok_or_else(|| Reason::field(field, text, "a number"))
        };
        let job = number("job_number", row[5])?;
        let job = match number("task_number", row[35])? {
            0 => job.to_string(),
            task => format!("{job}.{task}"),
        };
        Ok(JobKey {
            cluster: self.0.cluster.clone(),
            job,
            instance: 0,
        })
    }
}

/// What follows the category. It is found by `pe_taskid`, which decides whether the record is a step's, and by as many
/// of the other fields as can be read. If one of them cannot be read, a step is refused: it may be a user's job.
fn behind<'a, 'b>(row: &'a [&'b str]) -> Result<&'a [&'b str], Reason> {
    let is_millis = |text: &&str| value::decimal(text, 0) >= Some(SECONDS_MAX);
    // A job that never ran has no other time than that of its submission.
    let ran = row[9..=10].iter().any(|time| *time != "0");
    let times = if ran { &row[9..=10] } else { &row[8..=8] };
    let is_own = |tail: &[&str]| given(tail[1]).is_none();
    if times.iter().any(is_millis) {
        // A `:` moves all of these. Of a length that is not known a step could be what a user has made of his job.
        let is_known = UNIVA_COUNTS.contains(&row.len());
        let tail = row.get(BEHIND..BEHIND + 6).filter(|tail| {
            unread(tail).is_some_and(|unread| is_own(tail) || unread == 0 && is_known)
        });
        return tail.ok_or_else(|| unknown(row));
    }
    let tails = BEHIND_COUNTS.iter().filter_map(|count| {
        let start = row.len().checked_sub(*count)?;
        let tail = row.get(start..).filter(|_| start >= BEHIND)?;
        Some((unread(tail)?, is_own(tail), tail))
    });
    // Their last fields are of different kinds, so if all can be read, no more than one fits. If two fit as badly, a
    // step's comes first, and the record is refused.
    let best = tails.min_by_key(|(unread, is_own, _)| (*unread, *is_own));
    let good = best.filter(|(unread, is_own, _)| *unread == 0 || *is_own);
    good.map(|(_, _, tail)| tail).ok_or_else(|| unknown(row))
}

/// How many of these cannot be read as `iow`, `maxvmem`, and, where there are as many, `arid`, `ar_sub_time` and a job
/// class. `None` if the second cannot be `pe_taskid`.
fn unread(tail: &[&str]) -> Option<usize> {
    let is_number = |text: &str| value::decimal(text, 0).is_some();
    let is_unread = |(place, text): &(usize, &&str)| match place {
        0 | 2 => !is_number(text),
        3 | 4 => text.parse::<u64>().is_err(),
        _ => is_number(text),
    };
    let unread = tail.iter().enumerate().filter(is_unread).count();
    (!is_number(tail[1])).then_some(unread)
}

fn unknown(row: &[&str]) -> Reason {
    let found = row.len();
    Reason::Shape(format!(
        "{found} fields, whose end is none that Grid Engine or Univa is known to write"
    ))
}

fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty() && *text != "NONE")
}

fn integer(field: &str, text: &str) -> Result<i64, Reason> {
    let number: Result<i32, _> = text.parse();
    number
        .map(i64::from)
        .map_err(|_| Reason::field(field, text, "a number"))
}

/// A time of a job that never started is 0.
fn moment(field: &str, text: &str) -> Result<Option<WallTime>, Reason> {
    let wrong = || Reason::field(field, text, "a time since the epoch");
    let number = value::decimal(text, 0).ok_or_else(wrong)?;
    Ok(match number {
        0 => None,
        1..SECONDS_MAX => Some(WallTime::from_unix_secs(number)),
        _ => Some(WallTime(number)),
    })
}

fn length(field: &str, text: &str) -> Result<Option<Millis>, Reason> {
    let millis = value::decimal(text, 3);
    let millis = millis.ok_or_else(|| Reason::field(field, text, "a number of seconds"))?;
    Ok(Some(Millis(millis)))
}
