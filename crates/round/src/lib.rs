//! The node's round and its start, without the disk: what becomes durable before anything is sent, and how a start
//! recovers from whatever a crash has left (`docs/round.md`).
//!
//! A few inputs go in, [`Step`]s come out in order: operations on files and on the store, then everything that is sent,
//! answered and acknowledged. The node carries them out on a real disk. The simulator carries them out on a disk that
//! tears writes, loses unsynced data, flips bits and fills up.
//!
//! Invariants:
//! - no effect comes before the operations that make all changes of its round durable;
//! - the journal is never behind the store in own counters and job marks;
//! - no two starts of a site take the same incarnation while one of them remembers the other.
//!
//! Deliberately not here: what events mean (`fairmesh-site`), files, and the store's engine (the
//! node's `store`).
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

mod found;
mod frame;
mod journal;
mod op;
mod round;
mod side;
mod start;

pub use found::FileRead;
pub use frame::checksum;
pub use journal::JOURNAL_BYTES_MAX;
pub use op::{FileName, JOURNAL, JOURNAL_NEW, JOURNAL_OLD, Op, SIDE, SIDE_NEW, Step};
pub use round::{Input, ROUND_MAX, Round, Unreadable};
pub use side::{
    FIRST_EDITION, OtherSite, Owner, STORE_FORMAT, SideError, SideState, take_incarnation,
};
pub use start::{FORMAT_KEY, LINEAGE_KEY, Opening, StoreState, Unopened, tidy};
