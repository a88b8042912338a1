//! APEL's summary messages, v0.2: jobs by month, user, VO, host and size.
//!
//! Invariant: a summary's sums are the sums of what the job messages of its jobs would say, in whole
//! seconds; a job counts in the month in which it ended, UTC; rows come in the order of their keys.
//! Deliberately not here: whether a job was counted before. The caller feeds each job once.

use std::collections::BTreeMap;

use jiff::{Timestamp, tz::TimeZone};

use super::apel::{Block, Told};
use super::{ApelSite, Gap};
use crate::blah::vo_of;
use crate::error::{Reason, quoted};
use crate::fields::{self, given};
use crate::lines::RECORD_BYTES_MAX;
use crate::record::BatchRecord;

/// The first line of a message.
const HEADER: &str = "APEL-summary-job-message";

/// Most rows of one summary: bounds what a month's log can make it hold, and the message, which is
/// about 400 bytes a row. The largest sites send some thousands a month.
pub const SUMMARIES_MAX: usize = 100_000;

/// What the jobs of one row have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SummaryKey {
    /// Year in which they ended.
    pub year: i16,
    /// Month in which they ended, from 1.
    pub month: i8,
    /// Grid identity.
    pub subject: Option<String>,
    /// Virtual organisation.
    pub vo: Option<String>,
    /// Its group.
    pub vo_group: Option<String>,
    /// The role.
    pub vo_role: Option<String>,
    /// Name of the cluster that ran the jobs.
    pub cluster: String,
    /// Nodes of each job, where the log says.
    pub nodes: Option<u32>,
    /// CPUs of each job, where the log says.
    pub cpus: Option<u32>,
}

/// The sums of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The first end, seconds since 1970.
    pub earliest_end_s: u64,
    /// The last end, seconds since 1970.
    pub latest_end_s: u64,
    /// Wall-clock seconds.
    pub wall_s: u64,
    /// CPU seconds.
    pub cpu_s: u64,
    /// Jobs.
    pub jobs: u64,
}

/// Rows of a summary.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summaries {
    rows: BTreeMap<SummaryKey, Summary>,
}

impl Summaries {
    /// Counts a job that has ended.
    ///
    /// # Errors
    /// As of a job message, and [`Gap::TooMany`]; then nothing is counted.
    pub fn add(&mut self, record: &BatchRecord) -> Result<(), Gap> {
        let told = Told::of(record)?;
        let key = key(record, told.end_s)?;
        let one = Summary {
            earliest_end_s: told.end_s,
            latest_end_s: told.end_s,
            wall_s: told.wall_s,
            cpu_s: told.cpu_s,
            jobs: 1,
        };
        self.join(key, one)
    }

    /// The rows, in the order of their keys.
    pub fn rows(&self) -> impl Iterator<Item = (&SummaryKey, &Summary)> {
        self.rows.iter()
    }

    /// The APEL summary message as text.
    pub fn message(&self, site: &ApelSite) -> String {
        let mut message = format!("{HEADER}: v0.2\n");
        for (key, sum) in &self.rows {
            let mut block = Block::default();
            block.some("Site", Some(&site.name));
            block.some("Month", Some(key.month));
            block.some("Year", Some(key.year));
            block.some("GlobalUserName", key.subject.as_ref());
            block.some("VO", key.vo.as_ref());
            block.some("VOGroup", key.vo_group.as_ref());
            block.some("VORole", key.vo_role.as_ref());
            block.some("SubmitHost", Some(&key.cluster));
            block.some("InfrastructureType", Some(&site.infrastructure));
            block.some("NodeCount", key.nodes);
            block.some("Processors", key.cpus);
            block.some("EarliestEndTime", Some(sum.earliest_end_s));
            block.some("LatestEndTime", Some(sum.latest_end_s));
            block.some("WallDuration", Some(sum.wall_s));
            block.some("CpuDuration", Some(sum.cpu_s));
            block.some("NumberOfJobs", Some(sum.jobs));
            message.push_str(&block.end());
        }
        message
    }

