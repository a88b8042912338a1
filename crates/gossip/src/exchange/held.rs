//! What we hold, as far as a peer may hear of it, in the form of a request.
//!
//! Invariant: a peer hears of a VO only what its charter lets it; of a VO that we know nothing of yet
//! anybody may hear that we ask.
//!
//! Deliberately not here: whom to ask, and when.

use fairmesh_model::{Incarnation, Seq, SiteId, VoId, mutated};

use super::{Parts, Replicas};
use crate::digest::{DigestFrame, Vector};
use crate::replica::Replica;
use crate::wire::{Pull, Summary};

/// What we hold of a VO, in the parts that are to be compared; the vector as a difference from `base`.
pub(super) fn pull(
    vo: VoId,
    replica: &Replica,
    parts: Parts,
    vector: Option<&Vector>,
    base: Option<&Vector>,
) -> Pull {
    let with_usage = |rows: fn(&Replica) -> Vec<(SiteId, Incarnation, Seq)>| {
        vector.map(|_| rows(replica)).unwrap_or_default()
    };
    Pull {
        vo,
        documents: parts.documents.then(|| replica.document_hashes()),
        usage: vector.map(|vector| match base {
            Some(base) => DigestFrame::since(base, vector),
            None => DigestFrame::full(vector),
        }),
        forks: with_usage(Replica::forks),
        long: with_usage(Replica::long_streams),
        heads: parts.heads.then(|| replica.heads()),
        sheets: parts.sheets.then(|| replica.sheet_versions()),
        descriptions: parts
            .descriptions
            .then(|| replica.descriptions().versions()),
    }
}

/// The replica of `vo`, if `peer` may see it.
pub(super) fn shared(replicas: &Replicas, vo: VoId, peer: SiteId) -> Option<&Replica> {
    replicas
        .get(&vo)
        .filter(|replica| replica.serves(peer) || mutated!(StrangersServed))
}

/// Summaries of all VOs that `peer` may see, or that we ourselves know nothing of yet.
pub(super) fn summaries(replicas: &Replicas, peer: SiteId) -> Vec<(VoId, Summary)> {
    let visible = |replica: &Replica| replica.serves(peer) || !replica.is_founded();
    replicas
        .iter()
        .filter(|(_, replica)| visible(replica))
        .map(|(vo, replica)| (*vo, replica.summary()))
        .collect()
}
