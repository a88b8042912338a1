//! What a run knows that no node says: what passed between nodes, what batch systems were answered, what owners decided.
//!
//! Invariant: facts are observed, or copied from configurations and documents. Nothing here judges them.
//! Deliberately not here: judging (`invariants`, by `oracle`), and what a run does (`check`).

mod books;
mod owner;
mod shown;
pub mod watch;

pub use books::{Booked, Books, Decided, Freed, HoldContext};
pub(crate) use books::{EXPIRES_AFTER, is_exempt, runs};
pub(crate) use owner::owner_of;
pub(crate) use shown::place;
