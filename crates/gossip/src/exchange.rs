//! Anti-entropy: which peer to ask, for what, and when.
//!
//! Every `sync` interval a probe goes to one random member of each VO. A new peer is probed at once, and again until an
//! exchange with it has ended. If a probe shows a difference, a pull follows, and further pulls until a reply says that
//! there is no more. Several requests for parts may be pending in addition.
//!
//! Invariant: what is queued for a peer or pending is bounded by the VOs shared with it, and is dropped when the peer
//! disconnects. A tick costs what there is to send, independent of the number of peers and of sites.

mod answer;
mod clocks;
mod peers;
mod pull;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{ContentHash, Millis, MonoTime, Now, SiteId, VoId, WallTime, mutant, mutated};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use serde_bytes::ByteBuf;

use crate::digest::Tag;
use crate::replica::Replica;
use crate::wire::{
    FRAME_BYTES_MAX, HeadItem, Probe, PullAnswer, Request, RequestId, Response, Summary,
};
use clocks::Clocks;
use peers::{Peer, Peers, PendingRequest};
use pull::{has_each_head_once, pull_of};

/// Most pending requests for parts with one peer: enough to keep a slow link busy, few enough that their replies fit
/// into memory.
const PART_REQUESTS_MAX: usize = 4;

/// The node's intervals for anti-entropy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// Time between two rounds of probes; each is up to an eighth shorter, at random.
    pub sync: Millis,
    /// Time after which a request without a reply counts as failed.
    pub request_timeout: Millis,
}

/// A request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The connected peer to send it to.
    pub to: SiteId,
    /// To be given to [`Gossip::answered`] with the reply.
    pub id: RequestId,
    /// The encoded request.
    pub bytes: Vec<u8>,
}

/// An item of a reply, to be absorbed in the order of the reply.
#[derive(Debug, Clone)]
pub enum Arrival {
    /// Bytes of a charter or a share policy, not verified yet.
    Document(ByteBuf),
    /// Two heads that prove a fork, not verified yet.
    Proof(ByteBuf, ByteBuf),
    /// A head with content, not verified yet.
    Head(HeadItem),
    /// Parts for the request with that number.
    Parts(RequestId, Vec<Vec<u8>>),
    /// The peer has sent every head that it held and this node lacked.
    HeadsEnd,
}

/// A VO as anti-entropy needs it.
pub trait Shared {
    /// The heads with their parts.
    fn replica(&self) -> &Replica;
    /// [`Shared::replica`], to note pending requests in it.
    fn replica_mut(&mut self) -> &mut Replica;
    /// A hash over the documents, equal where the sets of documents are.
    fn documents_digest(&self) -> ContentHash;
    /// The documents, in an order in which they can be adopted.
    fn documents(&self) -> Vec<(ContentHash, Arc<[u8]>)>;
    /// Whether a charter of the VO is known; without one it has no members yet.
    fn is_founded(&self) -> bool;
    /// The charters alone, in an order in which they can be adopted.
    fn charters(&self) -> Vec<(ContentHash, Arc<[u8]>)>;
    /// Whether an earlier charter lists `site`, and the one in force does not.
    fn is_former_member(&self, site: SiteId) -> bool;

    /// The summary for a probe.
    fn summary(&self) -> Summary {
        Summary {
            documents: Tag::from_hash(self.documents_digest()),
            heads: self.replica().digest().to_bytes(),
        }
    }
}

/// How the exchanges with a connected peer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exchanges {
    /// Exchanges that have ended since the peer connected: a probe that found nothing to pull, or a reply to a pull.
    /// A probe that finds a difference does not count, because small packets may pass where large ones are lost.
    pub ended: u64,
    /// Requests without a reply since the last exchange that ended.
    pub failed: u64,
    /// Whether the last probe found that both sides hold the same.
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
    /// Requests that failed, timed out or got an invalid reply.
    pub failures: u64,
    /// Peers' requests that this node has answered.
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
    /// Peers whose last connection ended before an exchange did. Bounded by the sites that were ever members.
    unexchanged: BTreeSet<SiteId>,
    clocks: Clocks,
    stats: GossipStats,
}

impl Gossip {
    /// Starts without peers. The seed decides which peers are probed in which order.
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

    /// Replaces the intervals; pending requests keep their deadlines.
    pub fn set_intervals(&mut self, intervals: Intervals) {
        self.intervals = mutant!(OldIntervals, intervals, self.intervals);
    }

    /// Counters for the metrics.
    pub fn stats(&self) -> GossipStats {
        self.stats
    }

    /// The connected peers, by id.
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

