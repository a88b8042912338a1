//! Members that flood with gossip of which nobody hears: of topics that nobody takes part in here, and the same again.

use futures::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use libp2p::StreamProtocol;
use libp2p::request_response::Codec;

use super::slow::member_that;
use super::*;

/// Messages in one frame of gossipsub, and frames.
const MESSAGES: u64 = 500;
const FRAMES: u64 = 40;

/// Of which topic, and whether each message is another one.
#[derive(Debug, Clone)]
struct Flood {
    topic: String,
    is_new: bool,
}

/// A field of protobuf that holds bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2], &length(bytes.len())[..], bytes].concat()
}

fn length(mut of: usize) -> Vec<u8> {
    let mut digits = Vec::new();
    while of >= 0x80 {
        digits.push(u8::try_from(of & 0x7f).expect("seven bits") | 0x80);
        of >>= 7;
    }
    digits.push(u8::try_from(of).expect("seven bits"));
    digits
}

impl Flood {
    fn frame(&self, frame: u64) -> Vec<u8> {
        let message = |number: u64| {
            let number = if self.is_new {
                frame * MESSAGES + number
            } else {
                0
            };
            let data = field(2, &number.to_be_bytes());
            field(2, &[data, field(4, self.topic.as_bytes())].concat())
        };
        let messages = (0..MESSAGES).flat_map(message).collect::<Vec<u8>>();
        [length(messages.len()), messages].concat()
    }
}

impl Codec for Flood {
    type Protocol = StreamProtocol;
    type Request = ();
    type Response = ();

    async fn read_request<T>(&mut self, _: &StreamProtocol, _: &mut T) -> std::io::Result<()>
    where
        T: AsyncRead + Unpin + Send,
    {
        std::future::pending().await
    }

    async fn read_response<T>(&mut self, _: &StreamProtocol, _: &mut T) -> std::io::Result<()>
    where
        T: AsyncRead + Unpin + Send,
    {
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
        for frame in 0..FRAMES {
            io.write_all(&self.frame(frame)).await?;
        }
        io.flush().await?;
        std::future::pending().await
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

#[tokio::test]
async fn a_member_that_floods_with_what_nobody_hears_is_throttled_and_disconnected() {
    let ours = topics::topic_of(TOPIC).hash().into_string();
    for (topic, is_new, foreign) in [("x".to_owned(), true, true), (ours, false, false)] {
        let victim = Node::start(1).await;
        let flooder = fairmesh_model::SigningKey::from_secret(&[2; 32]).site_id();
        victim.send(NetworkCommand::Allow([flooder].into())).await;
        let members = [victim.site(), flooder].into();
        let subscribe = NetworkCommand::Subscribe {
            topic: TOPIC,
            members,
        };
        victim.send(subscribe).await;
        let flood = Flood { topic, is_new };
        let is_barred = victim.until_stats(|stats| {
            stats.peers.get(&flooder).is_some_and(|peer| {
                let why = peer.over_budget.as_deref().unwrap_or_default();
                peer.throttled > 0 && peer.bars > 0 && why.contains("messages")
            }) && (stats.gossip_foreign > 0) == foreign
        });
        tokio::select! {
            () = is_barred => {}
            () = member_that(2, (flood, "/meshsub/1.1.0", 1), &victim) => {}
        }
    }
}
