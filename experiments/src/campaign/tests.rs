//! Parts that make a whole, and parts that do not.

use std::path::PathBuf;

use super::*;
use simnet::check::summary::Summary;

fn shard(from: u64, until_excluded: u64) -> (PathBuf, Shard) {
    let results = Results::Check(Summary {
        seeds: until_excluded - from,
        healed_ms: (from..until_excluded).rev().collect(),
        ..Summary::default()
    });
    let shard = Shard {
        schema: SCHEMA,
        commit: "a1b2".to_owned(),
        program: "c3d4".to_owned(),
        command: "simnet check".to_owned(),
        setup: String::new(),
        from,
        until_excluded,
        of: None,
        wall_ms: 1_000,
        cpu_ms: 2_000,
        results,
    };
    (PathBuf::from(format!("{from}.json")), shard)
}

/// What is said of parts that do not make a whole.
fn refused(shards: Vec<(PathBuf, Shard)>, whole: Option<(u64, u64)>) -> String {
    let refused = merge(shards, whole).expect_err("they make no whole");
    refused.to_string()
}

#[test]
fn parts_in_any_order_make_the_whole() {
    let merged = merge(vec![shard(26, 51), shard(1, 26)], Some((1, 51)));
    let merged = merged.expect("they make a whole");
    assert_eq!((merged.from, merged.until_excluded), (1, 51));
    assert_eq!((merged.wall_ms, merged.cpu_ms), (2_000, 4_000));
    let Results::Check(summary) = merged.results else {
        panic!("it was a check");
    };
    assert_eq!(summary.seeds, 50);
    assert_eq!(summary.one_in(), Some(16));
    assert_eq!(summary.healed_ms, (1..51).collect::<Vec<_>>());
}

#[test]
fn gaps_and_overlaps_are_named() {
    assert_eq!(refused(Vec::new(), None), "there are no result files");
    let gap = refused(vec![shard(1, 26), shard(30, 40)], None);
    assert_eq!(gap, "seeds 26 to 29 are missing behind 1.json");
    let end = refused(vec![shard(1, 26)], Some((1, 101)));
    assert_eq!(end, "seeds 26 to 100 are missing behind 1.json");
    let begin = refused(vec![shard(26, 51)], Some((1, 51)));
    assert_eq!(begin, "seeds 1 to 25 are missing");
    let overlap = refused(vec![shard(1, 26), shard(25, 40)], None);
    assert_eq!(overlap, "1.json and 25.json both have seed 25");
}

#[test]
fn shares_are_all_there_or_none_is_taken() {
    let share = |number| {
        let (path, mut shard) = shard(number, number + 1);
        shard.of = Some(3);
        (path, shard)
    };
    assert!(merge(vec![share(2), share(1), share(3)], None).is_ok());
    let gap = refused(vec![share(1), share(2)], None);
    assert_eq!(gap, "parts 3 to 3 are missing behind 2.json");
}

#[test]
fn what_another_program_has_made_is_not_taken() {
    let change = |change: fn(&mut Shard)| {
        let (path, mut other) = shard(26, 51);
        change(&mut other);
        refused(vec![shard(1, 26), (path, other)], None)
    };
    let commit = change(|shard| shard.commit = "ffff".to_owned());
    assert_eq!(
        commit,
        "1.json and 26.json differ in their commit: `a1b2`, `ffff`"
    );
    assert!(change(|shard| shard.program.clear()).contains("program"));
    assert!(change(|shard| shard.setup = "sites 4".to_owned()).contains("set-up"));
    assert!(change(|shard| shard.results = Results::Mutants(Vec::new())).contains("command"));
}

#[test]
fn a_file_comes_back_as_it_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, one) = shard(1, 26);
    let path = one.write(folder.path()).expect("there is room");
    assert_eq!(path, folder.path().join("check-1..26.json"));
    let read_back = || read(&[folder.path().to_owned()]);
    assert_eq!(
        read_back().expect("it is read"),
        [(path.clone(), one.clone())]
    );
    one.write(folder.path()).expect("a part may be run again");
    assert_eq!(read_back().expect("it is read").len(), 1);
    let text = fs::read_to_string(&path).expect("it is there");
    fs::write(&path, text.replace("\"schema\": 1", "\"schema\": 2")).expect("there is room");
    let why = read_back().expect_err("it is of another version");
    assert!(why.to_string().contains("is of version 2"), "{why}");
}
