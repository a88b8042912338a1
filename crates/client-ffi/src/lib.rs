//! What a scheduler written in C links: `include/fairmesh.h`, over `fairmesh-client`.
//!
//! [`table`] is what a scheduler looks factors up in, [`refresh`] the thread that keeps it fresh over
//! `lookup.sock`, [`batch`] a blocking look-up for those who need no table, and [`ffi`] the functions
//! that C sees.
//!
//! Invariant: no call of a scheduler waits for the socket but those whose name says so
//! (`fairmesh_lookup`, `fairmesh_table_wait`), and no panic crosses into C.
//!
//! Deliberately not here: what a factor means to a scheduler (the plug-in's `weight=`), and the
//! protocol (`fairmesh-client`). `slurm/` holds the Slurm plug-in, C under a licence of its own.
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

pub mod table;

pub mod refresh;

pub mod batch;

pub mod ffi;
