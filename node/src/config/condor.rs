//! The table `[condor]` of the configuration: as it is written, and as it is valid.
//!
//! Deliberately not here: whether HTCondor is there, and what it says of itself.

use fairmesh_schedulers::condor::CondorSettings;

use crate::config::FileError;
use crate::config::schedulers::{Place, Table, raw_table};

raw_table! {
    /// `[condor]` as it is written.
    RawCondor of "condor" {
        config: String,
        history: String,
    }
}

/// `[condor]` as it is valid.
pub type CondorTable = Table<CondorSettings>;

/// Checks the table.
pub(crate) fn checked(place: Place<'_>, raw: &RawCondor) -> Result<CondorTable, FileError> {
    let why = "HTCondor orders a submitter's jobs by what he says himself (JobPrio)";
    raw.given().without_importance(place, why)?;
    raw.given().table(place, |system: &mut CondorSettings| {
        system.config = place.path(&raw.config);
        system.history = place.path(&raw.history);
    })
}
