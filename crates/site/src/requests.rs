//! Requests between members: of the anti-entropy, for rights and of them, about free CPUs, and of jobs that are
//! passed on; and who may send them.
//!
//! Invariant: a request goes to one of the five by its first byte, and its answer by the first byte of its number.

use fairmesh_model::cbor;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// First byte of the frames about rights, free CPUs, jobs and what is witnessed. Those of the anti-entropy begin with
/// 0 or 1, and a node of an earlier release refuses the others as what it cannot read.
pub(crate) const WANT: u8 = 2;
pub(crate) const FREE: u8 = 3;
pub(crate) const JOBS: u8 = 4;
pub(crate) const WITNESS: u8 = 5;

/// The number of the request whose frames begin so; the anti-entropy counts its own from 1.
pub(crate) fn numbered(first: u8, count: u64) -> u64 {
    u64::from(first) << 56 | count
}

/// A message behind the byte that says what it is about.
pub(crate) fn framed(first: u8, message: &impl Serialize) -> Vec<u8> {
    [&[first], &cbor::to_vec(message)[..]].concat()
}

/// Reads what [`framed`] has written; `None` for anything else, and for more than `bytes_max`.
pub(crate) fn unframed<T: DeserializeOwned>(
    first: u8,
    frame: &[u8],
    bytes_max: usize,
) -> Option<T> {
    cbor::from_slice(frame.strip_prefix(&[first])?, bytes_max).ok()
}