    /// Whether `peer` held what we hold of `vo` at the last comparison.
    pub fn agreed_on(&self, peer: SiteId, vo: VoId) -> bool {
        let peer = self.peers.get(peer);
        peer.is_some_and(|peer| peer.agreements.contains_key(&vo))
    }

    /// Whether an exchange with `peer` that ended just `now` found that it holds what we hold of `vo`.
    pub fn agreed_just_now(&self, peer: SiteId, vo: VoId, now: MonoTime) -> bool {
        let peer = self.peers.get(peer);
        peer.is_some_and(|peer| peer.agreements.get(&vo) == Some(&now))
    }

    /// Probes a connected peer as soon as no other probe or pull with it is pending.
    pub fn probe(&mut self, peer: SiteId) {
        self.peers.enqueue(peer, PendingRequest::Probe);
    }

    /// The median of the clocks of the connected peers that `counts`; `None` before one of them has sent a probe or a
    /// reply.
    pub fn median_clock(&self, now: Now, counts: impl Fn(SiteId) -> bool) -> Option<WallTime> {
        self.clocks.median(now.mono, now.wall, counts)
    }

    /// The current time by the clock of a connected peer; `None` before it has sent a probe or a reply to one.
    pub fn clock_of(&self, peer: SiteId, now: MonoTime) -> Option<WallTime> {
        self.clocks.clock_of(peer, now)
    }

    /// A peer has connected: it is probed at once.
    pub fn connected(&mut self, peer: SiteId) {
        self.peers.connect(peer);
        self.peers.enqueue(peer, PendingRequest::Probe);
    }

    /// A peer has disconnected: its queue and pending requests are dropped.
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

    /// Pulls the heads of `vo` from `peer`, because a message showed that it holds more than we do.
    pub fn suspect_behind(&mut self, peer: SiteId, vo: VoId) {
        self.peers
            .enqueue(peer, PendingRequest::pull(vo, false, true));
    }

    /// The latest time for the next [`Gossip::tick`]; `None` without peers.
    pub fn next_wakeup(&self) -> Option<MonoTime> {
        if self.peers.is_empty() {
            return None;
        }
        let timeout = self.peers.next_deadline();
        timeout.into_iter().chain([self.next_sync]).min()
    }

    /// The requests that are due: probes by the clock, queued requests for free peers, and parts.
    pub fn tick<V: Shared>(&mut self, now: Now, vos: &mut BTreeMap<VoId, V>) -> Vec<Outgoing> {
        self.expire_requests(now.mono, vos);
        if now.mono >= self.next_sync && !self.peers.is_empty() {
            // A little earlier at random: otherwise probes could always meet the moment before a new head spreads,
            // and find differences that a push removes anyway.
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

    /// Takes the reply to one of our requests; `None` if there was none. A reply to a request that has timed out is
    /// ignored.
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
        // A probe that finds a difference has not ended the exchange: its pull may still fail.
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

    /// Counts a request without a valid reply.
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
        // The peer may or may not have taken our last vector as its base, so the next one is sent in full.
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

    /// Probes one random peer for each VO: a VO of three sites must not wait until one of them is drawn among a
    /// hundred. One probe covers all shared VOs, so a VO whose member is probed already needs no other.
    fn probe_each_vo<V: Shared>(&mut self, vos: &BTreeMap<VoId, V>) {
        let mut probed: Vec<SiteId> = Vec::new();
        for vo in vos.values().filter(|_| !mutated!(NeverProbes)) {
            // Of a VO without a charter any peer may be a member.
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
        // A continued pull is dropped if the last reply changed nothing: the next reply would not either, and the two
        // nodes would exchange the same bytes for ever.
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

    /// Queues a pull for each VO in which the peer holds something else than we do.
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
            // Asked once more, in full. A peer that refuses a full vector too is not asked again.
            if peer.acknowledged.remove(&vo).is_some() || mutated!(NeedFullForEver) {
                self.peers.enqueue(from, again);
            }
            return Vec::new();
        }
        let is_about_heads = heads;
        // The reply proves that the peer has resolved our vector, so the next one can refer to it.
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

/// Summaries of the VOs that `peer` may see, and of those of which we have no charter yet: a peer may send us one.
fn summaries<V: Shared>(vos: &BTreeMap<VoId, V>, peer: SiteId) -> Vec<(VoId, Summary)> {
    let serves = |vo: &V| vo.replica().is_member(peer) || mutated!(StrangersServed);
    let visible = vos.iter().filter(|(_, vo)| serves(vo) || !vo.is_founded());
    visible.map(|(vo, held)| (*vo, held.summary())).collect()
}
