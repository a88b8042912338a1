//! Two nodes talk: how few bytes agreement takes, and what happens when an answer gets lost.

use std::collections::BTreeMap;

use fairmesh_gossip::wire::{Request, Response};
use fairmesh_gossip::{Gossip, Intervals, Outgoing, Replica};
use fairmesh_model::documents::PathCells;
use fairmesh_model::{
    Charter, ContentHash, Incarnation, MemberSite, Millis, MonoTime, Now, Role, Seq, Signed,
    SigningKey, SiteId, UsageBatch, VoId, WallTime, WindowLength,
};

fn key(index: u8) -> SigningKey {
    SigningKey::from_secret(&[index; 32])
}

fn charter() -> Signed<Charter> {
    let member = |index| MemberSite {
        site: key(index).site_id(),
        name: format!("site-{index}"),
        cores: 10,
        addresses: Vec::new(),
    };
    let charter = Charter {
        version: 1,
        vo: None,
        previous: None,
        name: "grid".to_owned(),
        issued: WallTime(0),
        expires: WallTime(1),
        authority: Role::single(key(99).key_id()),
        policy: Role::single(key(99).key_id()),
        sites: (1..=40).map(member).collect(),
        window: WindowLength::HOUR,
        history: fairmesh_model::HistoryRule::default(),
        usage_mode: fairmesh_model::UsageMode::default(),
        charging: fairmesh_model::ChargingRule::default(),
        discounts: fairmesh_model::Discounts::NONE,
        distance: fairmesh_model::Distance::default(),
    };
    Signed::sign(charter, &[&key(99)]).expect("well-formed")
}

/// The next heartbeat of a site, absorbed by each of `nodes`.
fn beat(
    nodes: &mut [&mut Node],
    vo: VoId,
    site: u8,
    seq: u64,
    previous: Option<ContentHash>,
) -> ContentHash {
    let body = UsageBatch {
        vo,
        site: key(site).site_id(),
        incarnation: Incarnation(1),
        seq: Seq(seq),
        previous,
        at: WallTime(seq),
        retired_below: Incarnation(0),
        settled_below: Incarnation(0),
        cells: PathCells::default(),
    };
    let signed = Signed::sign(body, &[&key(site)]).expect("well-formed");
    for node in nodes {
        let replica = node.replicas.get_mut(&vo).expect("held");
        let absorbed = replica.absorb_batch(signed.bytes(), WallTime(seq), Millis(0));
        absorbed.expect("a good batch");
    }
    signed.hash()
}

fn at(now: u64) -> Now {
    Now {
        mono: MonoTime(now),
        wall: WallTime(now),
    }
}

struct Node {
    id: SiteId,
    gossip: Gossip,
    replicas: BTreeMap<VoId, Replica>,
}

fn node(index: u8, charter: &Signed<Charter>) -> Node {
    let mut replica = Replica::new(charter.vo(), key(index).site_id());
    replica
        .absorb_charter(charter.bytes())
        .expect("a good charter");
    let intervals = Intervals {
        sync: Millis(10),
        request_timeout: Millis(5),
    };
    Node {
        id: key(index).site_id(),
        gossip: Gossip::new(intervals, u64::from(index)),
        replicas: BTreeMap::from([(charter.vo(), replica)]),
    }
}

/// Lets `asker` ask until it has nothing more to ask at `now`; the requests that it sent.
fn talk(asker: &mut Node, peer: &mut Node, now: u64) -> Vec<(Outgoing, Vec<u8>)> {
    let mut said = Vec::new();
    while let Some(out) = asker.gossip.tick(at(now), &asker.replicas).pop() {
        let answer = peer
            .gossip
            .answer(at(now), asker.id, &out.bytes, &peer.replicas)
            .to_bytes();
        let arrivals = asker
            .gossip
            .answered(at(now), peer.id, out.id, Some(&answer), &asker.replicas)
            .arrivals;
        for (vo, arrival) in arrivals {
            if let fairmesh_gossip::Arrival::Batch(bytes) = arrival {
                let replica = asker.replicas.get_mut(&vo).expect("held");
                replica
                    .absorb_batch(&bytes, WallTime(u64::MAX / 2), Millis(0))
                    .expect("good");
            }
        }
        said.push((out, answer));
        assert!(said.len() < 50, "it never ends");
    }
    said
}

fn pair() -> (Node, Node, VoId) {
    let charter = charter();
    let (mut a, mut b) = (node(1, &charter), node(2, &charter));
    for site in 3..=40 {
        beat(&mut [&mut a, &mut b], charter.vo(), site, 1, None);
    }
    a.gossip.connected(b.id);
    b.gossip.connected(a.id);
    (a, b, charter.vo())
}

#[test]
fn agreement_takes_one_small_probe_however_many_sites_there_are() {
    let (mut a, mut b, _) = pair();
    let said = talk(&mut a, &mut b, 0);
    assert_eq!(said.len(), 1);
    let bytes = said[0].0.bytes.len() + said[0].1.len();
    assert!(bytes <= 200, "{bytes} bytes for both ways");
    assert_eq!(
        (a.gossip.stats().agreements, a.gossip.stats().divergences),
        (1, 0)
    );
    assert!(
        a.gossip
            .agreed_on(b.id, *a.replicas.keys().next().expect("one"))
    );
}

#[test]
fn after_the_first_pull_only_differences_of_the_digest_travel_and_a_lost_answer_costs_one_in_full()
{
    let (mut a, mut b, vo) = pair();
    let pull = |said: &[(Outgoing, Vec<u8>)]| {
        said.iter()
            .map(|(out, _)| out.bytes.len())
            .max()
            .expect("asked")
    };
    let first = beat(&mut [&mut b], vo, 2, 1, None);
    assert!(
        pull(&talk(&mut a, &mut b, 0)) > 40 * 32,
        "the first digest is in full"
    );
    let second = beat(&mut [&mut b], vo, 2, 2, Some(first));
    assert!(
        pull(&talk(&mut a, &mut b, 20)) < 250,
        "the second is a difference"
    );

    let third = beat(&mut [&mut b], vo, 2, 3, Some(second));
    let mut outs = a.gossip.tick(at(40), &a.replicas);
    let lost = outs.pop().expect("a probe");
    assert!(matches!(
        b.gossip.answer(at(40), a.id, &lost.bytes, &b.replicas),
        Response::Probe(_)
    ));
    // It times out; b has forgotten a meanwhile, a has not.
    b.gossip.connected(a.id);
    talk(&mut a, &mut b, 60);
    beat(&mut [&mut b], vo, 2, 4, Some(third));
    b.gossip.connected(a.id);
    talk(&mut a, &mut b, 80);
    talk(&mut a, &mut b, 100);
    assert_eq!(a.replicas[&vo].vector(), b.replicas[&vo].vector());
}

#[test]
fn what_waits_for_a_peer_is_bounded() {
    let (mut a, b, vo) = pair();
    let hashes: Vec<ContentHash> = (0..100_000u32)
        .map(|n| ContentHash::of(&n.to_be_bytes()))
        .collect();
    a.gossip.want_seals(b.id, vo, &hashes);
    (0..1_000).for_each(|_| a.gossip.suspect_behind(b.id, vo));
    let mut requests = 0;
    while let Some(out) = a.gossip.tick(at(0), &a.replicas).pop() {
        assert!(Request::from_bytes(&out.bytes).is_ok());
        assert!(
            a.gossip
                .answered(at(0), b.id, out.id, None, &a.replicas)
                .arrivals
                .is_empty()
        );
        requests += 1;
    }
    assert!(requests <= 513, "{requests} requests waited");
}
