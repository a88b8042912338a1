//! `cargo xtask bench`: the product and its parts against their goals.
//!
//! Benchmarks of single crates say what they have measured in a file, and the product's, which comes last, writes all
//! of it into the table. Deliberately not here: what is measured (`cli/benches/product`, and the benches of `node` and of crates).

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use crate::steps::{cargo, root};

/// Where the table is.
const DOCUMENT: &str = "docs/benchmarks.md";

/// Benchmarks that measure rows of the table: package, name, and what they are told.
const PARTS: [(&str, &str, &[&str]); 3] = [
    ("fairmesh-fairshare", "tree", &["--goals"]),
    ("simnet", "large", &[]),
    ("fairmesh-node", "wire", &["12", "30"]),
];

/// Builds the program as it is installed, measures it and its parts, and writes the table.
pub(crate) fn run() -> Result<(), String> {
    let rows = std::env::current_exe().map_err(|error| format!("cannot find xtask: {error}"))?;
    let rows = rows.with_file_name("bench-rows.tsv");
    // Of the run before; there may be none.
    let _ = fs::remove_file(&rows);
    build_anew(&rows)?;
    for (package, name, arguments) in PARTS {
        bench(package, name, arguments, &rows)?;
    }
    let document = root().join(DOCUMENT);
    let document = document.to_string_lossy();
    let rows_in = rows.to_string_lossy();
    let arguments = ["--write", &document, "--rows", &rows_in];
    bench("fairmesh", "product", &arguments, &rows)
}

/// Builds the program with nothing compiled before, in a folder of its own, and says how long that took.
fn build_anew(rows: &Path) -> Result<(), String> {
    let folder = root().join("target/cold");
    // Of a run that was interrupted; there may be none.
    let _ = fs::remove_dir_all(&folder);
    let began = Instant::now();
    let mut build = cargo();
    build.args([
        "build",
        "--release",
        "--package",
        "fairmesh",
        "--target-dir",
    ]);
    let status = build.arg(&folder).current_dir(root()).status();
    let took = began.elapsed().as_secs_f64() / 60.0;
    let status = status.map_err(|error| format!("cargo: {error}"))?;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let named = |error| format!("{}: {error}", folder.display());
    fs::remove_dir_all(&folder).map_err(named)?;
    if !status.success() {
        return Err(format!("the release build ended with {status}"));
    }
    let row = format!("cold release build\t{took:.1} min, on {cores} cores\n");
    let file = fs::File::options().create(true).append(true).open(rows);
    file.and_then(|mut file| file.write_all(row.as_bytes()))
        .map_err(|error| format!("{}: {error}", rows.display()))
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
