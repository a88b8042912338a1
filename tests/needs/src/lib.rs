//! What a test needs beyond the repository, and what happens where it is not there.
//!
//! Invariant: no test looks away unseen. One that lacks something fails where `FAIRMESH_REQUIRE` names
//! it, as in the continuous integration; elsewhere it passes, says so past the test runner's capture,
//! and adds a line to the file that `FAIRMESH_NOT_RUN` names, of which `cargo xtask test` makes a table.

mod rows;

pub use rows::say_row;

use std::env;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;

/// Something that a machine may not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Recorded job logs and accounting records.
    Traces,
    /// Published algorithms worked out by hand.
    Vectors,
    /// Debian's Slurm, and root to start it.
    Slurm,
    /// What the plug-in is compiled with: Slurm's headers and source.
    Plugin,
    /// Root, to play other users.
    Root,
    /// Prometheus and its tool.
    Prometheus,
    /// Python 3.
    Python,
    /// systemd's own check of units.
    Systemd,
    /// NorduGrid ARC's A-REX and clients, and root to start them.
    Arc,
    /// Debian's Grid Engine, and root to start it.
    GridEngine,
    /// A Chromium, and axe-core, which npm fetches.
    Axe,
    /// HTCondor, and root to start it.
    Condor,
    /// Schemathesis, which pip fetches.
    Schemathesis,
}

/// Names, separated by commas, of what a test may not do without.
const REQUIRE: &str = "FAIRMESH_REQUIRE";

/// The file that gets a line for every test that could not run: test, need, what is lacking, and
/// how to get it, separated by tabs.
const NOT_RUN: &str = "FAIRMESH_NOT_RUN";

/// What the test command itself may lack: it has this name in `FAIRMESH_REQUIRE` (see `xtask`).
const OF_XTASK: [&str; 2] = ["deny", "book"];

impl Need {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Traces,
        Self::Vectors,
        Self::Slurm,
        Self::Plugin,
        Self::Root,
        Self::Prometheus,
        Self::Python,
        Self::Systemd,
        Self::Arc,
        Self::Axe,
        Self::GridEngine,
        Self::Condor,
        Self::Schemathesis,
    ];

    /// Its name in `FAIRMESH_REQUIRE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Vectors => "vectors",
            Self::Slurm => "slurm",
            Self::Plugin => "plugin",
            Self::Root => "root",
            Self::Prometheus => "prometheus",
            Self::Python => "python",
            Self::Systemd => "systemd",
            Self::Arc => "arc",
            Self::Axe => "axe",
            Self::GridEngine => "gridengine",
            Self::Condor => "condor",
            Self::Schemathesis => "schemathesis",
        }
    }

    /// How to get it.
    fn remedy(self) -> &'static str {
        match self {
            Self::Traces => "put them in ../shared/traces, or their folder in FAIRMESH_TRACES",
            Self::Vectors => "put them in ../shared/vectors, or their folder in FAIRMESH_VECTORS",
            Self::Slurm => "run `cargo xtask test` as root on Debian: it installs Slurm",
            Self::GridEngine => "run `cargo xtask test` as root on Debian: it installs Grid Engine",
            Self::Condor => {
                "as root: `cargo xtask test --schedulers` makes Debians that have it; or apt-get install condor where this \
                 machine's has it"
            }
            Self::Root => "run the tests as root",
            Self::Schemathesis => {
                "on Debian: apt-get install --no-install-recommends python3-venv; where PyPI cannot be reached, name the program \
                 in FAIRMESH_SCHEMATHESIS"
            }
            Self::Prometheus => "on Debian: apt-get install --no-install-recommends prometheus",
            Self::Python => "on Debian: apt-get install --no-install-recommends python3",
            Self::Systemd => "on Debian: apt-get install --no-install-recommends systemd",
            Self::Arc => {
                "as root on Debian: apt-get install nordugrid-arc-arex nordugrid-arc-client nordugrid-arc-arcctl-service \
                 nordugrid-arc-plugins-arcrest"
            }
            Self::Axe => {
                "on Debian: apt-get install --no-install-recommends chromium-headless-shell npm; where npm's registry cannot be reached, \
                 put axe.min.js of axe-core 4.14 into a folder and that in FAIRMESH_AXE"
            }
            Self::Plugin => {
                "run `cargo xtask test` as root on Debian with deb-src lines in its sources, or put \
                 Slurm's source in FAIRMESH_SLURM_SRC"
            }
        }
    }
}

