//! Jobs of a log in the Standard Workload Format, as records.
//!
//! Invariant: users are `u7` and groups `g3`, as the archive anonymised them; a column that is -1 is
//! not known; times count from the header's `UnixStartTime`, or from what the user gave where the header
//! has none, and a log with neither is refused as a whole. A job that was checkpointed has a line for each burst beside
//! the one that sums it up: bursts are passed over. Deliberately not here: reading lines (`fairmesh-cluster`).
//!
//! Source: the definition of the format at the Parallel Workloads Archive, "Status".

use std::cell::Cell;
use std::io::BufRead;
use std::rc::Rc;

use fairmesh_cluster::{SwfError, SwfErrorKind, SwfReader, SwfRecord};
use fairmesh_model::{JobKey, Millis, Origin, WallTime};
use fairmesh_node::config::quantity::parse_moment;
use fairmesh_records::{BatchRecord, Format, JobState};

use super::arc::entry;
use super::item::{Bad, Item};

/// All jobs of a log; `start_s_given` holds where the header has no start. With `keeps_all` they have their texts.
/// Lines that are passed over are counted.
pub(super) fn all_jobs(
    input: impl BufRead,
    cluster: String,
    start_s_given: Option<u64>,
    keeps_all: bool,
    passed_over: Rc<Cell<u64>>,
) -> impl Iterator<Item = Item> {
    let mut reader = SwfReader::new(input);
    std::iter::from_fn(move || {
        let job = reader.next();
        passed_over.set(reader.parts_skipped());
        let job = job?;
        let bad = |why: String, is_end: bool| {
            let text = reader.last_line().to_vec();
            Bad { why, text, is_end }
        };
        Some(match job {
            Ok(job) => {
                let log_start_s = reader.header().unix_start_s.or(start_s_given);
                let record = convert(&job, log_start_s, &cluster);
                let mut job = record.map(entry).map_err(|why| bad(why, false));
                if let Some(job) = job.as_mut().ok().filter(|_| keeps_all) {
                    job.text = reader.last_line().to_vec();
                }
                (reader.line_number(), job)
            }
            Err(SwfError { line, kind }) => {
                let is_end = matches!(kind, SwfErrorKind::Input(_));
                (line, Err(bad(kind.to_string(), is_end)))
            }
        })
    })
}

/// The start that the header of a log states; `None` where the beginning does not have all of the header.
pub(super) fn start_of(beginning: &[u8]) -> Option<Option<u64>> {
    let mut reader = SwfReader::new(beginning);
    let found = reader.by_ref().any(|job| job.is_ok());
    found.then(|| reader.header().unix_start_s)
}

/// `--unix-start`: seconds since 1970, or a moment.
pub(super) fn start_s(text: &str) -> Result<u64, String> {
    let moment = || parse_moment(text).map(|moment| moment.0 / 1_000);
    let seconds = text.trim().parse().ok().or_else(moment);
    seconds.ok_or_else(|| {
        "neither seconds since 1970 nor a moment such as 2009-01-01T00:00:00Z".to_owned()
    })
}

fn convert(
    job: &SwfRecord,
    log_start_s: Option<u64>,
    cluster: &str,
) -> Result<BatchRecord, String> {
    let log_start_s = log_start_s.ok_or("the log's header has no UnixStartTime")?;
    let at = |seconds: u64| WallTime::from_unix_secs(log_start_s.saturating_add(seconds));
    let key = JobKey {
        cluster: cluster.to_owned(),
        job: job.job.to_string(),
        instance: log_start_s.saturating_add(job.submit_s),
    };
    let state = match job.status {
        Some(0) => JobState::Failed,
        Some(5) => JobState::Cancelled,
        _ => JobState::Completed,
    };
    let mut record = BatchRecord::new(Format::Json, key, state);
    record.origin = Origin {
        user: job.user.map(|user| format!("u{user}")),
        group: job.group.map(|group| format!("g{group}")),
        ..Origin::default()
    };
    let cores = job.cores();
    let count =
        |cores: u64| u32::try_from(cores).map_err(|_| format!("{cores} processors are too many"));
    record.cpus = cores.map(count).transpose()?;
    record.submit = Some(at(job.submit_s));
    if let Some(end_s) = job.end_s() {
        record.start = Some(at(job.start_s()));
        record.end = Some(at(end_s));
    }
    let memory_kb = job.memory_kb.zip(cores);
    record.memory_mib = memory_kb.map(|(kb, cores)| kb.saturating_mul(cores) / 1_024);
    record.cpu_time = job
        .cpu_mean_ms
        .zip(cores)
        .map(|(ms, cores)| Millis(ms.saturating_mul(cores)));
    record.requested_wall = job.requested_s.map(Millis::from_secs);
    record.queue = job.queue.map(|queue| format!("q{queue}"));
    Ok(record)
}
