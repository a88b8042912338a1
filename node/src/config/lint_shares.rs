//! What the owner's share tree means, where that may not be what the owner thinks.
//!
//! Invariant: only what the file and its share tree show. Where a rule leads into a VO's tree, nothing is known here.
//! Deliberately not here: usage (`doctor` reports accounts that have used something).

use std::collections::BTreeSet;

use fairmesh_api::finding::{Code, Finding};
use fairmesh_model::{AccountPath, Severity};

use super::Config;
use crate::config::OtherSums;

impl Config {
    /// Levels that do not add up to 100, and rules that lead to accounts without a line.
    pub(super) fn doubts_of_shares(&self) -> Vec<Finding> {
        let entries = self.policy.entries();
        let entries = entries.filter(|(_, entry)| !entry.is_dropped());
        let sums = OtherSums::of(entries.map(|(path, entry)| (path, entry.share)));
        let sums = sums.map(|sums| {
            Finding::new(
                Code::SharesAreWeights,
                Severity::Info,
                &format!("shares: {sums}"),
            )
        });
        let without_line = self.leads_to_others().into_iter().map(|above| {
            let others = above.others().map_or_else(String::new, |path| path.to_string());
            let text = format!(
                "shares: an identity rule leads to accounts at or below {above}, which has lines below it and none for all \
                 others: accounts without a line get a share of 0. Add a line such as `\"{others}\" = 10`"
            );
            Finding::new(Code::WithoutLine, Severity::Info, &text)
        });
        let below_mount = self.below_mounts().into_iter();
        sums.into_iter()
            .chain(without_line)
            .chain(below_mount)
            .collect()
    }

    /// Rules and people of no VO whose paths lie in a VO's tree.
    fn below_mounts(&self) -> Vec<Finding> {
        let mounts = self.policy.entries();
        let mounts: Vec<&AccountPath> = mounts
            .filter(|(_, entry)| entry.mount.is_some())
            .map(|(path, _)| path)
            .collect();
        let rules = self.identity.rules().iter();
        let rules = rules.filter(|rule| rule.vo.is_none());
        let rules = rules.filter_map(|rule| Some(("an identity rule", literal(&rule.path)?)));
        let people = self.identity.people().rows().iter();
        let people = people.filter(|person| person.account.vo.is_none());
        let people = people.map(|person| ("a row of the people map", person.account.path.clone()));
        let mut seen = BTreeSet::new();
        let below = rules.chain(people).filter_map(|(what, path)| {
            let mount = mounts.iter().find(|mount| path.starts_with(mount))?;
            let text = format!(
                "shares: {what} without `vo` leads to {path}, which lies in the tree of the VO that {mount} mounts: usage of no VO \
                 does not count there. Write the VO's alias and the path in its tree"
            );
            seen.insert((what, (*mount).clone()))
                .then(|| Finding::new(Code::BelowMount, Severity::Warning, &text))
        });
        below.collect()
    }

    /// The owner's entries that have children, and no line for the accounts below without one, to which a rule leads.
    fn leads_to_others(&self) -> BTreeSet<AccountPath> {
        let paths: BTreeSet<&AccountPath> = self.policy.entries().map(|(path, _)| path).collect();
        let parents: BTreeSet<AccountPath> =
            paths.iter().filter_map(|path| path.parent()).collect();
        let open = |path: &AccountPath| {
            let others = path.others();
            parents.contains(path) && !others.is_some_and(|others| paths.contains(&others))
        };
        let local = self
            .identity
            .rules()
            .iter()
            .filter(|rule| rule.vo.is_none());
        local
            .filter_map(|rule| literal(&rule.path))
            .filter(open)
            .collect()
    }
}

/// The part of a template before its first name with a placeholder: the whole where it has none.
fn literal(template: &str) -> Option<AccountPath> {
    let names = template.split('/').skip(1);
    let literal = names.take_while(|name| !name.contains('{') && !name.is_empty());
    let literal: Vec<&str> = literal.collect();
    AccountPath::parse(&format!("/{}", literal.join("/"))).ok()
}
