//! The decisions of a site's owner, for the oracle.
//!
//! Invariant: this copies fields of the configuration and decides nothing.
//! Deliberately not here: what follows from them (`oracle::owner`).

use std::sync::Arc;

use fairmesh_model::{PriceList, Share};
use fairmesh_site::{Pattern, Person, Rule, SiteConfig};

use crate::oracle::AccountKey;
use crate::oracle::owner::{self, IdentityRule, Owner, OwnerEntry};

/// Copies a configuration, without the entries that the owner has dropped.
pub(crate) fn owner_of(config: &SiteConfig) -> Owner {
    let entries = config.policy.entries().filter_map(|(path, entry)| {
        let mount = entry.mount.as_ref();
        let whole = |of: Option<Share>| of.unwrap_or(Share::WHOLE);
        (!mount.is_some_and(|mount| mount.drop)).then(|| OwnerEntry {
            path: path.clone(),
            share: entry.share,
            percent: whole(mount.and_then(|mount| mount.weight)),
            cap: whole(mount.and_then(|mount| mount.cap)),
            at_most: entry.at_most,
            usage: entry.usage,
            distance: entry.distance,
            vo: mount.and_then(|mount| config.vos.get(&mount.alias).copied()),
            was: entry.was.clone(),
            since: entry.since,
        })
    });
    let hosts = config.charging.hosts.iter();
    Owner {
        entries: entries.collect(),
        history: config.local_history,
        window: config.local_window,
        charging: config.charging.local_rule,
        discounts: config.charging.local_discounts,
        prices: PriceList::clone(&config.charging.prices),
        hosts: hosts
            .map(|(host, class)| (pattern(host), class.clone()))
            .collect(),
        rules: config.identity.rules().iter().map(rule).collect(),
        people: config.identity.people().rows().iter().map(person).collect(),
    }
}

fn rule(rule: &Rule) -> IdentityRule {
    let on = |word: &Option<Pattern>| word.as_ref().map(pattern);
    IdentityRule {
        user: on(&rule.user),
        account: on(&rule.account),
        group: on(&rule.group),
        subject: on(&rule.subject),
        queue: on(&rule.queue),
        vo: rule.vo,
        path: rule.path.clone(),
    }
}

fn person(person: &Person) -> (Option<String>, Option<String>, AccountKey) {
    let word = |word: &Option<Arc<str>>| word.as_deref().map(str::to_owned);
    let account = (person.account.vo, person.account.path.clone());
    (word(&person.subject), word(&person.user), account)
}

fn pattern(pattern: &Pattern) -> owner::Pattern {
    match pattern {
        Pattern::Exact(exact) => owner::Pattern::Exact(exact.clone()),
        Pattern::Prefix(prefix) => owner::Pattern::Prefix(prefix.clone()),
    }
}
