//! LSF's `lsb.acct`: words by blanks, quoted as in CSV, in an order that counts decide.
//!
//! Invariant: only `JOB_FINISH` is a record. A quoted command may span lines; a line that begins a
//! new event ends one that was left open, so that one bad line never swallows the next.
//!
//! Source: IBM Spectrum LSF, "lsb.acct". Reading it streams: nothing is kept but the open record.

use std::collections::BTreeSet;

use fairmesh_model::{JobKey, Millis};

use crate::blocks::Gathered;
use crate::error::Reason;
use crate::fields;
use crate::format::Format;
use crate::parser::{Found, Ignored, Options, Parser};
use crate::record::{BatchRecord, Exit};
use crate::state::JobState;
use crate::value;
use crate::zone::Zone;

/// Words before the lists of hosts.
const FIXED_WORDS: usize = 22;

/// `jStatus` of a job that ended well.
const STATUS_DONE: u64 = 64;

pub(crate) struct LsfLines {
    options: Options,
    gathered: Gathered,
    quotes: usize,
}

impl LsfLines {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            gathered: Gathered::default(),
            quotes: 0,
        }
    }

    fn finish(&mut self, found: &mut Found) {
        let open = self.quotes % 2 == 1;
        self.quotes = 0;
        let (first, text) = self.gathered.take();
        let record = text.and_then(|text| {
            if open {
                return Err(Reason::Shape("a quotation mark is never closed".to_owned()));
            }
            record(text.trim_end_matches('\n'), &self.options)
        });
        match record {
            Ok(Ok(record)) => found.record(first, Ok(record)),
            Ok(Err(why)) => found.ignore(why),
            Err(reason) => found.record(first, Err(reason)),
        }
    }
}

impl Parser for LsfLines {
    fn line(&mut self, line: &str, number: u64, found: &mut Found) {
        if !self.gathered.is_empty() && begins_event(line) {
            self.finish(found);
            found.begin("");
        }
        if self.gathered.is_empty() && (line.trim().is_empty() || line.starts_with('#')) {
            return found.ignore(Ignored::Decoration);
        }
        self.quotes += line.matches('"').count();
        self.gathered.push(line, number);
        if self.quotes.is_multiple_of(2) {
            self.finish(found);
        }
    }

    fn end(&mut self, _number: u64, found: &mut Found) {
        if !self.gathered.is_empty() && !self.options.growing {
            self.finish(found);
        }
    }

    fn lost(&mut self) {
        self.gathered = Gathered::default();
        self.quotes = 0;
    }

    fn is_at_rest(&self) -> bool {
        self.gathered.is_empty()
    }
}

