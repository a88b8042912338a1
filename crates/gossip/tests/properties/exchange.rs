//! Replicas that push and exchange what they hold, while messages are lost.

use std::collections::BTreeMap;

use fairmesh_gossip::wire::Response;
use fairmesh_gossip::{Absorbed, Arrival, Gossip, Intervals, Outgoing, Refusal};
use fairmesh_model::{Millis, MonoTime, Now, VoId};
use proptest::prelude::*;

use crate::support::{Node, Plain, VO, received, site};

struct Peer {
    vos: BTreeMap<VoId, Node>,
    gossip: Gossip,
}

pub(crate) struct Net {
    peers: Vec<Peer>,
    now: u64,
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
}

impl Net {
    pub(crate) fn new(nodes: u8) -> Self {
        let intervals = Intervals {
            sync: Millis(1_000),
            request_timeout: Millis(2_000),
        };
        let peer = |own: u8| Peer {
            vos: BTreeMap::from([(VO, Node::new(own, nodes))]),
            gossip: Gossip::new(intervals, u64::from(own)),
        };
        let mut net = Self {
            peers: (0..nodes).map(peer).collect(),
            now: 0,
            requests: 0,
            bytes: 0,
        };
        for a in 0..nodes {
            for b in (0..nodes).filter(|b| *b != a) {
                net.peers[usize::from(a)].gossip.connected(site(b));
            }
        }
        net
    }

    pub(crate) fn node(&mut self, index: u8) -> &mut Node {
        self.peers[usize::from(index)]
            .vos
            .get_mut(&VO)
            .expect("there")
    }

    fn now(&self) -> Now {
        let mut now = received(self.now).now;
        now.mono = MonoTime(self.now);
        now
    }

    /// One second: everybody asks and is answered, but for what `is_lost` takes.
    pub(crate) fn step(&mut self, mut is_lost: impl FnMut() -> bool) {
        self.now += 1_000;
        for _ in 0..4 {
            for index in 0..self.peers.len() {
                let now = self.now();
                let peer = &mut self.peers[index];
                for out in peer.gossip.tick(now, &mut peer.vos) {
                    if !is_lost() {
                        self.deliver(index, out);
                    }
                }
            }
        }
    }

    fn deliver(&mut self, from: usize, out: Outgoing) {
        let asker = site(u8::try_from(from).expect("few"));
        let index =
            (0..self.peers.len()).find(|index| site(u8::try_from(*index).expect("few")) == out.to);
        let to = index.expect("it is one of them");
        let now = self.now();
        let peer = &mut self.peers[to];
        let answer: Response = peer.gossip.answer(now, asker, &out.bytes, &peer.vos);
        let bytes = answer.to_bytes();
        self.requests += 1;
        self.bytes += out.bytes.len() + bytes.len();
        let peer = &mut self.peers[from];
        let arrivals = peer
            .gossip
            .answered(now, out.to, out.id, Some(&bytes), &mut peer.vos);
        let replica = &mut peer.vos.get_mut(&VO).expect("there").replica;
        for (_, arrival) in arrivals {
            match arrival {
                Arrival::Document(_) | Arrival::HeadsEnd => {}
                Arrival::Proof(a, b) => {
                    replica.take_proof(&a, &b).expect("an honest peer");
                }
                Arrival::Head(item) => {
                    of_honest(replica.take_item(&Plain, received(self.now), out.to, item));
                }
                Arrival::Parts(id, parts) => {
                    for taken in replica.take_parts(&Plain, now.mono, out.to, id, parts) {
                        of_honest(taken);
                    }
                }
            }
        }
    }

    /// Steps until all hold the same; how many it took.
    pub(crate) fn settle(&mut self) -> Option<usize> {
        (0..40).find(|_| {
            self.step(|| false);
            let first = self.node(0).holds();
            let digest = self.node(0).replica.digest();
            let nodes = u8::try_from(self.peers.len()).expect("few");
            (1..nodes).all(|index| {
                self.node(index).replica.digest() == digest && self.node(index).holds() == first
            })
        })
    }
}

/// Nothing of it is refused, but it may have to wait: a second has no moments here.
fn of_honest(taken: Result<Absorbed, Refusal>) {
    if !matches!(taken, Err(Refusal::Waits(_))) {
        taken.expect("an honest peer");
    }
}

