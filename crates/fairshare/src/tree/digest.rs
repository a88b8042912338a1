//! Feeding a subtree's global sums to a hash, so that sites can tell whether their views agree.
//!
//! Invariants: entries come in path order, name by name, with their paths as seen from the subtree's
//! root, so that it does not matter where a site mounts a VO; idle entries are left out; all sums are
//! of one moment. Deliberately not here: the hash, and what else a view rests on.

use super::reader::TreeReader;
use super::spec::EntryId;
use super::sums::SumStore;
use super::topology::Topology;
use super::writer::TreeWriter;

impl TreeWriter {
    /// Calls `feed` with the relative path and the global sum (core-ms × 2^-32) of `entry` and
    /// every entry below it that has usage. The entry itself is `/`.
    pub fn digest(&self, entry: EntryId, mut feed: impl FnMut(&str, u128)) {
        for (index, global) in globals(&self.topology, &self.store, entry, self.store.generation())
        {
            feed(relative_path(&self.topology, entry, index), global);
        }
    }
}

impl TreeReader {
    /// As [`TreeWriter::digest`], on any thread. Returns whether it fed anything: not where the
    /// writer wrote during each of `attempts` copies.
    pub fn digest(&self, entry: EntryId, attempts: u32, mut feed: impl FnMut(&str, u128)) -> bool {
        let copy = |generation| {
            globals(&self.topology, &self.store, entry, generation).collect::<Vec<_>>()
        };
        let Some(sums) = (0..attempts).find_map(|_| self.store.try_read(copy)) else {
            return false;
        };
        for (index, global) in sums {
            feed(relative_path(&self.topology, entry, index), global);
        }
        true
    }
}

fn globals<'a>(
    topology: &Topology,
    store: &'a SumStore,
    entry: EntryId,
    generation: usize,
) -> impl Iterator<Item = (usize, u128)> + use<'a> {
    topology
        .subtree(entry)
        .map(move |index| (index, store.sums(index, generation).global))
        .filter(|(_, global)| *global != 0)
}

fn relative_path(topology: &Topology, root: EntryId, index: usize) -> &str {
    let path = topology.paths[index].as_str();
    if root == EntryId::ROOT {
        return path;
    }
    let rest = &path[topology.paths[root.index()].as_str().len()..];
    if rest.is_empty() { "/" } else { rest }
}
