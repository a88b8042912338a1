//! The wall clock of the authority's machine: the one place where its commands read it.
//!
//! Deliberately not here: any decision; a draft shows the moment before anyone signs it.

use fairmesh_model::WallTime;

/// Now, in whole seconds, which read better in drafts.
pub(crate) fn now() -> WallTime {
    let seconds = jiff::Timestamp::now().as_second();
    WallTime::from_unix_secs(u64::try_from(seconds).unwrap_or(0))
}
