//! The table `[lsf]` of the configuration: as it is written, and as it is valid.
//!
//! Deliberately not here: whether LSF is there, and what it says of itself.

use fairmesh_schedulers::lsf::LsfSettings;

use crate::config::FileError;
use crate::config::schedulers::{Place, Table, raw_table};

raw_table! {
    /// `[lsf]` as it is written.
    RawLsf of "lsf" {
        envdir: String,
        accounting: String,
    }
}

/// `[lsf]` as it is valid.
pub type LsfTable = Table<LsfSettings>;

/// Checks the table.
pub(crate) fn checked(place: Place<'_>, raw: &RawLsf) -> Result<LsfTable, FileError> {
    let given = raw.given();
    given.without_importance(place, "LSF serves one user's jobs by their age here")?;
    given.table(place, |system: &mut LsfSettings| {
        system.envdir = place.path(&raw.envdir);
        if let Some(file) = place.path(&raw.accounting) {
            system.accounting = file;
        }
    })
}
