//! A table in memory: its bytes, and the ids of its accounts.
//!
//! Invariant: the accounts are looked up once, when the table arrives. The counters stay encoded and are decoded when
//! they are read, so a cell takes its encoded bytes and four more.

use std::sync::Arc;

use fairmesh_model::{AccountPath, Counters, Incarnation};

use crate::columns::{TableError, decode_cells, read_cells, read_paths};
use crate::paths::{PathId, PathSet, Paths};

/// Bytes of paths that count as one row. The memory and time that a table costs grow with the text of its paths,
/// which the encoding hides where paths share prefixes. Without this a small part could cost a reader gigabytes.
const TEXT_OF_ROW: usize = 128;

/// Checks the bytes of a table. Returns the rows that it counts: its cells, or one for each 128 bytes of paths if
/// that is more.
///
/// # Errors
/// The first rule of the encoding that the bytes break.
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

/// The cells of a table that [`check`] has accepted, for the accounts to which `name` assigns a key.
///
/// # Panics
/// If [`check`] would refuse the bytes.
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

/// A table of cells. A clone shares everything with its original; only one of the two may be released.
#[derive(Debug, Clone)]
pub struct Table {
    bytes: Arc<[u8]>,
    cells_from: usize,
    ids: Arc<[PathId]>,
}

impl Table {
    /// Reads a table that [`check`] has accepted. Its accounts count as used until [`Table::release`].
    ///
    /// # Panics
    /// If [`check`] would refuse the bytes.
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

    /// Releases the accounts. Not a `Drop`, because it needs the shared list of paths.
    pub fn release(self, paths: &mut Paths) {
        self.ids.iter().for_each(|id| paths.release(*id));
    }

    /// Adds the ids of its accounts to a set.
    pub fn list_in(&self, accounts: &mut PathSet) {
        self.ids.iter().for_each(|id| accounts.insert(*id));
    }

    /// Length of the encoded table in bytes.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has a cell of any of these accounts.
    pub fn names_any(&self, accounts: &PathSet) -> bool {
        self.ids.iter().any(|id| accounts.contains(*id))
    }

    /// The cells by (incarnation, path), decoded again on each call.
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
