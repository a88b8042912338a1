//! Who gets in, who comes back, and how it ends.

use libp2p::multiaddr::Protocol;

use super::*;

#[tokio::test]
async fn a_peer_that_called_is_called_back_where_it_says_it_is() {
    // Nobody but the first node itself tells the second where that one is.
    let (mut a, mut b) = connected_pair().await;
    let (outcome, _) = tokio::join!(b.ask(a.handle.site(), vec![1]), a.answer(vec![2]));
    assert_eq!(outcome, Ok(vec![2]));
    a.send(NetworkCommand::Peers(BTreeMap::new())).await;
    a.allow(&[]).await;
    a.until_disconnected(b.site()).await;
    b.until_disconnected(a.site()).await;
    a.allow(&[&b]).await;
    b.until_connected(a.site()).await;
}

#[tokio::test]
async fn a_stranger_is_refused_and_never_counts_as_connected() {
    let (a, mut b, mut stranger) = (
        Node::start(1).await,
        Node::start(2).await,
        Node::start(3).await,
    );
    a.allow(&[&b]).await;
    stranger.meet(&[&a]).await;
    a.until_stats(|stats| stats.connections_refused >= 3).await;
    let gate = a.site();
    stranger
        .until_stats(|stats| {
            let gate = stats.peers.get(&gate);
            gate.is_some_and(|gate| gate.dials_failed >= 3)
        })
        .await;
    assert!(stranger.ask(a.site(), vec![1]).await.is_err());
    let seen: Vec<NetworkEvent> = std::iter::from_fn(|| stranger.events.try_recv().ok()).collect();
    assert!(!seen.contains(&NetworkEvent::Connected(a.site())));
    b.meet(&[&a]).await;
    b.until_connected(a.site()).await;
}

#[tokio::test]
async fn who_is_no_longer_allowed_is_disconnected() {
    let (mut a, mut b) = connected_pair().await;
    a.allow(&[]).await;
    a.until_disconnected(b.site()).await;
    b.until_disconnected(a.site()).await;
    let outcome = a.ask(b.site(), vec![1]).await;
    assert_eq!(outcome, Err(RequestFailure::NotConnected));
    a.allow(&[&b]).await;
    a.until_connected(b.site()).await;
}

#[tokio::test]
async fn a_former_member_is_answered_for_a_moment_and_then_refused() {
    let (mut a, mut former) = connected_pair().await;
    let site = a.site();
    a.send(NetworkCommand::Former(sites(&[&former]))).await;
    a.allow(&[]).await;
    let (outcome, _) = tokio::join!(former.ask(site, vec![1]), a.answer(vec![2]));
    assert_eq!(outcome, Ok(vec![2]));
    former.until_disconnected(site).await;
    let refused = a.handle.stats.borrow().connections_refused;
    a.until_stats(|stats| stats.connections_refused > refused)
        .await;
    assert!(former.ask(site, vec![1]).await.is_err());
}

#[tokio::test]
async fn blocking_cuts_and_healing_reconnects_at_once() {
    let (mut a, mut b) = connected_pair().await;
    a.send(NetworkCommand::Block(sites(&[&b]))).await;
    b.send(NetworkCommand::Block(sites(&[&a]))).await;
    a.until_disconnected(b.site()).await;
    b.until_disconnected(a.site()).await;
    let outcome = a.ask(b.site(), vec![1]).await;
    assert_eq!(outcome, Err(RequestFailure::NotConnected));
    b.send(NetworkCommand::Block(BTreeSet::new())).await;
    a.send(NetworkCommand::Block(BTreeSet::new())).await;
    a.until_connected(b.site()).await;
    b.until_connected(a.site()).await;
    let (outcome, _) = tokio::join!(a.ask(b.handle.site(), vec![1]), b.answer(vec![2]));
    assert_eq!(outcome, Ok(vec![2]));
}

#[tokio::test]
async fn one_side_that_blocks_is_enough() {
    let (mut a, mut b) = connected_pair().await;
    a.send(NetworkCommand::Block(sites(&[&b]))).await;
    b.until_disconnected(a.site()).await;
    b.meet(&[&a]).await;
    a.until_stats(|stats| stats.connections_refused >= 2).await;
    a.send(NetworkCommand::Block(BTreeSet::new())).await;
    a.until_connected(b.site()).await;
}

