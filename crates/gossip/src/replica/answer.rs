//! Replies: what a peer lacks.
//!
//! Invariant: a reply is bounded. A part is left out only if the peer can request it. What is sent of a head is
//! enough to check that nothing that was signed is missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{Incarnation, SiteId, Verified, mutated};
use serde_bytes::ByteBuf;

use super::{Replica, SiteState};
use crate::digest::{Tag, Vector};
use crate::head::{HEADS_MAX, Head};
use crate::part::PartKey;
use crate::wire::{FRAME_BYTES_MAX, HEAD_BYTES, HeadContent, HeadItem, MANIFEST_ROW_BYTES};

/// Two contradicting heads, as bytes.
pub(crate) type ProofBytes = (ByteBuf, ByteBuf);

impl Replica {
    /// Heads that a peer with the vector `theirs` lacks, with their changes, up to about `room` bytes. The flag is
    /// set if there are more.
    pub(crate) fn answer(&self, theirs: &Vector, mut room: usize) -> (Vec<HeadItem>, bool) {
        let mut items = Vec::new();
        for (site, held) in self.counted() {
            for head in held.heads.iter() {
                let body = head.body();
                let known = theirs.get(&(site, body.incarnation)).copied();
                // At equal seq another tag means a fork: the peer gets our head, so that it can prove the fork.
                let is_behind = known.is_none_or(|(seq, tag)| {
                    let forks = seq == body.seq && tag != Tag::from_hash(head.hash());
                    seq < body.seq || (forks && !mutated!(ForksUntold))
                });
                let is_old = held.heads.iter().next_back() != Some(head);
                let withheld = is_old && mutated!(EarlierHeadsWithheld);
                if !is_behind || withheld || is_overtaken(held, theirs, site, body.incarnation) {
                    continue;
                }
                if room < HEAD_BYTES {
                    return (items, true);
                }
                let (content, bytes) = content_for(held, head, theirs, room);
                room = room.saturating_sub(bytes + HEAD_BYTES);
                items.push(HeadItem {
                    head: ByteBuf::from(head.bytes().to_vec()),
                    content,
                });
            }
        }
        (items, false)
    }

    /// The proofs of forks, by site.
    pub(crate) fn proofs(&self) -> BTreeMap<SiteId, ProofBytes> {
        let bytes = |head: &Arc<Verified<Head>>| ByteBuf::from(head.bytes().to_vec());
        let all = self.counted().filter(|_| !mutated!(ProofsUntold));
        let proofs = all.filter_map(|(site, held)| {
            let [a, b] = &held.proof.as_ref()?.heads;
            Some((site, (bytes(a), bytes(b))))
        });
        proofs.collect()
    }

    /// The requested parts, as far as they fit into one reply. The requester asks again for the rest.
    pub(crate) fn parts(&self, wanted: &[(SiteId, Incarnation, Vec<PartKey>)]) -> Vec<ByteBuf> {
        // Half more than a requester asks for: its last part may exceed the room that it counts with.
        let mut room = FRAME_BYTES_MAX + FRAME_BYTES_MAX / 2;
        let mut parts = Vec::new();
        for (site, incarnation, keys) in wanted {
            let held = self.sites.get(site).filter(|_| self.counts(*site));
            let Some(content) = held.and_then(|held| held.contents.get(incarnation)) else {
                continue;
            };
            for part in keys.iter().filter_map(|key| content.parts.get(key)) {
                let Some(rest) = room.checked_sub(part.bytes.len()) else {
                    return parts;
                };
                room = rest;
                parts.push(ByteBuf::from(part.bytes.to_vec()));
            }
        }
        parts
    }

    /// The vector for a pull. Sites whose last changes did not apply are left out, so that the peer sends their
    /// manifest.
    pub(crate) fn asking_vector(&self) -> Vector {
        let mut vector = self.vector();
        let is_untold = |held: &SiteState| held.needs_manifest && !mutated!(UntoldAsKnown);
        let untold = self.sites.iter().filter(|(_, held)| is_untold(held));
        for (site, _) in untold {
            vector.retain(|(member, _), _| member != site);
        }
        vector
    }

