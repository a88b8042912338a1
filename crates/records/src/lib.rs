//! Job records of batch systems and Grids.
//!
//! Every format that sites keep their accounting in becomes one type, [`BatchRecord`]; [`Records`]
//! reads a stream of them, and [`ChargeRule`] makes of one what a node takes
//! ([`fairmesh_model::UsageRecord`]) or says why it is not charged; [`export`] writes them in the
//! formats of Grids.
//!
//! Invariant: a bad line is an error that names it and stops nothing; no input makes a parser panic
//! or hold more than [`RECORD_BYTES_MAX`] bytes of it, once as read and once as gathered. What a source does not say is `None`, never
//! a guess.
//!
//! Deliberately not here: files, decompression, clocks and the machine's time zone (all of them are
//! the caller's), whose account a record belongs to, and what it costs.
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

pub mod blah;
pub mod charge;
pub mod export;
pub mod format;
pub mod pbs;
pub mod reader;
pub mod record;
pub mod slurm;
pub mod state;
pub mod summary;
pub mod zone;

mod apel;
mod auditor;
mod blocks;
mod cluster_cockpit;
mod detect;
mod error;
mod fields;
mod flux;
mod grid_engine;
mod htcondor;
mod json;
mod lines;
mod lsf;
mod objects;
mod ogf;
mod parser;
mod rejected;
mod value;

pub use blah::{GridIdentities, GridIdentity};
pub use charge::{ChargeRule, Skip, WallRule};
pub use error::{Reason, RecordError};
pub use format::{Format, why_not};
pub use lines::RECORD_BYTES_MAX;
pub use parser::{Ignored, Options};
pub use reader::{Cursor, Records};
pub use record::{BatchRecord, Exit};
pub use state::JobState;
pub use summary::{Dimension, Job, Summary, Totals};
pub use zone::Zone;
