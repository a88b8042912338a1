//! `cargo xtask bench`: the product and its parts against their goals.
//!
//! Benchmarks of single crates say what they have measured in a file, and the product's, which comes last, writes all
//! of it into the table. Deliberately not here: what is measured (`node/benches/product` and those below).

use std::fs;
use std::path::Path;

use crate::steps::{cargo, root};

/// Where the table is.
const DOCUMENT: &str = "docs/benchmarks.md";

/// Benchmarks that measure rows of the table: package, name, and what they are told.
const PARTS: [(&str, &str, &[&str]); 3] = [
    ("fairmesh-fairshare", "tree", &["--goals"]),
    ("simnet", "large", &[]),
    ("fairmesh", "wire", &["12", "30"]),
];

/// Builds the program as it is installed, measures it and its parts, and writes the table.
pub(crate) fn run() -> Result<(), String> {
    let rows = std::env::current_exe().map_err(|error| format!("cannot find xtask: {error}"))?;
    let rows = rows.with_file_name("bench-rows.tsv");
    // Of the run before; there may be none.
    let _ = fs::remove_file(&rows);
    for (package, name, arguments) in PARTS {
        bench(package, name, arguments, &rows)?;
    }
    let document = root().join(DOCUMENT);
    let document = document.to_string_lossy();
    let rows_in = rows.to_string_lossy();
    let arguments = ["--write", &document, "--rows", &rows_in];
    bench("fairmesh", "product", &arguments, &rows)
}

fn bench(package: &str, name: &str, arguments: &[&str], rows: &Path) -> Result<(), String> {
    let mut command = cargo();
    command.args(["bench", "--package", package, "--bench", name, "--"]);
    command.args(arguments).env("FAIRMESH_ROWS", rows);
    let status = command.current_dir(root()).status();
    let status = status.map_err(|error| format!("cargo: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!(
            "the benchmark {name} of {package} ended with {status}"
        )),
    }
}
