//! A table that is held: its bytes, and which accounts it speaks of.
//!
//! Invariant: the accounts are looked up once, when the table comes; the counters stay in their columns
//! and are decoded when they are read, so a cell takes what its bytes take and four more.

use std::sync::Arc;

use fairmesh_model::{AccountPath, Counters, Incarnation};

use crate::columns::{TableError, decode_cells, read_cells, read_paths};
use crate::paths::{PathId, PathSet, Paths};

/// Bytes of paths that count as a row: what is made of a table, and the time that takes, grow with the text of its paths, of
/// which a table says little where each begins like the one before.
const TEXT_OF_ROW: usize = 128;

/// How many rows a table counts, if its bytes are one: its cells, or more where its paths are long, one for each 128 bytes
/// of them.
///
/// # Errors
/// What is wrong with it.
pub fn check(bytes: &[u8]) -> Result<u32, TableError> {
    let mut text = 0;
    let path = |path: &str| {
        text += path.len();
        AccountPath::check(path).map_err(|error| TableError::Path(error.to_string()))
    };
    let (paths, cells) = read_paths(bytes, path)?;
    let cells = decode_cells(cells, paths)?;
    let rows = cells.len().max(text / TEXT_OF_ROW);
    u32::try_from(rows).map_err(|_| TableError::Varint("cells"))
}

/// The cells of a table's bytes, which [`check`] has taken, of those accounts that `name` gives a name.
///
/// # Panics
/// If they are none.
pub fn named_cells<K: Clone>(
    bytes: &[u8],
    mut name: impl FnMut(&str) -> Option<K>,
) -> impl Iterator<Item = (Incarnation, K, Counters)> {
    let mut names = Vec::new();
    let cells = read_paths(bytes, |text| {
        names.push(name(text));
        Ok(())
    });
    let (_, cells) = cells.expect("it was checked before");
    let (cells, _) = read_cells(cells, names.len()).expect("it was checked before");
    let cells = cells.into_iter();
    cells.filter_map(move |(incarnation, path, counters)| {
        Some((incarnation, names[path].clone()?, counters))
    })
}

/// A table of cells. A copy shares all that the table has; one of the two is released.
#[derive(Debug, Clone)]
pub struct Table {
    bytes: Arc<[u8]>,
    cells_from: usize,
    ids: Arc<[PathId]>,
}

impl Table {
    /// Takes the bytes of a table, which [`check`] has taken. Its accounts are in use until
    /// [`Table::release`].
    ///
    /// # Panics
    /// If they are none.
    pub fn read(bytes: Arc<[u8]>, paths: &mut Paths) -> Self {
        let mut ids = Vec::new();
        let cells = read_paths(&bytes, |text| {
            ids.push(paths.acquire(text));
            Ok(())
        });
        let (_, cells) = cells.expect("it was checked before");
        Self {
            cells_from: bytes.len() - cells.len(),
            ids: ids.into(),
            bytes,
        }
    }

    /// Lets go of the accounts.
    pub fn release(self, paths: &mut Paths) {
        self.ids.iter().for_each(|id| paths.release(*id));
    }

    /// Adds its accounts to others.
    pub fn list_in(&self, accounts: &mut PathSet) {
        self.ids.iter().for_each(|id| accounts.insert(*id));
    }

    /// Bytes that it is read from.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has any of these accounts.
    pub fn names_any(&self, accounts: &PathSet) -> bool {
        self.ids.iter().any(|id| accounts.contains(*id))
    }

    /// The cells.
    ///
    /// # Panics
    /// Never: the bytes were checked before.
    pub fn cells(&self) -> impl Iterator<Item = (Incarnation, PathId, Counters)> {
        let cells = read_cells(&self.bytes[self.cells_from..], self.ids.len());
        let (cells, _) = cells.expect("it was checked before");
        let cells = cells.into_iter();
        cells.map(|(incarnation, path, counters)| (incarnation, self.ids[path], counters))
    }
}
