//! The table `[condor]` of the configuration: as it is written, and as it is valid.
//!
//! Deliberately not here: whether HTCondor is there, and what it says of itself.

use std::path::Path;

use fairmesh_records::ChargeRule;
use fairmesh_schedulers::condor::CondorSettings;

use crate::config::{FileError, Source};
use crate::schedulers::settings::{Table, raw_table};

raw_table! {
    /// `[condor]` as it is written.
    RawCondor of "condor" {
        config: String,
        history: String,
    }
}

/// `[condor]` as it is valid.
pub type CondorTable = Table<CondorSettings>;

impl CondorTable {
    /// What holds where the configuration says nothing.
    pub fn defaults(data_dir: &Path) -> Self {
        Self {
            with_node: true,
            system: CondorSettings::defaults(data_dir),
        }
    }
}

/// Checks the table; `base` is the configuration's folder.
pub(crate) fn checked(
    source: Source<'_>,
    raw: &RawCondor,
    base: &Path,
    data_dir: &Path,
    charge_rule: &ChargeRule,
) -> Result<CondorTable, FileError> {
    let default = CondorSettings::defaults(data_dir);
    if let Some(given) = &raw.importance {
        let problem = "HTCondor orders a submitter's jobs by what he says himself (JobPrio)";
        let key = Some("condor.importance");
        return Err(source.error(Some(given.span()), key, problem.to_owned()));
    }
    let common = raw
        .given()
        .checked(source, default.common, base, charge_rule)?;
    let path = |given: &Option<String>| given.as_ref().map(|given| base.join(given));
    Ok(Table {
        with_node: raw.with_node.unwrap_or(true),
        system: CondorSettings {
            common,
            config: path(&raw.config),
            history: path(&raw.history),
        },
    })
}
