//! Runs that are spread over many processes, on one machine or on a cluster.
//!
//! Each process runs a part of the whole (a range of seeds, or a share of the faults) and leaves one
//! result file, a [`Shard`]. [`merge()`] puts shards together, and what comes out is what one process
//! would have found.
//!
//! Invariant: a file is there whole or not at all; its name says which part it is, so that a part that
//! is run again takes its own place. Nothing is put together that was not run by one program in one
//! way, without a gap and without an overlap.
//!
//! Deliberately not here: starting processes. That is what a batch system is for (docs/campaigns.md).

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::paper::outcome::Measured;
use simnet::check::summary::Summary;
use simnet::mutants::Hunted;

mod merge;
mod seeds;
#[cfg(test)]
mod tests;

pub use merge::{Refused, merge};
pub use seeds::Seeds;

/// Version of the result files. Files of another one are refused.
pub const SCHEMA: u32 = 1;

/// One part of a campaign, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The commit of the working directory.
    pub commit: String,
    /// SHA-256 of the program, in hexadecimal: two builds of one commit may differ.
    pub program: String,
    /// What was asked for, word by word.
    pub command: String,
    /// What decides the results beside the part: the same for all parts of a campaign.
    pub setup: String,
    /// The first seed, or the number of this share of the faults.
    pub from: u64,
    /// The first seed, or share, behind it.
    pub until_excluded: u64,
    /// How many parts there are, where that is known; they are numbered from 1.
    pub of: Option<u64>,
    /// Wall-clock time, milliseconds; of several parts, the sum.
    pub wall_ms: u64,
    /// CPU time of all threads, milliseconds.
    pub cpu_ms: u64,
    /// What was found.
    pub results: Results,
}

/// What the runs of a shard have shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Results {
    /// Of `simnet check`.
    Check(Summary),
    /// Of `simnet mutants`.
    Mutants(Vec<Hunted>),
    /// Of `simnet paper`.
    Paper {
        /// Simulated days of each run.
        days: u64,
        /// What was measured of each.
        runs: Vec<Measured>,
    },
}

impl Results {
    /// The command that makes them.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Check(_) => "check",
            Self::Mutants(_) => "mutants",
            Self::Paper { .. } => "paper",
        }
    }
}

/// A part that is being run.
#[derive(Debug)]
pub struct Part {
    began: Instant,
    setup: String,
    range: (u64, u64),
    of: Option<u64>,
}

impl Part {
    /// Begins a part: from here on time counts.
    pub fn begin(setup: String, from: u64, until_excluded: u64, of: Option<u64>) -> Self {
        Self {
            began: Instant::now(),
            setup,
            range: (from, until_excluded),
            of,
        }
    }

    /// The part with what it has found.
    pub fn end(self, results: Results) -> anyhow::Result<Shard> {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu_ms = cpu.tv_sec * 1_000 + cpu.tv_nsec / 1_000_000;
        let words: Vec<String> = std::env::args().skip(1).collect();
        Ok(Shard {
            schema: SCHEMA,
            commit: simnet::report::commit(),
            program: program()?,
            command: format!("simnet {}", words.join(" ")),
            setup: self.setup,
            from: self.range.0,
            until_excluded: self.range.1,
            of: self.of,
            wall_ms: u64::try_from(self.began.elapsed().as_millis())?,
            cpu_ms: u64::try_from(cpu_ms)?,
            results,
        })
    }
}

impl Shard {
    /// Writes the file into a folder, and makes the folder if need be.
    pub fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let (kind, from) = (self.results.kind(), self.from);
        let name = match self.of {
            Some(of) => format!("{kind}-{from}-of-{of}.json"),
            None => format!("{kind}-{from}..{}.json", self.until_excluded),
        };
        let path = folder.join(&name);
        let written = fs::create_dir_all(folder).and_then(|()| {
            let half = folder.join(format!(".{name}.{}", std::process::id()));
            let mut file = File::create(&half)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            fs::rename(&half, &path)
        });
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// All shards below some folders or in some files, in the order of their names.
pub fn read(places: &[PathBuf]) -> anyhow::Result<Vec<(PathBuf, Shard)>> {
    let mut files = Vec::new();
    for place in places {
        if place.is_file() {
            files.push(place.clone());
            continue;
        }
        let listed = fs::read_dir(place).with_context(|| format!("{}", place.display()))?;
        for entry in listed {
            let path = entry
                .with_context(|| format!("{}", place.display()))?
                .path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.ends_with(".json") && !name.starts_with('.') {
                files.push(path);
            }
        }
    }
    files.sort();
    let read = |path: PathBuf| {
        let text = fs::read(&path).with_context(|| format!("{}", path.display()))?;
        let no_result = || format!("{} is no result file", path.display());
        let value: serde_json::Value = serde_json::from_slice(&text).with_context(no_result)?;
        let schema = value.get("schema").and_then(serde_json::Value::as_u64);
        anyhow::ensure!(
            schema == Some(u64::from(SCHEMA)),
            "{} is of version {}; this program reads version {SCHEMA}",
            path.display(),
            schema.map_or_else(|| "none".to_owned(), |schema| schema.to_string())
        );
        let shard = serde_json::from_value(value).with_context(no_result)?;
        Ok((path, shard))
    };
    files.into_iter().map(read).collect()
}

/// SHA-256 of the running program.
fn program() -> anyhow::Result<String> {
    let path = std::env::current_exe().context("where is this program?")?;
    let bytes = fs::read(&path).with_context(|| format!("{}", path.display()))?;
    let hash = Sha256::digest(&bytes);
    Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect())
}
