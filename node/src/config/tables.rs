//! One table of a TOML text by itself, for readers that keep places in the text.

use toml_edit::{Document, Item, TableLike};

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
