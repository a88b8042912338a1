//! The path table of one VO: every account path once, named by a small number.
//!
//! Invariant: an id stands for one path for as long as a cell uses it; `cells` of an entry is the
//! number of cells that do. Ids without cells are given back by [`PathTable::sweep`] and used
//! again, so that the table is bounded by the live cells and not by all names ever seen.
//!
//! Ids are a matter of this process: they never reach the wire or an iteration order.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use fairmesh_model::{AccountPath, ContentHash};

/// Bytes of a path's hash that enter the state digest; see [`crate::digest`].
pub(crate) const PATH_KEY_BYTES: usize = 15;

/// Number of a path in its VO's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PathId(pub(crate) u32);

impl PathId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Clone)]
struct Entry {
    path: AccountPath,
    key: [u8; PATH_KEY_BYTES],
    cells: u32,
    live: bool,
}

/// Paths by id and ids by path. The hasher has fixed keys and the map is never iterated.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathTable {
    ids: HashMap<AccountPath, PathId, BuildHasherDefault<DefaultHasher>>,
    entries: Vec<Entry>,
    free: Vec<PathId>,
    bytes: usize,
}

impl PathTable {
    /// The id of `path`, which gets one if it has none.
    pub(crate) fn intern(&mut self, path: &AccountPath) -> PathId {
        if let Some(id) = self.ids.get(path) {
            return *id;
        }
        let mut key = [0; PATH_KEY_BYTES];
        let hash = ContentHash::of(path.as_str().as_bytes());
        key.copy_from_slice(&hash.as_bytes()[..PATH_KEY_BYTES]);
        let entry = Entry {
            path: path.clone(),
            key,
            cells: 0,
            live: true,
        };
        let id = if let Some(id) = self.free.pop() {
            self.entries[id.index()] = entry;
            id
        } else {
            let id = PathId(u32::try_from(self.entries.len()).expect("fewer than 2^32 live paths"));
            self.entries.push(entry);
            id
        };
        self.ids.insert(path.clone(), id);
        self.bytes += path.as_str().len();
        id
    }

    /// The id of `path`, if any cell uses it.
    pub(crate) fn get(&self, path: &AccountPath) -> Option<PathId> {
        self.ids.get(path).copied()
    }

    pub(crate) fn path(&self, id: PathId) -> &AccountPath {
        &self.entries[id.index()].path
    }

    /// What stands for the path in the state digest: equal on every node.
    pub(crate) fn key(&self, id: PathId) -> &[u8; PATH_KEY_BYTES] {
        &self.entries[id.index()].key
    }

    /// One past the largest id in use.
    pub(crate) fn id_end(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn acquire(&mut self, id: PathId) {
        self.entries[id.index()].cells += 1;
    }

    /// Takes a cell off; the id stays valid until [`PathTable::sweep`].
    pub(crate) fn release(&mut self, id: PathId) {
        self.entries[id.index()].cells -= 1;
    }

    /// Gives back those of `ids` that no cell uses.
    pub(crate) fn sweep(&mut self, ids: impl IntoIterator<Item = PathId>) {
        for id in ids {
            let entry = &mut self.entries[id.index()];
            if entry.live && entry.cells == 0 {
                entry.live = false;
                let path = std::mem::replace(&mut entry.path, AccountPath::root());
                self.bytes -= path.as_str().len();
                self.ids.remove(&path);
                self.free.push(id);
            }
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let entry = size_of::<Entry>() + size_of::<(AccountPath, PathId)>() * 8 / 7 + 16;
        self.entries.len() * entry + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_without_cells_are_given_back_once() {
        let path = |text: &str| AccountPath::parse(text).expect("valid");
        let mut table = PathTable::default();
        let (a, b) = (table.intern(&path("/a")), table.intern(&path("/b")));
        table.acquire(a);
        table.sweep([a, b, b]);
        assert_eq!(table.get(&path("/b")), None);
        assert_eq!(table.intern(&path("/c")), b);
        assert_ne!(table.intern(&path("/d")), b);
        assert_eq!(table.path(a), &path("/a"));
    }
}
