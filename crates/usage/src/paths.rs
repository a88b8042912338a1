//! The accounts of one VO: each path once, with a small number as its id.
//!
//! Invariant: an id stands for one path while it is in use. Unused ids are used again, so the list is bounded by the
//! accounts in use, not by all paths ever seen. The number that a reader may attach to a path is cleared when its id
//! stands for another path.
//!
//! Ids are local to the process: they never reach the wire or an iteration order.

use std::hash::BuildHasher as _;

use fairmesh_model::{AccountPath, Chunks, HashSecret};
use hashbrown::HashTable;

/// Ids that move from a full table to the larger one with each new path. More than one is enough: the larger table
/// has room for as many paths again, so all ids have moved before it is full.
const MOVED_AT_ONCE: usize = 8;

/// Stands for "no place" in `places`.
const NOWHERE: u32 = u32::MAX;

/// Id of a path in one VO and one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(u32);

impl PathId {
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of accounts of one VO, one bit for each id.
#[derive(Debug, Default)]
pub struct PathSet(Vec<u64>);

impl PathSet {
    /// Adds an account.
    pub fn insert(&mut self, id: PathId) {
        let (word, bit) = (id.index() / 64, id.index() % 64);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    /// Whether the set contains an account.
    pub fn contains(&self, id: PathId) -> bool {
        let word = self.0.get(id.index() / 64);
        word.is_some_and(|word| word >> (id.index() % 64) & 1 == 1)
    }
}

#[derive(Debug)]
struct Entry {
    path: AccountPath,
    uses: u32,
}

/// Paths by id and ids by path. Members choose the paths, so they are hashed with a secret: otherwise a member could
/// choose paths that collide. The tables are never iterated, so the secret cannot reach an output.
///
/// Growing a table of a million paths at once would hash all of them, a tenth of a second. So a full table is kept
/// while its ids move to a larger one step by step.
#[derive(Debug)]
pub struct Paths {
    secret: HashSecret,
    ids: HashTable<PathId>,
    /// The table before it was full: the ids from `moved` on that are still in use.
    full: HashTable<PathId>,
    moved: usize,
    entries: Chunks<Entry>,
    /// The place of each id, as far as any was noted; [`NOWHERE`] for none.
    places: Chunks<u32>,
    free: Vec<PathId>,
}

impl Paths {
    /// An empty list; paths are hashed with `secret`.
    pub fn new(secret: HashSecret) -> Self {
        Self {
            secret,
            ids: HashTable::new(),
            full: HashTable::new(),
            moved: 0,
            entries: Chunks::default(),
            places: Chunks::default(),
            free: Vec::new(),
        }
    }

    /// The secret that paths are hashed with, for an empty list of the same process.
    pub fn secret(&self) -> HashSecret {
        self.secret
    }

    /// The id of `path`, counted as used once more.
    ///
    /// # Panics
    /// If `path` is not a path, or 2^32 ids are in use, which the limits on heads rule out.
    pub fn acquire(&mut self, path: &str) -> PathId {
        let hash = self.secret.hash_one(path);
        let is_it = |id: &PathId| self.entries[id.index()].path.as_str() == path;
        let held = self.ids.find(hash, is_it);
        if let Some(id) = held.or_else(|| self.full.find(hash, is_it)).copied() {
            self.entries[id.index()].uses += 1;
            return id;
        }
        let entry = Entry {
            path: AccountPath::parse(path).expect("it was checked before"),
            uses: 1,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id.index()] = entry;
                id
            }
            None => {
                let next = u32::try_from(self.entries.len()).expect("fewer than 2^32 paths");
                self.entries.push(entry);
                PathId(next)
            }
        };
        // Before the insertion: the table must never grow by itself, which would hash everything at once.
        self.make_room();
        self.insert(hash, id);
        id
    }

    /// Makes room for one more id, and moves some ids to the larger table.
    fn make_room(&mut self) {
        if self.ids.len() == self.ids.capacity() {
            self.move_some(usize::MAX);
            let larger = HashTable::with_capacity(2 * self.ids.len());
            self.full = std::mem::replace(&mut self.ids, larger);
            self.moved = 0;
        }
        self.move_some(MOVED_AT_ONCE);
    }

    fn move_some(&mut self, most: usize) {
        if self.full.is_empty() {
            return;
        }
        let until = self.entries.len().min(self.moved.saturating_add(most));
        for index in self.moved..until {
            let hash = self.secret.hash_one(self.entries[index].path.as_str());
            let is_it = |id: &PathId| id.index() == index;
            if let Ok(held) = self.full.find_entry(hash, is_it) {
                let (id, _) = held.remove();
                self.insert(hash, id);
            }
        }
        self.moved = until;
        // Its memory is returned as soon as the last id has moved.
        if self.full.is_empty() {
            self.full = HashTable::new();
        }
    }