/// Whether a line begins like `"JOB_FINISH" "9.11"`.
pub(crate) fn begins_event(line: &str) -> bool {
    let name = line
        .strip_prefix('"')
        .and_then(|rest| rest.split_once("\" \""));
    name.is_some_and(|(name, version)| {
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        !name.is_empty()
            && name.chars().all(is_name)
            && version.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// Words in their order, each asked for by its name in the manual.
struct Words {
    all: Vec<String>,
    next: usize,
}

impl Words {
    fn word(&mut self, name: &str) -> Result<&str, Reason> {
        let word = self.all.get(self.next);
        self.next = self.next.saturating_add(1);
        word.map(String::as_str)
            .ok_or_else(|| Reason::missing(name))
    }

    fn number(&mut self, name: &str) -> Result<u64, Reason> {
        let word = self.word(name)?;
        value::decimal(word, 0).ok_or_else(|| Reason::field(name, word, "a number"))
    }

    /// A number that decides nothing: -1 and the like are none.
    fn if_number(&mut self, name: &str, record: &mut BatchRecord) -> Result<Option<u64>, Reason> {
        let word = self.word(name)?;
        let number = value::decimal(word, 0).ok_or_else(|| Reason::field(name, word, "a number"));
        Ok(record.if_read(number.map(Some)))
    }

    fn list(&mut self, name: &str) -> Result<Vec<String>, Reason> {
        let count = self.number(name)?;
        let end = usize::try_from(count)
            .ok()
            .and_then(|count| self.next.checked_add(count));
        let list = end.and_then(|end| self.all.get(self.next..end));
        let list = list.ok_or_else(|| Reason::missing(name))?.to_vec();
        self.next += list.len();
        Ok(list)
    }

    /// Counts are what the line says: behind one that no line has, no word is found.
    fn skip(&mut self, words: usize) {
        self.next = self.next.saturating_add(words);
    }
}

fn record(line: &str, options: &Options) -> Result<Result<BatchRecord, Ignored>, Reason> {
    if !begins_event(line) {
        return Err(Reason::Shape("not an event of LSF".to_owned()));
    }
    if !line.starts_with("\"JOB_FINISH\"") {
        return Ok(Err(Ignored::OtherEvent));
    }
    let mut words = Words {
        all: fields::words(line, b' ')?,
        next: 2,
    };
    let end = words.word("eventTime")?.to_owned();
    let job = words.number("jobId")?;
    let uid = words.word("userId")?.to_owned();
    words.skip(1);
    let asked = words.number("numProcessors")?;
    let key = JobKey {
        cluster: options.cluster.clone(),
        job: job.to_string(),
        instance: 0,
    };
    let mut record = BatchRecord::new(Format::Lsf, key, JobState::Completed);
    let utc = Zone::utc();
    record.uid = record.if_read(fields::number("userId", &uid));
    record.end = fields::time(&utc, "eventTime", &end, None)?;
    let submit = fields::time(&utc, "submitTime", words.word("submitTime")?, None);
    record.submit = record.if_read(submit);
    words.skip(2);
    record.start = fields::time(&utc, "startTime", words.word("startTime")?, None)?;
    record.origin.user = fields::name(words.word("userName")?);
    record.queue = fields::name(words.word("queue")?);
    words.next = FIXED_WORDS;
    words.list("numAskedHosts")?;
    let listed = words.list("numExHosts")?;
    record.cpus = Some(fields::narrow("numExHosts", slots(asked, &listed)?)?);
    hosts(&mut record, &listed);
    let done = words.number("jStatus")? & STATUS_DONE != 0;
    words.skip(1);
    record.name = fields::name(words.word("jobName")?);
    words.skip(1);
    usage(&mut record, &mut words)?;
    outcome(&mut record, &mut words, done)?;
    record.checked().map(Ok)
}

/// How many slots a job held: those of its execution hosts, `16*host` once or `host` as often as it has a slot there. In the
/// second form, in which some have nodes and not slots, it held at least what it asked for at least (`numProcessors`).
fn slots(asked: u64, listed: &[String]) -> Result<u64, Reason> {
    let times = |host: &String| match host.split_once('*') {
        None => Ok((1, false)),
        Some((times, _)) => {
            let times = times.parse::<u64>().map(|times| (times, true));
            times.map_err(|_| Reason::field("execHosts", host, "slots*host"))
        }
    };
    let counts = listed.iter().map(times).collect::<Result<Vec<_>, _>>()?;
    let sum = counts.iter().map(|(times, _)| times);
    let sum = sum.fold(0, |sum: u64, times| sum.saturating_add(*times));
    let is_of_slots = counts.iter().any(|(_, is_counted)| *is_counted);
    Ok(if is_of_slots { sum } else { sum.max(asked) })
}

/// `16*host` once, or `host` as often as it runs tasks.
fn hosts(record: &mut BatchRecord, list: &[String]) {
    let name = |host: &String| match host.split_once('*') {
        Some((_, name)) => name.to_owned(),
        None => host.clone(),
    };
    let mut seen = BTreeSet::new();
    let names: Vec<String> = list
        .iter()
        .map(name)
        .filter(|name| seen.insert(name.clone()))
        .collect();
    record.nodes = u32::try_from(names.len()).ok();
    record.hosts = fields::name(&names.join(","));
}

/// The `rusage` of the job, unknown where it is -1.
fn usage(record: &mut BatchRecord, words: &mut Words) -> Result<(), Reason> {
    let user = value::decimal(words.word("ru_utime")?, 3);
    let system = value::decimal(words.word("ru_stime")?, 3);
    if let (Some(user), Some(system)) = (user, system) {
        record.cpu_time = Some(Millis(user.saturating_add(system)));
    }
    words.skip(17);
    words.skip(1);
    record.origin.account = fields::name(words.word("projectName")?);
    Ok(())
}

fn outcome(record: &mut BatchRecord, words: &mut Words, done: bool) -> Result<(), Reason> {
    let status = words.if_number("exitStatus", record)?;
    words.skip(3);
    // Elements of an array have the job's id and their own index.
    let index = words.number("idx")?;
    if index > 0 {
        record.key.job = format!("{}[{index}]", record.key.job);
    }
    record.memory_peak_bytes = value::bytes(words.word("maxRMem")?, 1 << 10);
    words.skip(7);
    let why = words.number("exitInfo").unwrap_or(0);
    record.exit = status.map(|status| Exit {
        // As `wait` gives it: the code above the signal.
        code: i64::try_from(status >> 8).unwrap_or(-1),
        signal: u32::try_from(status & 0x7f).unwrap_or(0),
    });
    record.state = state(done, record.start.is_some(), why);
    record.requested_wall = run_limit(words);
    Ok(())
}

/// By `exitInfo`, LSF's reason for ending a job.
fn state(done: bool, started: bool, why: u64) -> JobState {
    match why {
        _ if done => JobState::Completed,
        _ if !started => JobState::Cancelled,
        1 => JobState::Preempted,
        5 | 12 => JobState::Timeout,
        6 => JobState::Deadline,
        8 | 9 | 14 | 15 => JobState::Cancelled,
        10 | 11 => JobState::Requeued,
        16 => JobState::OutOfMemory,
        _ => JobState::Failed,
    }
}

/// The run limit stands behind lists of variable length, in newer versions only.
fn run_limit(words: &mut Words) -> Option<Millis> {
    words.skip(14);
    let pairs = words.number("submitExtNum").ok()?;
    words.skip(usize::try_from(pairs.checked_mul(2)?).ok()?);
    let hosts = words.number("numHostRusage").ok()?;
    for _ in 0..hosts {
        words.skip(5);
        let more = words.number("hHostExtendNum").ok()?;
        words.skip(usize::try_from(more.checked_mul(2)?).ok()?);
    }
    let seconds = words.number("runLimit").ok()?;
    (seconds > 0).then(|| Millis::from_secs(seconds))
}
