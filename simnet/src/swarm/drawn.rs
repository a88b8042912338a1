//! How often draws give each option which value.
//!
//! Invariant: the table has a row for each option that the types list, so an option that is never drawn shows.
//! Deliberately not here: the list (`listed`) and the draws (`draw`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fairmesh_cluster::Seed;
use serde_json::{Map, Value};

use super::Options;
use super::listed::{Listed, listed};

/// Values that are listed one by one, at most; of more values the table has the least and the most.
const VALUES_MAX: usize = 7;

/// The value of an option that is left out.
const NONE: &str = "none";

/// In how many draws each option has each value. A draw with several VOs has several.
#[derive(Debug)]
pub struct Drawn {
    listed: Listed,
    draws: Vec<BTreeMap<String, BTreeSet<String>>>,
}

impl Drawn {
    /// The draws of seeds 1 to `seeds`.
    pub fn of_seeds(seeds: u64) -> Self {
        let listed = listed();
        let draw = |seed| {
            let options = serde_json::to_value(Options::draw(Seed(seed)));
            let mut values = BTreeMap::new();
            add(&options.expect("plain numbers and words"), "", &mut values);
            values.retain(|path, _| listed.contains_key(path));
            values
        };
        let draws = (1..=seeds).map(draw).collect();
        Self { listed, draws }
    }

    /// In how many draws an option has each value.
    fn counts(&self, path: &str) -> BTreeMap<&str, usize> {
        let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
        let mut counts = BTreeMap::new();
        for draw in &self.draws {
            // An option of a part that the draw does not have has no value.
            let has_parent = !self.listed.contains_key(parent) || draw.contains_key(parent);
            let values = draw.get(path).into_iter().flatten().map(String::as_str);
            let none = (has_parent && !draw.contains_key(path)).then_some(NONE);
            for value in values.chain(none) {
                *counts.entry(value).or_default() += 1;
            }
        }
        counts
    }

    /// Options that have one value in all draws, or lack a variant.
    pub fn missing(&self) -> Vec<String> {
        let listed = self.listed.iter();
        let missing = listed.flat_map(|(path, variants)| {
            let counts = self.counts(path);
            let constant = (counts.len() < 2).then(|| path.clone());
            let lacks = variants.iter().filter(move |of| !counts.contains_key(**of));
            constant
                .into_iter()
                .chain(lacks.map(move |of| format!("{path} = {of}")))
        });
        missing.collect()
    }

    /// The table, in Markdown.
    pub fn table(&self) -> String {
        let mut table = format!(
            "| option | values | usual value | other values, of {} draws |\n|---|---|---|---|\n",
            self.draws.len()
        );
        for path in self.listed.keys() {
            let counts = self.counts(path);
            let usual = counts.iter().max_by_key(|(_, count)| **count);
            let usual = usual.map_or("", |(value, _)| *value);
            let has_other = |draw: &&BTreeMap<String, BTreeSet<String>>| {
                let mut values = draw.get(path).into_iter().flatten();
                values.any(|value| value != usual)
            };
            let others = self.draws.iter().filter(has_other).count();
            let values = values(&counts);
            writeln!(table, "| `{path}` | {values} | {usual} | {others} |").expect("a string");
        }
        table
    }
}

/// Adds the values of an option and of those below it.
fn add(value: &Value, path: &str, values: &mut BTreeMap<String, BTreeSet<String>>) {
    let of_path = match value {
        Value::Object(fields) => {
            add_fields(fields, path, values);
            "some".to_owned()
        }
        Value::Array(elements) => {
            let structs = elements.iter().filter_map(Value::as_object);
            structs.for_each(|fields| add_fields(fields, path, values));
            elements.len().to_string()
        }
        Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    values.entry(path.to_owned()).or_default().insert(of_path);
}

fn add_fields(
    fields: &Map<String, Value>,
    path: &str,
    values: &mut BTreeMap<String, BTreeSet<String>>,
) {
    for (field, value) in fields {
        let path = match path {
            "" => field.clone(),
            _ => format!("{path}.{field}"),
        };
        add(value, &path, values);
    }
}

/// The values in words.
fn values(counts: &BTreeMap<&str, usize>) -> String {
    let numbers = counts.keys().filter_map(|value| value.parse::<u64>().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    let words = counts.keys().filter(|value| value.parse::<u64>().is_err());
    let words = words.map(|word| (*word).to_owned());
    let numbers = match numbers[..] {
        [least, .., most] if numbers.len() > VALUES_MAX => vec![format!("{least} to {most}")],
        _ => numbers.iter().map(u64::to_string).collect(),
    };
    words.chain(numbers).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// As many as the table in the documents is of.
    const SEEDS: u64 = 2_000;

    /// Options that no seed draws.
    const UNDRAWN: [&str; 6] = [
        // Deadlines of liveness suppose that sites are connected as the network's default connects them.
        "degree",
        // Hunts draw it: here each VO and each owner has a history of its own.
        "history_hours",
        // `--lies` draws them.
        "liars",
        "liars.lie",
        "liars.site",
        // Only behind a journal that stays, in hunts.
        "faults.stores_replaced",
    ];

    #[test]
    fn each_option_is_drawn() {
        let missing = Drawn::of_seeds(SEEDS).missing();
        let missing: BTreeSet<&str> = missing.iter().map(String::as_str).collect();
        assert_eq!(missing, BTreeSet::from(UNDRAWN));
    }

    #[test]
    fn the_documents_have_the_table_of_the_draws() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/judge.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let begin = "<!-- options: begin, written by `simnet options` -->\n\n";
        let (_, table) = page.split_once(begin).expect("where the table begins");
        let (table, _) = table
            .split_once("\n<!-- options: end -->")
            .expect("where it ends");
        assert_eq!(
            table,
            Drawn::of_seeds(SEEDS).table(),
            "run `simnet options` again"
        );
    }
}
