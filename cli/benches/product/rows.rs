//! What was measured, by the words of the table's first column.

use std::collections::BTreeMap;
use std::path::Path;

/// Rows of the table, of this run.
#[derive(Default)]
pub(crate) struct Rows(BTreeMap<String, String>);

impl Rows {
    /// Says what a row came to, at once and in the table.
    pub(crate) fn say(&mut self, what: &'static str, measured: String) {
        println!("{what}: {measured}");
        self.0.insert(what.to_owned(), measured);
    }

    /// Takes what other benchmarks of this run have measured.
    pub(crate) fn take(&mut self, file: &Path) {
        let text = std::fs::read_to_string(file).expect("the others were run before");
        let rows = text.lines().filter_map(|line| line.split_once('\t'));
        let owned = rows.map(|(what, measured)| (what.to_owned(), measured.to_owned()));
        self.0.extend(owned);
    }

    pub(crate) fn get(&self, what: &str) -> Option<&str> {
        self.0.get(what).map(String::as_str)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.0.iter();
        lines
            .map(|(what, text)| format!("{what}: {text}\n"))
            .collect()
    }
}

/// The one in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
