//! Whose job is it? Rules that map the batch system's words to an account.
//!
//! The first rule whose conditions all hold decides. What no rule maps is never dropped: it is
//! counted against the root of the site's tree and listed.
//!
//! Invariant: the same origin maps to the same account, whatever the order of jobs; and an origin
//! can never break out of the path that a rule gives it (a name with a slash is not inserted).
//! Deliberately not here: reading rules from a file (the node's configuration).

use std::collections::BTreeSet;

use fairmesh_model::record::fit;
use fairmesh_model::{AccountPath, ContentHash, Origin, VoId, mutated};

/// An account as the site knows it: in a VO's tree, or in the local part of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// The VO; `None` for accounts that never leave the site.
    pub vo: Option<VoId>,
    /// The path in the VO's tree, or in the site's.
    pub path: AccountPath,
}

impl Account {
    /// A number by which it is known again: never 0.
    pub fn digest(&self) -> u64 {
        let vo = self.vo.map_or([0; 32], |vo| *vo.as_bytes());
        let hash = ContentHash::of(&[vo.as_slice(), self.path.as_str().as_bytes()].concat());
        let first = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
        u64::from_be_bytes(*first).max(1)
    }
}

/// What one word of an origin must look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Exactly this.
    Exact(String),
    /// Anything that begins like this.
    Prefix(String),
}

impl Pattern {
    /// `atlas` means exactly that, `atlas*` what begins with it, `*` anything.
    pub fn parse(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Exact(text.to_owned()),
        }
    }

    /// Whether `word` looks so.
    pub fn holds(&self, word: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == word,
            Self::Prefix(prefix) => word.starts_with(prefix),
        }
    }

    /// Whether every word that looks like `other` looks like this, too.
    fn covers(&self, other: &Self) -> bool {
        match other {
            Self::Exact(word) => self.holds(word),
            Self::Prefix(prefix) => {
                matches!(self, Self::Prefix(own) if prefix.starts_with(own.as_str()))
            }
        }
    }

    /// What [`Pattern::parse`] makes this of.
    pub fn text(&self) -> String {
        match self {
            Self::Exact(exact) => exact.clone(),
            Self::Prefix(prefix) => format!("{prefix}*"),
        }
    }

    fn matches(&self, word: Option<&str>) -> bool {
        word.is_some_and(|word| self.holds(word))
    }
}

/// The words of an origin, wherever they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Words<'a> {
    /// Local user.
    pub user: Option<&'a str>,
    /// Batch account.
    pub account: Option<&'a str>,
    /// Local group.
    pub group: Option<&'a str>,
    /// Grid identity.
    pub subject: Option<&'a str>,
}

impl<'a> From<&'a Origin> for Words<'a> {
    fn from(origin: &'a Origin) -> Self {
        Self {
            user: origin.user.as_deref(),
            account: origin.account.as_deref(),
            group: origin.group.as_deref(),
            subject: origin.subject.as_deref(),
        }
    }
}

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
    /// The VO to charge; `None` for an account of the site's own.
    pub vo: Option<VoId>,
    /// The path to charge, with `{user}`, `{account}`, `{group}` or `{subject}` replaced by the
    /// origin's words: `/P-B1/{user}`.
    pub path: String,
}

