//! Questions and answers, and their bounds.

use super::*;

#[tokio::test]
async fn two_nodes_connect_and_ask_each_other() {
    let (mut a, mut b) = connected_pair().await;
    for bytes in [vec![], vec![7; REQUEST_BYTES_MAX]] {
        let answer = vec![8; RESPONSE_BYTES_MAX.min(bytes.len() * 4)];
        let (outcome, asked) = tokio::join!(
            a.ask(b.handle.site(), bytes.clone()),
            b.answer(answer.clone())
        );
        assert_eq!(asked, bytes);
        assert_eq!(outcome, Ok(answer));
    }
    let (outcome, _) = tokio::join!(b.ask(a.handle.site(), vec![1]), a.answer(vec![2]));
    assert_eq!(outcome, Ok(vec![2]));
    let peer = b.site();
    a.until_stats(|stats| {
        stats.peers.get(&peer).is_some_and(|peer| {
            peer.connected
                && peer.bytes_out == REQUEST_BYTES_MAX as u64 + 1
                && peer.bytes_in == RESPONSE_BYTES_MAX as u64 + 1
                && peer.round_trip.is_some()
        })
    })
    .await;
}

#[tokio::test]
async fn oversize_is_a_clear_failure_on_both_sides() {
    let (mut a, mut b) = connected_pair().await;
    let bytes = REQUEST_BYTES_MAX + 1;
    let outcome = a.ask(b.site(), vec![0; bytes]).await;
    let expected = RequestFailure::RequestTooLarge {
        bytes,
        bytes_max: REQUEST_BYTES_MAX,
    };
    assert_eq!(outcome, Err(expected));
    let oversize = vec![0; RESPONSE_BYTES_MAX + 1];
    let (outcome, _) = tokio::join!(a.ask(b.handle.site(), vec![1]), b.answer(oversize));
    assert_eq!(outcome, Err(RequestFailure::Refused));
    a.publish(vec![0; GOSSIP_BYTES_MAX + 1]).await;
    let (outcome, _) = tokio::join!(a.ask(b.handle.site(), vec![1]), b.answer(vec![2]));
    assert_eq!(outcome, Ok(vec![2]), "the connection survives all that");
}

#[tokio::test]
async fn requests_under_way_are_bounded_on_both_sides() {
    let (mut a, mut b) = connected_pair().await;
    let asked = config::IN_FLIGHT_PER_PEER_MAX as u64 + 1;
    for id in 0..asked {
        let (to, bytes) = (b.site(), vec![1]);
        a.send(NetworkCommand::Request { to, id, bytes }).await;
    }
    let mut failures = BTreeMap::<String, u64>::new();
    let surplus = asked - config::INBOUND_PER_PEER_MAX as u64;
    for _ in 0..surplus {
        let failure = a
            .until(|event| match event {
                NetworkEvent::Response { result, .. } => result.err(),
                _ => None,
            })
            .await;
        *failures.entry(format!("{failure:?}")).or_default() += 1;
    }
    let expected = [
        ("Refused".to_owned(), surplus - 1),
        ("TooManyInFlight".to_owned(), 1),
    ];
    assert_eq!(failures, expected.into());
    for _ in 0..config::INBOUND_PER_PEER_MAX {
        b.answer(vec![2]).await;
    }
}

#[tokio::test]
async fn members_that_answer_nothing_leave_room_to_ask_others() {
    let mut a = Node::start(1).await;
    let mut others = Vec::new();
    for number in 2..=15 {
        let other = Node::start(number).await;
        other.allow(&[&a]).await;
        others.push(other);
    }
    let all: Vec<&Node> = others.iter().collect();
    a.meet(&all).await;
    let mut missing = sites(&all);
    while !missing.is_empty() {
        let site = a
            .until(|event| match event {
                NetworkEvent::Connected(site) => Some(site),
                _ => None,
            })
            .await;
        missing.remove(&site);
    }
    let (b, silent) = others.split_first_mut().expect("fourteen");
    // A pull of each, and four requests for parts: one more than all that may be under way.
    for (to, id) in silent
        .iter()
        .flat_map(|of| (10..15).map(|id| (of.site(), id)))
    {
        let bytes = vec![1];
        a.send(NetworkCommand::Request { to, id, bytes }).await;
    }
    let (outcome, _) = tokio::join!(a.ask(b.handle.site(), vec![1]), b.answer(vec![2]));
    assert_eq!(outcome, Ok(vec![2]));
}

/// Only TCP is counted at its sockets.
#[cfg(not(feature = "quic"))]
#[tokio::test]
async fn sockets_count_all_that_passes_them_once() {
    let (mut a, mut b) = connected_pair().await;
    let before = (a.handle.stats(), b.handle.stats());
    let request = vec![7; 1 << 19];
    let (outcome, _) = tokio::join!(a.ask(b.handle.site(), request), b.answer(vec![8; 1 << 16]));
    assert!(outcome.is_ok());
    // Noise and yamux put some forty bytes around each 16 KiB and more around a stream.
    let fits =
        |bytes: u64, payload: u64| bytes >= payload && bytes < payload + payload / 16 + 65_536;
    for (node, before, received, sent) in [
        (&a, &before.0, 1 << 16, 1 << 19),
        (&b, &before.1, 1 << 19, 1 << 16),
    ] {
        node.until_stats(|stats| {
            fits(
                stats.wire_received_bytes - before.wire_received_bytes,
                received,
            ) && fits(stats.wire_sent_bytes - before.wire_sent_bytes, sent)
        })
        .await;
    }
}
