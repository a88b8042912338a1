//! Members that open streams and then take their time, and members that come in crowds.

use futures::StreamExt as _;
use futures::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use libp2p::request_response::{self, Codec, ProtocolSupport};
use libp2p::swarm::Swarm;
use libp2p::swarm::dial_opts::DialOpts;
use libp2p::{StreamProtocol, swarm};

use super::*;
use crate::network::codec::PROTOCOL;

/// Four times what a stream takes that nobody reads.
const ANSWER: usize = 1 << 20;

/// What a member does with a stream: it writes so much, and ends neither that nor the stream.
#[derive(Debug, Clone)]
pub(super) struct Slow {
    pub(super) writes: Vec<u8>,
    /// It ends what it has written, and reads nothing of the answer but that there is one.
    pub(super) reads: bool,
}

impl Codec for Slow {
    type Protocol = StreamProtocol;
    type Request = ();
    type Response = ();

    async fn read_request<T>(&mut self, _: &StreamProtocol, _: &mut T) -> std::io::Result<()>
    where
        T: AsyncRead + Unpin + Send,
    {
        std::future::pending().await
    }

    async fn read_response<T>(&mut self, _: &StreamProtocol, io: &mut T) -> std::io::Result<()>
    where
        T: AsyncRead + Unpin + Send,
    {
        // A stream on which it was turned away is of no use to it.
        io.read_exact(&mut [0]).await?;
        std::future::pending().await
    }

    async fn write_request<T>(
        &mut self,
        _: &StreamProtocol,
        io: &mut T,
        (): (),
    ) -> std::io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        io.write_all(&self.writes).await?;
        io.flush().await?;
        match self.reads {
            false => std::future::pending().await,
            true => Ok(()),
        }
    }

    async fn write_response<T>(
        &mut self,
        _: &StreamProtocol,
        _: &mut T,
        (): (),
    ) -> std::io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        Ok(())
    }
}

/// A member with the key of `number` that does nothing but that, on so many streams of a protocol.
pub(super) fn slow_member(
    number: u8,
    (slow, protocol, streams): (Slow, &'static str, usize),
    victim: &Node,
) -> impl Future<Output = ()> + use<> {
    let keypair = Keypair::ed25519_from_bytes(&mut [number; 32]).expect("a key");
    let (peer, address) = (peer_id_of(victim.site()), victim.address.clone());
    let protocol = (StreamProtocol::new(protocol), ProtocolSupport::Full);
    let config = request_response::Config::default()
        .with_request_timeout(Duration::from_secs(600))
        .with_max_concurrent_streams(64);
    let behaviour = request_response::Behaviour::with_codec(slow, [protocol], config);
    let transport = behaviour::transport(&keypair, &Arc::default()).expect("a transport");
    let id = keypair.public().to_peer_id();
    let swarm = swarm::Config::with_tokio_executor();
    let mut swarm = Swarm::new(transport, behaviour, id, swarm);
    async move {
        let there = DialOpts::peer_id(peer).addresses(vec![address]).build();
        swarm.dial(there).expect("an address");
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        let mut left = streams;
        loop {
            tokio::select! {
                _ = swarm.select_next_some() => {}
                _ = pace.tick(), if left > 0 && swarm.is_connected(&peer) => {
                    left -= 1;
                    swarm.behaviour_mut().send_request(&peer, ());
                }
            }
        }
    }
}

fn site(number: u8) -> SiteId {
    fairmesh_model::SigningKey::from_secret(&[number; 32]).site_id()
}

/// A node that gives a request two seconds and a stream four, with an honest member, and one that announces a request of
/// so many bytes and sends one.
async fn hold_up(announced: u32, reads: bool) {
    let writes = [&announced.to_be_bytes()[..], &[7]].concat();
    let slow = Slow { writes, reads };
    let hasty = NetworkConfig {
        request_timeout: Duration::from_secs(4),
        ..Node::config()
    };
    let mut victim = Node::start_with(1, hasty).await;
    let mut honest = Node::start(2).await;
    let members = [honest.site(), site(3)];
    victim.send(NetworkCommand::Allow(members.into())).await;
    honest.meet(&[&victim]).await;
    honest.until_connected(victim.site()).await;
    let member = tokio::spawn(slow_member(3, (slow, PROTOCOL, usize::MAX), &victim));
    let stats = victim.handle.stats.clone();
    let to = victim.handle.site();
    // Answers are large, so that no buffer takes them for a member that does not.
    let answers = async {
        loop {
            victim.answer(vec![9; ANSWER]).await;
        }
    };
    let served = async {
        let mut stats = stats;
        loop {
            // Whatever the other does, each question is answered.
            assert_eq!(honest.ask(to, vec![1]).await, Ok(vec![9; ANSWER]));
            let is_named = stats
                .borrow_and_update()
                .peers
                .get(&site(3))
                .is_some_and(|peer| {
                    let why = peer.over_budget.as_deref().unwrap_or_default();
                    peer.slow > 8 && peer.bars > 0 && why.contains("streams that it does not end")
                });
            if is_named {
                break;
            }
        }
    };
    timeout(PATIENCE * 4, async {
        tokio::select! {
            () = served => {}
            () = answers => {}
        }
    })
    .await
    .expect("it is named and disconnected");
    member.abort();
}

#[tokio::test]
async fn a_member_that_sends_slowly_is_named_and_disconnected_and_others_are_served() {
    hold_up(1_000_000, false).await;
}

#[tokio::test]
async fn a_member_that_reads_slowly_holds_eight_answers_and_is_disconnected() {
    hold_up(1, true).await;
}

#[tokio::test]
async fn members_that_come_in_crowds_leave_room_for_those_that_this_node_calls() {
    let few = NetworkConfig {
        limits: NetworkLimits {
            connections_max: 4,
            ..NetworkLimits::default()
        },
        ..Node::config()
    };
    let mut victim = Node::start_with(1, few).await;
    let mut crowd = Vec::new();
    for number in 2..8 {
        crowd.push(Node::start(number).await);
    }
    let honest = Node::start(9).await;
    let mut members: BTreeSet<SiteId> = crowd.iter().map(Node::site).collect();
    members.insert(honest.site());
    honest.allow(&[&victim]).await;
    victim.send(NetworkCommand::Allow(members)).await;
    for one in &crowd {
        one.meet(&[&victim]).await;
    }
    victim
        .until_stats(|stats| stats.connections == 3 && stats.connections_refused > 3)
        .await;
    // Where a charter says that it is.
    let address = vec![honest.address.to_string()];
    let peers = BTreeMap::from([(honest.site(), address)]);
    victim.send(NetworkCommand::Peers(peers)).await;
    victim.until_connected(honest.site()).await;
}
