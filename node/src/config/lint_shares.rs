//! What the owner's share tree means, where that may not be what the owner thinks.
//!
//! Invariant: only what the file and its share tree show. Where a rule leads into a VO's tree, nothing is known here.
//! Deliberately not here: usage (`doctor` reports accounts that have used something).

use std::collections::BTreeSet;

use fairmesh_model::AccountPath;
use fairmesh_site::Severity;

use super::Config;
use crate::emulate::OtherSums;
use crate::finding::{Code, Finding};

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
        sums.into_iter().chain(without_line).collect()
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
