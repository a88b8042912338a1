//! The names of users that a node knows, and texts without them.
//!
//! Invariant: a name is replaced wherever it stands as a word, the same name by the same number. What names a VO, a
//! site or nobody (a number) stays, or nothing could be read. Deliberately not here: names that neither the node nor
//! its configuration knows.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_api::client::{AskError, Control};
use fairmesh_node::config::Config;
use fairmesh_node::users::Writer;
use fairmesh_schedulers::NAMES;
use serde_json::Value;

/// Where the node says whom it knows: the question, and what of the answer is a name.
const ASKED: [(&str, &[&str]); 4] = [
    ("/v1/shares", &["user"]),
    ("/v1/usage", &["id"]),
    ("/v1/unmapped", &["user", "account", "group", "subject"]),
    ("/v1/accounting?by=user,group", &["names"]),
];

/// Names, each with what stands for it.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: BTreeMap<String, String>,
    /// Whether the node has told all that it knows.
    pub(super) are_all: bool,
}

impl Names {
    /// All that the node and the configuration know.
    pub(super) async fn gather(control: &Control, config: Option<&Config>) -> Self {
        let (mut names, mut public) = (BTreeSet::new(), BTreeSet::new());
        let mut are_all = true;
        for (question, fields) in ASKED {
            match control.get::<Value>(question, &[]).await {
                Ok((answer, _)) => collect(&answer, fields, &mut names),
                // What the node does not keep, it has no names of.
                Err(AskError::Refused { status: 404, .. }) => {}
                Err(_) => are_all = false,
            }
        }
        let status = control.get::<Value>("/v1/status", &[]).await;
        are_all &= status
            .as_ref()
            .is_ok_and(|(answer, _)| hides_nothing(answer));
        if let Ok((answer, _)) = status {
            collect(&answer, &["name", "vo_name", "site", "vo"], &mut public);
        }
        if let Some(config) = config {
            names.extend(of_config(config));
            public.extend(config.vos.keys().cloned());
            public.insert(config.name.clone());
        }
        Self {
            are_all,
            ..Self::of(names.difference(&public))
        }
    }

    fn of<'a>(names: impl Iterator<Item = &'a String>) -> Self {
        let people = names.filter(|name| name.chars().any(char::is_alphabetic));
        let numbered = people.zip(1..);
        Self {
            known: numbered
                .map(|(name, number)| (name.clone(), format!("user-{number}")))
                .collect(),
            are_all: true,
        }
    }

    /// A text in which none of them is a word.
    pub(super) fn scrubbed(&self, mut text: String) -> String {
        let is_simple = |name: &&String| name.chars().all(is_of_word);
        // Longer ones first: one may be a part of another.
        let mut long: Vec<&String> = self.known.keys().filter(|name| !is_simple(name)).collect();
        long.sort_by_key(|name| std::cmp::Reverse(name.len()));
        for name in long {
            for form in [in_quotes(name), name.clone()] {
                text = text.replace(&form, &self.known[name]);
            }
        }
        let mut scrubbed = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(begin) = rest.find(is_of_word) {
            let word = &rest[begin..];
            let end = word.find(|c| !is_of_word(c)).unwrap_or(word.len());
            scrubbed.push_str(&rest[..begin]);
            // A full stop ends a sentence, unless the name has one.
            let bare = word[..end].trim_end_matches(['.', '-']);
            let known = self.known.get(&word[..end]).map(|known| (known, end));
            match known.or_else(|| Some((self.known.get(bare)?, bare.len()))) {
                Some((known, length)) => {
                    scrubbed.push_str(known);
                    scrubbed.push_str(&word[length..end]);
                }
                None => scrubbed.push_str(&word[..end]),
            }
            rest = &word[end..];
        }
        scrubbed.push_str(rest);
        scrubbed
    }
}

