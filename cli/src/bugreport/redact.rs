//! A configuration by its shape: what was set, without whom it names.
//!
//! Invariant: of a table that is not in [`SHOWN`] no word is shown but those that name no person (aliases of VOs,
//! patterns and templates); comments are never shown. A table that comes to the configuration later is hidden by default.

use std::collections::BTreeMap;

use anyhow::Context as _;
use fairmesh_node::config::Config;
use toml::{Table, Value};

/// Tables whose words are addresses, paths, ids and lengths of time.
const SHOWN: [&str; 8] = [
    "site", "network", "timing", "history", "order", "page", "vos", "records",
];

/// The text of a configuration file, without its comments and without whom it names.
pub(super) fn shape(text: &str, config: &Config) -> anyhow::Result<String> {
    let table: Table = text.parse().context("it is no TOML")?;
    let is_harmless = |word: &str| config.vos.contains_key(word) || is_pattern(word);
    let hidden = table.into_iter().map(|(name, value)| {
        let value = match name.as_str() {
            name if SHOWN.contains(&name) => value,
            "shares" => entries(value, &is_harmless),
            _ => hidden(value, &is_harmless),
        };
        (name, value)
    });
    let shown: Table = hidden.collect();
    let mut text = toml::to_string_pretty(&shown)?;
    let entries = config.policy.entries().count();
    text.push_str(&format!("# {entries} entries in the owner's share tree\n"));
    Ok(text)
}

/// A pattern without a word, or a template: `*`, `/{account}/{user}`.
fn is_pattern(word: &str) -> bool {
    let mut is_within = false;
    word.chars().all(|c| match c {
        '{' | '}' => {
            is_within = c == '{';
            true
        }
        c => is_within || matches!(c, '*' | '/'),
    })
}

/// The same values without words.
fn hidden(value: Value, is_harmless: &dyn Fn(&str) -> bool) -> Value {
    match value {
        Value::String(word) if is_harmless(&word) => Value::String(word),
        Value::String(word) => Value::String(format!("({} characters)", word.chars().count())),
        Value::Array(values) => {
            let values = values.into_iter().map(|value| hidden(value, is_harmless));
            Value::Array(values.collect())
        }
        Value::Table(table) => {
            let values = table.into_iter();
            let values = values.map(|(key, value)| (key, hidden(value, is_harmless)));
            Value::Table(values.collect())
        }
        number => number,
    }
}

/// A share tree in which names are numbers, the same name the same number.
fn entries(value: Value, is_harmless: &dyn Fn(&str) -> bool) -> Value {
    let Value::Table(table) = value else {
        return hidden(value, is_harmless);
    };
    let mut numbers = BTreeMap::new();
    let mut number = |name: &str| match name {
        "" => String::new(),
        name if is_harmless(name) => name.to_owned(),
        name => {
            let next = numbers.len() + 1;
            numbers.entry(name.to_owned()).or_insert(next).to_string()
        }
    };
    let renamed = table.into_iter().map(|(path, value)| {
        let path: Vec<String> = path.split('/').map(&mut number).collect();
        (path.join("/"), hidden(value, is_harmless))
    });
    Value::Table(renamed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_shows_its_numbers_and_nobodys_name() {
        let id = "ab".repeat(32);
        let text = format!(
            "# ann's own\n[site]\nname = \"hpc1\"\n[vos]\nphysics = \"{id}\"\n[sockets]\nwriters = [\"ann\"]\n\
             [[identity]]\nuser = \"ann\"\naccount = \"*\"\nvo = \"physics\"\npath = \"/{{account}}/{{user}}\"\n\
             [shares]\n\"/physics\" = {{ share = 80, mount = \"physics\" }}\n\"/local\" = 15\n\"/local/ann\" = 5\n\
             \"/local/bob\" = 5\n"
        );
        let read = |_: &std::path::Path| anyhow::bail!("there is no other file");
        let config = Config::parse(&text, std::path::Path::new("/f.toml"), &read).expect("valid");
        let shown = shape(&text, &config).expect("shown");
        for name in ["ann", "bob", "local"] {
            assert!(!shown.contains(name), "{name} in {shown}");
        }
        for kept in [
            "name = \"hpc1\"",
            &format!("physics = \"{id}\""),
            "user = \"(3 characters)\"",
            "path = \"/{account}/{user}\"",
            "\"/1/2\" = 5",
            "mount = \"physics\"",
            "# 4 entries",
        ] {
            assert!(shown.contains(kept), "{kept} in {shown}");
        }
    }
}
