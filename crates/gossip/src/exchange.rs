//! Whom to ask, what, and when.
//!
//! With each peer there is at most one request under way. For each VO a probe goes to one of its
//! members, drawn at random, every `sync_interval`, and to a new peer at once; where it shows a
//! difference a pull follows, and pulls follow pulls until the answer says there is no more.
//!
//! Invariant: what is queued for a peer is bounded by the VOs shared with it, and all of it is
//! forgotten when the peer goes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fairmesh_model::{ContentHash, Millis, MonoTime, Now, SiteId, VoId, WallTime, mutated};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use serde_bytes::ByteBuf;

mod agreement;
mod answer;
mod clocks;
mod held;

use self::agreement::Found;
use crate::digest::Vector;
use crate::replica::Replica;
use crate::wire::{Item, Probe, PullAnswer, Request, Response, SEALS_ASKED_MAX, Summary};
use clocks::Clocks;
use held::{pull, summaries};

/// Number of a request, unique in one node's life.
pub type RequestId = u64;

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

/// A document that a peer sent in answer to a pull, for the site to absorb in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// Bytes of a charter.
    Charter(ByteBuf),
    /// Bytes of a share policy.
    Policy(ByteBuf),
    /// Two batches that contradict each other.
    Fork(ByteBuf, ByteBuf),
    /// Bytes of a checkpoint.
    Checkpoint(ByteBuf),
    /// Bytes of a batch.
    Batch(ByteBuf),
    /// Bytes of a seal.
    Seal(ByteBuf),
    /// Bytes of an in-flight sheet.
    Sheet(ByteBuf),
    /// Bytes of a site's description.
    Description(ByteBuf),
}

/// Counters for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GossipStats {
    /// Probes sent.
    pub probes: u64,
    /// Pulls sent.
    pub pulls: u64,
    /// Requests for seals sent.
    pub seal_requests: u64,
    /// Requests that failed, timed out or got an answer that made no sense.
    pub failures: u64,
    /// Requests answered.
    pub answered: u64,
    /// Exchanges that ended with nothing to pull.
    pub agreements: u64,
    /// Peers that held the same batches by number and other counters: somebody signs two batches
    /// with one number, or old spans were forgotten at different moments, or there is a bug.
    pub divergences: u64,
}

/// What an answer brought.
#[derive(Debug, Default)]
pub struct Answer {
    /// To be absorbed in this order.
    pub arrivals: Vec<(VoId, Arrival)>,
    /// The VO of which the peer has nothing to tell beyond this, if it said so.
    pub last_of: Option<VoId>,
}

/// Our side of the anti-entropy with all peers.
#[derive(Debug)]
pub struct Gossip {
    intervals: Intervals,
    random: ChaCha8Rng,
    next_request: RequestId,
    next_sync: MonoTime,
    peers: BTreeMap<SiteId, Peer>,
    clocks: Clocks,
    stats: GossipStats,
}

#[derive(Debug, Default)]
struct Peer {
    under_way: Option<(RequestId, MonoTime, Asked)>,
    queue: VecDeque<Asked>,
    /// The vectors that the peer is known to hold of us, for digests as differences.
    acknowledged: BTreeMap<VoId, Vector>,
    /// The vectors that it last sent us, for its digests.
    received: BTreeMap<VoId, Vector>,
    agreed_at: Option<MonoTime>,
    found: Found,
    /// What we held, and what the peer showed, when it last gave reason to pull from it in turn.
    pulled_back: BTreeMap<VoId, (Summary, ContentHash)>,
}