/// A name as it stands in JSON and in labels of metrics: `DOM\\ann` for `DOM\ann`.
fn in_quotes(name: &str) -> String {
    let quoted = Value::from(name).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Whether a node's status says that whoever asks sees all. One that does not say so hides what it likes.
fn hides_nothing(status: &Value) -> bool {
    status["hidden"].as_array().is_some_and(Vec::is_empty)
}

/// What names are made of.
fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Words of the rules and exemptions that may be users, who is let in or coordinates, and the leaves of the owner's
/// tree.
fn of_config(config: &Config) -> BTreeSet<String> {
    let rules = config.identity.rules().iter();
    let words = rules.flat_map(|rule| [&rule.user, &rule.group, &rule.subject]);
    let exempt = config.quotas.values();
    let exempt = exempt.flat_map(|of| of.users.iter().chain(&of.groups));
    let words = words
        .flatten()
        .chain(exempt)
        .map(|word| word.text().trim_end_matches('*').to_owned());
    let people = config.identity.people().rows().iter();
    let people = people.flat_map(|person| [&person.user, &person.subject]);
    let people = people.flatten().map(|name| name.to_string());
    let let_in = config.sockets.writers.iter().chain(&config.readers);
    let let_in = let_in.filter_map(|user| match user {
        Writer::Name(name) => Some(name),
        Writer::Uid(_) => None,
    });
    let users = let_in.chain(config.privacy.coordinators.values().flatten());
    let users = users.filter(|name| !is_of_system(name)).cloned();
    let entries = config.policy.entries();
    let leaves = entries.filter_map(|(path, entry)| {
        let path = path.to_string();
        let name = path.rsplit('/').next()?.to_owned();
        entry.mount.is_none().then_some(name)
    });
    words.chain(people).chain(users).chain(leaves).collect()
}

/// Users of every system, and those that batch systems run as: without such words nothing could be read.
fn is_of_system(name: &str) -> bool {
    ["root", "fairmesh"].contains(&name) || NAMES.contains(&name)
}

/// Every text in these fields, wherever they are; of a path its last name.
fn collect(value: &Value, fields: &[&str], names: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                if fields.contains(&key.as_str()) {
                    texts(value, names);
                }
                collect(value, fields, names);
            }
        }
        Value::Array(values) => values
            .iter()
            .for_each(|value| collect(value, fields, names)),
        _ => {}
    }
}

fn texts(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let is_path = text.starts_with('/') && !text.contains('=');
            let name = if is_path {
                text.rsplit('/').next()
            } else {
                None
            };
            names.insert(name.unwrap_or(text).to_owned());
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Names {
        let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Names::of(names.iter())
    }

    #[test]
    fn names_are_replaced_where_they_are_words() {
        let names = names(&["ann", "ann.lee", "/CN=Ann Lee", "42", "ä"]);
        let text = "ann, annex, /cms/ann.lee, \"ann\": ann. /CN=Ann Lee 42 ä-";
        // In order: `/CN=…`, `ann`, `ann.lee`, `ä`; a number is nobody.
        assert_eq!(
            names.scrubbed(text.to_owned()),
            "user-2, annex, /cms/user-3, \"user-2\": user-2. user-1 42 user-4-"
        );
    }

    #[test]
    fn names_are_replaced_where_they_are_escaped() {
        let names = names(&[r"DOM\ann", r"DOM\ann.lee", "bob \"x\""]);
        let known = [r"DOM\ann", r"DOM\ann.lee", "bob \"x\""];
        let json = serde_json::json!({"known": known}).to_string();
        let text = format!(r#"{json} user="DOM\\ann" DOM\ann"#);
        assert_eq!(
            names.scrubbed(text),
            r#"{"known":["user-1","user-2","user-3"]} user="user-1" user-1"#
        );
    }

    #[test]
    fn names_are_all_only_where_nothing_is_hidden_from_who_asks() {
        let hides = |status: serde_json::Value| !hides_nothing(&status);
        assert!(hides(serde_json::json!({"hidden": ["jobs"]})));
        assert!(hides(serde_json::json!({"healthy": true})));
        assert!(!hides(serde_json::json!({"hidden": []})));
    }

    #[test]
    fn names_are_found_in_answers() {
        let answer = serde_json::json!({
            "entries": [{"path": "/a/ann", "user": "ann"}, {"user": null}],
            "groups": [{"names": ["bob", "", "/O=x/CN=Bob"], "jobs": 1}],
            "by_account": [{"id": "/cms/cat"}],
        });
        let mut found = BTreeSet::new();
        collect(&answer, &["user", "names", "id"], &mut found);
        let expected = ["", "/O=x/CN=Bob", "ann", "bob", "cat"];
        assert!(found.iter().eq(expected), "{found:?}");
    }
}
