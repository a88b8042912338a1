//! Pulls: what a node requests after a difference, and the form of a valid reply.
//!
//! Invariant: a pull lists everything that the node holds of the halves that differ.

use std::collections::BTreeSet;

use fairmesh_model::{Signed, VoId};

use super::Shared;
use super::answer::proof_tags;
use crate::digest::{Vector, VectorFrame};
use crate::head::Head;
use crate::wire::{HeadItem, Pull};

/// Whether no incarnation of a site occurs twice. An honest peer holds only the last head of each, so a reply with
/// two is invalid.
pub(super) fn has_each_head_once(items: &[HeadItem]) -> bool {
    let heads = items
        .iter()
        .flat_map(|item| Signed::<Head>::parse(&item.head));
    let mut seen = BTreeSet::new();
    heads
        .map(|head| (head.claimed().site, head.claimed().incarnation))
        .all(|head| seen.insert(head))
}

/// A pull for the halves that differ, and the vector in it, which is sent as a difference from `base` if there is one.
pub(super) fn pull_of(
    vo: VoId,
    held: &impl Shared,
    documents: bool,
    heads: bool,
    base: Option<&Vector>,
) -> (Pull, Option<Vector>) {
    let vector = heads.then(|| held.replica().asking_vector());
    let frame = vector.as_ref().map(|vector| match base {
        Some(base) => VectorFrame::since(base, vector),
        None => VectorFrame::full(vector),
    });
    let hashes = documents.then(|| held.documents().into_iter().map(|(hash, _)| hash).collect());
    let proofs = held.replica().proofs();
    let pull = Pull {
        vo,
        documents: hashes,
        heads: frame,
        proofs: if heads {
            proof_tags(&proofs)
        } else {
            Vec::new()
        },
    };
    (pull, vector)
}
