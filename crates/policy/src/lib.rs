//! Which signed documents are in force, and the one share tree that they make.
//!
//! A site holds its owner's own tree ([`SitePolicy`]) and, for each virtual organisation, a chain
//! of charters and the share policies of delegated subtrees ([`VoPolicies`]). [`compile()`] puts them
//! together.
//!
//! Invariant: what is in force is a function of the *set* of documents that are offered (again and
//! again, as anti-entropy does), whatever order they come in, and only verified documents are ever
//! kept. There is one exception, which `chain` states: a charter's place, once it has a successor,
//! is not argued about again.
//!
//! Deliberately not here: clocks, disks, peers, and the usage that the shares are compared with.
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

mod chain;
mod slot;

pub mod error;
pub mod highest_seen;
pub mod in_force;
pub mod vo_policies;

pub mod level;
pub mod site_policy;
pub mod tree_file;

pub mod compile;
pub mod plan;
pub mod weights;

pub use compile::{CompileWarning, CompiledEntry, CompiledTree, Origin, compile};
pub use error::{DocumentKind, PolicyError};
pub use highest_seen::{HighestSeen, SeenSnapshot, SeenVersion};
pub use in_force::{Alarm, DocumentRef, InForce, VoEntry, Warning};
pub use level::LevelRule;
pub use plan::{PlanKind, PlanLine, PlanShare, plan};
pub use site_policy::{Mount, SiteEntry, SitePolicy, SitePolicyError};
pub use tree_file::{TreeFile, TreeFileError, parse_draft, parse_tree, to_toml};
pub use vo_policies::{Adopted, Compared, MOUNTED_MAX, VoPolicies, Vouched};
pub use weights::weights;

#[cfg(test)]
mod testing;