impl Peer {
    fn is_idle(&self) -> bool {
        self.under_way.is_none() && self.queue.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Probe,
    Pull {
        vo: VoId,
        parts: Parts,
        sent: Option<Vector>,
        /// What was held when the answer that this pull goes on from was asked for. Where it still
        /// is, that answer brought nothing that could be taken, and the next one would not either.
        unless: Option<Summary>,
    },
    Seals {
        vo: VoId,
        hashes: Vec<ContentHash>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Parts {
    documents: bool,
    usage: bool,
    heads: bool,
    sheets: bool,
    descriptions: bool,
}

/// Most requests that wait for one peer; what does not fit comes up again in a later exchange. Holds
/// a checkpoint of the most seals, asked [`SEALS_ASKED_MAX`] at a time, and some pulls beside it.
const QUEUE_MAX: usize = 512;

/// Most streams of one VO in a peer's digest: bounds what a peer can make us remember by sending
/// difference after difference. Twice what fits into one request.
const STREAMS_MAX: usize = 1 << 16;

type Replicas = BTreeMap<VoId, Replica>;

impl Gossip {
    /// Starts with no peers. The seed decides whom to ask in which order.
    pub fn new(intervals: Intervals, seed: u64) -> Self {
        Self {
            intervals,
            random: ChaCha8Rng::seed_from_u64(seed),
            next_request: 1,
            next_sync: MonoTime::default(),
            peers: BTreeMap::new(),
            clocks: Clocks::default(),
            stats: GossipStats::default(),
        }
    }

    /// Takes other intervals from now on.
    pub fn set_intervals(&mut self, intervals: Intervals) {
        self.intervals = intervals;
    }

    /// Counters for the metrics.
    pub fn stats(&self) -> GossipStats {
        self.stats
    }

    /// Peers that are connected.
    pub fn peers(&self) -> impl Iterator<Item = SiteId> + '_ {
        self.peers.keys().copied()
    }

    /// When an exchange with `peer` last ended with nothing to pull.
    pub fn agreed_at(&self, peer: SiteId) -> Option<MonoTime> {
        self.peers.get(&peer)?.agreed_at
    }

    /// A peer can be reached: probe it at once.
    pub fn connected(&mut self, peer: SiteId) {
        let state = self.peers.entry(peer).or_default();
        *state = Peer::default();
        state.queue.push_back(Asked::Probe);
    }

    /// A peer cannot be reached any more.
    pub fn disconnected(&mut self, peer: SiteId) {
        self.peers.remove(&peer);
        self.clocks.disconnected(peer);
    }

    /// What time it is now by the most advanced clock of the peers that are connected, or were last;
    /// `None` before the first of them has said.
    pub fn peers_clock(&self, now: MonoTime) -> Option<WallTime> {
        self.clocks.latest(now)
    }

    /// What time it is now by the clock of a connected peer, once it has said.
    pub fn clock_of(&self, peer: SiteId, now: MonoTime) -> Option<WallTime> {
        self.clocks.of(peer, now)
    }

    /// Something from `peer` showed that it holds more of `vo` than we do.
    pub fn suspect_behind(&mut self, peer: SiteId, vo: VoId) {
        let parts = Parts {
            usage: true,
            ..Parts::default()
        };
        self.enqueue(
            peer,
            Asked::Pull {
                vo,
                parts,
                sent: None,
                unless: None,
            },
        );
    }

    /// A checkpoint of `peer` names these seals, which we lack.
    pub fn want_seals(&mut self, peer: SiteId, vo: VoId, hashes: &[ContentHash]) {
        for hashes in hashes.chunks(SEALS_ASKED_MAX) {
            self.enqueue(
                peer,
                Asked::Seals {
                    vo,
                    hashes: hashes.to_vec(),
                },
            );
        }
    }

    /// When [`Gossip::tick`] has something to do at the latest.
    pub fn next_wakeup(&self) -> Option<MonoTime> {
        if self.peers.is_empty() {
            return None;
        }
        let timeouts = self
            .peers
            .values()
            .filter_map(|peer| Some(peer.under_way.as_ref()?.1));
        timeouts.chain([self.next_sync]).min()
    }

    /// Sends what is due: probes by the clock, and whatever is queued for idle peers.
    pub fn tick(&mut self, now: Now, replicas: &Replicas) -> Vec<Outgoing> {
        self.expire_requests(now.mono);
        if now.mono >= self.next_sync && !self.peers.is_empty() && !mutated!(NeverProbes) {
            self.next_sync = now.mono.after(self.intervals.sync);
            self.probe_each_vo(replicas);
        }
        let idle: Vec<SiteId> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.under_way.is_none())
            .map(|(id, _)| *id)
            .collect();
        idle.into_iter()
            .filter_map(|peer| self.send_next(now, peer, replicas))
            .collect()
    }

    /// Takes the answer to one of our requests; `None` where none came.
    pub fn answered(
        &mut self,
        now: Now,
        from: SiteId,
        id: RequestId,
        answer: Option<&[u8]>,
        replicas: &Replicas,
    ) -> Answer {
        let Some(peer) = self.peers.get_mut(&from) else {
            return Answer::default();
        };
        let Some((_, _, asked)) = peer.under_way.take_if(|(under_way, ..)| *under_way == id) else {
            return Answer::default();
        };
        let answer = answer.filter(|_| !mutated!(AnswersUnread));
        if mutated!(AsksForEver) {
            peer.queue.push_back(Asked::Probe);
        }
        let response = answer.map(Response::from_bytes).and_then(Result::ok);
        match (asked, response) {
            (Asked::Probe, Some(Response::Probe(theirs))) => {
                self.clocks.hear(from, theirs.at, now.mono);
                self.compare(now.mono, from, &theirs.vos, replicas);
                Answer::default()
            }
            (
                Asked::Pull {
                    vo,
                    parts,
                    sent,
                    unless,
                },
                Some(Response::Pull(answer)),
            ) => self.take_pull_answer(from, vo, parts, (sent, unless), answer),
            (Asked::Seals { vo, hashes }, Some(Response::Seals(seals))) => {
                self.take_seals(from, vo, hashes, seals)
            }
            _ => {
                peer.found.unanswered();
                self.stats.failures += 1;
                Answer::default()
            }
        }
    }

    /// Passes seals on, and asks for those that did not fit into the answer.
    fn take_seals(
        &mut self,
        from: SiteId,
        vo: VoId,
        asked: Vec<ContentHash>,
        seals: Vec<ByteBuf>,
    ) -> Answer {
        let came: BTreeSet<ContentHash> = seals.iter().map(|seal| ContentHash::of(seal)).collect();
        let before = asked.len();
        let hashes: Vec<ContentHash> = asked
            .into_iter()
            .filter(|hash| !came.contains(hash))
            .collect();
        if !hashes.is_empty() && hashes.len() < before {
            self.enqueue(from, Asked::Seals { vo, hashes });
        }
        let seals = seals.into_iter().map(|seal| (vo, Arrival::Seal(seal)));
        Answer {
            arrivals: seals.collect(),
            last_of: None,
        }
    }

    fn enqueue(&mut self, peer: SiteId, asked: Asked) {
        let Some(state) = self.peers.get_mut(&peer) else {
            return;
        };
        let same = |queued: &Asked| match (queued, &asked) {
            (
                Asked::Pull {
                    vo: a, parts: p, ..
                },
                Asked::Pull {
                    vo: b, parts: q, ..
                },
            ) => a == b && p == q,
            (queued, asked) => queued == asked,
        };
        if state.queue.len() < QUEUE_MAX && !state.queue.iter().any(same) {
            state.queue.push_back(asked);
        }
    }

    fn expire_requests(&mut self, now: MonoTime) {
        for peer in self.peers.values_mut() {
            if peer
                .under_way
                .take_if(|(_, deadline, _)| *deadline <= now)
                .is_some()
            {
                // What the peer holds of us is unknown now: say it in full the next time.
                peer.acknowledged.clear();
                peer.found.unanswered();
                self.stats.failures += 1;
            }
        }
    }

    /// Probes one peer for each VO, drawn among those that share it: a VO of three sites must not
    /// wait until one of them is drawn among a hundred. One probe speaks of all that is shared.
    fn probe_each_vo(&mut self, replicas: &Replicas) {
        let mut probed: Vec<SiteId> = Vec::new();
        for replica in replicas.values() {
            let shares = |peer: SiteId| replica.serves(peer) || !replica.is_founded();
            if probed.iter().any(|peer| shares(*peer)) {
                continue;
            }
            let idle = self
                .peers
                .iter()
                .filter(|(id, peer)| peer.is_idle() && shares(**id));
            let idle: Vec<SiteId> = idle.map(|(id, _)| *id).collect();
            let draw = usize::try_from(self.random.next_u32()).expect("32 bits fit");
            if !idle.is_empty() {
                let peer = idle[draw % idle.len()];
                self.enqueue(peer, Asked::Probe);
                probed.push(peer);
            }
        }
    }

    fn send_next(&mut self, now: Now, to: SiteId, replicas: &Replicas) -> Option<Outgoing> {
        let peer = self.peers.get_mut(&to)?;
        let mut asked = loop {
            let next = peer.queue.pop_front()?;
            let Asked::Pull { vo, unless, .. } = &next else {
                break next;
            };
            let Some(replica) = replicas.get(vo) else {
                continue;
            };
            if unless.is_none_or(|before| before != replica.summary()) {
                break next;
            }
        };
        let request = match &mut asked {
            Asked::Probe => {
                self.stats.probes += 1;
                Request::Probe(Probe {
                    at: now.wall,
                    vos: summaries(replicas, to),
                })
            }
            Asked::Pull {
                vo,
                parts,
                sent,
                unless,
            } => {
                self.stats.pulls += 1;
                let replica = replicas.get(vo)?;
                *sent = parts.usage.then(|| replica.vector());
                *unless = Some(replica.summary());
                let base = peer.acknowledged.get(vo);
                Request::Pull(pull(*vo, replica, *parts, sent.as_ref(), base))
            }
            Asked::Seals { vo, hashes } => {
                self.stats.seal_requests += 1;
                Request::Seals {
                    vo: *vo,
                    hashes: hashes.clone(),
                }
            }
        };
        let id = self.next_request;
        self.next_request += 1;
        peer.under_way = Some((id, now.mono.after(self.intervals.request_timeout), asked));
        Some(Outgoing {
            to,
            id,
            bytes: request.to_bytes(),
        })
    }

    /// Queues a pull for every VO in which the peer's holdings differ from ours.
    fn compare(
        &mut self,
        now: MonoTime,
        from: SiteId,
        theirs: &[(VoId, Summary)],
        replicas: &Replicas,
    ) {
        let mut agreed = true;
        for (vo, summary) in theirs {
            let Some(replica) = replicas.get(vo) else {
                continue;
            };
            let mine = replica.summary();
            let diverged = self.note_divergence(&mine, summary);
            let parts = Parts {
                documents: mine.documents != summary.documents,
                usage: mine.usage != summary.usage,
                heads: diverged,
                sheets: mine.sheets != summary.sheets,
                descriptions: mine.documents != summary.documents && !mutated!(PricesNotAsked),
            };
            // In-flight sheets come and go; what is counted is agreed upon without them.
            let agreed_here = !parts.documents && !parts.usage && !parts.heads;
            agreed &= agreed_here;
            if let Some(peer) = self.peers.get_mut(&from) {
                peer.found
                    .compared(*vo, agreed_here, !parts.usage && !diverged);
            }
            if parts != Parts::default() {
                self.enqueue(
                    from,
                    Asked::Pull {
                        vo: *vo,
                        parts,
                        sent: None,
                        unless: None,
                    },
                );
            }
        }
        if agreed {
            self.stats.agreements += 1;
            if let Some(peer) = self.peers.get_mut(&from) {
                peer.agreed_at = Some(now);
            }
        }
    }

    fn note_divergence(&mut self, mine: &Summary, theirs: &Summary) -> bool {
        let diverged = mine.documents == theirs.documents
            && mine.usage == theirs.usage
            && mine.counters != theirs.counters;
        self.stats.divergences += u64::from(diverged);
        diverged
    }

    fn take_pull_answer(
        &mut self,
        from: SiteId,
        vo: VoId,
        parts: Parts,
        (sent, before): (Option<Vector>, Option<Summary>),
        answer: PullAnswer,
    ) -> Answer {
        let again = Asked::Pull {
            vo,
            parts,
            sent: None,
            unless: before.filter(|_| !answer.need_full),
        };
        let peer = self.peers.get_mut(&from).expect("it has just answered");
        if answer.need_full {
            peer.acknowledged.remove(&vo);
            self.enqueue(from, again);
            return Answer::default();
        }
        let last_of = (sent.is_some() && !answer.more).then_some(vo);
        if let Some(sent) = sent {
            peer.acknowledged.insert(vo, sent);
        }
        if answer.more {
            self.enqueue(from, again);
        }
        let charters = answer.charters.into_iter().map(Arrival::Charter);
        let policies = answer.policies.into_iter().map(Arrival::Policy);
        let forks = answer.forks.into_iter().map(|(a, b)| Arrival::Fork(a, b));
        let items = answer.items.into_iter().map(|item| match item {
            Item::Checkpoint(bytes) => Arrival::Checkpoint(bytes),
            Item::Batch(bytes) => Arrival::Batch(bytes),
        });
        let sheets = answer.sheets.into_iter().map(Arrival::Sheet);
        let descriptions = answer.descriptions.into_iter().map(Arrival::Description);
        let arrivals = charters
            .chain(policies)
            .chain(forks)
            .chain(items)
            .chain(sheets)
            .chain(descriptions)
            .map(|arrival| (vo, arrival));
        Answer {
            arrivals: arrivals.collect(),
            last_of,
        }
    }
}
