//! Whose job is it? People and rules that map the batch system's words to an account.
//!
//! A person of the people map comes first. Of the rules, the first one whose conditions all hold decides. What nothing
//! maps is never dropped: it is counted against the root of the site's tree and listed.
//!
//! Invariant: the same words map to the same account, whatever the order of jobs; the index answers as a search
//! through all rules in the written order would, without one; and an origin can never break out of the path that a rule
//! gives it (a name with a slash is not inserted). Deliberately not here: reading rules and people from files (the
//! node's configuration).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::record::{element, fit};
use fairmesh_model::{AccountPath, mutated};

mod index;
mod people;
mod rule;
mod words;

pub use people::{People, Person, Taken};
pub use rule::Rule;
pub use words::{Account, Pattern, Words};

use index::{ByCondition, ByPath, Sought};
use words::USER;

/// The people and rules of a site, compiled once. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct IdentityMap(Arc<Compiled>);

#[derive(Debug, Default)]
struct Compiled {
    people: People,
    rules: Vec<Rule>,
    by_condition: ByCondition,
    /// Rules that name a user, by that user,
    of_user: BTreeMap<String, Vec<u32>>,
    /// and by the account.
    of_users: ByPath,
    /// Rules that name no user, and whose path has the user in it.
    of_anybody: ByPath,
    /// What these paths have in common.
    templates: Templates,
    /// Rules that name a Grid identity, and no user in any way.
    of_subjects: ByPath,
}

/// How paths have the user in them, the widest of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Templates {
    #[default]
    None,
    /// As one of their names.
    Name,
    /// As a part of a name.
    PartOfName,
    Nowhere,
}

impl Templates {
    fn of(rule: &Rule) -> Self {
        let mut names = rule.path.split('/');
        match rule.path.contains("{user}") {
            false => Self::Nowhere,
            true if names.any(|name| name == "{user}") => Self::Name,
            true => Self::PartOfName,
        }
    }
}

impl PartialEq for IdentityMap {
    fn eq(&self, other: &Self) -> bool {
        let [own, other] = [&self.0, &other.0];
        // All else follows from these.
        Arc::ptr_eq(own, other) || (own.rules == other.rules && own.people == other.people)
    }
}

impl Eq for IdentityMap {}

