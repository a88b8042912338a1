//! Whom to ask, what, and when.
//!
//! For each VO a probe goes to one of its members, drawn at random, every `sync` interval, and to a new peer at once
//! and until an exchange with it has ended; where it shows a difference a pull follows, and pulls follow pulls until
//! the answer says there is no more. Beside them several requests for parts may be under way.
//!
//! Invariant: what is queued for a peer and under way with it is bounded by the VOs shared with it, and
//! all of it is forgotten when the peer goes. A tick costs what there is to send: the number of peers, and
//! of sites whose heads are held, does not matter where nothing is queued or fetched.

mod answer;
mod clocks;
mod peers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{
    ContentHash, Millis, MonoTime, Now, Signed, SiteId, VoId, WallTime, mutant, mutated,
};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use serde_bytes::ByteBuf;

use crate::digest::{Tag, Vector, VectorFrame};
use crate::head::Head;
use crate::replica::Replica;
use crate::wire::{
    FRAME_BYTES_MAX, HeadItem, Probe, Pull, PullAnswer, Request, RequestId, Response, Summary,
};
use clocks::Clocks;
use peers::{Peer, Peers, PendingRequest};

/// Most requests for parts under way with one peer: enough to keep a slow line busy, few enough that
/// what they bring fits into memory.
const PART_REQUESTS_MAX: usize = 4;

/// How often and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// Between two probes of one node.
    pub sync: Millis,
    /// After which an unanswered request counts as lost.
    pub request_timeout: Millis,
}

/// A request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// To whom.
    pub to: SiteId,
    /// To be named with the answer.
    pub id: RequestId,
    /// The encoded request.
    pub bytes: Vec<u8>,
}

/// What an answer brought, to be absorbed in this order.
#[derive(Debug, Clone)]
pub enum Arrival {
    /// Bytes of a charter or a share policy.
    Document(ByteBuf),
    /// Two heads of one seq.
    Proof(ByteBuf, ByteBuf),
    /// A head.
    Head(HeadItem),
    /// Parts that the request of that number asked for.
    Parts(RequestId, Vec<Vec<u8>>),
    /// The peer has sent every head that it held and this node lacked.
    HeadsEnd,
}

/// What a node holds of a VO, as the exchange with peers sees it.
pub trait Shared {
    /// The heads with their parts.
    fn replica(&self) -> &Replica;
    /// The same.
    fn replica_mut(&mut self) -> &mut Replica;
    /// One hash over the documents.
    fn documents_digest(&self) -> ContentHash;
    /// The documents, in an order in which they can be adopted.
    fn documents(&self) -> Vec<(ContentHash, Arc<[u8]>)>;
    /// Whether a charter is here.
    fn is_founded(&self) -> bool;
    /// The charters alone, in an order in which they can be adopted.
    fn charters(&self) -> Vec<(ContentHash, Arc<[u8]>)>;
    /// Whether an earlier charter lists `site`, and the one in force does not.
    fn is_former_member(&self, site: SiteId) -> bool;

    /// What is held, as one hash of two halves.
    fn summary(&self) -> Summary {
        Summary {
            documents: Tag::of(self.documents_digest()),
            heads: self.replica().digest().to_bytes(),
        }
    }
}

/// How exchanges with a connected peer end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exchanges {
    /// Exchanges that have ended since it connected: a comparison that found nothing to pull, or an answer to a pull.
    /// That a comparison finds a difference is only the begin of one: small packets may pass where large ones do not.
    pub ended: u64,
    /// Requests that it has not answered since then.
    pub failed: u64,
    /// Whether the last comparison found that both hold the same.
    pub agrees: bool,
}

/// Counters for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GossipStats {
    /// Probes sent.
    pub probes: u64,
    /// Pulls sent.
    pub pulls: u64,
    /// Requests for parts sent.
    pub part_requests: u64,
    /// Requests that failed, timed out or got an answer that made no sense.
    pub failures: u64,
    /// Requests answered.
    pub answered: u64,
    /// Exchanges that ended with nothing to pull.
    pub agreements: u64,
}

