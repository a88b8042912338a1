//! What benchmarks of single crates measure of the table of goals.

use std::fs::File;
use std::io::Write as _;

/// The file that gets a line for each row: its first column and what was measured, separated by a tab.
const ROWS: &str = "FAIRMESH_ROWS";

/// Says what a row of `docs/benchmarks.md` came to, and adds it to the file that `FAIRMESH_ROWS` names, from which
/// `cargo xtask bench` takes it.
///
/// # Panics
/// Where that file cannot be written.
pub fn say_row(what: &str, measured: &str) {
    println!("{what}: {measured}");
    let Some(path) = std::env::var_os(ROWS) else {
        return;
    };
    let file = File::options().create(true).append(true).open(path);
    let mut file = file.expect("the file of rows can be opened");
    writeln!(file, "{what}\t{measured}").expect("and written");
}
