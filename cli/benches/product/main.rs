//! The goals of the project, measured on the product: `cargo xtask bench`.
//!
//! The node is the release program in a process of its own, with a tree of 10,000 entries and identity
//! rules as in `configs/`. Its client is written here from the documents and shares no code with it.
//! Beside it stand, in the same run and by turns, a bare echo over the same kind of socket, bare sled,
//! bare SQLite (WAL, synchronous FULL) and a bare write with fdatasync: read the ratios. Where valgrind
//! or strace are installed, instructions and syncs are counted, which no load of the machine changes. `--only` and
//! one of look-ups, report, ingest, instructions and idle measures that part; `--write FILE` writes the table, with
//! what other benchmarks have left in the file that `--rows` names.
//!
//! Invariant: a row of the table says what was measured in this run and nothing else; the rows of other
//! benchmarks keep what they said, and say that it is not of this run.

mod cost;
mod disk;
mod echo;
mod ingest;
mod lookup;
mod node;
mod records;
mod rows;
mod table;
mod wire;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rows::Rows;

/// How long an idle node is watched at the least.
const IDLE: Duration = Duration::from_secs(70);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).map(PathBuf::from)
    };
    if let Some(socket) = value("--echo") {
        return echo::serve(&socket);
    }
    let only = value("--only");
    let is_wanted = |part: &str| only.as_ref().is_none_or(|only| only.as_os_str() == part);
    let began = Instant::now();
    let mut rows = Rows::default();
    let idle = is_wanted("idle").then(cost::Idle::start);
    if is_wanted("look-ups") {
        lookup::measure(&node::Node::start(&[]), &mut rows);
    }
    if is_wanted("report") {
        ingest::one_report(&node::Node::start(&[]), &mut rows);
    }
    if is_wanted("ingest") {
        ingest::many(&mut rows);
    }
    if is_wanted("instructions") {
        cost::instructions(&mut rows);
    }
    cost::program(&mut rows);
    if let Some(idle) = idle {
        std::thread::sleep(IDLE.saturating_sub(began.elapsed()));
        idle.finish(&mut rows);
    }
    if let Some(file) = value("--rows") {
        rows.take(&file);
    }
    let when = format!(
        "Measured by `cargo xtask bench`, the product in {} s, with a load of {} at its end.",
        began.elapsed().as_secs(),
        load()
    );
    println!("\n{when}\n\n{}", rows.text());
    if let Some(file) = value("--write") {
        table::write(&file, &rows, &when);
        println!("written to {}", file.display());
    }
}

/// The machine's load over the last minute, as the system tells it.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}
