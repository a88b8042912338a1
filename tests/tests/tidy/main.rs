//! The house rules that no compiler checks: size, leftovers, top comments, floats, arrows, paths.
//!
//! A limit that nobody checks decays, so each rule is a test here, and names every offender as
//! `file:line`. It reads the work tree, not the index, so a file counts before it is committed.
//!
//! The scans lean on rustfmt: an item ends at the closing brace that stands where it began. That is
//! enough for a rule of thumb, and the planted offenders at the end show that each scan can fail.
//!
//! Deliberately not here: what clippy and rustdoc already check (see the workspace's lints).

mod circles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a file, without its tests. Longer ones hold more than one thought.
const FILE_LINES_MAX: usize = 600;

/// Lines of a function, with its signature. Longer ones do not fit on a screen.
const FUNCTION_LINES_MAX: usize = 70;

/// Where Rust code of ours lives.
const CODE_DIRS: [&str; 7] = [
    "cli",
    "crates",
    "experiments",
    "node",
    "simnet",
    "tests",
    "xtask",
];

/// Which crates of the workspace a crate may depend on. `tests` may see all of them.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("usage", &["model"]),
    ("policy", &["model"]),
    ("fairshare", &["model"]),
    ("gossip", &["model"]),
    ("quota", &["model"]),
    (
        "site",
        &[
            "quota",
            "broker",
            "gossip",
            "usage",
            "policy",
            "fairshare",
            "model",
        ],
    ),
    ("round", &["site", "model"]),
    ("client", &["model"]),
    ("client-ffi", &["client", "model"]),
    ("cluster", &["model"]),
    ("records", &["model"]),
    ("api", &["broker", "client", "records", "model"]),
    ("schedulers", &["api", "client", "records", "model"]),
    ("broker", &["fairshare", "model"]),
    (
        "node",
        &[
            "api",
            "round",
            "site",
            "client",
            "cluster",
            "records",
            "schedulers",
            "broker",
            "gossip",
            "quota",
            "usage",
            "policy",
            "fairshare",
            "model",
        ],
    ),
    (
        "cli",
        &[
            "node",
            "api",
            "schedulers",
            "site",
            "client",
            "cluster",
            "records",
            "broker",
            "quota",
            "policy",
            "fairshare",
            "model",
        ],
    ),
    (
        "simnet",
        &[
            "round",
            "site",
            "cluster",
            "gossip",
            "quota",
            "usage",
            "policy",
            "fairshare",
            "model",
        ],
    ),
    (
        "experiments",
        &[
            "simnet",
            "site",
            "broker",
            "cluster",
            "gossip",
            "quota",
            "policy",
            "fairshare",
            "model",
        ],
    ),
    ("simnet/cli", &["experiments", "simnet", "cluster", "model"]),
    ("needs", &[]),
    ("fuzz", &["tests"]),
    ("simnet-fuzz", &["simnet"]),
    ("xtask", &[]),
];

/// C hands over raw pointers, so this crate may not forbid unsafe code; it denies it but for one module.
const FFI_CRATE: &str = "crates/client-ffi/Cargo.toml";

/// What a pure crate may not depend on, for any purpose.
const IMPURE: [&str; 3] = ["libp2p", "sled", "tokio"];

/// The crates below `crates/` that wait: the loops with batch systems, and the client of `control.sock`.
const WAITING_CRATES: [&str; 2] = ["crates/api/Cargo.toml", "crates/schedulers/Cargo.toml"];

#[test]
fn files_are_short() {
    report("files that are too long", each_source(long_file));
}

#[test]
fn functions_are_short() {
    report("functions that are too long", each_source(long_functions));
}

#[test]
fn modules_begin_with_a_comment() {
    report(
        "modules that do not say what they are",
        each_source(bare_module),
    );
}

#[test]
fn nothing_is_left_over() {
    report("leftovers", each_source(leftovers));
}

#[test]
fn pure_crates_have_no_floats() {
    report("floats in crates/", each_source(floats));
}

#[test]
fn pure_crates_warn_of_floats_and_truncation() {
    report(
        "crates/*/src/lib.rs without `#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]`",
        each_source(missing_warnings),
    );
}

#[test]
fn dependencies_follow_the_arrows() {
    report(
        "dependencies against the arrows",
        each_manifest(wrong_arrows),
    );
}

