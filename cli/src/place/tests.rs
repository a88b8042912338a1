//! The command on files, as people and programs see it.

use serde_json::{Value, json};

use super::*;

/// What "me" holds of a site, its limit, its % of the epoch, and whether it is extensible.
type Mine = (u64, u64, u64, bool);

/// A site, and what others hold of it.
type Row = (&'static str, Option<Mine>, u64);

/// Sites of 40 CPUs, by name: what "me" holds, its limit, its % of the epoch (of 20), whether extensible; what
/// others hold.
fn grid(sites: &[Row]) -> Value {
    let standing = |held: u64, limit: u64, epoch: u64, extensible: bool| json!({"epoch_used": epoch, "epoch_share": 20, "burst_used": held, "burst_limit": limit, "extensible": extensible});
    let site = |(name, me, others): &Row| {
        let mut vos = json!({"others": standing(*others, 40, 0, false)});
        if let Some((held, limit, epoch, extensible)) = *me {
            vos["me"] = standing(held, limit, epoch, extensible);
        }
        json!({"name": name, "total": 40, "vos": vos})
    };
    json!({"sites": sites.iter().map(site).collect::<Vec<_>>()})
}

fn placed(grid: &Value, words: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("grid.json");
    std::fs::write(&file, grid.to_string()).expect("writes");
    let file = file.display().to_string();
    let mut line = vec!["place", "--grid", file.as_str()];
    line.extend(
        ["--vo", "me"]
            .into_iter()
            .filter(|_| !words.contains(&"--vo")),
    );
    line.extend(words);
    let args = parsed(&line).expect("a command line");
    let mut out = Vec::new();
    assert_eq!(offline(&args, &mut out).expect("valid"), Exit::Success);
    String::from_utf8(out).expect("UTF-8")
}

fn parsed(words: &[&str]) -> Result<PlaceArgs, clap::Error> {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: PlaceArgs,
    }
    Ok(<Line as clap::Parser>::try_parse_from(words)?.args)
}

fn answered(grid: &Value, words: &[&str]) -> Value {
    let words = [words, &["--json"]].concat();
    serde_json::from_str(&placed(grid, &words)).expect("JSON")
}

fn names(list: &Value) -> Vec<&str> {
    let names = list.as_array().expect("a list").iter();
    names
        .map(|site| site["name"].as_str().expect("a name"))
        .collect()
}

/// Candidates for the CPUs are intersected with candidates for the files, by every engine.
#[test]
fn a_job_goes_only_where_its_files_fit() {
    let mut grid = grid(&[
        ("a", Some((0, 20, 0, false)), 0),
        ("b", Some((0, 20, 0, false)), 0),
        ("c", Some((0, 20, 0, false)), 0),
    ]);
    grid["sites"][0]["vos"]["me"]["disk"] = json!({"share_mib": 100, "staged_mib": 61});
    grid["sites"][1]["vos"]["me"]["disk"] = json!({"quota_mib": 40, "share_mib": 100});
    for engine in ["published", "prose", "sound"] {
        let words = ["--cpus", "1", "--disk-mib", "40", "--engine", engine];
        let answer = answered(&grid, &words);
        assert_eq!(names(&answer["sites"]), ["b", "c"], "{engine}");
        let refused = &answer["refused"][0];
        assert_eq!(
            (&refused["name"], &refused["code"]),
            (&json!("a"), &json!("disk"))
        );
        let reason = refused["reason"].as_str().expect("a reason");
        assert!(
            reason.contains("40 MiB") && reason.contains("39"),
            "{reason}"
        );
    }
}

/// The rows of the engines' table, one site each: mine, others', asked; as published; soundly.
#[test]
fn engines_answer_as_their_rows_say() {
    let me = |held, limit, epoch, extensible| Some((held, limit, epoch, extensible));
    let rows = [
        (me(0, 20, 0, false), 0, "1", "now", "now"),
        (me(18, 20, 0, false), 10, "1", "now", "now"),
        (me(19, 20, 0, false), 10, "1", "burst", "now"),
        (me(20, 20, 0, false), 10, "1", "burst", "burst"),
        (me(20, 20, 0, true), 10, "1", "now", "now"),
        (me(30, 35, 0, false), 10, "1", "now", "wait"),
        (me(5, 20, 21, true), 0, "1", "epoch", "now"),
        (me(5, 20, 21, false), 0, "1", "epoch", "epoch"),
        (me(0, 40, 0, false), 0, "40", "others", "now"),
        (me(0, 20, 0, false), 39, "1", "others", "now"),
        (None, 0, "1", "no-entry", "no-entry"),
    ];
    for (me, others, cpus, published, sound) in rows {
        let grid = grid(&[("s", me, others)]);
        for (engine, expected) in [("published", published), ("sound", sound)] {
            let answer = answered(&grid, &["--cpus", cpus, "--engine", engine]);
            assert_eq!(answer["schema"], "fairmesh.place/1");
            let (taken, refused) = (
                &answer["sites"][0]["verdict"],
                &answer["refused"][0]["code"],
            );
            let said = taken.as_str().or(refused.as_str());
            assert_eq!(said, Some(expected), "{grid} {engine}: {answer}");
        }
    }
}

