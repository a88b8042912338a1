//! Share trees as people write them: one line an entry, so that they read and diff well.
//!
//! ```toml
//! [shares]
//! "/VO-A" = 30
//! "/VO-A/P-A1" = 12.5
//! "/VO-A/P-A2" = { share = 20, at_most = 30 }
//! "/VO-B" = { share = 70, delegate = { keys = ["5f…"], threshold = 1 } }
//! ```
//!
//! Invariant: a share is the decimal that was written, read from the text itself and never through
//! a float. Shares are percent of the parent and need not add up to 100; the order of lines means
//! nothing; what is not understood is refused, with its line and what to do about it.
//! Deliberately not here: files (the caller has the text) and signatures.

mod problem;
mod read;

use std::collections::BTreeMap;
use std::fmt::Write;

use fairmesh_model::{AccountPath, Role, Share, ShareEntry, SharePolicy};

pub use problem::{Problem, TreeFileError};
pub use read::parse_tree;

use crate::compile::Scope;
use crate::site_policy::{Mount, SiteEntry, SitePolicy};

/// A parsed share tree, which may yet become a share policy or a site policy.
#[derive(Debug, Clone)]
pub struct TreeFile {
    file: String,
    entries: BTreeMap<AccountPath, FileEntry>,
}

/// A line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    line: usize,
    column: usize,
}

/// A value and where it stands.
type Located<T> = Option<(Position, T)>;

#[derive(Debug, Clone)]
struct FileEntry {
    at: Position,
    share: Share,
    at_most: Located<Share>,
    mount: Located<String>,
    cap: Located<Share>,
    weight: Located<Share>,
    drop: Located<bool>,
    scope: Located<Scope>,
    delegate: Located<Role>,
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
                if let Some((at, _)) = entry.delegate {
                    return Err(self.error(at, path, Problem::RootDelegate));
                }
                continue;
            }
            let above = path
                .parent()
                .and_then(|parent| self.entries.get_key_value(&parent));
            if let Some((parent, _)) = above.filter(|(_, above)| above.delegate.is_some()) {
                let above = parent.clone();
                return Err(self.error(entry.at, path, Problem::BelowDelegate { above }));
            }
            let delegate = entry.delegate.as_ref().map(|(_, role)| role.clone());
            let share = ShareEntry {
                share: entry.share,
                at_most: entry.at_most.map(|(_, most)| most),
                delegate,
            };
            shares.insert(path.clone(), share);
        }
        Ok(shares)
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
                if path.is_root() {
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

    fn error(&self, at: Position, path: &AccountPath, problem: Problem) -> TreeFileError {
        TreeFileError {
            file: self.file.clone(),
            line: at.line,
            column: at.column,
            key: Some(path.to_string()),
            problem,
        }
    }
}

impl FileEntry {
    fn only_in_site_policy(&self) -> Option<(Position, &'static str)> {
        let local = self.scope.filter(|(_, scope)| *scope == Scope::Local);
        let local = local.map(|(at, _)| (at, "scope = \"local\""));
        let mount = self.mount.as_ref().map(|(at, _)| (*at, "mount"));
        mount.or(self.only_with_mount()).or(local)
    }

    fn only_with_mount(&self) -> Option<(Position, &'static str)> {
        let cap = self.cap.map(|(at, _)| (at, "cap"));
        let weight = self.weight.map(|(at, _)| (at, "weight"));
        let drop = self.drop.map(|(at, _)| (at, "drop"));
        cap.or(weight).or(drop)
    }

    fn only_in_share_policy(&self) -> Option<(Position, &'static str)> {
        let global = self.scope.filter(|(_, scope)| *scope == Scope::Global);
        let global = global.map(|(at, _)| (at, "scope = \"global\""));
        let delegate = self.delegate.as_ref().map(|(at, _)| (*at, "delegate"));
        delegate.or(global)
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
            mount,
        }
    }
}

/// A share policy in the form that [`parse_tree`] reads: one line an entry, sorted by path.
pub fn to_toml(policy: &SharePolicy) -> String {
    let mut text = "[shares]\n".to_owned();
    for (path, entry) in &policy.shares {
        let (key, share) = (quoted(path.as_str()), entry.share);
        let limit = entry.at_most.map(|most| format!(", at_most = {most}"));
        let limit = limit.unwrap_or_default();
        let line = match &entry.delegate {
            None if limit.is_empty() => writeln!(text, "{key} = {share}"),
            None => writeln!(text, "{key} = {{ share = {share}{limit} }}"),
            Some(Role { keys, threshold }) => {
                let keys: Vec<_> = keys.iter().map(|key| format!("\"{key}\"")).collect();
                let keys = keys.join(", ");
                let role = format!("{{ keys = [{keys}], threshold = {threshold} }}");
                writeln!(
                    text,
                    "{key} = {{ share = {share}{limit}, delegate = {role} }}"
                )
            }
        };
        line.expect("a string takes all text");
    }
    text
}

/// A TOML basic string. Paths hold no control characters, so only two need an escape.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests;
