//! The command against the FSGrid vectors, and on rows of its own.
//!
//! The vectors lie outside the repository: `FAIRMESH_VECTORS` names their folder, or they are
//! looked for beside the checkout. Without them this says so and checks nothing of them.

use std::collections::BTreeMap;

use clap::ValueEnum;
use ethnum::{I256, U256};
use serde_json::Value;

use super::*;

/// Vectors in the file; a file that lost some must not pass unnoticed.
const VECTORS: usize = 45;

/// Shares that do not add up to 100, shares of zero, and usage at entries with children: only the published formula
/// reads them as these vectors do.
const AS_PUBLISHED: [&str; 15] = [
    "v011", "v012", "v013", "v014", "v029", "v030", "v039", "v042", "v043", "v044", "v045", "v046",
    "v047", "v048", "v049",
];

/// The paper's number breaks or loses the order in these; `bits` and `rank` keep it in all.
const ORDER_BROKEN: [&str; 7] = ["v037", "v038", "v039", "v041", "v042", "v043", "v044"];

type Groups = Vec<Vec<String>>;

#[test]
fn every_vector_is_read() {
    let vectors = vectors();
    let refused: Vec<String> = vectors
        .iter()
        .filter(|vector| emulated(vector, ProjectionName::Paper).is_err())
        .map(id)
        .collect();
    assert!(
        vectors.is_empty() || vectors.len() == VECTORS,
        "{} vectors",
        vectors.len()
    );
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn targets_actual_shares_and_deviations_are_the_vectors() {
    for vector in good_vectors() {
        let emulated = emulated(&vector, ProjectionName::Paper).expect("a valid vector");
        let entries = by_path(&emulated);
        for (path, node) in vector["nodes"].as_object().expect("nodes") {
            let (entry, what) = (entries[path], format!("{} {path}", id(&vector)));
            assert_near(&entry.target, text(&node["share"]), &what);
            if path == "/" {
                continue;
            }
            assert_near(&entry.actual, text(&node["actual"]), &what);
            let own = entry.deviation.last().expect("a level");
            assert_near(own, text(&node["deviation"]), &what);
        }
        for (path, job) in vector["jobs"].as_object().expect("jobs") {
            let expected = job["tuple"].as_array().expect("a vector");
            let entry = entries[path];
            assert_eq!(
                entry.deviation.len(),
                expected.len(),
                "{} {path}",
                id(&vector)
            );
            for (ours, theirs) in entry.deviation.iter().zip(expected) {
                assert_near(ours, text(theirs), &format!("{} {path}", id(&vector)));
            }
        }
    }
}

#[test]
fn ranks_are_the_order_of_the_priorities() {
    let published = |projection| match projection {
        ProjectionName::Rank => Some("order_lexicographic_exact"),
        ProjectionName::Paper => Some("order_by_priority_unrounded"),
        _ => None,
    };
    for vector in good_vectors() {
        for projection in ProjectionName::value_variants() {
            let is_paper = *projection == ProjectionName::Paper;
            if !is_paper && AS_PUBLISHED.contains(&id(&vector).as_str()) {
                continue;
            }
            let emulated = emulated(&vector, *projection).expect("a valid vector");
            let groups = jobs_grouped(&vector, &emulated, |entry| -i64::from(entry.rank));
            if let Some(order) = published(*projection) {
                assert_eq!(groups, groups_of(&vector, order), "{}", id(&vector));
            }
            let mut entries: Vec<_> = emulated.entries.iter().collect();
            entries.sort_by_key(|entry| entry.rank);
            for pair in entries.windows(2) {
                let [first, then] = [pair[0], pair[1]].map(|entry| signed(&entry.priority));
                let expected = pair[0].rank.cmp(&pair[1].rank);
                assert_eq!(then.cmp(&first), expected, "{} {projection:?}", id(&vector));
            }
            let mut ranks: Vec<u32> = emulated.entries.iter().map(|entry| entry.rank).collect();
            ranks.sort_unstable();
            ranks.dedup();
            assert!(
                (1..).zip(&ranks).all(|(rank, found)| rank == *found),
                "{}",
                id(&vector)
            );
        }
    }
}

#[test]
fn the_papers_number_is_as_published_and_breaks_the_order_where_it_is_known_to() {
    let mut broken = Vec::new();
    for vector in good_vectors() {
        let paper = emulated(&vector, ProjectionName::Paper).expect("a valid vector");
        let entries = by_path(&paper);
        for (path, job) in vector["jobs"].as_object().expect("jobs") {
            let exact = text(&job["priority_unrounded"]["fraction"]);
            assert_near(
                &entries[path].priority,
                exact,
                &format!("{} {path}", id(&vector)),
            );
        }
        let exact = groups_of(&vector, "order_lexicographic_exact");
        if jobs_grouped(&vector, &paper, |entry| units(&entry.priority)) != exact {
            broken.push(id(&vector));
        }
        for projection in [ProjectionName::Bits, ProjectionName::Rank] {
            if AS_PUBLISHED.contains(&id(&vector).as_str()) {
                continue;
            }
            let kept = emulated(&vector, projection).expect("a valid vector");
            let firsts: Vec<U256> = exact
                .iter()
                .map(|group| units(&by_path(&kept)[&group[0]].priority))
                .collect();
            assert!(
                firsts.is_sorted_by(|a, b| a >= b),
                "{} {projection:?}",
                id(&vector)
            );
        }
    }
    assert!(
        broken.is_empty() && vectors().is_empty() || broken == ORDER_BROKEN,
        "{broken:?}"
    );
}

#[test]
fn the_paper_s_figure_comes_out_of_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let (policy, usage) = (folder.path().join("t.toml"), folder.path().join("u.csv"));
    std::fs::write(
        &policy,
        "[shares]\n\"/VO-A\" = { share = 30, mount = \"vo-a\" }\n\"/VO-A/P-A1\" = 50\n\"/VO-A/P-A2\" = 50\n\"/VO-B\" = 70\n",
    )
    .expect("writes");
    std::fs::write(
        &usage,
        "path,charge\n/VO-A/P-A1,1\n/VO-A/P-A2,2\n/VO-B,5\n/VO-B,1\n",
    )
    .expect("writes");
    let mut args = EmulateArgs {
        policy: vec![policy],
        usage,
        jobs: None,
        distance: Distance::Absolute,
        projection: ProjectionName::Bits,
        output: OutputArgs::default(),
    };
    args.output.json = true;
    let json: Value = serde_json::from_str(&ran(&args).expect("valid")).expect("JSON");
    assert_eq!(json["schema"], "fairmesh.emulate/1");
    let entry = &json["entries"][1];
    assert_eq!(entry["path"], "/VO-A/P-A1");
    assert_eq!(entry["target"], "50");
    assert_eq!(entry["actual"], "33.333333333333333333333333");
    assert_eq!(
        entry["deviation"],
        serde_json::json!(["-3.333333333333333333333333", "16.666666666666666666666667"])
    );
    assert_eq!(
        (&json["entries"][3]["rank"], &entry["rank"]),
        (&1.into(), &2.into())
    );
    args.output = OutputArgs {
        parsable: true,
        ..OutputArgs::default()
    };
    let table = ran(&args).expect("valid");
    assert!(
        table.starts_with("Entry|Target%|Actual%|Deviation%|Priority|Rank\n/VO-A|30|"),
        "{table}"
    );
    args.output = OutputArgs::default();
    let table = ran(&args).expect("valid");
    assert!(
        table.contains("\n  /VO-A/P-A1       50  33.3333   -3.3333  16.6666  "),
        "{table}"
    );
    // A draft of `policy new shares` is a tree as well.
    let draft = format!(
        "[policy]\nvo = \"{}\"\nversion = 1\nissued = 2026-01-01T00:00:00Z\nexpires = 2027-01-01T00:00:00Z\n\
         [shares]\n\"/VO-A\" = 30\n\"/VO-A/P-A1\" = 50\n\"/VO-A/P-A2\" = 50\n\"/VO-B\" = 70\n",
        "ab".repeat(32)
    );
    std::fs::write(&args.policy[0], draft).expect("writes");
    assert_eq!(ran(&args).expect("valid"), table);
    std::fs::write(&args.usage, "path,charge\n/VO-A/P-A9/x,1\n").expect("writes");
    // It is that of an account without a line; the paper knows of none.
    let table = ran(&args).expect("valid");
    assert!(table.contains("/VO-A/P-A9/x "), "{table}");
    args.projection = ProjectionName::Paper;
    let error = ran(&args).expect_err("an unknown path").to_string();
    assert!(
        error.contains("u.csv:2: `/VO-A/P-A9/x` is not in the tree"),
        "{error}"
    );
    assert!(error.contains("entry above it is `/VO-A`"), "{error}");
}

