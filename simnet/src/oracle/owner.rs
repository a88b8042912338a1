//! What an owner has decided about a site, as plain data.
//!
//! Invariant: the data come from outside, and nothing here reads a configuration: whose a job is, and what an entry
//! weighs, is computed here from the rules as they are documented.

use std::collections::BTreeMap;

use fairmesh_model::{
    AccountPath, ChargingRule, Date, Discounts, Distance, HistoryRule, PriceList, Scope, Share,
    UsageRecord, VoId, Weight, WindowLength,
};
use num_rational::BigRational;

use super::AccountKey;
use super::caps::{Part, capped};
use super::cost::ratio;

/// One entry of the owner's tree.
#[derive(Debug, Clone)]
pub struct OwnerEntry {
    /// Where it is.
    pub path: AccountPath,
    /// What its line states.
    pub share: Weight,
    /// The part of it that the owner leaves to a VO.
    pub percent: Share,
    /// The most of its level that it gets.
    pub cap: Share,
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

/// What one word of a job must be.
#[derive(Debug, Clone)]
pub enum Pattern {
    /// Exactly this.
    Exact(String),
    /// Any word that begins with this.
    Prefix(String),
}

/// An identity rule: the account of jobs whose words meet all conditions.
#[derive(Debug, Clone)]
pub struct IdentityRule {
    /// On the local user.
    pub user: Option<Pattern>,
    /// On the batch account.
    pub account: Option<Pattern>,
    /// On the local group.
    pub group: Option<Pattern>,
    /// On the Grid identity.
    pub subject: Option<Pattern>,
    /// On the queue.
    pub queue: Option<Pattern>,
    /// The VO of the account, if it is not the site's own.
    pub vo: Option<VoId>,
    /// The account, with words of the job in braces.
    pub path: String,
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
    /// The classes of machines, by their names.
    pub hosts: Vec<(Pattern, String)>,
    /// The identity rules, in order.
    pub rules: Vec<IdentityRule>,
    /// People, who come before the rules: a Grid identity, a local user, and who pays for their jobs.
    pub people: Vec<(Option<String>, Option<String>, AccountKey)>,
}

impl Owner {
    /// The account of a job: that of the person whose Grid identity it has, or else whose user, or of the first rule
    /// whose conditions hold and which makes a path of the job's words. A job that no rule maps belongs to the root of
    /// the site's tree.
    pub fn account(&self, record: &UsageRecord) -> AccountKey {
        let (origin, queue) = (&record.origin, record.placement.queue.as_deref());
        let is_known = |row: &Option<String>, word: &Option<String>| row.is_some() && row == word;
        let of_subject = self
            .people
            .iter()
            .find(|of| is_known(&of.0, &origin.subject));
        let person =
            of_subject.or_else(|| self.people.iter().find(|of| is_known(&of.1, &origin.user)));
        if let Some((.., account)) = person {
            return account.clone();
        }
        let of_rule = |rule: &IdentityRule| {
            let words = [
                ("{user}", &rule.user, &origin.user),
                ("{account}", &rule.account, &origin.account),
                ("{group}", &rule.group, &origin.group),
                ("{subject}", &rule.subject, &origin.subject),
            ];
            if !rule
                .queue
                .as_ref()
                .is_none_or(|pattern| pattern.holds(queue))
            {
                return None;
            }
            let mut path = rule.path.clone();
            for (place, pattern, word) in words {
                if !pattern
                    .as_ref()
                    .is_none_or(|pattern| pattern.holds(word.as_deref()))
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
        let mut hosts = self.hosts.iter();
        let host = hosts.find(|(host, _)| host.holds(Some(machine)));
        match host {
            _ if is_class || (host.is_none() && !self.hosts.is_empty()) => Some(machine),
            Some((_, class)) => Some(class),
            None => None,
        }
    }

    /// What each entry weighs among its siblings, after the owner's weights and caps of all of them; the root too.
    pub fn weights(&self) -> BTreeMap<AccountPath, BigRational> {
        let mut levels: BTreeMap<Option<AccountPath>, BTreeMap<AccountPath, Part>> =
            BTreeMap::new();
        for entry in &self.entries {
            let part = Part {
                weight: ratio(entry.share.units(), 1) * fraction(entry.percent),
                cap: fraction(entry.cap),
            };
            let level = levels.entry(entry.path.parent()).or_default();
            level.insert(entry.path.clone(), part);
        }
        levels.into_values().flat_map(capped).collect()
    }
}

impl Pattern {
    fn holds(&self, word: Option<&str>) -> bool {
        match (self, word) {
            (_, None) => false,
            (Self::Exact(exact), Some(word)) => exact == word,
            (Self::Prefix(prefix), Some(word)) => word.starts_with(prefix),
        }
    }
}

/// A percentage as a part of one.
pub(super) fn fraction(share: Share) -> BigRational {
    ratio(u64::from(share.units()), u64::from(Share::ONE))
}
