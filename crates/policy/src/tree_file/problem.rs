//! What can be wrong with a share tree file, and what its author should do.
//!
//! Invariant: every error names the file, the line, the column and, where there is one, the key.
//! Deliberately not here: panics; any text at all is either a tree or one of these.

use fairmesh_model::ids::IdError;
use fairmesh_model::path::PathError;
use fairmesh_model::units::ShareError;
use fairmesh_model::{AccountPath, DateError, KeyId, Share, ShareProblem, Weight, WeightError};

use crate::site_policy::SitePolicyError;

/// Why a file was refused. Nothing changed; its author is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {}{problem}", in_key(.key.as_deref()))]
pub struct TreeFileError {
    /// The name of the file, as the caller gave it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// The entry or key at fault.
    pub key: Option<String>,
    /// What is wrong with it.
    pub problem: Problem,
}

/// Why a line of a tree file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not TOML, or a key twice.
    #[error("{0} (paths stand in quotes: \"/VO-A\" = 30; each of them once)")]
    Syntax(String),
    /// There is no `[shares]`.
    #[error("there is no table [shares]: put the entries below a line `[shares]`")]
    NoShares,
    /// A key that means nothing here.
    #[error("unknown key; known here: {known}")]
    UnknownKey {
        /// What may stand here.
        known: &'static str,
    },
    /// The key of an entry is no path.
    #[error("{0}")]
    Path(#[source] PathError),
    /// A limit that is no percentage.
    #[error("{0}: write a percentage of the parent from 0 to 100, such as 12.5")]
    Share(#[source] ShareError),
    /// A share that is no weight.
    #[error("{0}: write a weight among the siblings, such as 30 or 12.5")]
    Weight(#[source] WeightError),
    /// A period that begins at no date.
    #[error("{0}")]
    Date(#[source] DateError),
    /// A rule that all share trees keep to.
    #[error("{0}")]
    Line(#[source] ShareProblem),
    /// A value of another kind than expected.
    #[error("expected {expected}")]
    WrongType {
        /// What may stand here.
        expected: &'static str,
    },
    /// An entry in the long form without its share.
    #[error("there is no `share`: write {{ share = <weight>, … }}")]
    NoShare,
    /// A limit that the entry would pass by taking its share.
    #[error("at most {most} is less than the share of {share}: write {share} or more")]
    BelowShare {
        /// The limit of the delegation.
        most: Share,
        /// The share in the file.
        share: Weight,
    },
    /// The root has another share than all, or a limit.
    #[error("`/` is the whole: remove the line, or write 100")]
    RootShare,
    /// The policy of `/` cannot hand on `/`.
    #[error("`/` cannot be given to others here: the charter names who signs for it")]
    RootDelegate,
    /// An entry without the one above it.
    #[error("the entry above it, `{parent}`, is not listed: add a line `\"{parent}\" = <share>`")]
    MissingParent {
        /// The parent that is missing.
        parent: AccountPath,
    },
    /// An entry that others were asked to divide.
    #[error(
        "it lies below `{above}`, which others divide: remove it, or the delegation (or mount) above"
    )]
    BelowDelegate {
        /// The entry that is delegated to others.
        above: AccountPath,
    },
    /// A key id of a delegate, or the id of a VO.
    #[error("{0}")]
    Key(#[source] IdError),
    /// A key that a delegate has already.
    #[error("{0} is listed twice: one key signs once")]
    KeyTwice(KeyId),
    /// A role that nobody can fulfil.
    #[error("{0}: the threshold is at least 1 and at most the number of keys")]
    Role(String),
    /// The owner's means in a VO's policy.
    #[error(
        "`{what}` is for site policies: a share policy has `share`, `at_most`, `was`, `since`, `usage`, `distance`, `delegate` and `mount = {{ vo, path }}`"
    )]
    OnlyInSitePolicy {
        /// The key in question.
        what: &'static str,
    },
    /// A VO's means in the owner's policy.
    #[error("`{what}` is for signed share policies")]
    OnlyInSharePolicy {
        /// The key in question.
        what: &'static str,
    },
    /// A change to a mount where there is none.
    #[error("`{what}` changes a mount, and this entry has no `mount`")]
    OnlyWithMount {
        /// The key in question.
        what: &'static str,
    },
    /// The tree contradicts itself.
    #[error("{0}")]
    Site(#[source] SitePolicyError),
}

fn in_key(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!("`{key}`: "))
}
