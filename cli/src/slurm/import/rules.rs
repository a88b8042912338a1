//! The fewest identity rules that take each job to its association's entry.
//!
//! Most users of an account stand at paths of one pattern, so one rule without a user names them all, and the others
//! have a rule each. The pattern that most accounts share needs no account either. Rules are tried in order, so the
//! narrow ones come first: user, account and partition; account and partition; user and account; account; all.
//! Invariant: a job's first rule gives the entry of the association that Slurm would charge, which is the one for its
//! partition, else the one without a partition. Deliberately not here: where entries are (`tree`).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use fairmesh_model::clean;

use super::tree::Place;

/// One `[[identity]]`: what is not given holds for all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Rule<'a> {
    pub(super) user: Option<&'a str>,
    pub(super) account: Option<&'a str>,
    pub(super) partition: Option<&'a str>,
    /// The path, or a template of it.
    pub(super) path: &'a str,
}

/// Rules by how narrow they are.
#[derive(Default)]
struct Narrowness<'a> {
    of_users_in_partitions: Vec<Rule<'a>>,
    of_partitions: Vec<Rule<'a>>,
    of_users: Vec<Rule<'a>>,
    of_accounts: Vec<Rule<'a>>,
}

/// The rules for these places, which are sorted by account, user and partition, in the order in which they are tried.
///
/// # Errors
/// A name that a rule would take for a pattern.
pub(super) fn rules<'a>(places: &'a [Place<'a>]) -> anyhow::Result<Vec<Rule<'a>>> {
    let mut found = Narrowness::default();
    for places in places.chunk_by(|one, next| one.account == next.account) {
        found.add_account(places);
    }
    let all = found.take_most_frequent();
    let rules = [
        found.of_users_in_partitions,
        found.of_partitions,
        found.of_users,
        found.of_accounts,
        all.into_iter().collect(),
    ];
    let rules = rules.concat();
    for rule in &rules {
        for name in [rule.user, rule.account, rule.partition]
            .into_iter()
            .flatten()
        {
            ensure!(
                !name.ends_with('*'),
                "no rule can name `{}`, because a `*` at the end stands for anything: rename it in Slurm",
                clean(name)
            );
        }
    }
    Ok(rules)
}

impl<'a> Narrowness<'a> {
    /// The rules of one account.
    fn add_account(&mut self, places: &'a [Place<'a>]) {
        let (plain, special): (Vec<_>, Vec<_>) =
            places.iter().partition(|place| place.partition.is_none());
        if let Some(usual) = most_frequent(&plain) {
            self.of_accounts.push(Rule {
                account: Some(plain[0].account),
                path: usual,
                ..Rule::default()
            });
            let others = plain.iter().filter(|place| place.template != usual);
            self.of_users.extend(others.map(|place| of_user(place)));
        }
        let mut by_partition: BTreeMap<_, Vec<&Place<'_>>> = BTreeMap::new();
        for place in special {
            by_partition.entry(place.partition).or_default().push(place);
        }
        for places in by_partition.values() {
            self.add_partition(places, &plain);
        }
    }

    /// The rules of one partition in an account, whose associations without a partition are `plain`.
    fn add_partition(&mut self, places: &[&'a Place<'a>], plain: &[&'a Place<'a>]) {
        if let Some((rule, exceptions)) = of_partition(places, plain) {
            self.of_partitions.push(rule);
            self.of_users_in_partitions.extend(exceptions);
        } else {
            let each = places.iter().map(|place| of_user(place));
            self.of_users_in_partitions.extend(each);
        }
    }

    /// The rule of an account that holds for most, as one for all.
    fn take_most_frequent(&mut self) -> Option<Rule<'a>> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let general = self.of_accounts.iter().map(|rule| rule.path);
        for path in general.filter(|path| path.contains("{account}")) {
            *counts.entry(path).or_default() += 1;
        }
        let (path, _) = counts
            .into_iter()
            .filter(|(_, count)| *count > 1)
            .max_by_key(|(_, count)| *count)?;
        self.of_accounts.retain(|rule| rule.path != path);
        Some(Rule {
            path,
            ..Rule::default()
        })
    }
}

/// One rule for a partition in an account, and its exceptions; `None` where these are no fewer than the partition's
/// users. The rule takes users who have no association for the partition, too, so each of those needs one that takes
/// them back.
fn of_partition<'a>(
    places: &[&'a Place<'a>],
    plain: &[&'a Place<'a>],
) -> Option<(Rule<'a>, Vec<Rule<'a>>)> {
    let usual = most_frequent(places)?;
    // More to take back than there are to name: to look for them would be in vain.
    if plain.len() >= 2 * places.len() {
        return None;
    }
    let users: BTreeSet<&str> = places.iter().map(|place| place.user).collect();
    let without = plain.iter().filter(|place| !users.contains(place.user));
    let back = without.map(|place| Rule {
        partition: places[0].partition,
        ..of_user(place)
    });
    let others = places.iter().filter(|place| place.template != usual);
    let exceptions: Vec<Rule<'a>> = others.map(|place| of_user(place)).chain(back).collect();
    let rule = Rule {
        account: Some(places[0].account),
        partition: places[0].partition,
        path: usual,
        user: None,
    };
    (exceptions.len() < places.len()).then_some((rule, exceptions))
}

fn of_user<'a>(place: &'a Place<'a>) -> Rule<'a> {
    Rule {
        user: Some(place.user),
        account: Some(place.account),
        partition: place.partition,
        path: &place.path,
    }
}

/// The template of most places.
fn most_frequent<'a>(places: &[&'a Place<'a>]) -> Option<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for place in places {
        *counts.entry(&place.template).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count)?;
    Some(most.0)
}
