//! The table of goals in `docs/benchmarks.md`, between two marks.
//!
//! Invariant: only the columns `measured` of rows that this run has measured are replaced; of all others that column
//! says "not in this run", once.

use std::path::Path;

use crate::rows::Rows;

const BEGIN: &str = "<!-- goals: begin, written by `cargo xtask bench` -->\n";
const END: &str = "<!-- goals: end -->\n";
const NOT_NOW: &str = "not in this run: ";
const NEVER: &str = "not measured yet";

pub(crate) fn write(file: &Path, rows: &Rows, when: &str) {
    let text = std::fs::read_to_string(file).expect("the document is there");
    let (before, rest) = text.split_once(BEGIN).expect("the table begins");
    let (table, behind) = rest.split_once(END).expect("the table ends");
    let lines: Vec<String> = table
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| row(line, rows))
        .collect();
    for name in rows.names() {
        let is_there = lines.iter().any(|line| first(line) == name);
        assert!(is_there, "{}: no row `{name}`", file.display());
    }
    let table = format!("{when}\n\n{}\n", lines.join("\n"));
    std::fs::write(file, [before, BEGIN, &table, END, behind].concat()).expect("written");
}

fn first(line: &str) -> &str {
    line.split('|').nth(1).unwrap_or_default().trim()
}

fn row(line: &str, rows: &Rows) -> String {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [what, goal, measured, command] = cells[..] else {
        panic!("four columns: {line}");
    };
    if what == "what" || what.starts_with('-') {
        return line.to_owned();
    }
    let measured = match rows.get(what) {
        Some(now) => now.to_owned(),
        None if [NOT_NOW, NEVER]
            .iter()
            .any(|known| measured.starts_with(known)) =>
        {
            measured.to_owned()
        }
        None => format!("{NOT_NOW}{measured}"),
    };
    format!("| {what} | {goal} | {measured} | {command} |")
}
