//! Reports of failures.
//!
//! Invariant: one seed gives one report, and it says how to repeat what it shows.

use std::collections::BTreeMap;
use std::path::Path;

use fairmesh_cluster::Seed;
use simnet::report::{Failure, write};

use crate::files::{read, told};

fn report(folder: &Path) -> BTreeMap<String, String> {
    let (outcome, _) = told(&read("bridge-only"), 5);
    let failure = Failure {
        seed: Seed(5),
        invariant: "planted".to_owned(),
        node: Some(2),
        why: "it is a test".to_owned(),
        options: vec![("sites".to_owned(), "7".to_owned())],
        command: "simnet run bridge-only.toml --seed 5".to_owned(),
        story: vec!["it began".to_owned()],
    };
    write(folder, &failure, &outcome.world).expect("there is room");
    let files = std::fs::read_dir(folder).expect("it was written");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let text = std::fs::read_to_string(&path).expect("it is text");
        (name.expect("a plain name").to_owned(), text)
    };
    files.map(read).collect()
}

#[test]
fn one_seed_gives_one_report() {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("there is room"));
    let [first, second] = folders.each_ref().map(|folder| report(folder.path()));
    assert_eq!(first, second);
    assert_eq!(first.len(), 2 + 7);
    let text = &first["report.txt"];
    for words in [
        "planted",
        "it is a test",
        "site 2 (node-2.json)",
        "repeat with    simnet run bridge-only.toml --seed 5",
        "sites = 7",
        "it began",
        "Last events",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(first["node-2.json"].contains("\"charge_core_ms\""));
    assert!(first["events.txt"].lines().count() > 1_000);
}
