//! The table `[gridengine]` of the configuration: as it is written, and as it is valid.
//!
//! Deliberately not here: whether Grid Engine is there, and what it says of itself.

use fairmesh_schedulers::gridengine::GridEngineSettings;

use crate::config::FileError;
use crate::config::schedulers::{Place, Table, raw_table};

raw_table! {
    /// `[gridengine]` as it is written.
    RawGridEngine of "gridengine" {
        root: String,
        cell: String,
    }
}

/// `[gridengine]` as it is valid.
pub type GridEngineTable = Table<GridEngineSettings>;

/// Checks the table.
pub(crate) fn checked(place: Place<'_>, raw: &RawGridEngine) -> Result<GridEngineTable, FileError> {
    let own = |system: &mut GridEngineSettings| {
        if let Some(root) = place.path(&raw.root) {
            system.root = root;
        }
        if let Some(cell) = &raw.cell {
            system.cell.clone_from(cell);
        }
    };
    raw.given().table(place, own)
}
