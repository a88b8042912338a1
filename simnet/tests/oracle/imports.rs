//! What the oracle is made of.

use std::path::{Path, PathBuf};

/// Crates that it may use.
const ALLOWED: [&str; 4] = ["ethnum", "fairmesh_model", "num_bigint", "num_rational"];

#[test]
fn the_oracle_uses_no_code_under_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("the manifest");
    let crates = manifest.lines().filter_map(|line| line.split_once(" = {"));
    let crates = crates.map(|(name, _)| name.replace('-', "_"));
    let forbidden: Vec<String> = crates
        .filter(|name| !ALLOWED.contains(&name.as_str()))
        .collect();
    assert!(forbidden.contains(&"fairmesh_site".to_owned()));
    let mut files = vec![(root.join("src/oracle.rs"), 0)];
    add_files(&root.join("src/oracle"), 1, &mut files);
    assert!(files.len() > 10, "{files:?}");
    for (file, depth) in files {
        let text = std::fs::read_to_string(&file).expect("a source");
        let wrong = code(&text).find_map(|line| wrong_path(line, depth, &forbidden));
        assert_eq!(wrong, None, "{}", file.display());
    }
}

#[test]
fn paths_out_of_the_oracle_are_found() {
    let forbidden = ["fairmesh_site".to_owned()];
    let wrong = |line| wrong_path(line, 1, &forbidden);
    assert_eq!(
        wrong("use fairmesh_site::Site;"),
        Some("fairmesh_site::".to_owned())
    );
    assert_eq!(
        wrong("let x = crate::world::World"),
        Some("crate::world::World".to_owned())
    );
    assert_eq!(
        wrong("use super::super::world;"),
        Some("super::super".to_owned())
    );
    assert_eq!(
        wrong("use crate::{oracle, world};"),
        Some("crate::".to_owned())
    );
    assert_eq!(
        wrong("use super::AccountKey; use crate::oracle::Cells; other_fairmesh_site::x"),
        None
    );
    assert_eq!(
        wrong_path("use super::world;", 0, &forbidden),
        Some("super".to_owned())
    );
}

/// Sources that are no tests, and how deep in the oracle they are.
fn add_files(folder: &Path, depth: usize, files: &mut Vec<(PathBuf, usize)>) {
    for entry in std::fs::read_dir(folder).expect("the oracle") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            add_files(&path, depth + 1, files);
        } else if !path.ends_with("tests.rs") {
            files.push((path, depth));
        }
    }
}

/// Lines of code before the tests.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    lines.take_while(|line| !line.starts_with("#[cfg(test)]"))
}

/// A path that begins in a forbidden crate, or leads out of the oracle.
fn wrong_path(line: &str, depth: usize, forbidden: &[String]) -> Option<String> {
    let crates = forbidden.iter().map(|name| format!("{name}::"));
    let mut crates = crates.filter(|name| has_word(line, name));
    let out = ["super"; 8][..=depth].join("::");
    let inside = "crate::oracle";
    let mut of_crate = line.match_indices("crate::").map(|(at, _)| &line[at..]);
    let of_crate = of_crate.find(|path| !path.starts_with(inside)).map(|path| {
        let is_end = |c: char| !c.is_alphanumeric() && c != '_' && c != ':';
        path.split(is_end).next().unwrap_or_default().to_owned()
    });
    crates
        .next()
        .or(of_crate)
        .or_else(|| has_word(line, &out).then_some(out))
}

fn has_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = line.match_indices(word);
    found.any(|(at, _)| !line[..at].ends_with(is_word))
}
