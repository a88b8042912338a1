//! How the node and its commands put ids, names, moments and numbers of things.
//!
//! Invariant: the page, a notice and a command use the same words for the same thing.

mod time;

use fairmesh_model::clean;

pub use time::{age, timestamp, until};

/// Fewest digits that name an id by its beginning: fewer are sooner or later the beginning of another one, and none are
/// that of all.
pub const ID_DIGITS_MIN: usize = 8;

/// Whether `beginning` names this id.
pub fn is_id(id: &str, beginning: &str) -> bool {
    beginning.len() >= ID_DIGITS_MIN && id.starts_with(beginning)
}

/// A name, or else the beginning of an id.
pub fn name_or_id(name: Option<&str>, id: &str) -> String {
    name.map_or_else(|| id.chars().take(ID_DIGITS_MIN).collect(), clean)
}

/// A number of things: `1 site`, `2 sites`.
pub fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}