/// Our side of the anti-entropy with all peers.
#[derive(Debug)]
pub struct Gossip {
    intervals: Intervals,
    random: ChaCha8Rng,
    next_request: RequestId,
    next_sync: MonoTime,
    peers: Peers,
    /// Peers whose last connection ended before an exchange did. At most all that were ever members.
    unexchanged: BTreeSet<SiteId>,
    clocks: Clocks,
    stats: GossipStats,
}

impl Gossip {
    /// Starts with no peers. The seed decides whom to ask in which order.
    pub fn new(intervals: Intervals, seed: u64) -> Self {
        Self {
            intervals,
            random: ChaCha8Rng::seed_from_u64(seed),
            next_request: 1,
            next_sync: MonoTime::default(),
            peers: Peers::default(),
            unexchanged: BTreeSet::new(),
            clocks: Clocks::default(),
            stats: GossipStats::default(),
        }
    }

    /// Takes other intervals from now on.
    pub fn set_intervals(&mut self, intervals: Intervals) {
        self.intervals = mutant!(OldIntervals, intervals, self.intervals);
    }

    /// Counters for the metrics.
    pub fn stats(&self) -> GossipStats {
        self.stats
    }

    /// Peers that are connected.
    pub fn peers(&self) -> impl Iterator<Item = SiteId> + '_ {
        self.peers.iter().map(|(peer, _)| peer)
    }

    /// When an exchange with `peer` last ended with nothing to pull.
    pub fn agreed_at(&self, peer: SiteId) -> Option<MonoTime> {
        self.peers.get(peer)?.agreed_at
    }

    /// How exchanges with `peer` end, while it is connected.
    pub fn exchanges_with(&self, peer: SiteId) -> Exchanges {
        self.peers
            .get(peer)
            .map_or_else(Exchanges::default, |peer| peer.exchanges)
    }

    /// Whether the last connection with `peer` that has ended saw no exchange, and none has ended since.
    pub fn had_no_exchange(&self, peer: SiteId) -> bool {
        self.unexchanged.contains(&peer)
    }

    /// Whether `peer` held what we hold of `vo` when it last said.
    pub fn agreed_on(&self, peer: SiteId, vo: VoId) -> bool {
        let peer = self.peers.get(peer);
        peer.is_some_and(|peer| peer.agreements.contains_key(&vo))
    }

    /// Whether an exchange with `peer` that ended just `now` found that it holds what we hold of `vo`.
    pub fn agreed_just_now(&self, peer: SiteId, vo: VoId, now: MonoTime) -> bool {
        let peer = self.peers.get(peer);
        peer.is_some_and(|peer| peer.agreements.get(&vo) == Some(&now))
    }

    /// Probes a peer, if it is connected, as soon as nothing else is under way with it.
    pub fn probe(&mut self, peer: SiteId) {
        self.peers.enqueue(peer, PendingRequest::Probe);
    }

    /// The median of the clocks of the connected peers that `counts`; `None` before any of them has said.
    pub fn median_clock(&self, now: Now, counts: impl Fn(SiteId) -> bool) -> Option<WallTime> {
        self.clocks.median(now.mono, now.wall, counts)
    }

    /// What time it is now by the clock of a connected peer, once it has said.
    pub fn clock_of(&self, peer: SiteId, now: MonoTime) -> Option<WallTime> {
        self.clocks.of(peer, now)
    }

    /// A peer can be reached: probe it at once.
    pub fn connected(&mut self, peer: SiteId) {
        self.peers.connect(peer);
        self.peers.enqueue(peer, PendingRequest::Probe);
    }

    /// A peer cannot be reached any more.
    pub fn disconnected<V: Shared>(&mut self, peer: SiteId, vos: &mut BTreeMap<VoId, V>) {
        let exchanges = self.peers.get(peer).map(|peer| peer.exchanges);
        if exchanges.is_some_and(|exchanges| exchanges.ended == 0) {
            self.unexchanged.insert(peer);
        }
        let under_way = self.peers.disconnect(peer);
        self.clocks.disconnected(peer);
        for vo in vos.values_mut() {
            vo.replica_mut().forget_offers(peer);
            under_way
                .iter()
                .for_each(|id| vo.replica_mut().unask(*id, None));
        }
    }

    /// Something from `peer` showed that it holds more of `vo` than we do.
    pub fn suspect_behind(&mut self, peer: SiteId, vo: VoId) {
        self.peers
            .enqueue(peer, PendingRequest::pull(vo, false, true));
    }

    /// When [`Gossip::tick`] has something to do at the latest.
    pub fn next_wakeup(&self) -> Option<MonoTime> {
        if self.peers.is_empty() {
            return None;
        }
        let timeout = self.peers.next_deadline();
        timeout.into_iter().chain([self.next_sync]).min()
    }

    /// Sends what is due: probes by the clock, whatever is queued for free peers, and parts.
    pub fn tick<V: Shared>(&mut self, now: Now, vos: &mut BTreeMap<VoId, V>) -> Vec<Outgoing> {
        self.expire_requests(now.mono, vos);
        if now.mono >= self.next_sync && !self.peers.is_empty() {
            // A little earlier by chance, so that it does not keep step with what is published.
            let early = (u64::from(self.random.next_u32()) * (self.intervals.sync.0 / 8)) >> 32;
            self.next_sync = now.mono.after(Millis(self.intervals.sync.0 - early));
            self.probe_each_vo(vos);
            self.peers.probe_new();
            vos.values_mut()
                .for_each(|vo| vo.replica_mut().expire(now.mono));
        }
        for (vo, held) in vos.iter_mut() {
            let rested = held.replica_mut().rested(now.mono).into_iter();
            rested.for_each(|peer| self.suspect_behind(peer, *vo));
            held.replica_mut().let_in(now.mono);
        }
        let mut peers: BTreeSet<SiteId> = self.peers.waiting().collect();
        peers.extend(vos.values().flat_map(|vo| vo.replica().offering()));
        let mut out = Vec::new();
        for peer in peers {
            if self.peers.get(peer).is_some_and(Peer::is_free) {
                out.extend(self.send_next(now, peer, vos));
            }
            self.ask_for_parts(now, peer, vos, &mut out);
        }
        out
    }

    /// Takes the answer to one of our requests; `None` where none came.
    pub fn answered<V: Shared>(
        &mut self,
        now: Now,
        from: SiteId,
        id: RequestId,
        answer: Option<&[u8]>,
        vos: &mut BTreeMap<VoId, V>,
    ) -> Vec<(VoId, Arrival)> {
        let Some(asked) = self.peers.over(from, id) else {
            return Vec::new();
        };
        let answer = answer.filter(|_| !mutated!(AnswersUnread));
        let response = answer.map(Response::from_bytes).and_then(Result::ok);
        let is_probe = asked == PendingRequest::Probe;
        let (failures, agreements) = (self.stats.failures, self.stats.agreements);
        let arrivals = self.take_response(now, from, id, (asked, response), vos);
        let has_ended = !is_probe || self.stats.agreements > agreements;
        if self.stats.failures == failures
            && has_ended
            && let Some(peer) = self.peers.get_mut(from)
        {
            peer.exchanges.ended += 1;
            peer.exchanges.failed = 0;
            self.unexchanged.remove(&from);
        }
        arrivals
    }

    fn take_response<V: Shared>(
        &mut self,
        now: Now,
        from: SiteId,
        id: RequestId,
        (asked, response): (PendingRequest, Option<Response>),
        vos: &mut BTreeMap<VoId, V>,
    ) -> Vec<(VoId, Arrival)> {
        match (asked, response) {
            (PendingRequest::Probe, Some(Response::Probe(theirs))) => {
                self.clocks.note(from, theirs.at, now.mono);
                self.compare(now.mono, from, &theirs.vos, vos);
                Vec::new()
            }
            (asked @ PendingRequest::Pull { .. }, Some(Response::Pull(answer)))
                if has_each_head_once(&answer.heads) =>
            {
                self.take_pull_answer(from, asked, answer)
            }
            (PendingRequest::Parts(vo), Some(Response::Parts(parts))) => {
                let parts = parts.into_iter().map(ByteBuf::into_vec).collect();
                vec![(vo, Arrival::Parts(id, parts))]
            }
            (asked, _) => {
                self.failed(from, id, &asked, vos);
                Vec::new()
            }
        }
    }

    /// A request found no answer, or none that makes sense.
    fn failed<V: Shared>(
        &mut self,
        to: SiteId,
        id: RequestId,
        asked: &PendingRequest,
        vos: &mut BTreeMap<VoId, V>,
    ) {
        if let PendingRequest::Parts(vo) = asked
            && let Some(vo) = vos.get_mut(vo)
        {
            vo.replica_mut().unask(id, Some(to));
        }
        // What the peer holds of us is unknown now: say it in full the next time.
        if let Some(peer) = self.peers.get_mut(to) {
            peer.acknowledged.clear();
            peer.exchanges.failed += 1;
        }
        self.stats.failures += 1;
    }

    fn expire_requests<V: Shared>(&mut self, now: MonoTime, vos: &mut BTreeMap<VoId, V>) {
        while let Some((peer, id)) = self.peers.late(now) {
            if let Some(asked) = self.peers.over(peer, id) {
                self.failed(peer, id, &asked, vos);
            }
        }
    }

    /// Probes one peer for each VO, drawn among those that share it: a VO of three sites must not
    /// wait until one of them is drawn among a hundred. One probe speaks of all that is shared.
    fn probe_each_vo<V: Shared>(&mut self, vos: &BTreeMap<VoId, V>) {
        let mut probed: Vec<SiteId> = Vec::new();
        for vo in vos.values().filter(|_| !mutated!(NeverProbes)) {
            let shares = |peer: SiteId| vo.replica().is_member(peer) || !vo.is_founded();
            if probed.iter().any(|peer| shares(*peer)) {
                continue;
            }
            let peers = self.peers.iter();
            let idle = peers.filter(|(id, peer)| peer.is_idle() && shares(*id));
            let idle: Vec<SiteId> = idle.map(|(id, _)| id).collect();
            let draw = usize::try_from(self.random.next_u32()).expect("32 bits fit");
            if !idle.is_empty() {
                let peer = idle[draw % idle.len()];
                self.peers.enqueue(peer, PendingRequest::Probe);
                probed.push(peer);
            }
        }
    }

    fn send_next<V: Shared>(
        &mut self,
        now: Now,
        to: SiteId,
        vos: &BTreeMap<VoId, V>,
    ) -> Option<Outgoing> {
        let mut asked = loop {
            let next = self.peers.dequeue(to)?;
            let PendingRequest::Pull { vo, unless, .. } = &next else {
                break next;
            };
            let summary = vos.get(vo).map(V::summary);
            if summary.is_some() && (unless.is_none() || *unless != summary) {
                break next;
            }
        };
        let request = match &mut asked {
            PendingRequest::Pull {
                vo,
                documents,
                heads,
                sent,
                unless,
            } => {
                self.stats.pulls += 1;
                let held = &vos[vo];
                *unless = Some(held.summary());
                let base = self
                    .peers
                    .get(to)
                    .and_then(|peer| peer.acknowledged.get(vo));
                let (pull, vector) = pull_of(*vo, held, *documents, *heads, base);
                *sent = vector;
                Request::Pull(pull)
            }
            _ => {
                self.stats.probes += 1;
                Request::Probe(Probe {
                    at: now.wall,
                    vos: summaries(vos, to),
                })
            }
        };
        Some(self.send(now, to, asked, &request))
    }

    fn ask_for_parts<V: Shared>(
        &mut self,
        now: Now,
        to: SiteId,
        vos: &mut BTreeMap<VoId, V>,
        out: &mut Vec<Outgoing>,
    ) {
        for (vo, held) in vos {
            let has_room = |peer: &Peer| peer.part_requests() < PART_REQUESTS_MAX;
            while self.peers.get(to).is_some_and(has_room) {
                let wanted = held
                    .replica_mut()
                    .want(to, self.next_request, FRAME_BYTES_MAX);
                if wanted.is_empty() {
                    break;
                }
                self.stats.part_requests += 1;
                let request = Request::Parts { vo: *vo, wanted };
                out.push(self.send(now, to, PendingRequest::Parts(*vo), &request));
            }
        }
    }

    fn send(&mut self, now: Now, to: SiteId, asked: PendingRequest, request: &Request) -> Outgoing {
        let id = self.next_request;
        self.next_request += 1;
        let deadline = now.mono.after(self.intervals.request_timeout);
        self.peers.sent(to, id, deadline, asked);
        let bytes = request.to_bytes();
        Outgoing { to, id, bytes }
    }

    /// Queues a pull for every VO in which the peer's holdings differ from ours.
    fn compare<V: Shared>(
        &mut self,
        now: MonoTime,
        from: SiteId,
        theirs: &[(VoId, Summary)],
        vos: &BTreeMap<VoId, V>,
    ) {
        let mut agreed = true;
        for (vo, summary) in theirs {
            let Some(mine) = vos.get(vo).map(V::summary) else {
                continue;
            };
            let (documents, heads) = (
                mine.documents != summary.documents,
                mine.heads != summary.heads,
            );
            let agreed_here = !documents && !heads;
            agreed &= agreed_here;
            if let Some(peer) = self.peers.get_mut(from) {
                if agreed_here {
                    peer.agreements.insert(*vo, now);
                } else {
                    peer.agreements.remove(vo);
                }
            }
            if !agreed_here {
                self.peers
                    .enqueue(from, PendingRequest::pull(*vo, documents, heads));
            }
        }
        self.stats.agreements += u64::from(agreed);
        if let Some(peer) = self.peers.get_mut(from) {
            peer.exchanges.agrees = agreed;
            if agreed {
                peer.agreed_at = Some(now);
            }
        }
    }

    fn take_pull_answer(
        &mut self,
        from: SiteId,
        asked: PendingRequest,
        answer: PullAnswer,
    ) -> Vec<(VoId, Arrival)> {
        let PendingRequest::Pull {
            vo,
            documents,
            heads,
            sent,
            unless,
        } = asked
        else {
            return Vec::new();
        };
        let mut again = PendingRequest::pull(vo, documents, heads);
        let peer = self.peers.get_mut(from).expect("it has just answered");
        if answer.need_full {
            // Asked once more, in full; a peer that does not know a full one either is not asked again.
            if peer.acknowledged.remove(&vo).is_some() || mutated!(NeedFullForEver) {
                self.peers.enqueue(from, again);
            }
            return Vec::new();
        }
        let is_about_heads = heads;
        if let Some(sent) = sent {
            peer.acknowledged.insert(vo, sent);
        }
        if answer.more || mutated!(AsksForEver) {
            if let PendingRequest::Pull {
                unless: go_on_unless,
                ..
            } = &mut again
            {
                *go_on_unless = mutant!(AsksForEver, unless, None);
            }
            self.peers.enqueue(from, again);
        }
        let documents = answer.documents.into_iter().map(Arrival::Document);
        let proofs = answer.proofs.into_iter().map(|(a, b)| Arrival::Proof(a, b));
        let heads = answer.heads.into_iter().map(Arrival::Head);
        let end = (is_about_heads && !answer.more).then_some(Arrival::HeadsEnd);
        let arrivals = documents.chain(proofs).chain(heads).chain(end);
        arrivals.map(|arrival| (vo, arrival)).collect()
    }
}

/// Whether no two heads are of one incarnation of a site: an honest peer holds the last of them only.
fn has_each_head_once(items: &[HeadItem]) -> bool {
    let heads = items
        .iter()
        .flat_map(|item| Signed::<Head>::parse(&item.head));
    let mut seen = BTreeSet::new();
    heads
        .map(|head| (head.claimed().site, head.claimed().incarnation))
        .all(|head| seen.insert(head))
}

/// What we hold of a VO, in the halves that are to be compared; the vector as a difference from `base`.
fn pull_of(
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
            answer::proof_tags(&proofs)
        } else {
            Vec::new()
        },
    };
    (pull, vector)
}

/// Summaries of all VOs that `peer` may see, or that we ourselves know nothing of yet.
fn summaries<V: Shared>(vos: &BTreeMap<VoId, V>, peer: SiteId) -> Vec<(VoId, Summary)> {
    let serves = |vo: &V| vo.replica().is_member(peer) || mutated!(StrangersServed);
    let visible = vos.iter().filter(|(_, vo)| serves(vo) || !vo.is_founded());
    visible.map(|(vo, held)| (*vo, held.summary())).collect()
}