impl Rule {
    fn applies(&self, words: Words<'_>) -> bool {
        let holds = |pattern: &Option<Pattern>, word: Option<&str>| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(word))
        };
        holds(&self.user, words.user)
            && holds(&self.account, words.account)
            && holds(&self.group, words.group)
            && holds(&self.subject, words.subject)
    }

    /// Whether no job ever comes to `later`, because this rule stands before it and takes each. Jobs are
    /// taken to have a user, as those of batch systems do.
    pub fn hides(&self, later: &Self) -> bool {
        let pairs = [
            ("{user}", &self.user, &later.user),
            ("{account}", &self.account, &later.account),
            ("{group}", &self.group, &later.group),
            ("{subject}", &self.subject, &later.subject),
        ];
        pairs.into_iter().all(|(placeholder, own, later)| {
            let is_given = own.is_some() || later.is_some() || placeholder == "{user}";
            let covered = match (own, later) {
                (None, _) => true,
                (Some(own), Some(later)) => own.covers(later),
                (Some(own), None) => placeholder == "{user}" && own.covers(&Pattern::parse("*")),
            };
            covered && (is_given || !self.path.contains(placeholder))
        })
    }

    /// Words with which this rule would charge jobs of `user` to `account`: what the path does not tell is
    /// taken from the conditions. None for accounts that are anybody's.
    fn origin(&self, user: &str, account: &Account) -> Option<Origin> {
        let is_whose = self.path.contains("{user}") || matches!(self.user, Some(Pattern::Exact(_)));
        let path = account.path.as_str();
        if self.vo != account.vo
            || !is_whose
            || self.path.matches('/').count() != path.matches('/').count()
        {
            return None;
        }
        let user_name = user.replace('/', "|");
        // Most accounts are somebody else's: that is seen before anything is made of their names.
        let may_be = |(wanted, name): (&str, &str)| match wanted {
            "{user}" => name == user_name,
            wanted => wanted.contains('{') || wanted == name,
        };
        if !self.path.split('/').zip(path.split('/')).all(may_be) {
            return None;
        }
        let word = |pattern: &Option<Pattern>| {
            let (Pattern::Exact(word) | Pattern::Prefix(word)) = pattern.as_ref()?;
            Some(word.clone())
        };
        let mut origin = Origin {
            user: Some(user.to_owned()),
            account: word(&self.account),
            group: word(&self.group),
            subject: word(&self.subject),
        };
        for (wanted, name) in self.path.split('/').zip(path.split('/')) {
            let wanted = wanted.replace("{user}", &user_name);
            let words = [
                ("{account}", &mut origin.account),
                ("{group}", &mut origin.group),
                ("{subject}", &mut origin.subject),
            ];
            for (placeholder, word) in words {
                if let Some((before, behind)) = wanted.split_once(placeholder) {
                    let rest = name.strip_prefix(before)?;
                    *word = Some(rest.strip_suffix(behind)?.to_owned());
                }
            }
        }
        Some(origin)
    }

    /// Whom this rule charges for jobs at a path, as far as the rule or the path names him.
    fn user_at<'a>(&'a self, path: &'a str) -> Option<&'a str> {
        if let Some(Pattern::Exact(user)) = &self.user {
            return Some(user);
        }
        let mut names = self.path.split('/').zip(path.split('/'));
        names.find_map(|(wanted, name)| {
            let (before, behind) = wanted.split_once("{user}")?;
            name.strip_prefix(before)?.strip_suffix(behind)
        })
    }

    /// The account; `None` where the path asks for a word that the origin lacks, or the word
    /// would not be one name of a path. What a word says is not read for placeholders again.
    fn account(&self, words: Words<'_>) -> Option<Account> {
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
                    // A certificate's subject is full of slashes; as a name it keeps them as `|`.
                    let chars = (*word)?.chars();
                    path.extend(chars.map(|c| if c == '/' { '|' } else { c }));
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

/// The rules of a site, in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdentityMap {
    rules: Vec<Rule>,
}

