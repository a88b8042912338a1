//! Replies to peers' requests, which also show what the peers hold.
//!
//! Invariant: only members of a VO receive data of it; former members receive its charters. The work for a reply is
//! bounded by what we hold, whatever the request names. A request makes us pull back only if one of the two sides has
//! changed since the last time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{ContentHash, Now, SiteId, VoId, cbor, mutated};
use serde_bytes::ByteBuf;

use super::peers::PendingRequest;
use super::{Gossip, Shared, summaries};
use crate::digest::{Tag, VECTOR_MAX};
use crate::wire::{FRAME_BYTES_MAX, Probe, Pull, PullAnswer, Request, Response, Summary};

/// The site of a proof, and a hash of its two heads.
type ProofTag = (SiteId, Tag);

/// The proofs as a pull lists them.
pub(super) fn proof_tags(proofs: &BTreeMap<SiteId, (ByteBuf, ByteBuf)>) -> Vec<ProofTag> {
    let tag = |(site, pair): (&SiteId, &(ByteBuf, ByteBuf))| {
        (*site, Tag::from_hash(ContentHash::of(&cbor::to_vec(pair))))
    };
    proofs.iter().map(tag).collect()
}

impl Gossip {
    /// The reply to a peer's request. If the request shows that the peer holds more, a pull is queued.
    pub fn answer<V: Shared>(
        &mut self,
        now: Now,
        from: SiteId,
        bytes: &[u8],
        vos: &BTreeMap<VoId, V>,
    ) -> Response {
        let request = match Request::from_bytes(bytes) {
            Ok(request) => request,
            Err(error) => return Response::Refused(error),
        };
        self.stats.answered += 1;
        match request {
            Request::Probe(theirs) => {
                // A request may still arrive after its peer has disconnected; its clock would then stay for ever.
                if self.peers.get(from).is_some() {
                    self.clocks.note(from, theirs.at, now.mono);
                }
                Response::Probe(Probe {
                    at: now.wall,
                    vos: self.answer_probe(now, from, &theirs.vos, vos),
                })
            }
            Request::Pull(pull) => self.answer_pull(from, &pull, vos),
            Request::Parts { vo, wanted } => match shared(vos, vo, from) {
                Some(held) => Response::Parts(held.replica().parts(&wanted)),
                None => not_shared(vo),
            },
        }
    }

    fn answer_probe<V: Shared>(
        &mut self,
        now: Now,
        from: SiteId,
        theirs: &[(VoId, Summary)],
        vos: &BTreeMap<VoId, V>,
    ) -> Vec<(VoId, Summary)> {
        let mine = summaries(vos, from);
        // A VO that is repeated or unknown costs a look-up and nothing else.
        let theirs: BTreeMap<VoId, Summary> = theirs
            .iter()
            .filter(|(vo, _)| vos.contains_key(vo))
            .copied()
            .collect();
        for (vo, summary) in &theirs {
            let held = &vos[vo];
            if !held.replica().is_member(from) {
                self.meet_stranger(from, *vo, held.summary(), summary);
            } else if held.summary() == *summary
                && let Some(peer) = self.peers.get_mut(from)
            {
                peer.agreements.insert(*vo, now.mono);
            }
        }
        let former = theirs.iter().filter_map(|(vo, theirs)| {
            let held = former_vo(vos, *vo, from)?;
            Some((*vo, summary_for_former(held, theirs)))
        });
        let mine = mine.into_iter();
        let mine = mine.filter(|(vo, _)| theirs.contains_key(vo));
        mine.chain(former).collect()
    }

    /// Pulls the documents of a VO from a peer that our charter does not list, or of whose VO we have no charter. A
    /// newer charter may list the peer, and the peer may be the only one that has it. Documents are signed, so it is
    /// safe to ask.
    fn meet_stranger(&mut self, from: SiteId, vo: VoId, mine: Summary, theirs: &Summary) {
        let shown = ContentHash::of(&cbor::to_vec(&theirs.documents));
        if mine.documents != theirs.documents && self.is_news(from, vo, (mine, shown)) {
            self.peers
                .enqueue(from, PendingRequest::pull(vo, true, false));
        }
    }