    /// Reads a message; rows of one key are added up.
    ///
    /// # Errors
    /// The first row that is none, by what is wrong with it.
    pub fn parse(message: &str) -> Result<Self, Reason> {
        let mut read = Self::default();
        let mut pairs = BTreeMap::new();
        for line in message.lines().map(str::trim) {
            if line.len() > RECORD_BYTES_MAX {
                return Err(Reason::TooLong);
            }
            if line.starts_with("%%") {
                read.take_row(&mut pairs)?;
            } else if !line.is_empty() && !line.starts_with(HEADER) {
                let wrong = || Reason::Shape(format!("`{}` has no `:`", quoted(line)));
                let (key, value) = line.split_once(':').ok_or_else(wrong)?;
                pairs.insert(key.trim(), value.trim());
            }
        }
        read.take_row(&mut pairs)?;
        Ok(read)
    }

    fn take_row(&mut self, pairs: &mut BTreeMap<&str, &str>) -> Result<(), Reason> {
        if pairs.is_empty() {
            return Ok(());
        }
        let (key, sum) = row(&std::mem::take(pairs))?;
        let too_many = |gap: Gap| Reason::Shape(gap.to_string());
        self.join(key, sum).map_err(too_many)
    }

    fn join(&mut self, key: SummaryKey, more: Summary) -> Result<(), Gap> {
        if self.rows.len() >= SUMMARIES_MAX && !self.rows.contains_key(&key) {
            return Err(Gap::TooMany);
        }
        let row = self.rows.entry(key).or_insert(Summary {
            wall_s: 0,
            cpu_s: 0,
            jobs: 0,
            ..more
        });
        *row = Summary {
            earliest_end_s: row.earliest_end_s.min(more.earliest_end_s),
            latest_end_s: row.latest_end_s.max(more.latest_end_s),
            wall_s: row.wall_s.saturating_add(more.wall_s),
            cpu_s: row.cpu_s.saturating_add(more.cpu_s),
            jobs: row.jobs.saturating_add(more.jobs),
        };
        Ok(())
    }
}

fn key(record: &BatchRecord, end_s: u64) -> Result<SummaryKey, Gap> {
    let end = i64::try_from(end_s).ok();
    let end = end.and_then(|end| Timestamp::from_second(end).ok());
    let end = end.ok_or_else(|| Gap::Time {
        job: record.key.job.clone(),
        field: "EndTime",
    })?;
    let date = end.to_zoned(TimeZone::UTC);
    let vo = record.fqans.first().and_then(|fqan| vo_of(fqan));
    let owned = |text: &str| text.to_owned();
    Ok(SummaryKey {
        year: date.year(),
        month: date.month(),
        subject: record.origin.subject.clone(),
        vo: vo.map(|(vo, _, _)| owned(vo)),
        vo_group: vo.map(|(_, group, _)| owned(group)),
        vo_role: vo.and_then(|(_, _, role)| role).map(owned),
        cluster: record.key.cluster.clone(),
        nodes: record.nodes,
        cpus: record.cpus,
    })
}

fn row(pairs: &BTreeMap<&str, &str>) -> Result<(SummaryKey, Summary), Reason> {
    let get = |key: &str| pairs.get(key).copied().unwrap_or_default();
    let name = |key: &str| given(get(key)).map(str::to_owned);
    let must = |key: &'static str| -> Result<u64, Reason> {
        fields::number(key, get(key))?.ok_or_else(|| Reason::missing(key))
    };
    let year = must("Year")?;
    let month = must("Month")?;
    let date = |field: &'static str, number: u64| {
        Reason::field(field, &number.to_string(), "a year and a month")
    };
    let key = SummaryKey {
        year: i16::try_from(year).map_err(|_| date("Year", year))?,
        month: i8::try_from(month)
            .ok()
            .filter(|month| (1..=12).contains(month))
            .ok_or_else(|| date("Month", month))?,
        subject: name("GlobalUserName"),
        vo: name("VO"),
        vo_group: name("VOGroup"),
        vo_role: name("VORole"),
        cluster: name("SubmitHost").unwrap_or_default(),
        nodes: fields::count("NodeCount", get("NodeCount"))?,
        cpus: fields::count("Processors", get("Processors"))?,
    };
    let sum = Summary {
        earliest_end_s: must("EarliestEndTime")?,
        latest_end_s: must("LatestEndTime")?,
        wall_s: must("WallDuration")?,
        cpu_s: must("CpuDuration")?,
        jobs: must("NumberOfJobs")?,
    };
    Ok((key, sum))
}