#[test]
fn pure_crates_depend_on_no_machinery() {
    report("machinery in crates/", each_manifest(impure_dependencies));
}

#[test]
fn crates_take_the_lints_of_the_workspace() {
    report(
        "crates without `[lints] workspace = true`",
        each_manifest(missing_lints),
    );
}

#[test]
fn attacks_are_shown_by_tests_that_exist() {
    let (named, unknown) = proofs("docs/threat-model.md", |_| false);
    assert!(named > 30, "{named}");
    report("names in docs/threat-model.md of no test", unknown);
}

#[test]
fn habits_are_shown_by_tests_and_files_that_exist() {
    let is_file = |name: &str| name.contains(['/', '.']) && root().join(name).exists();
    let (named, unknown) = proofs("docs/habits.md", |name| name.contains(' ') || is_file(name));
    assert!(named > 40, "{named}");
    report("names in docs/habits.md of no test and no file", unknown);
}

/// Names between backticks in the last column of a page's tables: how many, and those that are no test, nor anything
/// else that shows something.
fn proofs(page: &str, shows: impl Fn(&str) -> bool) -> (usize, Vec<String>) {
    let functions: BTreeSet<String> = code_files()
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .flat_map(|text| {
            text.lines()
                .filter_map(function_name)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    let text = std::fs::read_to_string(root().join(page)).expect("the page");
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'));
    let shown = rows.filter_map(|row| row.trim_end_matches([' ', '|']).rsplit('|').next());
    let named: Vec<&str> = shown
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    let unknown = named
        .iter()
        .filter(|name| !functions.contains(**name) && !shows(name));
    (
        named.len(),
        unknown.map(|name| (*name).to_owned()).collect(),
    )
}

#[test]
fn every_page_is_in_the_book_once() {
    let docs = root().join("docs");
    let summary = Text::read(docs.join("SUMMARY.md")).expect("the book has a table of contents");
    let listed: Vec<String> = links(&summary).into_iter().map(|(_, to)| to).collect();
    let distinct: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
    assert_eq!(listed.len(), distinct.len(), "a page is listed twice");
    let pages = files_below(&docs).into_iter();
    let pages = pages.filter(|file| file.extension().is_some_and(|is| is == "md"));
    let pages = pages.map(|file| from_root(&file));
    let missing = pages
        .filter(|page| page != "docs/SUMMARY.md")
        .filter(|page| !distinct.contains(page.trim_start_matches("docs/")));
    report("pages that are not in docs/SUMMARY.md", missing.collect());
}

#[test]
fn links_lead_to_what_is_there() {
    let texts = files_below(&root()).into_iter();
    let texts = texts.filter(|file| file.extension().is_some_and(|is| is == "md"));
    let broken = texts
        .filter_map(Text::read)
        .flat_map(|text| broken_links(&text));
    report("links that lead nowhere", broken.collect());
}

#[test]
fn no_machine_is_named() {
    let texts = files_below(&root()).into_iter().filter_map(Text::read);
    report(
        "machine paths and registry hosts",
        texts.flat_map(|text| machine_names(&text)).collect(),
    );
}

// ---- The rules: each gives the offenders of one file. ----

fn long_file(source: &Text) -> Vec<String> {
    let lines = source.is_test_line.iter().filter(|&&test| !test).count();
    let long = !source.is_test_file() && lines > FILE_LINES_MAX;
    long.then(|| {
        source.at(
            0,
            &format!("{lines} lines without tests, of {FILE_LINES_MAX}"),
        )
    })
    .into_iter()
    .collect()
}

fn long_functions(source: &Text) -> Vec<String> {
    if source.is_test_file() {
        return Vec::new();
    }
    let mut offenders = Vec::new();
    for (index, line) in source.lines.iter().enumerate() {
        let Some(name) = function_name(line).filter(|_| !source.is_test_line[index]) else {
            continue;
        };
        let lines = source.item_end(index) - index + 1;
        if lines > FUNCTION_LINES_MAX {
            offenders.push(source.at(
                index,
                &format!("`{name}` has {lines} lines, of {FUNCTION_LINES_MAX}"),
            ));
        }
    }
    offenders
}

fn bare_module(source: &Text) -> Vec<String> {
    let has_comment = source
        .lines
        .first()
        .is_some_and(|line| line.starts_with("//!"));
    if source.is_test_file() || has_comment {
        return Vec::new();
    }
    vec![source.at(0, "does not begin with `//!`")]
}

/// The needles are put together here, so that this file is not its own first offender.
fn leftovers(source: &Text) -> Vec<String> {
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|parts| parts.concat());
    let calls = [
        ["to", "do!("],
        ["unimpl", "emented!("],
        ["db", "g!("],
        ["#[ig", "nore"],
    ]
    .map(|parts| parts.concat());
    source.offenders(|line| {
        let word = words_of(line).find(|word| words.iter().any(|needle| needle == word));
        word.map(str::to_owned)
            .or_else(|| calls.iter().find(|call| line.contains(*call)).cloned())
    })
}

fn floats(source: &Text) -> Vec<String> {
    if !source.is_crate_source() || source.is_test_file() {
        return Vec::new();
    }
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    source.offenders_outside_tests(|line| {
        words_of(&code(line))
            .find(|word| is_float(word))
            .map(str::to_owned)
    })
}

fn missing_warnings(source: &Text) -> Vec<String> {
    if !source.is_crate_source() || !source.path.ends_with("/src/lib.rs") {
        return Vec::new();
    }
    let squashed: String = source.lines.concat().split_whitespace().collect();
    let warned: Vec<_> = squashed
        .split("#![warn(")
        .skip(1)
        .filter_map(|rest| rest.split(")]").next())
        .flat_map(|lints| lints.split(','))
        .collect();
    [
        "clippy::float_arithmetic",
        "clippy::cast_possible_truncation",
    ]
    .iter()
    .filter(|lint| !warned.contains(lint))
    .map(|lint| source.at(0, &format!("no warning of `{lint}`")))
    .collect()
}

fn wrong_arrows(manifest: &Manifest) -> Vec<String> {
    let name = crate_name(&manifest.name);
    if name == "tests" {
        return Vec::new();
    }
    let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
        return vec![manifest.at(&format!("`{name}` has no line in ARROWS of {}", file!()))];
    };
    let internal = manifest
        .dependencies
        .iter()
        .filter(|(package, dev)| is_ours(package) && !**dev);
    internal
        .map(|(package, _)| crate_name(package))
        .filter(|to| !allowed.contains(to))
        .map(|to| manifest.at(&format!("`{name}` may not depend on `{to}`")))
        .collect()
}

