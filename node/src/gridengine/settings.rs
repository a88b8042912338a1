//! The table `[gridengine]` of the configuration: as it is written, and as it is valid.
//!
//! Deliberately not here: whether Grid Engine is there, and what it says of itself.

use std::path::Path;

use fairmesh_records::ChargeRule;
use fairmesh_schedulers::gridengine::GridEngineSettings;
use serde::Deserialize;
use toml::Spanned;

use crate::config::quantity::RawDuration;
use crate::config::{FileError, Source};
use crate::schedulers::settings::Given;

/// `[gridengine]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawGridEngine {
    with_node: Option<bool>,
    root: Option<String>,
    cell: Option<String>,
    cluster: Option<String>,
    bin_dir: Option<String>,
    interval: Option<RawDuration>,
    range: Option<Spanned<u64>>,
    importance: Option<Spanned<u64>>,
    granularity: Option<Spanned<u64>>,
    rate: Option<Spanned<u64>>,
    feed_interval: Option<RawDuration>,
    state_file: Option<String>,
}

/// `[gridengine]` as it is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridEngineTable {
    /// Whether `fairmesh run` does the work of `fairmesh gridengine run`.
    pub with_node: bool,
    /// How the node and Grid Engine work together.
    pub gridengine: GridEngineSettings,
}

impl GridEngineTable {
    /// What holds where the configuration says nothing.
    pub fn defaults(data_dir: &Path) -> Self {
        Self {
            with_node: true,
            gridengine: GridEngineSettings::defaults(data_dir),
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
    let given = Given {
        table: "gridengine",
        cluster: &raw.cluster,
        bin_dir: &raw.bin_dir,
        interval: &raw.interval,
        range: &raw.range,
        importance: &raw.importance,
        granularity: &raw.granularity,
        rate: &raw.rate,
        feed_interval: &raw.feed_interval,
        state_file: &raw.state_file,
    };
    let root = raw.root.as_ref().map(|root| base.join(root));
    Ok(GridEngineTable {
        with_node: raw.with_node.unwrap_or(true),
        gridengine: GridEngineSettings {
            common: given.checked(source, default.common, base, charge_rule)?,
            root: root.unwrap_or(default.root),
            cell: raw.cell.clone().unwrap_or(default.cell),
        },
    })
}