/// A file or folder of the recorded traces, where it is there. A test that gets `None` ends, or
/// leaves out what it would have read.
pub fn traces(path: &str) -> Option<PathBuf> {
    beside(Need::Traces, "FAIRMESH_TRACES", "traces", path)
}

/// A file of the vectors, where it is there.
pub fn vectors(path: &str) -> Option<PathBuf> {
    beside(Need::Vectors, "FAIRMESH_VECTORS", "vectors", path)
}

/// The path in the folder that the variable names, else in `../shared` beside the repository.
fn beside(need: Need, variable: &str, name: &str, path: &str) -> Option<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let shared = repository
        .and_then(Path::parent)
        .map(|it| it.join("shared"));
    let shared = shared.expect("it lies in tests/needs of a repository");
    let folder = env::var_os(variable).map_or_else(|| shared.join(name), PathBuf::from);
    let path = folder.join(path);
    if path.exists() {
        return Some(path);
    }
    lacks(need, &format!("no {}", path.display()));
    None
}

/// Says that the test that calls it cannot do what it is there for.
///
/// # Panics
/// Where `FAIRMESH_REQUIRE` names the need, or something that is none.
pub fn lacks(need: Need, why: &str) {
    let required = env::var(REQUIRE).unwrap_or_default();
    assert!(!is_required(&required, need), "{why}: {}", need.remedy());
    let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
    let thread = thread::current();
    let test = format!("{package} {}", thread.name().unwrap_or("?"));
    // Past `eprintln!`, of which the test runner shows nothing when a test passes.
    let _ = writeln!(std::io::stderr(), "NOT RUN: {}: {why}", test.trim_start());
    let Some(file) = env::var_os(NOT_RUN) else {
        return;
    };
    // One line, whatever a program has said.
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = [test.trim_start(), need.name(), &why, need.remedy()].join("\t");
    let appended = File::options()
        .create(true)
        .append(true)
        .open(&file)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    appended.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// Whether the list names the need. A word that is none is a mistake that must not look away either.
fn is_required(list: &str, need: Need) -> bool {
    let words = || {
        list.split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
    };
    let is_known =
        |word: &&str| Need::ALL.iter().any(|need| need.name() == *word) || OF_XTASK.contains(word);
    let unknown: Vec<&str> = words().filter(|word| !is_known(word)).collect();
    assert!(unknown.is_empty(), "{REQUIRE} names {unknown:?}");
    words().any(|word| word == need.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_required_and_nothing_else() {
        assert!(is_required("slurm, traces", Need::Traces));
        assert!(!is_required("slurm,traces,deny", Need::Vectors));
        assert!(!is_required("", Need::Slurm));
    }

    #[test]
    #[should_panic(expected = "FAIRMESH_REQUIRE names [\"slrum\"]")]
    fn a_need_that_nobody_has_is_a_mistake() {
        is_required("slrum", Need::Slurm);
    }

    /// The tests below are run once more, in an environment of their own.
    fn again(test: &str, required: &str, folder: &Path) -> std::process::Output {
        let program = env::current_exe().expect("this program");
        let mut command = std::process::Command::new(program);
        command.args(["--exact", test]).env("LACKING", "1");
        command
            .env("FAIRMESH_TRACES", folder)
            .env(REQUIRE, required);
        let command = command.env(NOT_RUN, folder.join("not-run"));
        command.output().expect("it starts")
    }

    #[test]
    fn a_test_that_lacks_something_fails_where_it_is_required_and_is_listed_elsewhere() {
        let name =
            "tests::a_test_that_lacks_something_fails_where_it_is_required_and_is_listed_elsewhere";
        if env::var_os("LACKING").is_some() {
            assert_eq!(traces("swf/none.gz"), None);
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        assert!(again(name, "slurm", folder.path()).status.success());
        let line = std::fs::read_to_string(path("not-run")).expect("a list");
        let lacking = format!("traces\tno {}\t", path("swf/none.gz").display());
        assert!(line.contains(&lacking) && line.contains(name), "{line}");
        assert!(!again(name, "traces", folder.path()).status.success());
    }
}
