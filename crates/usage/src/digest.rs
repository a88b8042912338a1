//! A digest of all live cells that costs the same however many there are.
//!
//! Every cell is hashed with SHA-256 to four 64-bit lanes, and the digest is the lane-wise sum over
//! the cells, wrapping (an AdHash: Bellare & Micciancio, "A New Paradigm for Collision-Free
//! Hashing", 1997). A change subtracts the old cell and adds the new one.
//!
//! Invariant: equal sets of (stream, span, path, counters) have equal digests, in whatever order
//! they came to be; different sets collide by chance only. It finds divergence between honest
//! nodes. It proves nothing against an attacker, and nothing is authorised by it.
//!
//! The hash input is two blocks: the first names stream and span and is shared by a whole sheet;
//! the second, 15 bytes of the path's hash and 40 of counters, fills one block with its padding.

use fairmesh_model::{Counters, Span, StreamId};
use sha2::{Digest, Sha256};

use crate::paths::PATH_KEY_BYTES;

const LANES: usize = 4;
const DOMAIN: &[u8; 16] = b"fairmesh/cell/1\0";

/// Sum of the hashes of all live cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StateDigest([u64; LANES]);

impl StateDigest {
    pub(crate) fn add(&mut self, cell: [u64; LANES]) {
        self.0
            .iter_mut()
            .zip(cell)
            .for_each(|(sum, lane)| *sum = sum.wrapping_add(lane));
    }

    pub(crate) fn subtract(&mut self, cell: [u64; LANES]) {
        self.0
            .iter_mut()
            .zip(cell)
            .for_each(|(sum, lane)| *sum = sum.wrapping_sub(lane));
    }

    pub(crate) fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (chunk, lane) in bytes.chunks_exact_mut(8).zip(self.0) {
            chunk.copy_from_slice(&lane.to_le_bytes());
        }
        bytes
    }
}

/// Hashes the cells of one sheet: the first block, taken in once.
#[derive(Clone)]
pub(crate) struct CellHasher {
    span: Span,
    first_block: Sha256,
}

impl CellHasher {
    pub(crate) fn new(stream: StreamId, span: Span) -> Self {
        let first_block = Sha256::new()
            .chain_update(DOMAIN)
            .chain_update(stream.site.as_bytes())
            .chain_update(stream.incarnation.0.to_le_bytes())
            .chain_update(span.code().to_le_bytes());
        Self { span, first_block }
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }

    pub(crate) fn hash(&self, key: &[u8; PATH_KEY_BYTES], counters: Counters) -> [u64; LANES] {
        let mut block = [0; PATH_KEY_BYTES + 40];
        block[..PATH_KEY_BYTES].copy_from_slice(key);
        for (chunk, value) in block[PATH_KEY_BYTES..]
            .chunks_exact_mut(8)
            .zip(counters.to_columns())
        {
            chunk.copy_from_slice(&value.to_le_bytes());
        }
        let hash = self.first_block.clone().chain_update(block).finalize();
        std::array::from_fn(|lane| {
            let bytes = hash[lane * 8..lane * 8 + 8]
                .try_into()
                .expect("eight bytes");
            u64::from_le_bytes(bytes)
        })
    }
}
