//! Who hears what, and who must not.

use super::*;

#[tokio::test]
async fn gossip_reaches_a_third_node_through_the_mesh() {
    let (a, mut b, mut c) = (
        Node::start(1).await,
        Node::start(2).await,
        Node::start(3).await,
    );
    a.meet(&[&b]).await;
    b.allow(&[&a, &c]).await;
    c.meet(&[&b]).await;
    for node in [&a, &b, &c] {
        node.subscribe(&[&a, &b, &c]).await;
    }
    let forwarding = async {
        loop {
            b.hear().await;
        }
    };
    tokio::select! {
        heard = gossip_until_heard(&a, &mut c, 1) => assert_eq!(heard[0], 1),
        () = forwarding => {}
    }
}

#[tokio::test]
async fn gossip_stays_within_the_vo_until_membership_changes() {
    let (a, mut b, mut guest) = (
        Node::start(1).await,
        Node::start(2).await,
        Node::start(3).await,
    );
    a.meet(&[&b, &guest]).await;
    b.meet(&[&a, &guest]).await;
    guest.meet(&[&a, &b]).await;
    a.subscribe(&[&a, &b]).await;
    b.subscribe(&[&a, &b]).await;
    guest.subscribe(&[&a, &b, &guest]).await;
    let mut absent = sites(&[&a, &b]);
    guest
        .until(|event| {
            if let NetworkEvent::Connected(site) = event {
                absent.remove(&site);
            }
            absent.is_empty().then_some(())
        })
        .await;
    let outside = async {
        guest.hear().await;
    };
    let inside = async {
        for tag in 0..5 {
            gossip_until_heard(&a, &mut b, tag).await;
        }
    };
    tokio::select! {
        () = inside => {}
        () = outside => panic!("gossip left the VO"),
    }
    a.subscribe(&[&a, &b, &guest]).await;
    assert_eq!(gossip_until_heard(&a, &mut guest, 9).await[0], 9);
}

#[tokio::test]
async fn a_slow_consumer_loses_gossip_and_no_answers() {
    let (mut a, mut b) = connected_pair().await;
    a.subscribe(&[&a, &b]).await;
    b.subscribe(&[&a, &b]).await;
    gossip_until_heard(&a, &mut b, 0).await;
    let to = a.site();
    for round in 0..20_u64 {
        for number in 0..100_u64 {
            a.publish([round, number, 1].map(u64::to_be_bytes).concat())
                .await;
        }
        // The answer to a question shows that this round has passed.
        b.send(NetworkCommand::Request {
            to,
            id: round,
            bytes: vec![],
        })
        .await;
        a.answer(vec![]).await;
    }
    b.until_stats(|stats| stats.gossip_dropped > 0).await;
    for expected in 0..20 {
        let id = b
            .until(|event| match event {
                NetworkEvent::Response {
                    id, result: Ok(_), ..
                } => Some(id),
                _ => None,
            })
            .await;
        assert_eq!(id, expected);
    }
}