#[test]
fn the_root_is_an_entry_where_somebody_names_it() {
    let paths = |tree: &str, usage: &str| -> Vec<String> {
        let tree = ShareTree::parse(tree, "t").expect("valid");
        let charges = Charges::parse(usage, "u").expect("valid");
        let emulated = emulate(
            &tree,
            &charges,
            &Jobs::default(),
            Distance::Absolute,
            ProjectionName::Rank,
            Unknown::Refuse,
        );
        emulated
            .expect("valid")
            .entries
            .iter()
            .map(|entry| entry.path.to_string())
            .collect()
    };
    assert_eq!(
        paths("[shares]\n\"/a\" = 1\n", "path,charge\n/a,1\n"),
        ["/a"]
    );
    assert_eq!(
        paths("[shares]\n\"/a\" = 1\n", "path,charge\n/,1\n"),
        ["/", "/*", "/*/=", "/a"]
    );
    assert_eq!(
        paths("[shares]\n\"/\" = 100\n\"/a\" = 1\n", "path,charge\n"),
        ["/", "/a"]
    );
    assert!(paths("[shares]\n", "path,charge\n").is_empty());
}

fn ran(args: &EmulateArgs) -> anyhow::Result<String> {
    let mut out = Vec::new();
    let read_tree = &crate::policy_cmd::read_tree;
    assert_eq!(run(args, &mut out, read_tree)?, Exit::Success);
    Ok(String::from_utf8(out)?)
}

