//! Feeding a subtree's global sums to a hash, so that sites can tell whether their views agree.
//!
//! Invariants: entries come in path order, name by name, with their paths as seen from the subtree's
//! root, so that it does not matter where a site mounts a VO; idle entries are left out; all sums are
//! of one moment. Accounts without a line are fed only where a `*` has a line, after all others. So what is fed
//! decides the level of each entry that is fed.
//! Deliberately not here: the hash, and what else a view rests on.

use super::entry::{EntryId, EntryKind};
use super::snapshot::Snapshot;
use super::topology::Topology;

impl Snapshot {
    /// Calls `feed` with the relative path and the global sum (core-ms × 2^-32) of `entry` and
    /// every entry below it that has usage. The entry itself is `/`.
    pub fn digest(&self, entry: EntryId, mut feed: impl FnMut(&str, u128)) {
        let is_fed = |kind: EntryKind| kind != EntryKind::ImpliedOthers;
        for below in self.subtree(entry) {
            let kind = self.kind(below);
            let above = self.parent(below).filter(|_| kind == EntryKind::Unlisted);
            if !is_fed(kind) || !above.is_none_or(|others| is_fed(self.kind(others))) {
                continue;
            }
            let path = relative_path(&self.topology, entry, below);
            let sums = [self.sums(below)].into_iter();
            // Where a period begins, what counts at a level does not follow from the sums of its entries: those of
            // accounts without a line are not fed.
            let level = self.own_level_sums(below).filter(|_| below != entry);
            let globals = sums.chain(level).map(|sums| sums.global);
            globals
                .filter(|global| *global != 0)
                .for_each(|global| feed(path, global));
        }
    }
}

fn relative_path(topology: &Topology, root: EntryId, entry: EntryId) -> &str {
    let path = topology.path(entry).as_str();
    if root == EntryId::ROOT {
        return path;
    }
    let rest = &path[topology.path(root).as_str().len()..];
    if rest.is_empty() { "/" } else { rest }
}
