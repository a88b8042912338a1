//! The table `[pbs]` of the configuration: as it is written, and as it is valid.
//!
//! Deliberately not here: whether PBS is there, and what it says of itself.

use fairmesh_schedulers::pbs::PbsSettings;
use toml::Spanned;

use crate::config::FileError;
use crate::config::schedulers::{Place, Table, raw_table};

raw_table! {
    /// `[pbs]` as it is written.
    RawPbs of "pbs" {
        home: String,
        resource: Spanned<String>,
    }
}

/// `[pbs]` as it is valid.
pub type PbsTable = Table<PbsSettings>;

/// Checks the table.
pub(crate) fn checked(place: Place<'_>, raw: &RawPbs) -> Result<PbsTable, FileError> {
    // It stands in a formula and in `qalter -l`.
    let is_word = |text: &str| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_letter)
    };
    let resource = raw.resource.as_ref();
    if let Some(given) = resource.filter(|given| !is_word(given.get_ref())) {
        let problem = "a resource has a name of letters, digits and _";
        return Err(place.source.wrong("pbs.resource", given, problem));
    }
    raw.given().table(place, |system: &mut PbsSettings| {
        if let Some(home) = place.path(&raw.home) {
            system.home = home;
        }
        if let Some(resource) = resource {
            system.resource.clone_from(resource.get_ref());
        }
    })
}
