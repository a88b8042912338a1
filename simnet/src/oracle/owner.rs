//! What an owner has decided about a site, as plain data.
//!
//! Invariant: this copies fields of the configuration and calls nothing that decides anything: whose
//! a job is, and what an entry weighs, is worked out here, from the rules as they are written.

use std::collections::BTreeMap;

use fairmesh_model::{
    AccountPath, ChargingRule, Date, Discounts, Distance, HistoryRule, Origin, PriceList, Scope,
    Share, VoId, WindowLength,
};
use fairmesh_site::{Pattern, SiteConfig};
use num_rational::BigRational;

use super::AccountKey;
use super::caps::{Part, capped};
use super::cost::ratio;

/// One entry of the owner's tree.
#[derive(Debug, Clone)]
pub struct OwnerEntry {
    /// Where it is.
    pub path: AccountPath,
    /// What it weighs among its siblings, after the owner's weights and caps of all of them.
    pub weight: BigRational,
    /// The most that it may have.
    pub at_most: Share,
    /// By whose usage those right below it are compared, if he says so here.
    pub usage: Option<Scope>,
    /// How far they are from their targets, if he says so here.
    pub distance: Option<Distance>,
    /// The VO that divides it, if one does.
    pub vo: Option<VoId>,
    /// Its former paths.
    pub was: Vec<AccountPath>,
    /// The first day of which usage counts for it.
    pub since: Option<Date>,
}

/// The owner's decisions.
#[derive(Debug, Clone)]
pub struct Owner {
    /// The tree, without what he has dropped.
    pub entries: Vec<OwnerEntry>,
    /// How local usage is weighed by its age.
    pub history: HistoryRule,
    /// Windows of local usage.
    pub window: WindowLength,
    /// What local jobs are charged.
    pub charging: ChargingRule,
    /// The same on other than the usual terms.
    pub discounts: Discounts,
    /// Machines and queues.
    pub prices: PriceList,
    /// Which class a machine is of, by its name.
    hosts: Vec<(Pattern, String)>,
    rules: Vec<fairmesh_site::Rule>,
}

impl Owner {
    /// Copies a configuration.
    pub fn of(config: &SiteConfig) -> Self {
        let weights = weights(config);
        let entries = config.policy.entries().filter_map(|(path, entry)| {
            let mount = entry.mount.as_ref();
            Some(OwnerEntry {
                path: path.clone(),
                weight: weights.get(path)?.clone(),
                at_most: entry.at_most,
                usage: entry.usage,
                distance: entry.distance,
                vo: mount.and_then(|mount| config.vos.get(&mount.alias).copied()),
                was: entry.was.clone(),
                since: entry.since,
            })
        });
        Self {
            entries: entries.collect(),
            history: config.local_history,
            window: config.local_window,
            charging: config.charging.local_rule,
            discounts: config.charging.local_discounts,
            prices: PriceList::clone(&config.charging.prices),
            hosts: config.charging.hosts.clone(),
            rules: config.identity.rules().to_vec(),
        }
    }

    /// Whose a job is: the first rule that holds and makes a path of the job's own words. What no
    /// rule maps belongs to the root of the site's tree.
    pub fn account(&self, origin: &Origin) -> AccountKey {
        let of_rule = |rule: &fairmesh_site::Rule| {
            let words = [
                ("{user}", &rule.user, &origin.user),
                ("{account}", &rule.account, &origin.account),
                ("{group}", &rule.group, &origin.group),
                ("{subject}", &rule.subject, &origin.subject),
            ];
            let mut path = rule.path.clone();
            for (place, pattern, word) in words {
                if !pattern
                    .as_ref()
                    .is_none_or(|pattern| holds(pattern, word.as_deref()))
                {
                    return None;
                }
                if path.contains(place) {
                    path = path.replace(place, &word.as_ref()?.replace('/', "|"));
                }
            }
            Some((rule.vo, AccountPath::parse(&path).ok()?))
        };
        let mapped = self.rules.iter().find_map(of_rule);
        mapped.unwrap_or((None, AccountPath::root()))
    }

    /// The class of a machine. `None` where nothing is said or known of machines; a name of no class
    /// where only this one is not known.
    pub fn class_of<'a>(&'a self, machine: Option<&'a str>) -> Option<&'a str> {
        let machine = machine?;
        let is_class = self.prices.machines.contains_key(machine);
        let host = self
            .hosts
            .iter()
            .find(|(host, _)| holds(host, Some(machine)));
        match host {
            _ if is_class || (host.is_none() && !self.hosts.is_empty()) => Some(machine),
            Some((_, class)) => Some(class),
            None => None,
        }
    }
}

/// What each entry weighs that is not dropped, the root too.
fn weights(config: &SiteConfig) -> BTreeMap<AccountPath, BigRational> {
    let mut levels: BTreeMap<Option<AccountPath>, BTreeMap<AccountPath, Part>> = BTreeMap::new();
    for (path, entry) in config.policy.entries() {
        let mount = entry.mount.as_ref();
        if mount.is_some_and(|mount| mount.drop) {
            continue;
        }
        let percent = |of: Option<Share>| fraction(of.unwrap_or(Share::WHOLE));
        let part = Part {
            weight: ratio(entry.share.units(), 1) * percent(mount.and_then(|mount| mount.weight)),
            cap: percent(mount.and_then(|mount| mount.cap)),
        };
        let level = levels.entry(path.parent()).or_default();
        level.insert(path.clone(), part);
    }
    levels.into_values().flat_map(capped).collect()
}

/// A percentage as a part of one.
pub(super) fn fraction(share: Share) -> BigRational {
    ratio(u64::from(share.units()), u64::from(Share::ONE))
}

fn holds(pattern: &Pattern, word: Option<&str>) -> bool {
    match (pattern, word) {
        (_, None) => false,
        (Pattern::Exact(exact), Some(word)) => exact == word,
        (Pattern::Prefix(prefix), Some(word)) => word.starts_with(prefix),
    }
}
