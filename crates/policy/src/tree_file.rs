//! Share trees as people write them: one line an entry, so that they read and diff well.
//!
//! ```toml
//! [shares]
//! "/VO-A" = 30
//! "/VO-A/P-A1" = 12.5
//! "/VO-A/P-A2" = { share = 20, at_most = 30 }
//! "/VO-A/P-A3" = { share = 50, usage = "local", distance = "relative" }
//! "/VO-B" = { share = 70, delegate = { keys = ["5f…"], threshold = 1 } }
//! ```
//!
//! `"/VO-A/*"` stands for the accounts below `/VO-A` that have no line. `was = ["/old"]` lists former paths of
//! an entry, and `since = "2026-07-01"` begins a period: usage before it does not count there.
//!
//! Invariant: a share is the decimal that was written, read from the text itself and never through a float.
//! Shares are weights among siblings; limits are percent of the parent. `usage` and `distance` say how the
//! entries right below theirs are compared. The order of lines means nothing; what is not understood is
//! refused, with its line and what to do about it.
//! Deliberately not here: files (the caller has the text) and signatures.

mod problem;
mod read;

use std::collections::BTreeMap;
use std::fmt::Write;

use fairmesh_model::{
    AccountPath, Date, Distance, PolicyMount, Role, Scope, Share, ShareEntry, ShareLine,
    SharePolicy, Weight,
};

pub use problem::{Problem, TreeFileError};
pub use read::{parse_draft, parse_tree};

use crate::site_policy::{Mount, SiteEntry, SitePolicy};

/// A parsed share tree, which may yet become a share policy or a site policy.
#[derive(Debug, Clone)]
pub struct TreeFile {
    file: String,
    text: String,
    entries: BTreeMap<AccountPath, FileEntry>,
}

/// Where something stands: bytes from the start of the text. Lines and columns are counted for errors only.
type Offset = usize;

/// A value and where it stands.
type Located<T> = Option<(Offset, T)>;

#[derive(Debug, Clone)]
struct FileEntry {
    at: Offset,
    share: Weight,
    at_most: Located<Share>,
    mount: Located<String>,
    cap: Located<Share>,
    weight: Located<Share>,
    drop: Located<bool>,
    usage: Option<Scope>,
    distance: Option<Distance>,
    delegate: Located<Role>,
    policy: Located<PolicyMount>,
    was: Vec<AccountPath>,
    since: Option<Date>,
}

impl TreeFile {
    /// The entries as a share policy has them. Refuses what only a site policy can say.
    pub fn to_shares(&self) -> Result<BTreeMap<AccountPath, ShareEntry>, TreeFileError> {
        let mut shares = BTreeMap::new();
        for (path, entry) in &self.entries {
            if let Some((at, what)) = entry.only_in_site_policy() {
                return Err(self.error(at, path, Problem::OnlyInSitePolicy { what }));
            }
            if path.is_root() {
                let delegate = entry.delegate.as_ref().map(|(at, _)| *at);
                if let Some(at) = delegate.or(entry.policy.as_ref().map(|(at, _)| *at)) {
                    return Err(self.error(at, path, Problem::RootDelegate));
                }
                continue;
            }
            let above = path
                .parent()
                .and_then(|parent| self.entries.get_key_value(&parent));
            if let Some((parent, _)) = above.filter(|(_, above)| above.others_divide()) {
                let above = parent.clone();
                return Err(self.error(entry.at, path, Problem::BelowDelegate { above }));
            }
            let delegate = entry.delegate.as_ref().map(|(_, role)| role.clone());
            let share = ShareEntry {
                share: entry.share,
                at_most: entry.at_most.map(|(_, most)| most),
                usage: entry.usage,
                distance: entry.distance,
                delegate,
                mount: entry.policy.as_ref().map(|(_, mount)| mount.clone()),
                was: entry.was.clone(),
                since: entry.since,
            };
            shares.insert(path.clone(), share);
        }
        Ok(shares)
    }

    /// Every entry as the owner's tree would have it, and the policy of another VO that divides it, whoever the
    /// file is for. Ascending by path.
    pub fn entries(&self) -> impl Iterator<Item = (&AccountPath, SiteEntry, Option<&PolicyMount>)> {
        let entries = self.entries.iter();
        entries.map(|(path, entry)| {
            let policy = entry.policy.as_ref().map(|(_, mount)| mount);
            (path, entry.to_site_entry(), policy)
        })
    }

    /// What a share policy says of the entries right below its path.
    pub fn of_root(&self) -> (Option<Scope>, Option<Distance>) {
        let root = self.entries.get(&AccountPath::root());
        root.map_or((None, None), |entry| (entry.usage, entry.distance))
    }

    /// The site policy. Refuses what only a signed share policy can say.
    pub fn to_site_policy(&self) -> Result<SitePolicy, TreeFileError> {
        let mut entries = BTreeMap::new();
        for (path, entry) in &self.entries {
            if let Some((at, what)) = entry.only_in_share_policy() {
                return Err(self.error(at, path, Problem::OnlyInSharePolicy { what }));
            }
            if entry.mount.is_none() {
                if let Some((at, what)) = entry.only_with_mount() {
                    return Err(self.error(at, path, Problem::OnlyWithMount { what }));
                }
                if path.is_root() && self.of_root() == (None, None) {
                    continue;
                }
            }
            entries.insert(path.clone(), entry.to_site_entry());
        }
        SitePolicy::new(entries).map_err(|error| {
            let path = error.path().clone();
            let at = self.entries[&path].at;
            self.error(at, &path, Problem::Site(error))
        })
    }