fn impure_dependencies(manifest: &Manifest) -> Vec<String> {
    if !manifest.path.starts_with("crates/") || WAITING_CRATES.contains(&&*manifest.path) {
        return Vec::new();
    }
    let packages = manifest.dependencies.keys();
    packages
        .filter(|package| IMPURE.contains(&package.as_str()))
        .map(|package| manifest.at(&format!("depends on `{package}`")))
        .collect()
}

fn missing_lints(manifest: &Manifest) -> Vec<String> {
    if manifest.takes_workspace_lints || manifest.path == FFI_CRATE {
        return Vec::new();
    }
    vec![manifest.at("has lints of its own, or none")]
}

/// Links of a page to files: the line, and where they lead.
fn links(page: &Text) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in page.lines.iter().enumerate() {
        let targets = line.split("](").skip(1);
        let targets = targets.filter_map(|rest| rest.split(')').next());
        let files = targets.filter(|to| !to.contains("://") && !to.starts_with('#'));
        found.extend(files.map(|to| (index, to.split('#').next().unwrap_or(to).to_owned())));
    }
    found
}

/// Those that lead nowhere, and from a page of the book those that lead out of it.
fn broken_links(page: &Text) -> Vec<String> {
    let folder = root().join(&page.path);
    let folder = folder.parent().expect("a file is in a folder");
    let book = root().join("docs").canonicalize().expect("the book");
    let is_in_book = page.path.starts_with("docs/");
    let leads = |to: &String| {
        let to = folder.join(to).canonicalize();
        to.is_ok_and(|to| !is_in_book || to.starts_with(&book))
    };
    let broken = links(page).into_iter().filter(|(_, to)| !leads(to));
    broken
        .map(|(index, to)| page.at(index, &format!("`{to}`")))
        .collect()
}

