//! Real nodes as processes, spoken to as people and schedulers do. One program for all of these tests,
//! because each program is linked with everything.

mod api;
mod arc;
mod charging;
mod cli;
mod clones;
mod connections;
mod corpus;
mod correct;
mod disk;
mod doctor;
mod explain;
mod flips;
mod forward;
mod guides;
mod hang_up;
mod hindered;
mod hostile;
mod kill;
mod large_policies;
mod local_users;
mod logrotate;
mod loops;
mod memory;
mod monitoring;
mod mounts;
mod names;
mod order;
mod page;
mod peer_states;
mod place;
mod prices;
mod privacy;
mod privacy_groups;
mod python;
mod quota;
mod quota_liveness;
mod quota_parts;
mod recorded;
mod records;
mod rejects;
mod remap;
mod restarts;
mod snapshot;
mod unit;
mod unlogged;
mod wiped;

/// A program that is the node, built with these tests.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");