    fn error(&self, at: Offset, path: &AccountPath, problem: Problem) -> TreeFileError {
        error_at((&self.file, &self.text), at, Some(path.as_str()), problem)
    }
}

/// What is wrong at a place of a file's text.
fn error_at(
    (file, text): (&str, &str),
    at: Offset,
    key: Option<&str>,
    problem: Problem,
) -> TreeFileError {
    let before = text.get(..at).unwrap_or("");
    let last_line = before.rsplit('\n').next().unwrap_or("");
    TreeFileError {
        file: file.to_owned(),
        line: before.matches('\n').count() + 1,
        column: last_line.chars().count() + 1,
        key: key.map(str::to_owned),
        problem,
    }
}

impl FileEntry {
    fn only_in_site_policy(&self) -> Option<(Offset, &'static str)> {
        let mount = self.mount.as_ref().map(|(at, _)| (*at, "mount"));
        mount.or(self.only_with_mount())
    }

    fn others_divide(&self) -> bool {
        self.delegate.is_some() || self.policy.is_some()
    }

    fn only_with_mount(&self) -> Option<(Offset, &'static str)> {
        let cap = self.cap.map(|(at, _)| (at, "cap"));
        let weight = self.weight.map(|(at, _)| (at, "weight"));
        let drop = self.drop.map(|(at, _)| (at, "drop"));
        cap.or(weight).or(drop)
    }

    fn only_in_share_policy(&self) -> Option<(Offset, &'static str)> {
        let policy = self.policy.as_ref();
        let policy = policy.map(|(at, _)| (*at, "mount = { vo = …, path = … }"));
        let delegate = self.delegate.as_ref().map(|(at, _)| (*at, "delegate"));
        delegate.or(policy)
    }

    /// The line as the rules of share trees read it.
    fn line(&self) -> ShareLine<'_> {
        let mount = self.mount.as_ref().map(|_| "mount");
        let divided = self.policy.as_ref().map(|_| "mount");
        let delegate = self.delegate.as_ref().map(|_| "delegate");
        let divided = delegate.or(divided).or(mount);
        let levels = self.usage.map(|_| "usage");
        let levels = levels.or(self.distance.map(|_| "distance"));
        let was = (!self.was.is_empty()).then_some("was");
        ShareLine {
            weight: self.share,
            was: &self.was,
            is_divided: divided.is_some(),
            divides: divided.or(levels).or(was),
        }
    }

    fn to_site_entry(&self) -> SiteEntry {
        let mount = self.mount.as_ref().map(|(_, alias)| Mount {
            alias: alias.clone(),
            cap: self.cap.map(|(_, cap)| cap),
            weight: self.weight.map(|(_, weight)| weight),
            drop: self.drop.is_some_and(|(_, drop)| drop),
        });
        SiteEntry {
            share: self.share,
            at_most: self.at_most.map_or(Share::WHOLE, |(_, most)| most),
            usage: self.usage,
            distance: self.distance,
            mount,
            was: self.was.clone(),
            since: self.since,
        }
    }
}

/// A share policy in the form that [`parse_tree`] reads: one line an entry, sorted by path.
pub fn to_toml(policy: &SharePolicy) -> String {
    let mut text = "[shares]\n".to_owned();
    let root = ShareEntry {
        usage: policy.usage,
        distance: policy.distance,
        ..ShareEntry::of(Weight::HUNDRED)
    };
    let at_root = AccountPath::root();
    let root = Some((&at_root, &root)).filter(|(_, root)| !fields(root).is_empty());
    for (path, entry) in root.into_iter().chain(&policy.shares) {
        let (key, share) = (quoted(path.as_str()), entry.share);
        let line = match fields(entry) {
            fields if fields.is_empty() => writeln!(text, "{key} = {share}"),
            fields => writeln!(text, "{key} = {{ share = {share}{fields} }}"),
        };
        line.expect("a string takes all text");
    }
    text
}

/// What an entry says beside its share, each field behind a comma.
fn fields(entry: &ShareEntry) -> String {
    let limit = entry.at_most.map(|most| format!(", at_most = {most}"));
    let usage = entry.usage.map(|usage| format!(", usage = \"{usage}\""));
    let distance = entry.distance;
    let distance = distance.map(|distance| format!(", distance = \"{distance}\""));
    let delegate = entry.delegate.as_ref().map(|Role { keys, threshold }| {
        let keys: Vec<_> = keys.iter().map(|key| format!("\"{key}\"")).collect();
        let keys = keys.join(", ");
        format!(", delegate = {{ keys = [{keys}], threshold = {threshold} }}")
    });
    let mount = entry.mount.as_ref().map(|mount| {
        let (vo, path) = (mount.vo, quoted(mount.path.as_str()));
        format!(", mount = {{ vo = \"{vo}\", path = {path} }}")
    });
    let was: Vec<_> = entry.was.iter().map(|was| quoted(was.as_str())).collect();
    let was = (!was.is_empty()).then(|| format!(", was = [{}]", was.join(", ")));
    let since = entry.since.map(|since| format!(", since = \"{since}\""));
    let fields = [limit, usage, distance, delegate, mount, was, since];
    fields.into_iter().flatten().collect()
}

/// A TOML basic string. Paths hold no control characters, so only two need an escape.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests;