/// Paths of the machine where this was written, and the hosts of package registries or mirrors. In
/// the lock file, the name of the default registry (which is no host) is all that may stand.
fn machine_names(text: &Text) -> Vec<String> {
    if text.path == "Cargo.lock" {
        let source = ["source = \"regis", "try+"].concat();
        let default = "/rust-lang/crates.io-index\"";
        return text.offenders(|line| {
            (line.starts_with(&source) && !line.ends_with(default)).then(|| line.to_owned())
        });
    }
    let paths = [["/wo", "rk/"], ["/root", "/."]].map(|parts| parts.concat());
    let hosts = [
        ["index.", "crates.io"],
        ["static.", "crates.io"],
        ["spar", "se+"],
        ["regis", "try+"],
        ["replace", "-with ="],
        ["[regis", "tries"],
        ["python", "hosted.org"],
        ["registry", ".npmjs"],
        ["proxy.", "golang.org"],
    ]
    .map(|parts| parts.concat());
    text.offenders(|line| {
        let path = paths.iter().find(|path| {
            // In the middle of a longer path it is a folder of ours.
            line.match_indices(*path).any(|(at, _)| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.}".contains(c))
            })
        });
        path.or_else(|| hosts.iter().find(|host| line.contains(*host)))
            .cloned()
    })
}

// ---- Reading Rust as rustfmt leaves it. ----

/// A text file, by its path from the root of the repository.
struct Text {
    path: String,
    lines: Vec<String>,
    /// Which lines belong to an item behind `#[cfg(test)]`.
    is_test_line: Vec<bool>,
}

impl Text {
    /// `None` for what is not UTF-8.
    fn read(file: PathBuf) -> Option<Self> {
        let content =
            String::from_utf8(fs::read(&file).expect("a listed file is readable")).ok()?;
        Some(Self::new(&from_root(&file), &content))
    }

    fn new(path: &str, content: &str) -> Self {
        let lines: Vec<String> = content.lines().map(str::to_owned).collect();
        let mut text = Self {
            path: path.to_owned(),
            is_test_line: vec![false; lines.len()],
            lines,
        };
        for index in 0..text.lines.len() {
            if text.lines[index].trim() == "#[cfg(test)]" {
                let end = text.item_end(index);
                text.is_test_line[index..=end].fill(true);
            }
        }
        text
    }

    /// A file that holds only tests.
    fn is_test_file(&self) -> bool {
        self.path.ends_with("/tests.rs")
            || self
                .path
                .split('/')
                .any(|part| matches!(part, "tests" | "benches" | "fuzz"))
    }

    /// A file of a pure crate, under `crates/*/src`.
    fn is_crate_source(&self) -> bool {
        self.path.starts_with("crates/") && self.path.split('/').nth(2) == Some("src")
    }

    /// The last line of the item that begins (with its attributes) at this line.
    fn item_end(&self, start: usize) -> usize {
        let indentation = indentation_of(&self.lines[start]);
        let at_this_depth = |line: &str| indentation_of(line) == indentation;
        let ends = |line: &str| line.starts_with('}') || line.ends_with([';', '}']);
        (start..self.lines.len())
            .find(|&index| {
                let line = &self.lines[index];
                at_this_depth(line) && ends(line.trim())
            })
            .unwrap_or(self.lines.len() - 1)
    }

    fn at(&self, index: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.path, index + 1)
    }

    fn offenders(&self, find: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let lines = self.lines.iter().enumerate();
        lines
            .filter_map(|(index, line)| Some(self.at(index, &find(line)?)))
            .collect()
    }

    fn offenders_outside_tests(&self, find: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let lines = self.lines.iter().enumerate();
        lines
            .filter(|(index, _)| !self.is_test_line[*index])
            .filter_map(|(index, line)| Some(self.at(index, &find(line)?)))
            .collect()
    }
}

/// The width of the white space before the text; a blank line is deeper than anything.
fn indentation_of(line: &str) -> usize {
    line.find(|c: char| !c.is_whitespace())
        .unwrap_or(usize::MAX)
}

/// The name of the function that begins on this line.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub(") {
        rest = after.split_once(") ")?.1;
    }
    let qualifiers = ["pub ", "const ", "async ", "unsafe ", "extern \"C\" "];
    while let Some(after) = qualifiers.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = after;
    }
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// A float type, alone or within a name (`as_f64`) or behind a literal (`1f32`).
fn is_float(word: &str) -> bool {
    let types = ["f32", "f64"];
    let named = word.split('_').any(|part| types.contains(&part));
    let literal = word.starts_with(|c: char| c.is_ascii_digit())
        && types.iter().any(|suffix| word.ends_with(suffix));
    (named || literal) && !word.starts_with("0x")
}

