//! A peer that trickles what it was asked for: a request ends, whatever has come by then, and others are served.

use std::io;

use futures::StreamExt as _;
use futures::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use libp2p::identity::Keypair;
use libp2p::request_response::{self, Codec, Event, Message, ProtocolSupport};
use libp2p::{StreamProtocol, Swarm, SwarmBuilder};

use super::*;
use crate::network::codec::PROTOCOL;

/// Answers with a byte now and then, for ever: always faster than anything that waits for a byte gives up.
#[derive(Debug, Clone, Default)]
struct Trickle;

impl Codec for Trickle {
    type Protocol = StreamProtocol;
    type Request = ();
    type Response = ();

    async fn read_request<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<()>
    where
        T: AsyncRead + Unpin + Send,
    {
        io.read_exact(&mut [0; 5]).await
    }

    async fn read_response<T>(&mut self, _: &StreamProtocol, _: &mut T) -> io::Result<()>
    where
        T: AsyncRead + Unpin + Send,
    {
        Ok(())
    }

    async fn write_request<T>(&mut self, _: &StreamProtocol, _: &mut T, (): ()) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        Ok(())
    }

    async fn write_response<T>(&mut self, _: &StreamProtocol, io: &mut T, (): ()) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        io.write_all(&1_000_000_u32.to_be_bytes()).await?;
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        loop {
            pace.tick().await;
            io.write_all(&[0]).await?;
            io.flush().await?;
        }
    }
}

/// A peer that speaks nothing but this, and where it listens.
async fn trickling(number: u8) -> (Swarm<request_response::Behaviour<Trickle>>, Multiaddr) {
    let keypair = Keypair::ed25519_from_bytes([number; 32]).expect("a key");
    let protocol = (StreamProtocol::new(PROTOCOL), ProtocolSupport::Full);
    let patient = request_response::Config::default().with_request_timeout(PATIENCE * 2);
    let mut swarm = SwarmBuilder::with_existing_identity(keypair)
        .with_tokio()
        .with_tcp(
            libp2p::tcp::Config::default(),
            libp2p::noise::Config::new,
            libp2p::yamux::Config::default,
        )
        .expect("a transport")
        .with_behaviour(|_| request_response::Behaviour::with_codec(Trickle, [protocol], patient))
        .expect("a behaviour")
        .build();
    swarm
        .listen_on("/ip4/127.0.0.1/tcp/0".parse().expect("an address"))
        .expect("it listens");
    loop {
        if let libp2p::swarm::SwarmEvent::NewListenAddr { address, .. } =
            swarm.select_next_some().await
        {
            return (swarm, address);
        }
    }
}

#[tokio::test]
async fn a_peer_that_trickles_an_answer_is_given_up_and_others_are_asked() {
    let config = NetworkConfig {
        request_timeout: Duration::from_secs(1),
        ..Node::config()
    };
    let (mut a, mut b) = (Node::start_with(1, config).await, Node::start(2).await);
    let (mut swarm, address) = trickling(3).await;
    let slow = site_of(*swarm.local_peer_id()).expect("an Ed25519 key");
    tokio::spawn(async move {
        loop {
            if let libp2p::swarm::SwarmEvent::Behaviour(Event::Message {
                message: Message::Request { channel, .. },
                ..
            }) = swarm.select_next_some().await
            {
                swarm
                    .behaviour_mut()
                    .send_response(channel, ())
                    .expect("somebody waits");
            }
        }
    });
    let places = [
        (slow, vec![address.to_string()]),
        (b.site(), vec![b.address.to_string()]),
    ];
    a.send(NetworkCommand::Peers(places.into())).await;
    a.send(NetworkCommand::Allow([slow, b.site()].into())).await;
    b.allow(&[&a]).await;
    a.until_connected(b.site()).await;
    // It says nothing that it is not asked for, so it does not count as connected.
    a.until_stats(|stats| {
        let of_slow = stats.peers.get(&slow);
        of_slow.is_some_and(|of| of.connections > 0)
    })
    .await;
    assert_eq!(a.ask(slow, vec![7]).await, Err(RequestFailure::TimedOut));
    let (outcome, _) = tokio::join!(a.ask(b.handle.site(), vec![1]), b.answer(vec![2]));
    assert_eq!(outcome, Ok(vec![2]));
}