/// What the command makes of the files that a vector would be.
fn emulated(vector: &Value, projection: ProjectionName) -> anyhow::Result<Emulated> {
    let mut tree = "[shares]\n".to_owned();
    lines_of(&vector["tree"], "", &mut tree);
    let mut usage = "path,charge\n".to_owned();
    for (path, amount) in scaled(vector["usage"].as_object().expect("usage")) {
        usage += &format!("{path},{amount}\n");
    }
    if vector["nodes"].get("/").is_some() || vector["jobs"].get("/").is_some() {
        usage += "/,0\n";
    }
    let (tree, charges) = (
        ShareTree::parse(&tree, "tree")?,
        Charges::parse(&usage, "usage")?,
    );
    Ok(emulate(
        &tree,
        &charges,
        &Jobs::default(),
        Distance::Absolute,
        projection,
        Unknown::Refuse,
    )?)
}

fn lines_of(node: &Value, path: &str, tree: &mut String) {
    for child in node["children"].as_array().into_iter().flatten() {
        let path = format!("{path}/{}", text(&child["name"]));
        *tree += &format!("\"{path}\" = {}\n", text(&child["share"]));
        lines_of(child, &path, tree);
    }
}

/// Decimal amounts as whole numbers, all multiplied by the same power of ten.
fn scaled(usage: &serde_json::Map<String, Value>) -> Vec<(String, String)> {
    fn parts(amount: &str) -> (&str, &str) {
        amount.split_once('.').unwrap_or((amount, ""))
    }
    let width = usage
        .values()
        .map(|amount| parts(text(amount)).1.len())
        .max()
        .unwrap_or(0);
    let scale = |(path, amount): (&String, &Value)| {
        let (whole, decimals) = parts(text(amount));
        (path.clone(), format!("{whole}{decimals:0<width$}"))
    };
    usage.iter().map(scale).collect()
}

fn by_path(emulated: &Emulated) -> BTreeMap<String, &EmulatedEntry> {
    emulated
        .entries
        .iter()
        .map(|entry| (entry.path.to_string(), entry))
        .collect()
}

/// The jobs of a vector, grouped by equal `key`, the greatest first.
fn jobs_grouped<K: Ord>(
    vector: &Value,
    emulated: &Emulated,
    key: impl Fn(&EmulatedEntry) -> K,
) -> Groups {
    let entries = by_path(emulated);
    let mut groups: BTreeMap<K, Vec<String>> = BTreeMap::new();
    for path in vector["jobs"].as_object().expect("jobs").keys() {
        groups
            .entry(key(entries[path]))
            .or_default()
            .push(path.clone());
    }
    groups.into_values().rev().collect()
}

