//! The owner's share tree: a file of its own, a table of the configuration, or a default.
//!
//! Invariant: every VO that the tree mounts has an id in `[vos]`. Errors have the line of the file
//! that the person edits. Deliberately not here: the form of a share tree (`fairmesh_policy`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fairmesh_model::{AccountPath, VoId, Weight};
use fairmesh_policy::{SiteEntry, SitePolicy, parse_tree};
use toml_edit::{Document, Item, TableLike};

use super::raw::RawConfig;
use super::text::Source;

pub(super) fn read(
    source: Source<'_>,
    raw: &RawConfig,
    base: &Path,
    vos: &BTreeMap<String, VoId>,
    read_file: &dyn Fn(&Path) -> anyhow::Result<String>,
) -> anyhow::Result<(SitePolicy, Option<PathBuf>)> {
    match (&raw.policy_file, &raw.shares) {
        (Some(file), Some(_)) => {
            let problem = "the shares have a file of their own and a table here";
            let error = source.wrong("policy_file", file, problem);
            Err(error
                .with_help("keep policy_file or [shares], not both")
                .into())
        }
        (Some(file), None) => {
            let path = base.join(file.get_ref());
            let text = read_file(&path)
                .map_err(|error| source.wrong("policy_file", file, format!("{error:#}")))?;
            let name = path.display().to_string();
            let tree = Source {
                file: &name,
                text: &text,
            };
            Ok((site_policy(tree, &text, vos)?, Some(path)))
        }
        (None, Some(_)) => {
            let text = only_table(source.text, "shares");
            Ok((site_policy(source, &text, vos)?, None))
        }
        (None, None) => Ok((default_policy(vos), None)),
    }
}

fn site_policy(
    source: Source<'_>,
    text: &str,
    vos: &BTreeMap<String, VoId>,
) -> anyhow::Result<SitePolicy> {
    let policy = parse_tree(text, source.file)?.to_site_policy()?;
    for (alias, path) in policy.mounts() {
        if vos.contains_key(alias) {
            continue;
        }
        let known: Vec<&str> = vos.keys().map(String::as_str).collect();
        let quoted = format!("\"{path}\"");
        let place = source.text.find(&quoted).map(|at| at..at + quoted.len());
        let problem = format!("mounts `{alias}`, which has no id in [vos]");
        let help = format!(
            "add `{alias} = \"<VO id>\"` to [vos]; known there: {}",
            known.join(", ")
        );
        return Err(source
            .error(place, Some(path.as_str()), problem)
            .with_help(help)
            .into());
    }
    Ok(policy)
}

/// Every VO at `/alias`, all with the same share.
fn default_policy(vos: &BTreeMap<String, VoId>) -> SitePolicy {
    let entries = vos.keys().map(|alias| {
        let path = AccountPath::root()
            .child(alias)
            .expect("aliases were checked");
        (path, SiteEntry::mounted(Weight::whole(1), alias))
    });
    SitePolicy::new(entries.collect()).expect("one level, each VO once")
}

/// `text`, which is TOML, with everything but one of its tables blanked out: what is left is where it was.
pub(super) fn only_table(text: &str, table: &str) -> String {
    let values = Document::parse(text).map_or_else(
        |_| Vec::new(),
        |document| {
            let mut values = Vec::new();
            collect_values(document.as_table(), &mut values);
            // None lies in another, so of those before a place the last one decides.
            values.sort_unstable_by_key(|value| value.start);
            values
        },
    );
    let mut kept = String::with_capacity(text.len());
    let (mut is_wanted, mut seen_header, mut at) = (false, false, 0);
    for line in text.split_inclusive('\n') {
        let start = at + (line.len() - line.trim_start().len());
        at += line.len();
        let before = values.partition_point(|value| value.start < start);
        let inside_value = before > 0 && start < values[before - 1].end;
        let words = line.trim_start();
        if !inside_value && words.starts_with('[') {
            seen_header = true;
            is_wanted = names(words.trim_start_matches('['), table);
        } else if !inside_value && !seen_header && !words.starts_with(['#', '\n']) {
            is_wanted = names(words, table);
        }
        if is_wanted {
            kept.push_str(line);
        } else {
            let blank = |byte| match byte {
                b'\n' | b'\r' => char::from(byte),
                _ => ' ',
            };
            kept.extend(line.bytes().map(blank));
        }
    }
    kept
}

/// Whether a key begins with a name, bare or quoted.
fn names(key: &str, name: &str) -> bool {
    let key = key.trim_start();
    let written = [name.to_owned(), format!("\"{name}\""), format!("'{name}'")];
    let rest = written
        .iter()
        .find_map(|name| key.strip_prefix(name.as_str()));
    rest.is_some_and(|rest| rest.trim_start().starts_with([']', '.', '=']))
}

fn collect_values(table: &dyn TableLike, values: &mut Vec<std::ops::Range<usize>>) {
    for (_, item) in table.iter() {
        match item {
            Item::Value(value) => values.extend(value.span()),
            Item::Table(table) => collect_values(table, values),
            Item::ArrayOfTables(tables) => {
                tables
                    .iter()
                    .for_each(|table| collect_values(table, values));
            }
            Item::None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shares_are_left_where_they_stood() {
        let text = "x = 1\n[a]\nb = [\n  [1],\n]\n[shares] # mine\n\"/a\" = { share = 3, delegate = { keys = [\n \"k\" ] } }\n\
                    [shares.\"/b\"]\nshare = 4\n[[identity]]\npath = '''\n[shares]\n'''\n";
        let kept = "[shares] # mine\n\"/a\" = { share = 3, delegate = { keys = [\n \"k\" ] } }\n\
                    [shares.\"/b\"]\nshare = 4\n";
        let left = only_table(text, "shares");
        assert_eq!(left.trim(), kept.trim());
        assert_eq!((left.len(), left.find(kept)), (text.len(), text.find(kept)));
        let left = only_table("shares.\"/a\" = 3\nb = 1\n[c]\n", "shares");
        assert_eq!(left, "shares.\"/a\" = 3\n     \n   \n");
    }
}
