//! `cargo xtask bench`: the product against its goals, in a few minutes behind the build.
//!
//! Deliberately not here: what is measured (`node/benches/product`).

use std::path::Path;
use std::process::Command;

/// Where the table is.
const DOCUMENT: &str = "docs/benchmarks.md";

/// Builds the program as it is installed, measures it, and writes the table.
pub(crate) fn run() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.ok_or("xtask lies in the repository")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["bench", "--package", "fairmesh", "--bench", "product", "--"]);
    command.arg("--write").arg(root.join(DOCUMENT));
    let status = command.current_dir(root).status();
    let status = status.map_err(|error| format!("cargo: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("the benchmark ended with {status}")),
    }
}
