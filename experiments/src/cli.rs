//! The command lines of the experiments: `simnet paper`, `quotas`, `placement`, `whatif`, `charging`, `scale`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;

pub mod charging;
pub mod experiments;
pub mod paper;
pub mod scale;
pub mod whatif;

/// Opens a job log; `.gz` is unpacked.
fn open_log(path: &Path) -> std::io::Result<Box<dyn BufRead>> {
    let file = File::open(path)?;
    Ok(
        match path.extension().is_some_and(|suffix| suffix == "gz") {
            true => Box::new(BufReader::new(GzDecoder::new(file))),
            false => Box::new(BufReader::new(file)),
        },
    )
}