    /// Most heads of a peer's vector that is kept as a base: two for each member. Resolving a difference costs as
    /// much as the base is long, so a longer vector, say under a charter that is not here yet, must be sent in full
    /// each time.
    pub(crate) fn base_heads_max(&self) -> usize {
        2 * (self.members.len() + 1)
    }

    /// Whether a peer with the vector `theirs` holds a head that we lack.
    pub(crate) fn lacks(&self, theirs: &Vector) -> bool {
        theirs.iter().any(|((site, incarnation), (seq, tag))| {
            // A peer with a newer charter may hold heads of a member that ours does not list; we would refuse them.
            if !self.is_member(*site) {
                return false;
            }
            let held = self.sites.get(site);
            match held.and_then(|held| held.heads.get(*incarnation)) {
                Some(head) => {
                    let held = head.body().seq;
                    held < *seq || (held == *seq && Tag::from_hash(head.hash()) != *tag)
                }
                None => !self.has_covered(*site, *incarnation, *seq),
            }
        })
    }

    fn has_covered(
        &self,
        site: SiteId,
        incarnation: Incarnation,
        seq: fairmesh_model::Seq,
    ) -> bool {
        let Some(held) = self.sites.get(&site) else {
            return false;
        };
        let names = |head: &Arc<Verified<Head>>| {
            let mut covers = head.body().covers.iter();
            covers.any(|(earlier, until)| *earlier == incarnation && *until >= seq)
        };
        // A full set drops lower incarnations: pulling such a head again and again would bring nothing.
        let lowest = held.heads.iter().next().map(|head| head.body().incarnation);
        let is_full = held.heads.iter().count() >= HEADS_MAX;
        held.heads.iter().any(names) || (is_full && lowest > Some(incarnation))
    }
}

/// Whether the peer holds a later incarnation of the site that we lack. It may cover this head, so we should get it
/// first; otherwise the peer would fetch a head that it has dropped already.
fn is_overtaken(held: &SiteState, theirs: &Vector, site: SiteId, incarnation: Incarnation) -> bool {
    let later = theirs
        .range((site, incarnation)..)
        .take_while(|((member, _), _)| *member == site);
    let mut later = later.filter(|((_, theirs), _)| *theirs > incarnation);
    later.any(|((_, theirs), _)| held.heads.get(*theirs).is_none())
}

/// The content to send with a head, in the shortest form that completes what the peer holds, and about how many bytes
/// it takes.
fn content_for(
    held: &SiteState,
    head: &Verified<Head>,
    theirs: &Vector,
    room: usize,
) -> (HeadContent, usize) {
    let body = head.body();
    let content = &held.contents[&body.incarnation];
    let known = theirs
        .get(&(body.site, body.incarnation))
        .map(|(seq, _)| *seq);
    if let Some(seq) = known.filter(|seq| *seq < body.seq) {
        if let Some(deltas) = content.deltas_since(seq) {
            let bytes = deltas.iter().map(|delta| delta.len()).sum();
            return (HeadContent::Deltas(deltas), bytes);
        }
        if let Some((rows, gone)) = content.rows_since(seq) {
            let bytes = (rows.len() + gone.len()) * MANIFEST_ROW_BYTES;
            return (HeadContent::Since(rows, gone), bytes);
        }
    }
    // All parts at once save a newcomer a round trip. A peer that holds any head of the site has most parts already.
    let first = (body.site, Incarnation(0));
    let holds_any = theirs
        .range(first..)
        .next()
        .is_some_and(|((member, _), _)| *member == body.site);
    // A name takes some 16 bytes.
    let bytes = content.bytes() + content.parts.len() * 16;
    if !holds_any && bytes <= room {
        let parts = content.parts.iter();
        let parts = parts.map(|(key, part)| (key.clone(), ByteBuf::from(part.bytes.to_vec())));
        return (HeadContent::Whole(parts.collect()), bytes);
    }
    let rows = content.manifest();
    let bytes = rows.len() * MANIFEST_ROW_BYTES;
    (HeadContent::Manifest(rows), bytes)
}
