//! Patches: a new part compressed with the old part as the dictionary.
//!
//! Invariant: the result of a patch is checked by its hash against a signed root, so neither side trusts the other's
//! compressor. Unpacked data never exceeds the size that the caller gives. Each thread keeps its compressors, because
//! allocating one costs more than making a patch; the result of a call does not depend on earlier calls.

use std::cell::RefCell;

use zstd::bulk::Compressor;
use zstd::zstd_safe::{DCtx, get_frame_content_size};

/// Compression level: fast, and within a few percent of the best for parts of this size.
const LEVEL: i32 = 3;

thread_local! {
    static COMPRESSOR: RefCell<Compressor<'static>> = RefCell::default();
    static DECOMPRESSOR: RefCell<DCtx<'static>> = RefCell::default();
}

/// `new` in terms of `old`, which may be empty.
pub(crate) fn patch(old: &[u8], new: &[u8]) -> Vec<u8> {
    COMPRESSOR.with_borrow_mut(|compressor| {
        compressor.set_dictionary(LEVEL, old).expect("memory");
        compressor.compress(new).expect("memory")
    })
}

/// Bytes that a patch claims to unpack to, an upper limit of what it does unpack to; `None` if it claims none.
pub(crate) fn claimed(patch: &[u8]) -> Option<usize> {
    usize::try_from(get_frame_content_size(patch).ok()??).ok()
}

/// The inverse of [`patch`]; `None` if `patch` is invalid or claims more than `bytes_max` bytes.
pub(crate) fn apply(old: &[u8], patch: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    // The claimed size is allocated at once, so it is checked before: a few bytes could otherwise claim gigabytes.
    let capacity = claimed(patch).filter(|size| *size <= bytes_max)?;
    let mut new = Vec::with_capacity(capacity);
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        let unpacked = decompressor.decompress_using_dict(&mut new, patch, old);
        unpacked.ok().map(|_| new)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_the_same_whatever_came_before_it() {
        let part = |seed: u8, len: usize| -> Vec<u8> {
            let low = |number: usize| number.to_le_bytes()[0];
            let bytes = (0..len).map(|at| seed.wrapping_mul(low(at / 7)) ^ low(at % 13));
            bytes.collect()
        };
        let parts = [part(0, 0), part(3, 40), part(5, 9_000), part(7, 60_000)];
        let fresh = |old: &[u8], new: &[u8]| {
            let mut compressor = Compressor::with_dictionary(LEVEL, old).expect("memory");
            compressor.compress(new).expect("memory")
        };
        for _ in 0..3 {
            let pairs = parts
                .iter()
                .flat_map(|old| parts.iter().map(move |new| (old, new)));
            for (old, new) in pairs {
                let made = patch(old, new);
                assert_eq!(made, fresh(old, new));
                assert_eq!(apply(old, &made, new.len()).as_ref(), Some(new));
                assert_eq!(apply(old, &made[..made.len() - 1], new.len()), None);
                assert!(new.is_empty() || apply(old, &made, new.len() - 1).is_none());
            }
        }
    }
}
