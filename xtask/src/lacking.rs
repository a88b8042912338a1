//! What could not be run here, as the tests (`fairmesh-needs`) and the steps have told, and the table
//! of it.
//!
//! Invariant: a row is a thing that would fail where `FAIRMESH_REQUIRE` names what it lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A file to which tests add a line each: what, need, what is lacking, how to get it, between tabs.
pub(crate) struct List {
    file: PathBuf,
}

impl List {
    /// An empty one, beside this program in the target folder.
    pub(crate) fn new() -> Result<Self, String> {
        let told =
            |error: std::io::Error| format!("cannot make a list of what is not run: {error}");
        let program = std::env::current_exe().map_err(told)?;
        let file = program.with_file_name("not-run.tsv");
        fs::write(&file, "").map_err(told)?;
        Ok(Self { file })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Adds a step that lacks a tool; an error where that is required.
    pub(crate) fn add(
        &self,
        what: &str,
        need: &str,
        why: &str,
        remedy: &str,
    ) -> Result<(), String> {
        if is_required(need) {
            return Err(format!("{why}: {remedy}"));
        }
        let rows = fs::read_to_string(&self.file).unwrap_or_default();
        let row = [what, need, why, remedy].join("\t");
        fs::write(&self.file, format!("{rows}{row}\n")).map_err(|error| error.to_string())
    }

    /// The table, by need; nothing where all could be run.
    pub(crate) fn table(&self) -> String {
        table(&fs::read_to_string(&self.file).unwrap_or_default())
    }
}

/// Whether `FAIRMESH_REQUIRE` names this need.
pub(crate) fn is_required(need: &str) -> bool {
    let list = std::env::var("FAIRMESH_REQUIRE").unwrap_or_default();
    list.split(',').any(|word| word.trim() == need)
}

fn table(rows: &str) -> String {
    // By need and remedy: what is lacking, and who lacks it.
    let mut needs = BTreeMap::<_, [BTreeSet<&str>; 2]>::new();
    for row in rows.lines() {
        let [what, need, why, remedy] = row.split('\t').collect::<Vec<_>>()[..] else {
            continue;
        };
        let [reasons, tests] = needs.entry((need, remedy)).or_default();
        reasons.insert(why);
        tests.insert(what);
    }
    let mut text = String::new();
    if needs.is_empty() {
        return text;
    }
    let count: usize = needs.values().map(|[_, tests]| tests.len()).sum();
    text.push_str(&format!(
        "\nNOT RUN here: {count}. Each of them fails where FAIRMESH_REQUIRE names its need.\n"
    ));
    for ((need, remedy), [reasons, tests]) in needs {
        let reasons = Vec::from_iter(reasons).join("; ");
        let _ = write!(text, "\n{need}: {reasons}\n  to have it: {remedy}\n");
        for test in tests {
            let _ = writeln!(text, "    {test}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_put_together_by_need() {
        let rows = "a\tslurm\tno squeue\tinstall it\nb\tslurm\tno root\tinstall it\n\
                    c\ttraces\tno x\tget them\na\tslurm\tno squeue\tinstall it\n";
        let expected = "\nNOT RUN here: 3. Each of them fails where FAIRMESH_REQUIRE names its need.\n\
                        \nslurm: no root; no squeue\n  to have it: install it\n    a\n    b\n\
                        \ntraces: no x\n  to have it: get them\n    c\n";
        assert_eq!(table(rows), expected);
        assert_eq!(table(""), "");
    }
}
