//! What an import writes: the share tree, the identity rules, and what it reports.
//!
//! Invariant: the two texts together are one valid TOML document, so they may go into one file or into two.
//! Deliberately not here: files.

use std::fmt::Write as _;

use super::assoc::Listing;
use super::rules::Rule;
use super::tree::{Tree, Weight};

/// The smallest weight that there is.
const LEAST: &str = "0.0000001";

/// The last day that there is.
const NEVER: &str = "9999-12-31";

/// Names that a line of the report has at most.
const NAMES_MAX: usize = 5;

/// `[shares]`, one line an entry.
pub(super) fn shares(tree: &Tree<'_>) -> String {
    let mut text = "# Shares of Slurm's accounts, made by `fairmesh slurm import`.\n".to_owned();
    if tree
        .entries
        .values()
        .any(|weight| *weight == Weight::Parent)
    {
        text.push_str(
            "# Users whose Fairshare is `parent` count at \"fairshare=parent\". Its period never begins, so their usage counts\n\
             # for the account and not for them, and they are the first of the account, as in Fair Tree.\n",
        );
    }
    text.push_str("[shares]\n");
    for (path, weight) in &tree.entries {
        let path = quoted(path);
        let line = match weight {
            Weight::Shares(shares) => writeln!(text, "{path} = {shares}"),
            Weight::Parent => writeln!(text, "{path} = {{ share = {LEAST}, since = \"{NEVER}\" }}"),
        };
        line.expect("a string takes all text");
    }
    text
}

/// One `[[identity]]` a rule.
pub(super) fn identity(rules: &[Rule<'_>]) -> String {
    let mut text =
        "# Whose jobs count where in the tree of Slurm's accounts, made by `fairmesh slurm import`.\n"
            .to_owned();
    for rule in rules {
        text.push_str("[[identity]]\n");
        let words = [
            ("user", rule.user),
            ("account", rule.account),
            ("partition", rule.partition),
            ("path", Some(rule.path)),
        ];
        for (key, word) in words {
            if let Some(word) = word {
                writeln!(text, "{key} = {}", quoted(word)).expect("a string takes all text");
            }
        }
        text.push('\n');
    }
    text
}

/// What was found, and what has no counterpart.
pub(super) fn report(listing: &Listing<'_>, tree: &Tree<'_>, rules: &[Rule<'_>]) -> Vec<String> {
    let notes = &tree.notes;
    let mut lines = vec![format!(
        "{}{} accounts and {} associations of users: {} entries, {} identity rules",
        (listing.cluster.as_ref()).map_or_else(String::new, |name| format!("{name}: ")),
        notes.accounts,
        tree.places.len(),
        tree.entries.len(),
        rules.len()
    )];
    let flattened: Vec<String> = notes
        .flattened
        .iter()
        .map(|name| fairmesh_model::clean(name))
        .collect();
    for (names, what) in [
        (
            &flattened,
            "accounts with Fairshare=parent have no entry; their users stand one level higher",
        ),
        (
            &notes.parents,
            "users with Fairshare=parent are the first of their account, whatever they use",
        ),
        (&notes.zeros, "entries with a share of 0 are served last"),
        (&notes.renamed, "names are written differently in paths"),
    ] {
        if !names.is_empty() {
            lines.push(format!("{} {what}: {}", names.len(), some(names)));
        }
    }
    let limits: Vec<String> = (listing.limits.iter())
        .map(|(name, count)| format!("{name} of {count}"))
        .collect();
    if !limits.is_empty() {
        lines.push(format!(
            "without a counterpart, so Slurm goes on enforcing them: {} associations",
            limits.join(", ")
        ));
    }
    lines
}

fn some(names: &[String]) -> String {
    let shown = &names[..names.len().min(NAMES_MAX)];
    let more = match names.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", shown.join(", "))
}

/// A string of TOML on one line. Names hold no control characters, so only two need an escape.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
