//! The table `[gridengine]` of the configuration: as it is written, and as it is valid.
//!
//! Deliberately not here: whether Grid Engine is there, and what it says of itself.

use std::path::Path;

use fairmesh_records::ChargeRule;
use fairmesh_schedulers::gridengine::GridEngineSettings;

use crate::config::{FileError, Source};
use crate::schedulers::settings::{Table, raw_table};

raw_table! {
    /// `[gridengine]` as it is written.
    RawGridEngine of "gridengine" {
        root: String,
        cell: String,
    }
}

/// `[gridengine]` as it is valid.
pub type GridEngineTable = Table<GridEngineSettings>;

impl GridEngineTable {
    /// What holds where the configuration says nothing.
    pub fn defaults(data_dir: &Path) -> Self {
        Self {
            with_node: true,
            system: GridEngineSettings::defaults(data_dir),
        }
    }
}

/// Checks the table; `base` is the configuration's folder.
pub(crate) fn checked(
    source: Source<'_>,
    raw: &RawGridEngine,
    base: &Path,
    data_dir: &Path,
    charge_rule: &ChargeRule,
) -> Result<GridEngineTable, FileError> {
    let default = GridEngineSettings::defaults(data_dir);
    let root = raw.root.as_ref().map(|root| base.join(root));
    let common = raw
        .given()
        .checked(source, default.common, base, charge_rule)?;
    Ok(Table {
        with_node: raw.with_node.unwrap_or(true),
        system: GridEngineSettings {
            common,
            root: root.unwrap_or(default.root),
            cell: raw.cell.clone().unwrap_or(default.cell),
        },
    })
}
