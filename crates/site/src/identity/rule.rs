//! One rule of a site: conditions on the words of a job, and the account that pays where all of them hold.
//!
//! Invariant: an origin can never break out of the path that a rule gives it: a slash in a word becomes `|`, and what
//! a word contains is not read for placeholders again.

use fairmesh_model::record::{element, word_of};
use fairmesh_model::{AccountPath, VoId};

use super::words::{Account, NAMES, Pattern, USER, Words};

/// One rule: all conditions that are given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// On the local user.
    pub user: Option<Pattern>,
    /// On the batch account.
    pub account: Option<Pattern>,
    /// On the local group.
    pub group: Option<Pattern>,
    /// On the Grid identity.
    pub subject: Option<Pattern>,
    /// On the queue or partition.
    pub queue: Option<Pattern>,
    /// On the quality of service.
    pub qos: Option<Pattern>,
    /// The VO to charge; `None` for an account of the site's own.
    pub vo: Option<VoId>,
    /// The path to charge, with `{user}`, `{account}`, `{group}` or `{subject}` replaced by the
    /// origin's words: `/P-B1/{user}`.
    pub path: String,
    /// Whether the owner wrote `{site}` into the path, which `path` has as the site's name: its accounts are of no
    /// other site.
    pub is_of_site: bool,
    /// Whether the owner states that a user name means one person at all sites.
    pub shares_names: bool,
}

/// Words with which a rule would charge a job: a witness that it can.
#[derive(Debug, Default)]
pub(super) struct Witness([Option<String>; 6]);

impl Witness {
    pub(super) fn words(&self) -> Words<'_> {
        let [user, account, group, subject, queue, qos] =
            self.0.each_ref().map(|word| word.as_deref());
        Words {
            user,
            account,
            group,
            subject,
            queue,
            qos,
        }
    }
}

impl Rule {
    /// The conditions, in the order of [`NAMES`].
    pub(super) fn conditions(&self) -> [Option<&Pattern>; 6] {
        let own = [
            &self.user,
            &self.account,
            &self.group,
            &self.subject,
            &self.queue,
            &self.qos,
        ];
        own.map(Option::as_ref)
    }

    /// The conditions that are given, by the name of the word that each is on.
    pub fn named_conditions(&self) -> impl Iterator<Item = (&'static str, &Pattern)> {
        let named = NAMES.into_iter().zip(self.conditions());
        named.filter_map(|(name, pattern)| Some((name, pattern?)))
    }

    pub(super) fn applies(&self, words: Words<'_>) -> bool {
        let mut pairs = self.conditions().into_iter().zip(words.all());
        pairs.all(|(pattern, word)| {
            pattern.is_none_or(|pattern| word.is_some_and(|word| pattern.holds(word)))
        })
    }

    /// Whether the rule may apply to jobs of `user`.
    pub(super) fn admits(&self, user: &str) -> bool {
        self.user.as_ref().is_none_or(|pattern| pattern.holds(user))
    }

    /// The user whom it names.
    pub(super) fn exact_user(&self) -> Option<&str> {
        match &self.user {
            Some(Pattern::Exact(user)) => Some(user),
            _ => None,
        }
    }

    /// Whether it names one person, or makes paths each of which only one person has.
    pub(super) fn states_person(&self) -> bool {
        let is_exact = |pattern: &Option<Pattern>| matches!(pattern, Some(Pattern::Exact(_)));
        self.is_of_site
            || self.shares_names
            || is_exact(&self.user)
            || is_exact(&self.subject)
            || self.path.contains("{subject}")
    }

    /// Whether no job ever comes to `later`, because this rule stands before it and takes each. Jobs are
    /// taken to have a user, as those of batch systems do.
    pub fn hides(&self, later: &Self) -> bool {
        let pairs = self.conditions().into_iter().zip(later.conditions());
        pairs.enumerate().all(|(at, (own, later))| {
            let is_user = at == USER;
            let is_given = own.is_some() || later.is_some() || is_user;
            let covered = match (own, later) {
                (None, _) => true,
                (Some(own), Some(later)) => own.covers(later),
                (Some(own), None) => is_user && own.covers(&Pattern::Prefix(String::new())),
            };
            covered && (is_given || !self.path.contains(&format!("{{{}}}", NAMES[at])))
        })
    }

    /// Words with which this rule would charge jobs of `user` to `account`: what the path does not tell is
    /// taken from the conditions. None for accounts that are anybody's.
    pub(super) fn witness(&self, user: &str, account: &Account) -> Option<Witness> {
        let is_whose = self.path.contains("{user}") || self.exact_user().is_some();
        let path = account.path.as_str();
        if self.vo != account.vo
            || !is_whose
            || self.path.matches('/').count() != path.matches('/').count()
        {
            return None;
        }
        let user_name = element(user);
        // Most accounts are somebody else's: that is seen before anything is made of their names.
        let may_be = |(wanted, name): (&str, &str)| match wanted {
            "{user}" => name == user_name,
            wanted => wanted.contains('{') || wanted == name,
        };
        if !self.path.split('/').zip(path.split('/')).all(may_be) {
            return None;
        }
        let mut words = self.conditions().map(|pattern| {
            let (Pattern::Exact(word) | Pattern::Prefix(word)) = pattern?;
            Some(word.clone())
        });
        words[USER] = Some(user.to_owned());
        for (wanted, name) in self.path.split('/').zip(path.split('/')) {
            if !wanted.contains('{') {
                continue;
            }
            let wanted = wanted.replace("{user}", &user_name);
            for at in USER + 1..4 {
                let placeholder = format!("{{{}}}", NAMES[at]);
                if let Some((before, behind)) = wanted.split_once(&placeholder) {
                    let rest = name.strip_prefix(before)?;
                    words[at] = Some(word_of(rest.strip_suffix(behind)?));
                }
            }
        }
        let witness = Witness(words);
        (self.account(witness.words()).as_ref() == Some(account)).then_some(witness)
    }

    /// Whom this rule charges for jobs at a path, as far as the rule or the path names them.
    pub(super) fn user_at(&self, path: &str) -> Option<String> {
        if let Some(user) = self.exact_user() {
            return Some(user.to_owned());
        }
        let mut names = self.path.split('/').zip(path.split('/'));
        names.find_map(|(wanted, name)| {
            let (before, behind) = wanted.split_once("{user}")?;
            Some(word_of(name.strip_prefix(before)?.strip_suffix(behind)?))
        })
    }

    /// The account; `None` where the path asks for a word that the origin lacks, or the word
    /// would not be one name of a path. What a word says is not read for placeholders again.
    pub(super) fn account(&self, words: Words<'_>) -> Option<Account> {
        let words = [
            ("{user}", words.user),
            ("{account}", words.account),
            ("{group}", words.group),
            ("{subject}", words.subject),
        ];
        let (mut path, mut rest) = (String::new(), self.path.as_str());
        while let Some((before, behind)) = rest.split_once('{') {
            path.push_str(before);
            let from = &rest[before.len()..];
            let found = words.iter().find(|(name, _)| from.starts_with(name));
            rest = match found {
                Some((name, word)) => {
                    path.push_str(&element((*word)?));
                    &from[name.len()..]
                }
                None => {
                    path.push('{');
                    behind
                }
            };
        }
        path.push_str(rest);
        Some(Account {
            vo: self.vo,
            path: AccountPath::parse(&path).ok()?,
        })
    }
}
