//! Remembering documents that were read, for a process that is many sites.
//!
//! A simulator's sites each read the same bytes. What comes out is a function of the bytes alone, so
//! it may be remembered; nothing that a site decides can differ.
//!
//! Invariant: a document is remembered under its kind and the hash of all its bytes, and only in a
//! thread that asked for it. A node never asks. Deliberately not here: bytes that were refused.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::BTreeMap;

use super::{Document, DocumentError, Signed};
use crate::ids::ContentHash;

/// Most documents remembered; then all are forgotten. Sites read a document within seconds of each
/// other, so few are needed; bounds memory to some 10 MB a thread.
const DOCUMENTS_MAX: usize = 4_096;

type Documents = BTreeMap<(TypeId, [u8; 32]), Box<dyn Any>>;

thread_local! {
    static DOCUMENTS: RefCell<Option<Documents>> = const { RefCell::new(None) };
}

/// Remembers documents that were read in this thread from now on.
pub fn remember_documents() {
    DOCUMENTS.with_borrow_mut(|documents| {
        documents.get_or_insert_default();
    });
}

/// What `parse` makes of `bytes`, or made of them before.
pub(super) fn once<T: Document>(
    bytes: &[u8],
    parse: impl FnOnce() -> Result<Signed<T>, DocumentError>,
) -> Result<Signed<T>, DocumentError> {
    DOCUMENTS.with_borrow_mut(|documents| {
        let Some(documents) = documents else {
            return parse();
        };
        let name = (TypeId::of::<T>(), *ContentHash::of(bytes).as_bytes());
        let known = documents.get(&name);
        if let Some(known) = known.and_then(|known| known.downcast_ref::<Signed<T>>()) {
            return Ok(known.clone());
        }
        let signed = parse()?;
        if documents.len() >= DOCUMENTS_MAX {
            documents.clear();
        }
        documents.insert(name, Box::new(signed.clone()));
        Ok(signed)
    })
}