// ---- Reading manifests. ----

/// What the rules want to know of a `Cargo.toml`.
struct Manifest {
    path: String,
    name: String,
    /// Each dependency's package, and whether it is for tests only.
    dependencies: BTreeMap<String, bool>,
    takes_workspace_lints: bool,
}

impl Manifest {
    fn new(path: &str, content: &str) -> Self {
        let table: toml::Table = content
            .parse()
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut dependencies = BTreeMap::new();
        let targets = table.get("target").and_then(toml::Value::as_table);
        let platforms = targets.into_iter().flat_map(toml::Table::values);
        let tables = platforms.filter_map(toml::Value::as_table).chain([&table]);
        for table in tables {
            for (key, dev) in [
                ("dependencies", false),
                ("build-dependencies", false),
                ("dev-dependencies", true),
            ] {
                let entries = table.get(key).and_then(toml::Value::as_table);
                for (name, entry) in entries.into_iter().flatten() {
                    let renamed = entry.get("package").and_then(toml::Value::as_str);
                    let package = renamed.unwrap_or(name).to_owned();
                    let only_dev = dependencies.entry(package).or_insert(dev);
                    *only_dev &= dev;
                }
            }
        }
        let value = |section: &str, key: &str| table.get(section)?.get(key).cloned();
        Self {
            path: path.to_owned(),
            name: value("package", "name")
                .and_then(|name| Some(name.as_str()?.to_owned()))
                .unwrap_or_else(|| panic!("{path}: no package name")),
            dependencies,
            takes_workspace_lints: value("lints", "workspace") == Some(toml::Value::Boolean(true)),
        }
    }

    fn at(&self, what: &str) -> String {
        format!("{}:1: {what}", self.path)
    }
}

/// Whether a package is of the workspace.
fn is_ours(package: &str) -> bool {
    package.starts_with("fairmesh") || package.starts_with("simnet")
}

/// The crate's name in the architecture: its folder's.
fn crate_name(package: &str) -> &str {
    match package {
        "fairmesh" => "cli",
        "simnet-engine" => "simnet",
        "simnet" => "simnet/cli",
        _ => package.strip_prefix("fairmesh-").unwrap_or(package),
    }
}

// ---- Walking the work tree. ----

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .expect("this crate lies below the root")
        .to_owned()
}

fn from_root(file: &Path) -> String {
    let relative = file.strip_prefix(root()).expect("found below the root");
    relative
        .to_str()
        .expect("file names of ours are UTF-8")
        .to_owned()
}

/// Every file below, in order, without what git or cargo made.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| !path.ends_with(".git") && !path.ends_with("target") && !path.is_symlink())
        .collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

fn code_files() -> impl Iterator<Item = PathBuf> {
    CODE_DIRS
        .iter()
        .flat_map(|dir| files_below(&root().join(dir)))
}

fn each_source(rule: fn(&Text) -> Vec<String>) -> Vec<String> {
    code_files()
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(Text::read)
        .flat_map(|source| rule(&source))
        .collect()
}

fn each_manifest(rule: fn(&Manifest) -> Vec<String>) -> Vec<String> {
    code_files()
        .filter(|file| file.ends_with("Cargo.toml"))
        .filter_map(Text::read)
        .flat_map(|text| rule(&Manifest::new(&text.path, &text.lines.join("\n"))))
        .collect()
}

#[track_caller]
fn report(what: &str, offenders: Vec<String>) {
    assert!(
        offenders.is_empty(),
        "{} {what}:\n  {}\n",
        offenders.len(),
        offenders.join("\n  ")
    );
}

// ---- Each rule catches a planted offender, and only that. ----

fn offences(rule: fn(&Text) -> Vec<String>, path: &str, content: &str) -> usize {
    rule(&Text::new(path, content)).len()
}

