//! Jobs of a log in the Standard Workload Format, as records.
//!
//! Invariant: users are `u7` and groups `g3`, as the archive anonymised them; a column that is -1 is
//! not known. Deliberately not here: reading lines (`fairmesh-cluster`).

use std::io::BufRead;

use fairmesh_cluster::{SwfError, SwfReader, SwfRecord};
use fairmesh_model::{JobKey, Millis, Origin, WallTime};
use fairmesh_records::{BatchRecord, Format, JobState};

use super::source::{Entry, Item};

pub(super) struct SwfJobs<R> {
    reader: SwfReader<R>,
    cluster: String,
}

impl<R: BufRead> SwfJobs<R> {
    pub(super) fn new(input: R, cluster: String) -> Self {
        Self {
            reader: SwfReader::new(input),
            cluster,
        }
    }
}

impl<R: BufRead> Iterator for SwfJobs<R> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let job = self.reader.next()?;
        let text = || self.reader.last_line().to_vec();
        Some(match job {
            Ok(job) => {
                let log_start_s = self.reader.header().unix_start_s;
                let record = convert(&job, log_start_s, &self.cluster);
                let usage = None;
                let entry = record.map(|record| Box::new(Entry { record, usage }));
                let number = self.reader.line_number();
                (number, entry.map_err(|why| (why, text())))
            }
            Err(SwfError { line, kind }) => (line, Err((kind.to_string(), text()))),
        })
    }
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