/// What a random part is made of.
fn part(of: u8, version: u8, len: u16) -> Vec<u8> {
    (0..len)
        .map(|index| 0x80 | of ^ version ^ u8::try_from(index % 251).expect("small"))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn replicas_come_to_hold_the_same_whatever_is_lost(
        steps in proptest::collection::vec((0..4u8, 0..6u8, any::<u8>(), 0..3_000u16, 0..4u8), 1..40),
    ) {
        let mut net = Net::new(4);
        let mut incarnations = [1u64; 4];
        for (own, name, version, len, what) in steps {
            if what == 0 {
                // A new start, which takes over what it holds.
                incarnations[usize::from(own)] += 10;
            }
            let bytes = part(name, version, len);
            let incarnation = incarnations[usize::from(own)];
            let is_first = what == 0;
            let held: Vec<(u8, Vec<u8>)> = net.node(own).holds().get(&site(own)).into_iter().flatten()
                .filter_map(|(key, forms)| Some((*key.key().first()?, forms.first()?.clone())))
                .collect();
            let mut changes: Vec<(u8, Option<&[u8]>)> = if is_first {
                held.iter().map(|(key, bytes)| (*key, Some(&bytes[..]))).collect()
            } else {
                Vec::new()
            };
            changes.retain(|(key, _)| *key != name);
            changes.push((name, (!len.is_multiple_of(7)).then_some(&bytes[..])));
            let push = net.node(own).publish(own, incarnation, &changes);
            for to in (0..4).filter(|to| *to != own && !(u16::from(*to) + len).is_multiple_of(3)) {
                let received = received(net.now);
                of_honest(net.node(to).take_from(site(0), received, &push));
            }
            let mut lost = 0u32;
            net.step(|| { lost += 1; lost.is_multiple_of(3) });
        }
        prop_assert!(net.settle().is_some());
    }
}

#[test]
fn a_newcomer_gets_everything_in_few_round_trips_and_paths_cost_once() {
    let mut net = Net::new(3);
    // 90 parts, each of which repeats the same 50 names.
    let table = |day: u8| -> Vec<u8> {
        (0..50u8)
            .flat_map(|row| {
                format!(
                    "/VO/project-{row}/user-{row};{};",
                    u32::from(day) * 977 + u32::from(row)
                )
                .into_bytes()
            })
            .collect()
    };
    let tables: Vec<Vec<u8>> = (0..90).map(table).collect();
    let all: Vec<(u8, Option<&[u8]>)> = (0..90)
        .map(|day| (day, Some(&tables[usize::from(day)][..])))
        .collect();
    for own in 0..2 {
        net.node(own).publish(own, 1, &all);
    }
    let plain: usize = tables.iter().map(Vec::len).sum::<usize>() * 2;
    net.settle().expect("settles");
    assert!(
        net.bytes * 4 < plain,
        "{} bytes on the wire for {plain}",
        net.bytes
    );
    assert!(net.requests < 60, "{} requests", net.requests);
}

/// An exchange with a peer that has just connected may fail. A peer is drawn only once in eleven intervals here.
#[test]
fn an_exchange_that_failed_is_made_again_soon_however_many_peers_there_are() {
    const NODES: u8 = 12;
    let mut net = Net::new(NODES);
    net.step(|| true);
    for _ in 0..4 {
        net.step(|| false);
    }
    for index in 0..NODES {
        let gossip = &net.peers[usize::from(index)].gossip;
        for other in (0..NODES).filter(|other| *other != index) {
            let ended = gossip.exchanges_with(site(other)).ended;
            assert!(ended > 0, "{index} with {other}");
        }
    }
}

#[test]
fn a_head_too_large_for_one_answer_is_fetched_in_parts_and_counts_only_when_whole() {
    let mut net = Net::new(2);
    let noise = |seed: u32| -> Vec<u8> {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        (0..60_000)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                state.to_le_bytes()[0] | 0x80
            })
            .collect()
    };
    let parts: Vec<Vec<u8>> = (0..100).map(noise).collect();
    // Few enough rows: this kind counts bytes, so only some of them fit under one head.
    let few: Vec<(u8, Option<&[u8]>)> = (0..8)
        .map(|name| (name, Some(&parts[usize::from(name)][..])))
        .collect();
    net.node(0).publish(0, 1, &few);
    net.settle().expect("settles");
    let of_site_0 = |net: &mut Net| {
        net.node(1)
            .holds()
            .get(&site(0))
            .map(std::collections::BTreeMap::len)
    };
    assert_eq!(of_site_0(&mut net), Some(8));
    // Half of it changes, then again while the first half is under way.
    let push = net
        .node(0)
        .publish(0, 1, &[(0, Some(&parts[20])), (1, Some(&parts[21]))]);
    net.now += 10_000;
    let received = received(net.now);
    let taken = net.node(1).take_from(site(0), received, &push);
    assert!(
        matches!(taken, Ok(Absorbed::Bare(_))),
        "too long for a push: {taken:?}"
    );
    let mut asked = 0;
    net.step(|| {
        asked += 1;
        asked > 2
    });
    net.node(0)
        .publish(0, 1, &[(1, Some(&parts[30])), (2, None)]);
    net.settle().expect("settles");
    assert_eq!(of_site_0(&mut net), Some(7));
}