#[test]
fn the_best_site_is_first_and_the_refused_stand_beside_with_reasons() {
    let sites = [
        ("full", Some((10, 20, 0, false)), 30),
        ("busy", Some((0, 20, 0, false)), 20),
        ("over", Some((0, 20, 21, false)), 0),
        ("idle", Some((1, 20, 0, false)), 0),
        ("none", None, 0),
    ];
    let answer = answered(&grid(&sites), &["--cpus", "2"]);
    assert_eq!(names(&answer["sites"]), ["idle", "busy", "full"]);
    let verdicts: Vec<_> = answer["sites"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|site| &site["verdict"])
        .collect();
    assert_eq!(verdicts, ["now", "now", "wait"]);
    assert_eq!(names(&answer["refused"]), ["none", "over"]);
    assert_eq!(
        answer["refused"][1]["reason"],
        "the VO has used 21 % of the epoch, of 20 %"
    );
    let table = placed(&grid(&sites), &["--cpus", "2", "-P"]);
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0], "Site|Verdict|Free|Total|Wait s|Age s|Why");
    assert_eq!(
        lines[1],
        "idle|now|39|40|0|?|within its limits; 39 CPUs are free"
    );
    assert_eq!(
        lines[5],
        "over|no|40|40|?|?|the VO has used 21 % of the epoch, of 20 %"
    );
    let table = placed(&grid(&sites), &["--cpus", "2"]);
    assert!(
        table.starts_with("2 CPUs for me, the best site first (engine sound, selector lu)\n"),
        "{table}"
    );
    let nobody = placed(&grid(&sites), &["--cpus", "2", "--vo", "them"]);
    assert!(
        nobody.starts_with("No site may have 2 CPUs for them (engine sound)\n"),
        "{nobody}"
    );
}

#[test]
fn chance_goes_by_the_seed_and_the_naive_asks_nobody() {
    let sites = ["a", "b", "c", "d"].map(|name| (name, Some((0, 20, 0, false)), 0));
    let order = |seed: &str| -> String {
        let answer = answered(
            &grid(&sites),
            &["--cpus", "1", "--selector", "ra", "--seed", seed],
        );
        names(&answer["sites"]).concat()
    };
    assert_eq!(order("1"), order("1"));
    assert!((2..10).any(|seed: u32| order(&seed.to_string()) != order("1")));
    let answer = answered(
        &grid(&[("none", None, 40)]),
        &["--cpus", "1", "--selector", "S-RA"],
    );
    assert_eq!(names(&answer["sites"]), ["none"]);
    assert_eq!(
        answer["sites"][0]["reason"],
        "not asked: s-ra takes any site"
    );
}

#[test]
fn words_that_mean_nothing_are_refused() {
    let line = |words: &[&str]| {
        let all = [&["place", "--grid", "g", "--vo", "v"], words].concat();
        parsed(&all).expect_err("words").to_string()
    };
    assert!(line(&["--cpus", "0"]).contains("0 is not in 1.."));
    assert!(line(&["--cpus", "1", "--engine", "x"]).contains("published, prose or sound"));
    assert!(line(&["--cpus", "1", "--selector", "x"]).contains("`x` is no selector: ra, rr"));
    assert!(line(&["--cpus", "1", "--confirm"]).contains("cannot be used with"));
    assert!(line(&["JOB.toml"]).contains("cannot be used with"));
    let utility = [
        "place",
        "--grid",
        "g",
        "--vo",
        "v",
        "--cpus",
        "1",
        "--selector",
        "utility",
    ];
    let refused = offline(&parsed(&utility).expect("words"), &mut Vec::new());
    let words = refused.expect_err("a file").to_string();
    assert!(words.contains("names no machines"), "{words}");
    let nothing = parsed(&["place"]).expect_err("nothing").to_string();
    assert!(nothing.contains("--cpus"), "{nothing}");
}