    fn answer_pull<V: Shared>(
        &mut self,
        from: SiteId,
        pull: &Pull,
        vos: &BTreeMap<VoId, V>,
    ) -> Response {
        let Some(held) = shared(vos, pull.vo, from) else {
            let former = former_vo(vos, pull.vo, from);
            return former.map_or_else(|| not_shared(pull.vo), |held| answer_former(held, pull));
        };
        let mut answer = PullAnswer::default();
        let mut room = FRAME_BYTES_MAX;
        let mut lacks_documents = false;
        if let Some(hashes) = &pull.documents {
            let mine = held.documents();
            lacks_documents = answer_documents(mine, hashes, &mut answer, &mut room);
        }
        let mut theirs = None;
        if let (Some(frame), Some(peer)) = (&pull.heads, self.peers.get_mut(from)) {
            // The base is removed first: after a frame that cannot be resolved, the peer sends a full one.
            let Some(base) = frame.resolve(peer.received.remove(&pull.vo)) else {
                return Response::Pull(PullAnswer {
                    need_full: !frame.is_full(),
                    ..PullAnswer::default()
                });
            };
            if base.vector.len() > VECTOR_MAX {
                return Response::Refused(format!("more than {VECTOR_MAX} heads"));
            }
            answer_proofs(held, &pull.proofs, &mut answer);
            let (heads, more) = held.replica().answer(&base.vector, room);
            answer.heads = heads;
            answer.more |= more;
            theirs = Some(base);
        }
        let mine = proof_tags(&held.replica().proofs());
        let lacks_heads = theirs
            .as_ref()
            .is_some_and(|theirs| held.replica().lacks(&theirs.vector))
            || pull.proofs.iter().any(|proof| !mine.contains(proof));
        let shown = ContentHash::of(&cbor::to_vec(&(
            theirs.as_ref().map(|theirs| &theirs.name),
            &pull.documents,
            &pull.proofs,
        )));
        let short = theirs.filter(|theirs| theirs.vector.len() <= held.replica().base_heads_max());
        if let (Some(base), Some(peer)) = (short, self.peers.get_mut(from)) {
            peer.received.insert(pull.vo, base);
        }
        let is_behind = lacks_documents || lacks_heads;
        if is_behind && self.is_news(from, pull.vo, (held.summary(), shown)) {
            self.peers.enqueue(
                from,
                PendingRequest::pull(pull.vo, lacks_documents, lacks_heads),
            );
        }
        Response::Pull(answer)
    }

    /// Whether pulling back may bring anything: either side has changed since the last time. Otherwise two nodes that
    /// refuse something of each other would pull for ever.
    fn is_news(&mut self, from: SiteId, vo: VoId, seen: (Summary, ContentHash)) -> bool {
        let peer = self.peers.get_mut(from);
        peer.is_some_and(|peer| peer.pulled_back.insert(vo, seen) != Some(seen))
    }
}

/// Adds the documents that the requester lacks. Returns whether it has any that are not here.
fn answer_documents(
    held: Vec<(ContentHash, Arc<[u8]>)>,
    hashes: &[ContentHash],
    answer: &mut PullAnswer,
    room: &mut usize,
) -> bool {
    let theirs: BTreeSet<&ContentHash> = hashes.iter().collect();
    let mut mine = BTreeSet::new();
    for (hash, bytes) in held {
        mine.insert(hash);
        if theirs.contains(&hash) || answer.more || mutated!(DocumentsWithheld) {
            continue;
        }
        if bytes.len() > *room && *room < FRAME_BYTES_MAX {
            answer.more = true;
            continue;
        }
        *room = room.saturating_sub(bytes.len());
        answer.documents.push(ByteBuf::from(bytes.to_vec()));
    }
    hashes.iter().any(|hash| !mine.contains(hash))
}

/// Adds the proofs that the requester lacks: few, and mostly none.
fn answer_proofs(held: &impl Shared, theirs: &[ProofTag], answer: &mut PullAnswer) {
    let proofs = held.replica().proofs();
    let tags = proof_tags(&proofs);
    let lacking = tags.iter().filter(|tag| !theirs.contains(tag));
    answer.proofs = lacking
        .filter_map(|(site, _)| proofs.get(site).cloned())
        .collect();
}

/// The VO, if `peer` is a member of it.
fn shared<V: Shared>(vos: &BTreeMap<VoId, V>, vo: VoId, peer: SiteId) -> Option<&V> {
    vos.get(&vo)
        .filter(|held| held.replica().is_member(peer) || mutated!(StrangersServed))
}

/// The VO, if `peer` is a former member of it.
fn former_vo<V: Shared>(vos: &BTreeMap<VoId, V>, vo: VoId, peer: SiteId) -> Option<&V> {
    let held = vos.get(&vo)?;
    let is_former = !held.replica().is_member(peer) && held.is_former_member(peer);
    is_former.then_some(held)
}

/// The summary for a former member: a hash over the charters only. Its own hash over the heads is returned, so that
/// it pulls no heads and learns nothing about them.
fn summary_for_former(held: &impl Shared, theirs: &Summary) -> Summary {
    let hashes: Vec<ContentHash> = held.charters().into_iter().map(|(hash, _)| hash).collect();
    Summary {
        documents: Tag::from_hash(ContentHash::of(&cbor::to_vec(&hashes))),
        heads: theirs.heads,
    }
}

/// The charters that a former member lacks. It must get them: one of them shows it that it is not a member any more.
fn answer_former(held: &impl Shared, pull: &Pull) -> Response {
    let (mut answer, mut room) = (PullAnswer::default(), FRAME_BYTES_MAX);
    if let Some(hashes) = &pull.documents {
        answer_documents(held.charters(), hashes, &mut answer, &mut room);
    }
    Response::Pull(answer)
}

fn not_shared(vo: VoId) -> Response {
    Response::Refused(format!("VO {vo} is not shared with you"))
}