impl IdentityMap {
    /// Takes rules in order.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules }
    }

    /// The rules, in the order in which they are tried.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The account that `origin` is charged to; `None` where no rule says so. Names that no report may bear are read as it
    /// would bear them, so whoever asks before a job is told of the account that pays for it.
    pub fn resolve<'a>(&self, origin: impl Into<Words<'a>>) -> Option<Account> {
        let asked = origin.into();
        let names = [asked.user, asked.account, asked.group, asked.subject];
        let [user, account, group, subject] = names.map(|name| name.map(fit));
        let words = Words {
            user: user.as_deref(),
            account: account.as_deref(),
            group: group.as_deref(),
            subject: subject.as_deref(),
        };
        let mut held = self.rules.iter().filter(|rule| rule.applies(words));
        if mutated!(LastRuleHolds) {
            return held.next_back()?.account(words);
        }
        held.find_map(|rule| rule.account(words))
    }

    /// Whether jobs of `user` are charged to `account` under some batch account, group or Grid identity.
    pub fn may_charge(&self, user: &str, account: &Account) -> bool {
        let mut origins = self
            .rules
            .iter()
            .filter_map(|rule| rule.origin(user, account));
        origins.any(|origin| self.resolve(&origin).as_ref() == Some(account))
    }

    /// Whether `account` is somebody else's: jobs of him are charged to it, and none of `user`.
    pub fn is_of_another(&self, user: &str, account: &Account) -> bool {
        let users = self
            .rules
            .iter()
            .filter_map(|rule| rule.user_at(account.path.as_str()));
        // Many rules name the same one.
        let users: BTreeSet<_> = users.collect();
        let mut owners = users
            .into_iter()
            .filter(|owner| self.may_charge(owner, account));
        !self.may_charge(user, account) && owners.next().is_some()
    }

    /// The account of a job that maps nowhere: the root of the site's own tree.
    pub fn nowhere() -> Account {
        Account {
            vo: None,
            path: AccountPath::root(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(user: &str, account: Option<&str>) -> Origin {
        Origin {
            user: Some(user.to_owned()),
            account: account.map(str::to_owned),
            ..Origin::default()
        }
    }

    fn map() -> IdentityMap {
        let vo = Some(VoId::from_bytes([7; 32]));
        IdentityMap::new(vec![
            Rule {
                user: Some(Pattern::parse("root")),
                path: "/local".to_owned(),
                ..Rule::default()
            },
            Rule {
                account: Some(Pattern::parse("atlas*")),
                vo,
                path: "/{account}/{user}".to_owned(),
                ..Rule::default()
            },
            Rule {
                account: Some(Pattern::parse("*")),
                path: "/local/{account}".to_owned(),
                ..Rule::default()
            },
        ])
    }

    #[test]
    fn a_rule_behind_one_that_takes_all_its_jobs_is_hidden() {
        let rule = |user: &str, account: &str, path: &str| {
            let pattern = |text: &str| Some(Pattern::parse(text)).filter(|_| !text.is_empty());
            Rule {
                user: pattern(user),
                account: pattern(account),
                path: path.to_owned(),
                ..Rule::default()
            }
        };
        let rows = [
            (
                rule("", "*", "/{account}/{user}"),
                rule("", "cms", "/x"),
                true,
            ),
            (rule("", "cms*", "/x"), rule("ann", "cms-prod*", "/x"), true),
            (rule("*", "", "/x"), rule("", "cms", "/x"), true),
            (rule("", "", "/x/{user}"), rule("ann", "", "/x"), true),
            (rule("", "cms-prod*", "/x"), rule("", "cms*", "/x"), false),
            // A job without an account comes to the later one.
            (rule("", "*", "/x"), rule("ann", "", "/x"), false),
            (rule("", "", "/{account}"), rule("ann", "", "/x"), false),
            (rule("root", "", "/x"), rule("", "*", "/x"), false),
        ];
        for (before, later, is_hidden) in rows {
            assert_eq!(before.hides(&later), is_hidden, "{before:?} {later:?}");
        }
    }

    #[test]
    fn the_first_rule_that_holds_decides() {
        let path = |origin| {
            map()
                .resolve(&origin)
                .map(|account| account.path.to_string())
        };
        assert_eq!(
            path(origin("root", Some("atlas"))).as_deref(),
            Some("/local")
        );
        assert_eq!(
            path(origin("ann", Some("atlas-prod"))).as_deref(),
            Some("/atlas-prod/ann")
        );
        assert_eq!(
            path(origin("bob", Some("bio"))).as_deref(),
            Some("/local/bio")
        );
        assert_eq!(path(origin("eve", None)), None);
    }

    #[test]
    fn an_account_is_found_by_its_user_alone() {
        let may = |user: &str, vo, path: &str| {
            let path = AccountPath::parse(path).expect("a path");
            map().may_charge(user, &Account { vo, path })
        };
        let vo = Some(VoId::from_bytes([7; 32]));
        assert!(may("ann", vo, "/atlas-prod/ann"));
        assert!(may("a/b", vo, "/atlas/a|b"));
        assert!(!may("bob", vo, "/atlas-prod/ann"), "another's");
        assert!(!may("ann", vo, "/cms/ann"), "no rule gives that account");
        assert!(!may("ann", None, "/atlas-prod/ann"), "another tree");
        assert!(!may("root", vo, "/atlas/root"), "an earlier rule holds");
        assert!(may("root", None, "/local"));
    }

    #[test]
    fn an_account_that_nobody_owns_is_no_others() {
        let vo = Some(VoId::from_bytes([7; 32]));
        for (user, vo, path, expected) in [
            ("bob", vo, "/atlas-prod/ann", true),
            ("ann", vo, "/atlas-prod/ann", false),
            ("a/b", vo, "/atlas/a|b", false),
            ("bob", vo, "/atlas/a|b", true),
            // Root's, by a rule of his own.
            ("bob", None, "/local", true),
            ("root", None, "/local", false),
            ("bob", None, "/local/bio", false),
            ("bob", vo, "/cms/ann", false),
        ] {
            let account = Account {
                vo,
                path: AccountPath::parse(path).expect("a path"),
            };
            let is_of_another = map().is_of_another(user, &account);
            assert_eq!(is_of_another, expected, "{user} {path}");
        }
    }

    #[test]
    fn a_name_that_looks_like_a_placeholder_is_a_name() {
        let rule = Rule {
            path: "/{x}/{user}-{account}".to_owned(),
            ..Rule::default()
        };
        let account = IdentityMap::new(vec![rule]).resolve(&origin("{account}", Some("a/b")));
        let path = account.map(|account| account.path.to_string());
        assert_eq!(path.as_deref(), Some("/{x}/{account}-a|b"));
    }

    #[test]
    fn a_name_cannot_break_out_of_its_path() {
        let account = map()
            .resolve(&origin("../../VO-B", Some("atlas")))
            .expect("mapped");
        assert_eq!(account.path.to_string(), "/atlas/..|..|VO-B");
        assert_eq!(
            map()
                .resolve(&origin("..", Some("atlas")))
                .map(|account| account.path.to_string())
                .as_deref(),
            Some("/local/atlas")
        );
    }

    #[test]
    fn a_name_that_no_report_may_bear_means_who_is_charged_for_it() {
        let map = IdentityMap::new(vec![Rule {
            path: "/{account}/{user}".to_owned(),
            ..Rule::default()
        }]);
        let hidden = origin("ann", Some("x\u{200b}"));
        let charged = map.resolve(&hidden.clone().fitting());
        assert_eq!(map.resolve(&hidden), charged);
        assert_eq!(charged.expect("mapped").path.as_str(), "/x\u{fffd}/ann");
    }
}
