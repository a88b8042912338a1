//! Records as others want them: OGF Usage Records, APEL's individual-job and summary messages, AUDITOR's records.
//!
//! Invariant: what is written reads back as the record that it was made of, as far as the format has
//! a place for it; a field that a format demands and the record lacks is a [`Gap`], never a guess; and
//! no name can break out of its place (markup is escaped, line ends become spaces).
//!
//! Deliberately not here: sending, signing, and which jobs are whose. Charges are no part of either
//! format: what is told is what was used.
//! Source: OGF GFD.98, Usage Record format 1.0; APEL's message formats, jobs v0.3 and summaries v0.2.

mod apel;
mod auditor;
mod ogf;
mod summary;

use fairmesh_model::{Millis, WallTime};

pub use apel::{ApelSite, apel_job, apel_job_header};
pub use auditor::auditor_record;
pub use ogf::{USAGE_RECORDS_CLOSE, USAGE_RECORDS_OPEN, usage_record};
pub use summary::{SUMMARIES_MAX, Summaries, Summary, SummaryKey};

pub(crate) use auditor::{AUDITOR_KEY, from_auditor};

/// Why a record cannot be told in a format. Nothing was written; the record is incomplete for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Gap {
    /// The format demands a field that the record lacks.
    #[error("job `{job}`: the format demands {field}, which its record does not have")]
    Missing {
        /// The job's id in the batch system.
        job: String,
        /// Name of the missing field in the target format.
        field: &'static str,
    },
    /// The format knows ended jobs only.
    #[error("job `{0}` has not ended")]
    NotEnded(String),
    /// A time that no calendar has.
    #[error("job `{job}`: {field} is beyond the year 9999")]
    Time {
        /// The job's id in the batch system.
        job: String,
        /// Name of the field in the target format.
        field: &'static str,
    },
    /// More rows than [`SUMMARIES_MAX`].
    #[error("more than {SUMMARIES_MAX} rows of one summary (SUMMARIES_MAX): send it by parts")]
    TooMany,
}

/// Text that stays on its line and in its place: control characters become spaces.
fn on_one_line(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(clean).collect()
}

/// Whole seconds, rounded down, as APEL has them.
const fn seconds(length: Millis) -> u64 {
    length.0 / 1_000
}

const fn unix_seconds(moment: WallTime) -> u64 {
    moment.0 / 1_000
}
