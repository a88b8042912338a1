//! What the rows of a connection came to, by their bytes.
//!
//! A scheduler asks for the same accounts again and again, and the rules, the path and the tree lead to the
//! same entry each time. So a row is read and resolved once in a generation; after that its bytes are looked up.
//!
//! Invariant: what is kept is of one generation, so an entry is never answered from the rules or the tree before;
//! it is bounded by [`BYTES_MAX`] and belongs to one connection, so nobody can fill another's.

use std::collections::HashMap;

use fairmesh_client::protocol::{ProtocolError, Row};

/// Bytes of rows and of what keeps them that a connection may hold: some 25,000 pairs of user and account. Rows
/// beyond are resolved each time. With the connections that there may be at once it bounds memory.
const BYTES_MAX: usize = 2 << 20;

/// What a row takes beside its bytes: its box, its place in the map, and room for the map to grow.
const ROW_BYTES: usize = 56;

/// Rows with their entries.
#[derive(Debug, Default)]
pub(super) struct Memo {
    generation: u64,
    bytes: usize,
    entries: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
}

impl Memo {
    /// Forgets what is of another generation.
    pub(super) fn move_to(&mut self, generation: u64) {
        if generation != self.generation {
            *self = Self {
                generation,
                ..Self::default()
            };
        }
    }

    /// The entry of a row, by `resolve` if it is not known yet.
    #[inline]
    pub(super) fn entry(
        &mut self,
        row: Row<'_>,
        resolve: impl FnOnce() -> Result<u32, ProtocolError>,
    ) -> Result<u32, ProtocolError> {
        if let Some(entry) = self.entries.get(row.as_bytes()) {
            return Ok(*entry);
        }
        let entry = resolve()?;
        let bytes = self.bytes + row.as_bytes().len() + ROW_BYTES;
        if bytes <= BYTES_MAX {
            self.bytes = bytes;
            self.entries.insert(row.as_bytes().into(), entry);
        }
        Ok(entry)
    }
}