    fn insert(&mut self, hash: u64, id: PathId) {
        let hash_of = |id: &PathId| self.secret.hash_one(self.entries[id.index()].path.as_str());
        self.ids.insert_unique(hash, id, hash_of);
    }

    /// Counts an id as used once less; at 0 the id becomes free.
    pub fn release(&mut self, id: PathId) {
        let entry = &mut self.entries[id.index()];
        entry.uses -= 1;
        if entry.uses == 0 {
            let path = std::mem::replace(&mut entry.path, AccountPath::root());
            let hash = self.secret.hash_one(path.as_str());
            // It may be in either table, depending on how far the move has come.
            for table in [&mut self.ids, &mut self.full] {
                if let Ok(held) = table.find_entry(hash, |held| *held == id) {
                    held.remove();
                }
            }
            if id.index() < self.places.len() {
                self.places[id.index()] = NOWHERE;
            }
            self.free.push(id);
        }
    }

    /// The path of an id in use; of a free id, the root.
    pub fn path(&self, id: PathId) -> &AccountPath {
        &self.entries[id.index()].path
    }

    /// The number that a reader has attached to a path, such as its place in a tree.
    pub fn place(&self, id: PathId) -> Option<u32> {
        let is_noted = id.index() < self.places.len();
        let place = is_noted.then(|| self.places[id.index()]);
        place.filter(|place| *place != NOWHERE)
    }

    /// Attaches a number to a path: any but `u32::MAX`.
    pub fn set_place(&mut self, id: PathId, place: u32) {
        while self.places.len() <= id.index() {
            self.places.push(NOWHERE);
        }
        self.places[id.index()] = place;
    }

    /// Clears all places, without touching each id.
    pub fn clear_places(&mut self) {
        self.places = Chunks::default();
    }

    /// Number of paths in use.
    pub fn len(&self) -> usize {
        self.ids.len() + self.full.len()
    }

    /// Whether no path is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_nobody_uses_stands_for_another_path_and_its_place_is_forgotten() {
        let mut paths = Paths::new(HashSecret::new(7));
        let ann = paths.acquire("/ann");
        assert_eq!(paths.acquire("/ann"), ann);
        paths.set_place(ann, 7);
        paths.release(ann);
        assert_eq!((paths.place(ann), paths.len()), (Some(7), 1));
        assert!(!paths.is_empty());
        paths.release(ann);
        assert!(paths.is_empty());
        let ben = paths.acquire("/ben");
        assert_eq!(
            (ben, paths.place(ben), paths.path(ben).as_str()),
            (ann, None, "/ben")
        );
        assert_eq!(paths.len(), 1);
        paths.set_place(ben, 8);
        paths.clear_places();
        assert_eq!(paths.place(ben), None);
    }

    #[test]
    fn a_set_has_the_ids_that_were_put_into_it_and_no_others() {
        let ids = [0, 1, 63, 64, 65, 127, 128, 700];
        let mut set = PathSet::default();
        for (count, id) in ids.into_iter().enumerate() {
            set.insert(PathId(id));
            let held = (0..1_000).filter(|id| set.contains(PathId(*id)));
            assert_eq!(held.collect::<Vec<_>>(), ids[..=count]);
        }
    }

    #[test]
    fn a_path_keeps_its_id_while_ids_move_to_a_larger_table() {
        let mut paths = Paths::new(HashSecret::new(7));
        let (mut ids, mut in_use) = (std::collections::BTreeMap::new(), 0);
        for number in 0..5_000u32 {
            let name = format!("/u{number}");
            ids.insert(number, paths.acquire(&name));
            in_use += 1;
            // Some go, so that their ids stand for others, and their places in the tables are empty.
            let goes = number.wrapping_mul(2_654_435_761) % (number + 1);
            if let Some(id) = ids.remove(&goes).filter(|_| number % 3 > 0) {
                paths.release(id);
                in_use -= 1;
            }
            assert_eq!(paths.len(), in_use);
            let asked = goes / 2;
            if let Some(id) = ids.get(&asked) {
                assert_eq!(paths.acquire(&format!("/u{asked}")), *id);
                paths.release(*id);
            }
        }
        for (number, id) in &ids {
            assert_eq!(paths.path(*id).as_str(), format!("/u{number}"));
            assert_eq!(paths.acquire(&format!("/u{number}")), *id);
        }
    }
}