#[tokio::test]
async fn dialling_each_other_at_once_leaves_a_connection() {
    for _ in 0..5 {
        let (mut a, mut b) = (Node::start(1).await, Node::start(2).await);
        let (to_a, to_b) = ([&b], [&a]);
        tokio::join!(a.meet(&to_a), b.meet(&to_b));
        a.until_connected(b.handle.site()).await;
        b.until_connected(a.handle.site()).await;
        let (outcome, _) = tokio::join!(a.ask(b.handle.site(), vec![1]), b.answer(vec![2]));
        assert_eq!(outcome, Ok(vec![2]));
        let (outcome, _) = tokio::join!(b.ask(a.handle.site(), vec![1]), a.answer(vec![2]));
        assert_eq!(outcome, Ok(vec![2]));
    }
}

#[tokio::test]
async fn a_peer_that_restarts_elsewhere_is_found_again() {
    let (mut a, b) = connected_pair().await;
    b.handle.shutdown().await;
    a.until_disconnected(b.site()).await;
    let b = Node::start(2).await;
    b.allow(&[&a]).await;
    a.meet(&[&b]).await;
    a.until_connected(b.site()).await;
}

/// Opens a connection from an address, says nothing, and comes again whenever it is turned away.
#[cfg(not(feature = "quic"))]
async fn besiege(gate: std::net::SocketAddr, from: u8) -> std::io::Result<()> {
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    loop {
        pace.tick().await;
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind((std::net::Ipv4Addr::new(127, 0, 0, from), 0).into())?;
        if let Ok(mut stream) = socket.connect(gate).await {
            // Whatever ends it.
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    }
}

#[cfg(not(feature = "quic"))]
#[tokio::test]
async fn a_member_that_restarts_is_let_in_whatever_strangers_open() {
    let (mut a, b) = connected_pair().await;
    let port = a.address.iter().find_map(|part| match part {
        Protocol::Tcp(port) => Some(port),
        _ => None,
    });
    let gate = (std::net::Ipv4Addr::LOCALHOST, port.expect("a port")).into();
    let mut siege = tokio::task::JoinSet::new();
    for from in 2..=101 {
        siege.spawn(besiege(gate, from));
    }
    a.until_stats(|stats| stats.connections_refused >= 300)
        .await;
    b.handle.shutdown().await;
    a.until_disconnected(b.site()).await;
    let mut b = Node::start(2).await;
    b.meet(&[&a]).await;
    b.until_connected(a.site()).await;
    // At its first dial.
    b.until_stats(|stats| {
        let of_a = stats.peers.get(&a.handle.site());
        of_a.is_some_and(|of| of.connected && of.dials_failed == 0)
    })
    .await;
    assert!(siege.try_join_next().is_none(), "it goes on");
}

#[tokio::test]
async fn shutting_down_ends_everything() {
    let (a, mut b) = connected_pair().await;
    a.handle.shutdown().await;
    let mut events = a.events;
    timeout(PATIENCE, async { while events.recv().await.is_some() {} })
        .await
        .expect("the end of events");
    assert_eq!(
        a.handle.send(NetworkCommand::Shutdown).await,
        Err(NetworkClosed)
    );
    a.handle.shutdown().await;
    b.until_disconnected(a.handle.site()).await;
    let local = std::net::Ipv4Addr::LOCALHOST;
    let again = a.address.iter().find_map(|part| match part {
        Protocol::Tcp(port) => Some(std::net::TcpListener::bind((local, port)).map(drop)),
        Protocol::Udp(port) => Some(std::net::UdpSocket::bind((local, port)).map(drop)),
        _ => None,
    });
    let again = again.expect("an address has a port");
    assert!(again.is_ok(), "the port is free: {again:?}");
}

#[tokio::test]
async fn an_address_in_use_or_unknown_is_an_error_at_once() {
    let taken = Node::start(1).await;
    for (address, expected) in [
        (taken.address.to_string(), "in use"),
        ("/ip4/127.0.0.1/udp/0/quic-v1".to_owned(), "feature `quic`"),
        ("/memory/1".to_owned(), "of the form"),
    ] {
        if cfg!(feature = "quic") && address.contains("quic") {
            continue;
        }
        let config = NetworkConfig {
            listen: vec![address.parse().unwrap()],
            ..NetworkConfig::default()
        };
        let error = start(config, [2; 32]).unwrap_err().to_string();
        assert!(
            error.contains(&address) && error.contains(expected),
            "{error}"
        );
    }
}