#[test]
fn length_counts_code_and_not_tests() {
    let long = "x\n".repeat(FILE_LINES_MAX + 1);
    let enough = "x\n".repeat(FILE_LINES_MAX);
    let tests = format!("{enough}#[cfg(test)]\nmod tests {{\n    x\n}}\n");
    let after_tests = format!("#[cfg(test)]\nmod tests;\n{long}");
    assert_eq!(offences(long_file, "node/src/a.rs", &long), 1);
    assert_eq!(offences(long_file, "node/src/a.rs", &enough), 0);
    assert_eq!(offences(long_file, "node/src/a.rs", &tests), 0);
    assert_eq!(offences(long_file, "node/src/a.rs", &after_tests), 1);
    assert_eq!(offences(long_file, "node/src/a/tests.rs", &long), 0);
}

#[test]
fn functions_are_measured_from_signature_to_brace() {
    let function = |head: &str, inner: usize| format!("{head}{}}}\n", "    x();\n".repeat(inner));
    let heads = [
        "fn a() {\n",
        "pub(crate) async fn a<T>() {\n",
        "pub unsafe extern \"C\" fn a() {\n",
    ];
    for head in heads {
        let (fits, long) = (function(head, 68), function(head, 69));
        assert_eq!(offences(long_functions, "node/src/a.rs", &fits), 0);
        assert_eq!(offences(long_functions, "node/src/a.rs", &long), 1);
    }
    let wrapped = function("fn a(\n    b: u8,\n) -> u8\nwhere\n    T: Ord,\n{\n", 64);
    assert_eq!(offences(long_functions, "node/src/a.rs", &wrapped), 1);
    let declared = format!(
        "fn a(\n    b: u8,\n) -> u8;\n{}",
        function("impl B {\n", 90)
    );
    assert_eq!(offences(long_functions, "node/src/a.rs", &declared), 0);
}

#[test]
fn planted_lines_are_found() {
    let leftover = ["// TO", "DO: x\n    to", "do!()\n// method, dbg\n"].concat();
    assert_eq!(offences(leftovers, "node/src/a.rs", &leftover), 2);
    assert_eq!(offences(bare_module, "node/src/a.rs", "use x;\n//! x\n"), 1);
    assert_eq!(offences(bare_module, "node/src/a.rs", "//! x\n"), 0);

    let float =
        "// f64\nlet a = 1f32;\nb.as_f64();\nlet c = 0x1f64;\n#[cfg(test)]\nfn d(e: f64) {}\n";
    assert_eq!(offences(floats, "crates/a/src/b.rs", float), 2);
    assert_eq!(offences(floats, "node/src/b.rs", float), 0);

    let warned =
        "#![warn(\n    clippy::cast_possible_truncation,\n    clippy::float_arithmetic\n)]\n";
    assert_eq!(offences(missing_warnings, "crates/a/src/lib.rs", warned), 0);
    let allowed = warned.replace("warn", "allow");
    assert_eq!(
        offences(missing_warnings, "crates/a/src/lib.rs", &allowed),
        2
    );

    let links = "[a](../README.md#x) ![b](none.png) [c](https://x.example/) [d](#e)\n";
    assert_eq!(offences(broken_links, "configs/a.md", links), 1);
    assert_eq!(offences(broken_links, "docs/a.md", links), 2);

    let paths = ["see /wo", "rk/x\n`crates/wo", "rk/x`\nspar", "se+http\n"].concat();
    assert_eq!(offences(machine_names, "README.md", &paths), 2);
    let lock = ["source = \"regis", "try+elsewhere\"\n"].concat();
    assert_eq!(offences(machine_names, "Cargo.lock", &lock), 1);
}

#[test]
fn planted_manifests_are_found() {
    let manifest = Manifest::new(
        "crates/usage/Cargo.toml",
        r#"
            [package]
            name = "fairmesh-usage"
            [dependencies]
            fairmesh-model.workspace = true
            other = { package = "fairmesh-site", path = "../site" }
            [dev-dependencies]
            fairmesh-gossip.workspace = true
            [target.'cfg(unix)'.dependencies]
            tokio = "1"
        "#,
    );
    assert_eq!(
        wrong_arrows(&manifest),
        ["crates/usage/Cargo.toml:1: `usage` may not depend on `site`"]
    );
    assert_eq!(
        impure_dependencies(&manifest),
        ["crates/usage/Cargo.toml:1: depends on `tokio`"]
    );
    assert_eq!(missing_lints(&manifest).len(), 1);
}
