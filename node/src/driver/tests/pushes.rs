//! A head that a member pushes without its content, and who hears of it.

use fairmesh_gossip::wire::{HeadContent, HeadItem, Probe, PullAnswer, Push, Request, Response};
use fairmesh_gossip::{Head, Kinds, PartKey, Replica};
use fairmesh_model::{Counters, Incarnation, Span};

use super::*;
use crate::network::NetworkCommand;

/// Its parts are what the test makes them.
struct Anything;

impl Kinds for Anything {
    fn check(&self, _: &Head, _: &PartKey, _: &[u8]) -> Result<u32, String> {
        Ok(0)
    }
}

/// A member that runs nothing but the network.
struct Member {
    key: SigningKey,
    handle: NetworkHandle,
    events: mpsc::Receiver<NetworkEvent>,
    address: libp2p::Multiaddr,
}

impl Member {
    async fn start(secret: [u8; 32]) -> Self {
        let (handle, mut events) = crate::network::start(quick(), secret).expect("starts");
        let address = loop {
            if let NetworkEvent::Listening(address) = events.recv().await.expect("runs") {
                break address;
            }
        };
        let key = SigningKey::from_secret(&secret);
        Self {
            key,
            handle,
            events,
            address,
        }
    }

    async fn send(&self, command: NetworkCommand) {
        self.handle.send(command).await.expect("runs");
    }

    fn listed(&self) -> MemberSite {
        MemberSite {
            site: self.key.site_id(),
            name: self.key.site_id().short().to_string(),
            cores: 1_000,
            gpus: None,
            mem_gib: None,
            addresses: Vec::new(),
        }
    }
}

fn quick() -> NetworkConfig {
    NetworkConfig {
        listen: vec!["/ip4/127.0.0.1/tcp/0".parse().expect("an address")],
        gossip_heartbeat: Duration::from_millis(100),
        ..NetworkConfig::default()
    }
}

/// The next first head of the member, as it is pushed, and as it is answered with.
fn sign(member: &Member, vo: VoId, at: WallTime, incarnation: u64) -> (Vec<u8>, HeadItem) {
    let span = Span::Window(WindowLength::HOUR.window_at(at));
    let path = AccountPath::parse("/ann").expect("a path");
    let counters = Counters {
        charge: incarnation,
        cpu_ms: incarnation,
        ..Counters::default()
    };
    let rows = [(&path, Incarnation(incarnation), counters)];
    let tables = fairmesh_usage::cut(span, rows.into_iter(), 60_000).into_iter();
    let parts = tables.map(|(slice, bytes)| (PartKey::new(1, &slice.to_bytes()), bytes));
    let parts: Vec<_> = parts.collect();
    let mut replica = Replica::new(vo, member.key.site_id());
    let changes = parts
        .iter()
        .map(|(key, bytes)| (key.clone(), Some(bytes.clone())));
    let of = Incarnation(incarnation);
    let (_, push) = replica.publish(&Anything, &member.key, of, at, changes.collect());
    let Ok(Push::Head(head, None)) = Push::from_bytes(&push) else {
        panic!("the first comes without its content");
    };
    let parts = parts.into_iter().map(|(key, bytes)| (key, bytes.into()));
    let content = HeadContent::Whole(parts.collect());
    (push, HeadItem { head, content })
}

/// Answers as a member does that holds what the asker does and this head.
fn answer(request: &[u8], item: Option<&HeadItem>) -> Response {
    match Request::from_bytes(request).expect("an honest request") {
        Request::Probe(Probe { at, mut vos }) => {
            if item.is_some() {
                vos.iter_mut()
                    .for_each(|(_, summary)| summary.heads = [7; 32]);
            }
            Response::Probe(Probe { at, vos })
        }
        Request::Pull(_) => Response::Pull(PullAnswer {
            heads: item.cloned().into_iter().collect(),
            ..PullAnswer::default()
        }),
        Request::Parts { .. } => Response::Parts(Vec::new()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_pushed_without_its_content_is_passed_on_once_that_has_come() {
    let (mut a, mut c) = (Member::start([1; 32]).await, Member::start([2; 32]).await);
    let now = SystemClock::start().now().wall;
    let mut charter = charter(now).claimed().clone();
    charter.sites.extend([a.listed(), c.listed()]);
    charter.sites.sort_by_key(|member| member.site);
    let charter = Signed::sign(charter, &[&SigningKey::from_secret(&[9; 32])]).expect("valid");
    let vo = charter.vo();
    // A and C are connected to B alone.
    let members = charter.claimed().sites.iter().map(|member| member.site);
    let members: std::collections::BTreeSet<SiteId> = members.collect();
    let b = SigningKey::from_secret(&SECRET).site_id();
    for member in [&a, &c] {
        member.send(NetworkCommand::Allow([b].into())).await;
        let (topic, members) = (vo, members.clone());
        member
            .send(NetworkCommand::Subscribe { topic, members })
            .await;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let peers = [&a, &c].map(|of| (of.key.site_id(), vec![of.address.clone()]));
    let network = NetworkConfig {
        peers: peers.into(),
        ..quick()
    };
    let running = node_with(dir.path(), vo, network).await;
    publish(&running, &charter).await;
    let signer = a.key.site_id();
    // Of each incarnation the first head, until C hears of one: the mesh forms in its own time.
    let chatter = async {
        let mut pace = tokio::time::interval(Duration::from_secs(1));
        let (mut incarnation, mut item) = (0, None);
        loop {
            tokio::select! {
                _ = pace.tick() => {
                    incarnation += 1;
                    let (bytes, signed) = sign(&a, vo, now, incarnation);
                    item = Some(signed);
                    a.send(NetworkCommand::Publish { topic: vo, bytes }).await;
                }
                event = a.events.recv() => if let Some(NetworkEvent::Request { from, channel, bytes }) = event {
                    let bytes = answer(&bytes, item.as_ref()).to_bytes();
                    a.send(NetworkCommand::Respond { to: from, channel, bytes }).await;
                },
            }
        }
    };
    let by_a = |bytes: &[u8]| match Push::from_bytes(bytes) {
        Ok(Push::Head(head, _)) => {
            let head = Signed::<Head>::parse(&head).expect("a head");
            head.claimed().site == signer
        }
        _ => false,
    };
    let heard = async {
        loop {
            match c.events.recv().await.expect("runs") {
                NetworkEvent::Gossip { bytes, from, .. } if by_a(&bytes) => return from,
                NetworkEvent::Request {
                    from,
                    channel,
                    bytes,
                } => {
                    let bytes = answer(&bytes, None).to_bytes();
                    c.send(NetworkCommand::Respond {
                        to: from,
                        channel,
                        bytes,
                    })
                    .await;
                }
                _ => {}
            }
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(12), async {
        tokio::select! {
            from = heard => from,
            () = chatter => unreachable!("it goes on for ever"),
        }
    });
    assert_eq!(heard.await.expect("in time"), b);
    running.stop().await;
}