fn groups_of(vector: &Value, order: &str) -> Groups {
    let mut groups: Groups = serde_json::from_value(vector[order].clone()).expect("groups");
    groups.iter_mut().for_each(|group| group.sort());
    groups
}

/// A non-negative decimal number in units of 10^-24.
fn units(decimal: &str) -> U256 {
    let (whole, decimals) = decimal.split_once('.').unwrap_or((decimal, ""));
    U256::from_str_radix(&format!("{whole}{decimals:0<24}"), 10).expect("digits")
}

/// A decimal number of at most 36 decimals, in units of the last.
fn signed(decimal: &str) -> I256 {
    let magnitude = decimal.trim_start_matches('-');
    let (whole, decimals) = magnitude.split_once('.').unwrap_or((magnitude, ""));
    let units = I256::from_str_radix(&format!("{whole}{decimals:0<36}"), 10).expect("digits");
    if decimal == magnitude { units } else { -units }
}

/// Asserts that the decimal is the fraction `p/q`, to 15 significant digits or 20 decimals.
fn assert_near(decimal: &str, fraction: &str, what: &str) {
    let (numerator, denominator) = fraction.split_once('/').unwrap_or((fraction, "1"));
    let sign = |text: &str| text.starts_with('-');
    let (numerator, denominator) = match (numerator.split_once('.'), denominator) {
        (Some((whole, decimals)), _) => (
            format!("{whole}{decimals}"),
            format!("1{:0<width$}", "", width = decimals.len()),
        ),
        (None, denominator) => (numerator.to_owned(), denominator.to_owned()),
    };
    let wide =
        |digits: &str| U256::from_str_radix(digits.trim_start_matches('-'), 10).expect("digits");
    let exact = super::decimal::decimal(sign(&numerator), wide(&numerator), wide(&denominator));
    assert_eq!(
        sign(decimal),
        sign(&exact),
        "{what}: {decimal} is not {exact}"
    );
    let digits = |text: &str| -> String {
        let text = text.trim_start_matches('-');
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        format!(
            "{whole}{:0<40}",
            decimals.chars().take(40).collect::<String>()
        )
    };
    let (ours, theirs) = (wide(&digits(decimal)), wide(&digits(&exact)));
    let allowed = (theirs / U256::new(10).pow(15)).min(U256::new(10).pow(20));
    assert!(
        ours.abs_diff(theirs) <= allowed,
        "{what}: {decimal} is not {exact}"
    );
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn id(vector: &Value) -> String {
    text(&vector["id"]).to_owned()
}

fn good_vectors() -> impl Iterator<Item = Value> {
    vectors().into_iter()
}

/// The vectors, or none where they are not there.
fn vectors() -> Vec<Value> {
    let Some(file) = fairmesh_needs::vectors("fsgrid-priority.json") else {
        return Vec::new();
    };
    let text = std::fs::read_to_string(&file).expect("a readable file");
    let document: Value = serde_json::from_str(&text).expect("valid JSON");
    document["vectors"]
        .as_array()
        .expect("a list of vectors")
        .clone()
}

#[test]
fn a_charge_does_not_count_in_a_period_that_has_not_begun() {
    let text = "[shares]\n\"/a\" = 1\n\"/a/x\" = { share = 1, since = \"9999-12-31\" }\n\
                \"/a/y\" = { share = 1, since = \"2020-01-01\" }\n\"/b\" = 1\n";
    let tree = ShareTree::parse(text, "tree.toml").expect("a tree");
    let charges = Charges::parse("path,charge\n/a/x,60\n/a/y,20\n/b,20\n", "usage.csv");
    let emulated = emulate(
        &tree,
        &charges.expect("charges"),
        &Jobs::default(),
        Distance::Relative,
        ProjectionName::Rank,
        Unknown::Refuse,
    );
    let emulated = emulated.expect("numbers");
    let actual = by_path(&emulated).into_iter();
    let actual: Vec<_> = actual
        .map(|(path, entry)| (path.to_string(), entry.actual.clone()))
        .collect();
    let expected = [("/a", "80"), ("/a/x", "0"), ("/a/y", "100"), ("/b", "20")];
    assert_eq!(
        actual,
        expected.map(|(path, actual)| (path.to_owned(), actual.to_owned()))
    );
}
