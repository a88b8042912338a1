//! Every case of recorded accounting: the expected values, or the expected refusal.
//!
//! The samples are not part of the repository (see `fairmesh-needs`). A file or a case that no test
//! has read is a failure.
#![allow(
    clippy::disallowed_methods,
    reason = "a test over files has to open them"
)]

mod apel;
mod others;
mod slurm;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fairmesh_records::{BatchRecord, Format, Options, RecordError, Records};
use serde_json::Value;

/// The folder of the samples, if it is there.
fn folder() -> Option<PathBuf> {
    let accounting = fairmesh_needs::traces("accounting")?;
    accounting.parent().map(Path::to_owned)
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(path: &Path) -> String {
    String::from_utf8(bytes(path)).expect("samples are UTF-8")
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&bytes(path)).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

fn options() -> Options {
    Options {
        cluster: "testresource".to_owned(),
        ..Options::default()
    }
}

fn read(format: Format, text: &str, options: &Options) -> Vec<Result<BatchRecord, RecordError>> {
    Records::new(text.as_bytes(), format, options).collect()
}

fn seconds(time: Option<fairmesh_model::WallTime>) -> Option<u64> {
    time.map(|time| time.0 / 1_000)
}

/// All samples, by their path from the folder, against those that the tests here read.
#[test]
fn every_file_is_read_by_a_test() {
    let Some(folder) = folder() else { return };
    let mut found = BTreeSet::new();
    for part in ["accounting", "ur"] {
        list(&folder.join(part), &mut found);
    }
    let found: BTreeSet<String> = found
        .iter()
        .map(|path| path.strip_prefix(&folder).expect("below it"))
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let files = slurm::FILES
        .iter()
        .chain(&apel::FILES)
        .chain(&others::FILES);
    let read: BTreeSet<String> = files.map(|file| (*file).to_owned()).collect();
    let gone: Vec<_> = read.difference(&found).collect();
    assert!(gone.is_empty(), "the tests want {gone:?}");
    let unread: Vec<_> = found.difference(&read).collect();
    assert!(unread.is_empty(), "no test reads {unread:?}");
}

fn list(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            list(&path, found);
        } else {
            found.insert(path);
        }
    }
}
