//! The words of a job that identity rules read, what a word must look like, and the account that comes out.
//!
//! Invariant: words are listed in one order everywhere ([`NAMES`]), so an array of six means the same in each
//! function. Deliberately not here: rules and people, which put conditions on words together.

use fairmesh_model::record::fit;
use fairmesh_model::{AccountPath, ContentHash, Origin, UsageRecord, VoId, mutant};

/// The words in their order. The first four can stand in a template.
pub(super) const NAMES: [&str; 6] = ["user", "account", "group", "subject", "queue", "qos"];

/// Where the user stands among them.
pub(super) const USER: usize = 0;

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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// The whole text, without wildcards.
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
    pub(super) fn covers(&self, other: &Self) -> bool {
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
}

/// The words that decide who pays for a job, wherever they lie. A word that the source of a question cannot know is
/// `None`, and a rule with a condition on it does not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Words<'a> {
    /// The local user name.
    pub user: Option<&'a str>,
    /// The account of the batch system.
    pub account: Option<&'a str>,
    /// The local group name.
    pub group: Option<&'a str>,
    /// The Grid identity, such as a certificate's subject.
    pub subject: Option<&'a str>,
    /// The queue or partition.
    pub queue: Option<&'a str>,
    /// The quality of service.
    pub qos: Option<&'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn all(self) -> [Option<&'a str>; 6] {
        let Self {
            user,
            account,
            group,
            subject,
            queue,
            qos,
        } = self;
        [user, account, group, subject, queue, qos]
    }

    /// Calls `read` with each word as a report would bear it.
    pub(super) fn fitting<T>(self, read: impl FnOnce(Words<'_>) -> T) -> T {
        let names = self.all().map(|word| word.map(fit));
        let [user, account, group, subject, queue, qos] = names.each_ref().map(Option::as_deref);
        read(Words {
            user,
            account,
            group,
            subject,
            queue,
            qos,
        })
    }
}

impl<'a> From<&'a Origin> for Words<'a> {
    fn from(origin: &'a Origin) -> Self {
        Self {
            user: origin.user.as_deref(),
            account: origin.account.as_deref(),
            group: origin.group.as_deref(),
            subject: origin.subject.as_deref(),
            queue: None,
            qos: None,
        }
    }
}

impl<'a> From<&'a UsageRecord> for Words<'a> {
    fn from(record: &'a UsageRecord) -> Self {
        Self {
            queue: mutant!(QueueUnread, record.placement.queue.as_deref(), None),
            qos: record.placement.qos.as_deref(),
            ..Self::from(&record.origin)
        }
    }
}
