//! Which format the beginning of a file is in.
//!
//! Invariant: an answer rests on something that only this format has: a header, a key that the
//! format always writes, or the whole shape of a line. Comments and blank lines are passed over, and so are lines before
//! the first one that fits: half a line of a log that was rotated, a warning of the program that made a list.
//!
//! `sacct` without its header line cannot be told from other lists by `|`, and is not.

use crate::format::{DETECT_BYTES_MAX, Format};
use crate::{apel, lsf, slurm};

impl Format {
    /// The format of a file that begins (uncompressed) with these bytes, if it is plain to see.
    pub fn detect(beginning: &[u8]) -> Option<Self> {
        let beginning = &beginning[..beginning.len().min(DETECT_BYTES_MAX)];
        let text = String::from_utf8_lossy(beginning);
        let text = text.trim_start_matches(['\u{feff}', '\0']).trim_start();
        if text.starts_with('<') {
            let tags = ["JobUsageRecord", "UsageRecord", "UsageRecords"];
            let has = |tag: &&str| {
                text.match_indices(*tag)
                    .any(|(at, _)| text[..at].ends_with(['<', ':']))
            };
            let is_ads = text.contains("<classads>") || text.contains("<a n=\"");
            let ads = is_ads.then_some(Self::HtcondorXml);
            let ogf = tags.iter().any(has).then_some(Self::OgfUsageRecord);
            return ogf.filter(|_| !is_ads).or(ads);
        }
        if text.starts_with(['{', '[']) {
            return of_objects(text);
        }
        if slurm::begins_list(text) || text.starts_with(slurm::NO_JOBS) {
            return Some(Self::SlurmScontrol);
        }
        let bare = |line: &&str| !line.trim().is_empty() && !line.starts_with(['#', ';', '-']);
        let lines = || {
            text.lines()
                .map(|line| line.trim_start_matches('\0'))
                .filter(bare)
        };
        let first = lines().next()?;
        of_line(first)
            .or_else(|| of_block(first, &text.lines().collect::<Vec<_>>()))
            .or_else(|| lines().skip(1).find_map(of_line))
    }
}

/// Keys that only the objects of a format have all.
const OBJECTS: [(Format, &[&str]); 12] = [
    (Format::SlurmSacctJson, &["job_id", "submission"]),
    (Format::SlurmSacctJson, &["jobs", "association"]),
    (
        Format::SlurmJobcompJson,
        &["jobid", "username", "total_cpus"],
    ),
    (Format::Flux, &["t_submit", "ncores"]),
    (Format::Flux, &["t_submit", "t_depend"]),
    (
        Format::ClusterCockpit,
        &["jobId", "startTime", "numHwthreads"],
    ),
    (Format::Auditor, &["record_id", "components", "start_time"]),
    (Format::GridEngine, &["job_number", "task_number", "qname"]),
    (Format::HtcondorJson, &["ClusterId"]),
    (Format::HtcondorJson, &["ProcId"]),
    (Format::HtcondorJson, &["GlobalJobId"]),
    (Format::Json, &["cluster", "job"]),
];

fn of_objects(text: &str) -> Option<Format> {
    let has = |key: &&str| {
        let quoted = format!("\"{key}\"");
        let mut places = text.match_indices(&quoted);
        places.any(|(at, _)| text[at + quoted.len()..].trim_start().starts_with(':'))
    };
    let fits = |(format, keys): &&(Format, &[&str])| {
        keys.iter().all(has) && (*format != Format::Json || text.starts_with('{'))
    };
    let found = OBJECTS.iter().find(fits).map(|(format, _)| *format);
    // A list that is empty, by what the document says of its source.
    let is_sacct =
        || has(&"jobs") && (text.contains("\"openapi/dbv0.0.") || text.contains("\"sacct\""));
    found.or_else(|| is_sacct().then_some(Format::SlurmSacctJson))
}

fn of_line(line: &str) -> Option<Format> {
    if line.starts_with(apel::HEADER) {
        return Some(Format::ApelJob);
    }
    if lsf::begins_event(line) {
        return Some(Format::Lsf);
    }
    if line.starts_with("JobId=") && line.contains(" UserId=") && line.contains(" EndTime=") {
        return Some(Format::SlurmJobcomp);
    }
    if slurm::begins_sacct(line) {
        return Some(Format::SlurmSacct);
    }
    of_pbs(line).or_else(|| of_bars(line)).or_else(|| {
        let fields: Vec<&str> = line.split(':').collect();
        let numbers = [5, 7, 8, 9, 10, 11, 12];
        let is_number = |at: &usize| {
            let field = fields.get(*at).copied().unwrap_or_default();
            !field.is_empty() && field.parse::<i64>().is_ok()
        };
        (fields.len() >= 43 && numbers.iter().all(is_number)).then_some(Format::GridEngine)
    })
}

/// `12/21/2024 17:58:09;Q;…;`, perhaps with a file's name before it.
fn of_pbs(line: &str) -> Option<Format> {
    let mut parts = line.splitn(4, ';');
    let (time, event) = (parts.next()?, parts.next()?);
    parts.next()?;
    let time = time.as_bytes();
    let time = time.get(time.len().checked_sub(19)?..)?;
    let shape = b"00/00/0000 00:00:00";
    let fits = time.iter().zip(shape).all(|(byte, like)| match like {
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    });
    (fits && (1..=2).contains(&event.len())).then_some(Format::Pbs)
}

fn of_bars(line: &str) -> Option<Format> {
    let fields: Vec<&str> = line.trim_end().split('|').collect();
    let number = |at: usize| {
        let field = fields.get(at).copied().unwrap_or_default();
        crate::value::decimal(field, 0)
    };
    let fields_only = matches!(fields.len(), 10 | 11)
        && (2..10).all(|at| number(at).is_some())
        && number(5) <= number(6);
    if fields_only {
        return Some(Format::HtcondorFields);
    }
    let is_state = |text: &&str| crate::JobState::parse(text).is_some();
    let squeue = fields.len() >= 20 && number(0).is_some() && number(6).is_some();
    (squeue && fields.get(5).is_some_and(is_state)).then_some(Format::SlurmSqueue)
}

fn of_block(first: &str, block: &[&str]) -> Option<Format> {
    let starts = |prefix: &str| block.iter().any(|line| line.starts_with(prefix));
    if starts("JOBID=") && starts("JOBSTATE=") {
        return Some(Format::SlurmScript);
    }
    let is_pair = first.split_once(" = ").is_some();
    if (is_pair || first.starts_with("*** ")) && starts("ClusterId = ") && starts("ProcId = ") {
        return Some(Format::HtcondorAds);
    }
    if starts("LocalJobId:") && starts("EndTime:") {
        return Some(Format::ApelJob);
    }
    None
}
