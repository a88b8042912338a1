//! What changed in a part, as few bytes: the new part compressed against the old one.
//!
//! Invariant: what a patch makes is checked by its hash against a signed root, so neither side has to
//! trust the other's compressor; and nothing that is unpacked exceeds a size that the caller names.

use zstd::bulk::{Compressor, Decompressor};

/// Compression level: fast, and within a few percent of the best for parts of this size.
const LEVEL: i32 = 3;

/// `new` in terms of `old`, which may be empty.
pub(crate) fn patch(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::with_dictionary(LEVEL, old).expect("memory");
    compressor.compress(new).expect("memory")
}

/// The inverse of [`patch`]; `None` if it is none, or would exceed `bytes_max`.
pub(crate) fn apply(old: &[u8], patch: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut decompressor = Decompressor::with_dictionary(old).ok()?;
    // What the frame claims is allocated at once, so a lie must not get that far.
    let claimed = zstd::zstd_safe::get_frame_content_size(patch).ok()??;
    let capacity = usize::try_from(claimed)
        .ok()
        .filter(|size| *size <= bytes_max)?;
    decompressor.decompress(patch, capacity).ok()
}
