//! Jobs that were taken back, and usage that moved to other accounts, as rows of the store keep them.

use fairmesh_model::{
    AccountPath, Counters, Incarnation, JobKey, Span, UsageRecord, VoId, WallTime,
};
use serde::{Deserialize, Serialize};

use crate::charge::{Rules, charge, spread};
use crate::config::Charging;
use crate::store::JobMark;

/// Longest word on who takes back, and on why: bounds what an entry takes.
const BY_BYTES_MAX: usize = 128;
const WHY_BYTES_MAX: usize = 512;

/// Largest row of a correction: a record of the most properties and chunks, with the longest names, has 200 KB.
pub(crate) const REFUND_BYTES_MAX: usize = 512 << 10;

/// A job that was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refund {
    /// The job that was taken back.
    #[serde(rename = "j")]
    pub job: JobKey,
    /// The VO that was charged; `None` for the site's own accounts.
    #[serde(rename = "v")]
    pub vo: Option<VoId>,
    /// The account that was charged.
    #[serde(rename = "p")]
    pub path: AccountPath,
    /// What was taken back, core-milliseconds.
    #[serde(rename = "c")]
    pub charge: u64,
    /// The incarnation of this site that did it.
    #[serde(rename = "i")]
    pub incarnation: Incarnation,
    /// When, by this site's clock.
    #[serde(rename = "a")]
    pub at: WallTime,
    /// The user of the site who did it, by name.
    #[serde(rename = "b")]
    pub by: String,
    /// The user's reason, as it was given.
    #[serde(rename = "w")]
    pub why: String,
    /// The record that was taken back, which counts no more; `None` in corrections of earlier releases.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Box<UsageRecord>>,
    /// Until when the job was charged then: an instalment may have gone further than its last record.
    #[serde(rename = "u", default, skip_serializing_if = "Option::is_none")]
    pub until: Option<WallTime>,
}

/// Usage that moved between two accounts in one change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relocation {
    /// The VO that was credited; `None` for the site's own accounts.
    #[serde(rename = "v")]
    pub from_vo: Option<VoId>,
    /// The account that was credited.
    #[serde(rename = "p")]
    pub from: AccountPath,
    /// The VO that was charged.
    #[serde(rename = "u")]
    pub to_vo: Option<VoId>,
    /// The account that was charged.
    #[serde(rename = "q")]
    pub to: AccountPath,
    /// Number of jobs whose usage moved.
    #[serde(rename = "j")]
    pub jobs: u64,
    /// What was credited, core-milliseconds.
    #[serde(rename = "c")]
    pub credit: u64,
    /// What was charged, core-milliseconds.
    #[serde(rename = "d")]
    pub charge: u64,
    /// The incarnation of this site that did it.
    #[serde(rename = "i")]
    pub incarnation: Incarnation,
    /// When, by this site's clock.
    #[serde(rename = "a")]
    pub at: WallTime,
    /// The user of the site who did it, by name.
    #[serde(rename = "b")]
    pub by: String,
    /// The user's reason, as it was given.
    #[serde(rename = "w")]
    pub why: String,
}

/// What the key of such a row begins with. Those of corrections are longer: hashes of jobs.
pub(crate) const MOVED_PREFIX: &[u8] = b"moved";

/// Whether a row of the audit is of usage that moved.
pub(crate) fn is_relocation(key: &[u8]) -> bool {
    key.len() == MOVED_PREFIX.len() + 8 + 8 + 4 && key.starts_with(MOVED_PREFIX)
}

/// In which spans how much of a job was charged. As the rules in force say it, if they come to what
/// was charged; spread evenly over its time if they have changed since.
pub(crate) fn parts_of(
    (record, mark): (&UsageRecord, JobMark),
    rules: &Rules,
    charging: &Charging,
) -> Vec<(Span, Counters)> {
    // What was too old to count when it was reported is in the mark, too; and where the clock went back
    // since, nothing of it was ahead then.
    let whole = Rules {
        horizon: WallTime(0),
        latest: WallTime(u64::MAX),
        ..*rules
    };
    let charged = charge(&as_charged(record, mark), None, &whole, charging);
    let charged = charged.ok().flatten();
    match charged.filter(|charged| charged.mark.charge == mark.charge) {
        Some(charged) => charged.parts,
        None => {
            let charge = Counters {
                charge: mark.charge,
                ..Counters::default()
            };
            spread((record.start, mark.charged_until), charge, &whole)
        }
    }
}

/// The record of a job that ran until its mark says.
pub(crate) fn as_charged(record: &UsageRecord, mark: JobMark) -> UsageRecord {
    UsageRecord {
        running: false,
        end: mark.charged_until,
        ..record.clone()
    }
}

/// Why a correction is none, whatever the jobs.
pub(crate) fn lacks_words((by, why): (&str, &str)) -> Option<String> {
    let bad = |text: &str, most: usize| text.trim().is_empty() || text.len() > most;
    if bad(by, BY_BYTES_MAX) {
        return Some(format!(
            "say who takes the job back, in at most {BY_BYTES_MAX} bytes"
        ));
    }
    bad(why, WHY_BYTES_MAX)
        .then(|| format!("say why the job is taken back, in at most {WHY_BYTES_MAX} bytes"))
}
