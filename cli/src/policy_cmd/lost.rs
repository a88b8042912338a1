//! Usage that loses its entry when a share tree changes.
//!
//! An entry that is renamed or moved without `was` leaves its usage behind: that usage then belongs to the accounts
//! without a line, or to the entry above, and lowers nobody's place as it did. `policy plan` and `policy publish`
//! list it first.
//!
//! Invariant: what decides is the account that was charged, which is what the nodes hold: where it counts in the old
//! tree, and where in the new one. Deliberately not here: where the usage comes from.

use std::collections::BTreeMap;

use fairmesh_fairshare::{EntryKind, TreeReader};
use fairmesh_model::{AccountPath, clean};
use fairmesh_node::words::number::core_hours;
use serde::Serialize;

use crate::emulate::ShareTree;

/// An entry whose usage has no entry any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Lost {
    /// Its path in the old tree.
    pub(super) entry: AccountPath,
    /// Usage with weight, in core-milliseconds, as decimal digits.
    pub(super) usage_core_ms: String,
    /// That of all usage of the tree, percent.
    pub(super) percent: String,
}

/// The entries of `old` with usage that `new` counts at no line, or only at one above the entry, the largest first.
pub(super) fn lost(
    old: &ShareTree,
    new: &ShareTree,
    usage: impl IntoIterator<Item = (AccountPath, u128)>,
) -> Vec<Lost> {
    let (old, new) = (old.reader(), new.reader());
    let (mut sums, mut all): (BTreeMap<AccountPath, u128>, u128) = (BTreeMap::new(), 0);
    for (account, amount) in usage {
        all = all.saturating_add(amount);
        let entry = old.resolve(&account).entry;
        let path = old.path(entry);
        let had_line = old.kind(entry) == EntryKind::Listed;
        if amount > 0 && had_line && !has_line(&new, &account, path) {
            let sum = sums.entry(path.clone()).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    let mut lost: Vec<(AccountPath, u128)> = sums.into_iter().collect();
    lost.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let line = |(entry, amount): (AccountPath, u128)| Lost {
        entry,
        usage_core_ms: amount.to_string(),
        percent: percent(amount, all),
    };
    lost.into_iter().map(line).collect()
}

/// Whether usage of an account that had the entry `before` counts at a line, and not merely at one above that.
fn has_line(tree: &TreeReader, account: &AccountPath, before: &AccountPath) -> bool {
    let entry = tree.resolve(account).entry;
    let now = tree.path(entry);
    let is_above = now != before && before.starts_with(now);
    tree.kind(entry) == EntryKind::Listed && !is_above
}

/// With two decimals, rounded down.
fn percent(part: u128, whole: u128) -> String {
    let basis = part.saturating_mul(10_000) / whole.max(1);
    format!("{}.{:02}", basis / 100, basis % 100)
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, hours) = (clean(self.entry.as_str()), core_hours(&self.usage_core_ms));
        write!(
            f,
            "loses its entry: {path}, {hours} core-hours of weighted usage, {} % of all. If the entry was renamed or \
             moved, add it to `was` of the line that it has now (in a delegated policy without the path that is delegated)",
            self.percent
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> ShareTree {
        ShareTree::parse(&format!("[shares]\n{text}"), "tree.toml").expect("a tree")
    }

    #[test]
    fn usage_of_a_renamed_entry_is_listed_unless_the_entry_says_what_it_was() {
        let path = |text: &str| AccountPath::parse(text).expect("a path");
        let usage = || {
            let rows = [
                ("/higgs/ann", 300),
                ("/higgs/bob/job", 100),
                ("/susy", 400),
                ("/nobody", 200),
            ];
            rows.map(|(account, amount)| (path(account), amount))
        };
        let old = tree("\"/higgs\" = 60\n\"/higgs/ann\" = 1\n\"/higgs/bob\" = 1\n\"/susy\" = 40");
        let lost = |new: &str| {
            let lost = lost(&old, &tree(new), usage()).into_iter();
            lost.map(|of| format!("{} {} {}", of.entry, of.usage_core_ms, of.percent))
                .collect::<Vec<_>>()
        };
        let renamed = "\"/top/ann\" = 1\n\"/top/bob\" = 1\n\"/susy\" = 40";
        assert_eq!(
            lost(&format!("\"/top\" = 60\n{renamed}")),
            ["/higgs/ann 300 30.00", "/higgs/bob 100 10.00"]
        );
        let none: [&str; 0] = [];
        assert_eq!(
            lost(&format!(
                "\"/top\" = {{ share = 60, was = [\"/higgs\"] }}\n{renamed}"
            )),
            none
        );
        // The group keeps its line, its people lose theirs.
        assert_eq!(
            lost("\"/higgs\" = 60\n\"/susy\" = 40"),
            ["/higgs/ann 300 30.00", "/higgs/bob 100 10.00"]
        );
        assert_eq!(
            lost("\"/higgs\" = 60\n\"/higgs/ann\" = 1\n\"/higgs/bob\" = 9\n\"/susy\" = 1"),
            none
        );
    }

    #[test]
    fn a_line_without_its_former_path_loses_the_usage_of_that() {
        let path = |text: &str| AccountPath::parse(text).expect("a path");
        let usage = || [(path("/cms/ann"), 300), (path("/higgs/ann"), 100)];
        let higgs = |was: &str| {
            let line = format!("\"/higgs\" = {{ share = 1{was} }}");
            tree(&format!("{line}\n\"/higgs/ann\" = 1\n\"/atlas\" = 1"))
        };
        let renamed = higgs(", was = [\"/cms\"]");
        let lost = |old: &ShareTree, new: &ShareTree| {
            let lost = lost(old, new, usage()).into_iter();
            lost.map(|of| format!("{} {}", of.entry, of.usage_core_ms))
                .collect::<Vec<_>>()
        };
        assert_eq!(lost(&renamed, &higgs("")), ["/higgs/ann 300"]);
        assert_eq!(lost(&renamed, &renamed), [""; 0]);
        // The entry is gone, and its former path has a line again.
        let again = tree("\"/cms\" = 1\n\"/cms/ann\" = 1\n\"/higgs\" = 1\n\"/higgs/ann\" = 1");
        assert_eq!(lost(&renamed, &again), [""; 0]);
    }
}
