//! A peer that sends too much, or what is false, is throttled and disconnected; others are not.

use fairmesh_gossip::wire::Response;

use super::*;

#[tokio::test]
async fn a_peer_that_asks_without_end_is_throttled_then_disconnected_and_others_are_served() {
    let (mut a, mut b) = connected_pair().await;
    let mut c = Node::start(3).await;
    c.meet(&[&b]).await;
    b.allow(&[&a, &c]).await;
    b.until_connected(c.site()).await;
    c.until_connected(b.site()).await;
    let (to, greedy) = (b.site(), a.site());
    // As fast as it can, whatever it is told.
    let flood = async {
        loop {
            for id in 0..8 {
                let bytes = vec![1];
                a.send(NetworkCommand::Request { to, id, bytes }).await;
            }
            for _ in 0..8 {
                let gone = a.until(|event| match event {
                    NetworkEvent::Response { .. } => Some(false),
                    NetworkEvent::Disconnected(_) => Some(true),
                    _ => None,
                });
                if gone.await {
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = flood => {}
        () = async { loop { b.answer(vec![2]).await; } } => {}
    }
    b.until_stats(|stats| {
        stats.peers.get(&greedy).is_some_and(|peer| {
            let why = peer.over_budget.as_deref().unwrap_or_default();
            peer.barred && peer.bars == 1 && peer.throttled > 0 && why.contains("requests")
        })
    })
    .await;
    let (outcome, _) = tokio::join!(c.ask(to, vec![1]), b.answer(vec![3]));
    assert_eq!(outcome, Ok(vec![3]), "the others are served");
}

/// How often a node may ask another one before it is turned away, and what it has too many of.
async fn asked_until_turned_away(request: &[u8], answer: &[u8]) -> (usize, String) {
    let (mut a, mut b) = connected_pair().await;
    let (to, greedy) = (b.site(), a.site());
    let asking = async {
        let mut asked = 0;
        loop {
            match a.ask(to, request.to_vec()).await {
                Ok(_) => asked += 1,
                // What is too long to be sent.
                Err(_) if answer.len() > RESPONSE_BYTES_MAX && asked < 1_000 => asked += 1,
                Err(_) => break,
            }
        }
        asked
    };
    let answering = async {
        loop {
            b.answer(answer.to_vec()).await;
        }
    };
    let asked = timeout(PATIENCE, async {
        tokio::select! {
            asked = asking => asked,
            () = answering => unreachable!("it goes on"),
        }
    });
    let asked = asked.await.expect("it is turned away in time");
    let mut why = String::new();
    b.until_stats(|stats| {
        let peer = stats.peers.get(&greedy);
        why = peer
            .and_then(|peer| peer.over_budget.clone())
            .unwrap_or_default();
        !why.is_empty()
    })
    .await;
    (asked, why)
}

#[tokio::test]
async fn what_is_packed_is_charged_by_what_it_is_unpacked_asked_and_answered() {
    let zeros = vec![vec![0; RESPONSE_BYTES_MAX - 64].into()];
    let packed = Response::Parts(zeros).to_bytes();
    assert!(packed.len() < 1_000, "{} bytes", packed.len());
    // While this goes on, some of it is forgiven.
    let (asked, why) = asked_until_turned_away(&packed, &[2]).await;
    assert!((8..100).contains(&asked), "{asked}");
    assert!(why.ends_with("too many bytes"), "{why}");
    let (asked, why) = asked_until_turned_away(&[1], &packed).await;
    assert!((64..1_000).contains(&asked), "{asked}");
    assert!(why.ends_with("bytes of answers"), "{why}");
}

#[tokio::test]
async fn an_answer_that_is_too_long_to_be_sent_is_charged_all_the_same() {
    let too_long = vec![0; RESPONSE_BYTES_MAX + 1];
    let (_, why) = asked_until_turned_away(&[1], &too_long).await;
    assert!(why.ends_with("bytes of answers"), "{why}");
}

#[tokio::test]
async fn a_peer_whose_messages_are_rejected_is_disconnected_and_the_reason_is_told() {
    let (a, mut b) = connected_pair().await;
    for node in [&a, &b] {
        node.subscribe(&[&a, &b]).await;
    }
    let liar = a.site();
    let mut pace = tokio::time::interval(Duration::from_millis(1));
    let chatter = async {
        for number in 0_u64.. {
            pace.tick().await;
            a.publish(number.to_be_bytes().to_vec()).await;
        }
    };
    let judge = async {
        loop {
            let event = b.events.recv().await.expect("the network runs");
            match event {
                NetworkEvent::Gossip {
                    from, message_id, ..
                } => {
                    let verdict = Verdict::Reject;
                    b.send(NetworkCommand::ReportValidation {
                        message_id,
                        from,
                        verdict,
                    })
                    .await;
                }
                NetworkEvent::Disconnected(site) if site == liar => break,
                _ => {}
            }
        }
    };
    timeout(PATIENCE, async {
        tokio::select! {
            () = judge => {}
            () = chatter => {}
        }
    })
    .await
    .expect("it is disconnected in time");
    b.until_stats(|stats| {
        stats.peers.get(&liar).is_some_and(|peer| {
            let why = peer.over_budget.as_deref().unwrap_or_default();
            peer.barred && !peer.connected && why.contains("false")
        })
    })
    .await;
}
