//! Fairmesh beside real Slurms. They need root and Debian's packages (see `fairmesh-needs`).

mod explain;
mod federation;
mod forward;
mod import;
mod importance;
mod loops;
mod plugin;
mod queue;
mod quota;
mod resized;

/// A program that is the node, built with these tests.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");
