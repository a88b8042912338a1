//! Job records on their way out of the site, in the formats that Grids take.
//!
//! Invariant: a record that a format has no words for is left out, counted and told with its reason,
//! never bent to fit. Deliberately not here: sending, and the formats (`fairmesh-records`).

use std::collections::BTreeMap;
use std::io::Write;

use fairmesh_model::{Millis, clean};
use fairmesh_records::export::{
    ApelSite, Gap, Summaries, USAGE_RECORDS_CLOSE, USAGE_RECORDS_OPEN, apel_job, apel_job_header,
    auditor_record, usage_record,
};
use fairmesh_records::{BatchRecord, Job};

use fairmesh_api::words::count;
use fairmesh_node::driver::wall_now;

/// Gaps that are told one by one.
const TOLD_MAX: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Usage Records of the Open Grid Forum, as XML.
    Ogf,
    /// AUDITOR's records, one a line.
    Auditor,
    /// APEL's messages of single jobs.
    Apel,
    /// APEL's summaries by month.
    ApelSummary,
}

/// Writes the records; says how many were left out. With `cpu_held`, APEL's CPU time is that which a
/// job held where none is known that it used.
///
/// # Errors
/// If they cannot be written.
pub(super) fn write(
    out: &mut dyn Write,
    form: Form,
    site: &ApelSite,
    cpu_held: bool,
    records: impl Iterator<Item = BatchRecord>,
) -> anyhow::Result<u64> {
    let mut gaps = Gaps::default();
    // What was cancelled while it waited used nothing, and is no job of APEL's.
    let ran = |record: &BatchRecord| !Job::of(record, None).never_ran();
    let for_apel = |record| if cpu_held { with_cpu(record) } else { record };
    match form {
        Form::Ogf => {
            let created = wall_now();
            out.write_all(USAGE_RECORDS_OPEN.as_bytes())?;
            for record in records {
                gaps.or_write(out, usage_record(&record, created))?;
            }
            out.write_all(USAGE_RECORDS_CLOSE.as_bytes())?;
        }
        Form::Auditor => {
            for record in records.filter(ran) {
                gaps.or_write(out, auditor_record(&record, site))?;
            }
        }
        Form::Apel => {
            out.write_all(apel_job_header().as_bytes())?;
            for record in records.filter(ran).map(for_apel) {
                gaps.or_write(out, apel_job(&record, site))?;
            }
        }
        Form::ApelSummary => {
            let mut summaries = Summaries::default();
            for record in records.filter(ran).map(for_apel) {
                gaps.or_write(out, summaries.add(&record).map(|()| String::new()))?;
            }
            out.write_all(summaries.message(site).as_bytes())?;
        }
    }
    Ok(gaps.tell())
}

/// CPUs times the time for which they were held, in place of what is not known: what APEL's own reader
/// of Slurm takes (`CPUTimeRAW`).
fn with_cpu(mut record: BatchRecord) -> BatchRecord {
    let held = record.held().or(record.wall).zip(record.cpus);
    let held = held.map(|(held, cpus)| Millis(held.0.saturating_mul(u64::from(cpus))));
    record.cpu_time = record.cpu_time.or(held);
    record
}

/// What could not be told, by why.
#[derive(Default)]
struct Gaps {
    written: u64,
    count: u64,
    first: Vec<String>,
    kinds: BTreeMap<&'static str, u64>,
}

impl Gaps {
    fn or_write(&mut self, out: &mut dyn Write, text: Result<String, Gap>) -> std::io::Result<()> {
        let gap = match text {
            Ok(text) => {
                self.written += 1;
                return out.write_all(text.as_bytes());
            }
            Err(gap) => gap,
        };
        self.count += 1;
        let kind = match &gap {
            Gap::Missing {
                field: "CpuDuration",
                ..
            } => "no CPU time used (CpuDuration; see --cpu-held)",
            Gap::Missing { field, .. } => field,
            Gap::NotEnded(_) => "not ended",
            Gap::Time { .. } => "no time of the calendar",
            Gap::TooMany => "too many rows",
        };
        *self.kinds.entry(kind).or_default() += 1;
        if self.first.len() < TOLD_MAX {
            self.first.push(clean(&gap.to_string()));
        }
        Ok(())
    }

    fn tell(&self) -> u64 {
        if self.count > 0 {
            let kinds = self
                .kinds
                .iter()
                .map(|(kind, count)| format!("{kind}: {count}"));
            let kinds = kinds.collect::<Vec<_>>().join(", ");
            let all = count(self.written + self.count, "job");
            note!("fairmesh: left out {} of {all}: {kinds}", self.count);
            for gap in &self.first {
                note!("fairmesh: {gap}");
            }
        }
        self.count
    }
}
