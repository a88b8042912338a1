//! The accounts of one VO: every path once, named by a small number.
//!
//! Invariant: an id stands for one path for as long as anybody uses it; an id that nobody uses is used
//! again, so that the table is bounded by the accounts in use and not by all names ever seen. The
//! number that a reader may keep beside a path is unset whenever the id begins to stand for another.
//!
//! Ids are a matter of this process: they never reach the wire or an iteration order.

use std::collections::HashMap;

use fairmesh_model::{AccountPath, HashSecret};

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
    place: Option<u32>,
}

/// Paths by id and ids by path. Members choose the paths; the map is never iterated.
#[derive(Debug)]
pub struct Paths {
    ids: HashMap<AccountPath, PathId, HashSecret>,
    entries: Vec<Entry>,
    free: Vec<PathId>,
}

impl Paths {
    /// No paths, to be hashed behind `secret`.
    pub fn new(secret: HashSecret) -> Self {
        Self {
            ids: HashMap::with_hasher(secret),
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    /// What they are hashed behind.
    pub fn secret(&self) -> HashSecret {
        *self.ids.hasher()
    }

    /// The id of `path`, in use once more.
    ///
    /// # Panics
    /// If it is none, or there are 2^32, which the limits on what is held rule out.
    pub fn acquire(&mut self, path: &str) -> PathId {
        if let Some(id) = self.ids.get(path) {
            self.entries[id.index()].uses += 1;
            return *id;
        }
        let path = AccountPath::parse(path).expect("it was checked before");
        let entry = Entry {
            path: path.clone(),
            uses: 1,
            place: None,
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
        self.ids.insert(path, id);
        id
    }

    /// The id is used once less.
    pub fn release(&mut self, id: PathId) {
        let entry = &mut self.entries[id.index()];
        entry.uses -= 1;
        if entry.uses == 0 {
            self.ids.remove(&entry.path);
            entry.path = AccountPath::root();
            self.free.push(id);
        }
    }

    /// The path of an id that is in use.
    pub fn path(&self, id: PathId) -> &AccountPath {
        &self.entries[id.index()].path
    }

    /// What a reader has noted beside a path: where it is in a tree, say.
    pub fn place(&self, id: PathId) -> Option<u32> {
        self.entries[id.index()].place
    }

    /// Notes it.
    pub fn set_place(&mut self, id: PathId, place: u32) {
        self.entries[id.index()].place = Some(place);
    }

    /// Forgets all that was noted.
    pub fn clear_places(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.place = None);
    }

    /// How many are in use.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether none is in use.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
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
        paths.release(ann);
        let ben = paths.acquire("/ben");
        assert_eq!(
            (ben, paths.place(ben), paths.path(ben).as_str()),
            (ann, None, "/ben")
        );
        assert_eq!(paths.len(), 1);
    }
}
