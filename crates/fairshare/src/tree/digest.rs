//! Feeding a subtree's global sums to a hash, so that sites can tell whether their views agree.
//!
//! Invariants: entries come in path order, name by name, with their paths as seen from the subtree's
//! root, so that it does not matter where a site mounts a VO; idle entries are left out; all sums are
//! of one moment. Deliberately not here: the hash, and what else a view rests on.

use super::snapshot::Snapshot;
use super::spec::EntryId;
use super::topology::Topology;

impl Snapshot {
    /// Calls `feed` with the relative path and the global sum (core-ms × 2^-32) of `entry` and
    /// every entry below it that has usage. The entry itself is `/`.
    pub fn digest(&self, entry: EntryId, mut feed: impl FnMut(&str, u128)) {
        for below in self.subtree(entry) {
            let global = self.sums(below).global;
            if global != 0 {
                feed(relative_path(&self.topology, entry, below.index()), global);
            }
        }
    }
}

fn relative_path(topology: &Topology, root: EntryId, index: usize) -> &str {
    let path = topology.paths[index].as_str();
    if root == EntryId::ROOT {
        return path;
    }
    let rest = &path[topology.paths[root.index()].as_str().len()..];
    if rest.is_empty() { "/" } else { rest }
}
