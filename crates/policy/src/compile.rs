//! The tree in force at a site: the owner's tree, with every VO where he mounted it.
//!
//! Invariant: the result depends on the arguments alone, and is in path order with parents before
//! children; every entry's parent is an entry (or the root). What cannot be placed is left out with
//! everything below it, and said so; nothing here can fail.
//!
//! Deliberately not here: usage, histories, and which documents are in force (`vo_policies`).
//! Source: FSGrid, abstract (one hierarchy of local and global shares, defined in parts).

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Share, VoId, mutant};

use crate::in_force::{DocumentRef, InForce};
use crate::site_policy::SitePolicy;

/// In which scope an entry is compared with its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// By usage counted at this site: every entry of the site policy, mounts included.
    Local,
    /// By usage summed over the VO's member sites: every entry below a mount.
    Global,
}

/// Who says so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The owner's site policy.
    Site,
    /// A VO's share policy.
    Document(DocumentRef),
}

/// One entry of the tree in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledEntry {
    /// Its path in the site's tree.
    pub path: AccountPath,
    /// Its target share of its parent, after the owner's weight and cap.
    pub share: Share,
    /// The most that it may have before its siblings all go first; the whole is no limit.
    pub at_most: Share,
    /// In which scope it is compared with its siblings.
    pub scope: Scope,
    /// The VO that it belongs to, from the mount down.
    pub vo: Option<VoId>,
    /// Its path in the VO's tree; `/` for the mount itself.
    pub vo_path: Option<AccountPath>,
    /// Who says so.
    pub from: Origin,
}

/// The tree in force. The root is implied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompiledTree {
    /// The VO mounted on the whole site, if any.
    pub root_vo: Option<VoId>,
    /// All entries, ascending by path, parents before children.
    pub entries: Vec<CompiledEntry>,
    /// What could not be placed.
    pub warnings: Vec<CompileWarning>,
}

/// What could not be placed in the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum CompileWarning {
    /// A mount names a VO that this node does not know (yet). It stays as an undivided entry.
    #[error("`{path}` mounts `{alias}`, of which nothing is known (yet): it stays undivided")]
    UnknownMount {
        /// The mount.
        path: AccountPath,
        /// The VO's alias.
        alias: String,
    },
    /// Under its mount an entry is too long or too deep; it is left out with what lies below it.
    #[error("`{vo_path}` does not fit below `{mount}` and is left out: {reason}")]
    DoesNotFit {
        /// The mount.
        mount: AccountPath,
        /// The entry, in the VO's tree.
        vo_path: AccountPath,
        /// Which limit it exceeds.
        reason: String,
    },
}

impl CompiledTree {
    /// The entry of `path`.
    pub fn get(&self, path: &AccountPath) -> Option<&CompiledEntry> {
        let at = self.entries.binary_search_by(|entry| entry.path.cmp(path));
        at.ok().map(|at| &self.entries[at])
    }
}

/// Puts every VO in `mounts`, by alias, where `site` mounts it.
pub fn compile(site: &SitePolicy, mounts: &BTreeMap<String, InForce>) -> CompiledTree {
    let mut tree = CompiledTree::default();
    for (path, entry) in site.entries().filter(|(_, entry)| !entry.is_dropped()) {
        let alias = entry.mount.as_ref().map(|mount| &mount.alias);
        let vo = alias.and_then(|alias| mounts.get(alias));
        if path.is_root() {
            tree.root_vo = vo.map(|vo| vo.vo);
        } else {
            tree.entries.push(CompiledEntry {
                path: path.clone(),
                share: entry.target(),
                at_most: entry.at_most,
                scope: Scope::Local,
                vo: vo.map(|vo| vo.vo),
                vo_path: vo.map(|_| AccountPath::root()),
                from: Origin::Site,
            });
        }
        match (alias, vo) {
            (_, Some(vo)) => tree.mount(path, vo),
            (Some(alias), None) => tree.warnings.push(CompileWarning::UnknownMount {
                path: path.clone(),
                alias: alias.clone(),
            }),
            (None, None) => {}
        }
    }
    tree.entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    tree
}

impl CompiledTree {
    fn mount(&mut self, mount: &AccountPath, vo: &InForce) {
        for entry in &vo.entries {
            match mount.join(&entry.path) {
                Ok(path) => self.entries.push(CompiledEntry {
                    path,
                    share: mutant!(MountedShareWhole, entry.share, Share::WHOLE),
                    at_most: entry.at_most,
                    scope: mutant!(MountedLocally, Scope::Global, Scope::Local),
                    vo: Some(vo.vo),
                    vo_path: Some(entry.path.clone()),
                    from: Origin::Document(entry.from.clone()),
                }),
                Err(error) => self.warnings.push(CompileWarning::DoesNotFit {
                    mount: mount.clone(),
                    vo_path: entry.path.clone(),
                    reason: error.to_string(),
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests;