impl IdentityMap {
    /// Takes rules in order.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self::with_people(rules, People::default())
    }

    /// Takes rules in order, and people who come before them.
    pub fn with_people(rules: Vec<Rule>, people: People) -> Self {
        let mut compiled = Compiled {
            by_condition: ByCondition::new(&rules),
            people,
            ..Compiled::default()
        };
        for (place, rule) in (0..).zip(&rules) {
            if let Some(user) = rule.exact_user() {
                let of_user = compiled.of_user.entry(user.to_owned()).or_default();
                of_user.push(place);
                compiled.of_users.insert(place, rule);
            } else if rule.path.contains("{user}") {
                compiled.of_anybody.insert(place, rule);
                compiled.templates = compiled.templates.max(Templates::of(rule));
            } else if rule.states_person() {
                compiled.of_subjects.insert(place, rule);
            }
        }
        compiled.rules = rules;
        Self(Arc::new(compiled))
    }

    /// The rules, in the order in which they are tried.
    pub fn rules(&self) -> &[Rule] {
        &self.0.rules
    }

    /// The people, who come before the rules.
    pub fn people(&self) -> &People {
        &self.0.people
    }

    fn rule(&self, place: u32) -> &Rule {
        &self.0.rules[usize::try_from(place).expect("32 bits fit an index")]
    }

    /// The account that `words` are charged to; `None` where nobody and no rule says so. Names that no report may
    /// bear are read as it would bear them, so an answer before a job names the account that pays for it.
    pub fn resolve<'a>(&self, words: impl Into<Words<'a>>) -> Option<Account> {
        words.into().fitting(|words| {
            if mutated!(LastRuleHolds) {
                let mut held = self.0.rules.iter().filter(|rule| rule.applies(words));
                return held.next_back()?.account(words);
            }
            if let Some(person) = self.0.people.find(words) {
                return Some(person.account.clone());
            }
            let sought = words.all().map(|word| word.map(Sought::Word));
            let account = |place| {
                let rule = self.rule(place);
                rule.applies(words).then(|| rule.account(words))?
            };
            let (_, account) = self.0.by_condition.first(sought, u32::MAX, account)?;
            Some(account)
        })
    }

    /// Whether jobs of `user` are charged to `account` under some batch account, group, Grid identity, queue or
    /// quality of service.
    pub fn may_charge(&self, user: &str, account: &Account) -> bool {
        let user = &*fit(user);
        if let Some(person) = self.0.people.of_user(user) {
            return person.account == *account;
        }
        let own = self.0.of_user.get(user).into_iter().flatten().copied();
        let mut places = own.chain(self.0.of_anybody.at(account));
        places.any(|place| {
            let rule = self.rule(place);
            let witness = rule.admits(user).then(|| rule.witness(user, account));
            let resolved = witness.flatten().map(|found| self.resolve(found.words()));
            resolved.flatten().as_ref() == Some(account)
        })
    }

    /// Whether `account` is somebody else's: jobs of them are charged to it, and none of `user`.
    pub fn is_of_another(&self, user: &str, account: &Account) -> bool {
        let path = account.path.as_str();
        let of_people = self
            .0
            .people
            .at(account)
            .filter_map(|of| of.user.as_deref());
        let places = self
            .0
            .of_users
            .at(account)
            .chain(self.0.of_anybody.at(account));
        let of_rules = places.filter_map(|place| self.rule(place).user_at(path));
        // Many rules name the same one.
        let mut known = BTreeSet::new();
        let of_people = of_people.map(str::to_owned);
        let mut owners = of_people
            .chain(of_rules)
            .filter(|owner| known.insert(owner.clone()));
        !self.may_charge(user, account) && owners.any(|owner| self.may_charge(&owner, account))
    }

    /// What of all accounts a user can be charged to, so that they are found without a question about each.
    pub(crate) fn claims(&self, user: &str) -> Claims {
        let user = fit(user).into_owned();
        let name = element(&user);
        let mut claims = Claims {
            accounts: BTreeSet::new(),
            templates: self.0.templates,
            name,
        };
        if let Some(person) = self.0.people.of_user(&user) {
            claims.accounts.insert(person.account.clone());
            claims.templates = Templates::None;
            return claims;
        }
        for place in self.0.of_user.get(&user).into_iter().flatten() {
            let rule = self.rule(*place);
            if rule.path.replace("{user}", "").contains('{') {
                claims.templates = claims.templates.max(Templates::of(rule));
                continue;
            }
            let path = AccountPath::parse(&rule.path.replace("{user}", &claims.name));
            let account = path.map(|path| Account { vo: rule.vo, path });
            let charged = account
                .ok()
                .filter(|account| self.may_charge(&user, account));
            claims.accounts.extend(charged);
        }
        claims
    }

    /// Rules that no job reaches, each with the first one before it that takes all its jobs; both by place, from 0.
    pub fn hidden_rules(&self) -> Vec<(usize, usize)> {
        let at = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let rules = self.0.rules.iter().enumerate();
        let hidden = rules.filter_map(|(place, later)| {
            let mut sought = later.conditions().map(|pattern| match pattern? {
                Pattern::Exact(word) => Some(Sought::Word(word.as_str())),
                Pattern::Prefix(prefix) => Some(Sought::Prefix(prefix.as_str())),
            });
            // Every job has a user, so a rule for all of them takes also those of a rule without that condition.
            sought[USER] = sought[USER].or(Some(Sought::Prefix("")));
            let hides = |before| self.rule(before).hides(later).then_some(());
            let (before, ()) = self.0.by_condition.first(sought, at(place), hides)?;
            Some((
                place,
                usize::try_from(before).expect("32 bits fit an index"),
            ))
        });
        hidden.collect()
    }

    /// Whether two people of one name, at two sites, may be charged to `account` as if they were one: a template with
    /// the user makes its path here, and neither a person of the map nor a rule states whose it is.
    pub fn may_mix_namesakes(&self, account: &Account) -> bool {
        let path = account.path.as_str();
        let makes = |rule: &&Rule| {
            let user = rule.user_at(path);
            user.is_some_and(|user| rule.witness(&user, account).is_some())
        };
        let rules = |places: &mut dyn Iterator<Item = u32>| -> Vec<&Rule> {
            places.map(|place| self.rule(place)).filter(makes).collect()
        };
        let templates = rules(&mut self.0.of_anybody.at(account));
        // A template of Grid identities makes any path, and so does not tell whose this one is.
        let rules_of = |index: &ByPath| {
            let places: Vec<u32> = index.at(account).collect();
            places.into_iter().map(|place| self.rule(place))
        };
        let is_stated = || {
            self.0.people.at(account).next().is_some()
                || rules_of(&self.0.of_subjects).any(|rule| !rule.path.contains("{subject}"))
                || templates.iter().any(|rule| rule.states_person())
                || !rules(&mut self.0.of_users.at(account)).is_empty()
        };
        !templates.is_empty() && !is_stated()
    }

    /// The account of a job that maps nowhere: the root of the site's own tree.
    pub fn nowhere() -> Account {
        Account {
            vo: None,
            path: AccountPath::root(),
        }
    }
}

/// The accounts that a user can be charged to: some by their path, others by the form of it.
#[derive(Debug)]
pub(crate) struct Claims {
    accounts: BTreeSet<Account>,
    templates: Templates,
    name: String,
}

impl Claims {
    /// Accounts whose path is known.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.accounts.iter()
    }

    /// Whether there may be more than these accounts.
    pub(crate) fn has_forms(&self) -> bool {
        self.templates != Templates::None
    }

    /// Whether the account at a path may be one of the others. Where this is false it is none.
    pub(crate) fn may_be(&self, path: &AccountPath) -> bool {
        let mut names = path.names();
        match self.templates {
            Templates::None => false,
            Templates::Name => names.any(|name| name == self.name),
            Templates::PartOfName => names.any(|name| name.contains(&self.name)),
            Templates::Nowhere => true,
        }
    }
}

#[cfg(test)]
mod tests;
