//! The accounts of one VO: every path once, named by a small number.
//!
//! Invariant: an id stands for one path for as long as anybody uses it; an id that nobody uses is used
//! again, so that the table is bounded by the accounts in use and not by all names ever seen. The
//! number that a reader may keep beside a path is unset whenever the id begins to stand for another.
//!
//! Ids are a matter of this process: they never reach the wire or an iteration order.

use std::hash::BuildHasher as _;

use fairmesh_model::{AccountPath, Chunks, HashSecret};
use hashbrown::HashTable;

/// Ids that move from a full table to the next one with each new path: the next one has room for as many paths again,
/// so all have moved before it is full.
const MOVED_AT_ONCE: usize = 8;

/// No place.
const NOWHERE: u32 = u32::MAX;

/// Number of a path in its VO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(u32);

impl PathId {
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Some accounts of one VO.
#[derive(Debug, Default)]
pub struct PathSet(Vec<u64>);

impl PathSet {
    /// One more.
    pub fn insert(&mut self, id: PathId) {
        let (word, bit) = (id.index() / 64, id.index() % 64);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    /// Whether it is one of them.
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

/// Paths by id and ids by path. Members choose the paths; the tables are never iterated.
///
/// Growing a table of a million paths hashes all of them, which takes a tenth of a second. So a full table is kept
/// while its ids move to a larger one.
#[derive(Debug)]
pub struct Paths {
    secret: HashSecret,
    ids: HashTable<PathId>,
    /// The table before, with those of the ids from `moved` on that have not gone since.
    full: HashTable<PathId>,
    moved: usize,
    entries: Chunks<Entry>,
    /// What was noted about the first ids; [`NOWHERE`] where nothing was.
    places: Chunks<u32>,
    free: Vec<PathId>,
}

impl Paths {
    /// No paths, to be hashed behind `secret`.
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

    /// What they are hashed behind.
    pub fn secret(&self) -> HashSecret {
        self.secret
    }

    /// The id of `path`, in use once more.
    ///
    /// # Panics
    /// If it is none, or there are 2^32, which the limits on what is held rule out.
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
        self.make_room();
        self.insert(hash, id);
        id
    }

    /// Makes room for one more id.
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
        if self.full.is_empty() {
            self.full = HashTable::new();
        }
    }

    fn insert(&mut self, hash: u64, id: PathId) {
        let hash_of = |id: &PathId| self.secret.hash_one(self.entries[id.index()].path.as_str());
        self.ids.insert_unique(hash, id, hash_of);
    }

    /// The id is used once less.
    pub fn release(&mut self, id: PathId) {
        let entry = &mut self.entries[id.index()];
        entry.uses -= 1;
        if entry.uses == 0 {
            let path = std::mem::replace(&mut entry.path, AccountPath::root());
            let hash = self.secret.hash_one(path.as_str());
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

    /// The path of an id that is in use.
    pub fn path(&self, id: PathId) -> &AccountPath {
        &self.entries[id.index()].path
    }

    /// What a reader has noted about a path: where it is in a tree, say.
    pub fn place(&self, id: PathId) -> Option<u32> {
        let is_noted = id.index() < self.places.len();
        let place = is_noted.then(|| self.places[id.index()]);
        place.filter(|place| *place != NOWHERE)
    }

    /// Notes it: any number but the largest.
    pub fn set_place(&mut self, id: PathId, place: u32) {
        while self.places.len() <= id.index() {
            self.places.push(NOWHERE);
        }
        self.places[id.index()] = place;
    }

    /// Forgets all that was noted.
    pub fn clear_places(&mut self) {
        self.places = Chunks::default();
    }

    /// How many are in use.
    pub fn len(&self) -> usize {
        self.ids.len() + self.full.len()
    }

    /// Whether none is in use.
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
