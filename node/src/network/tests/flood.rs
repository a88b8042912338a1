//! Members that flood with gossip of which nobody hears: of topics that nobody takes part in here, and the same again.

use super::slow::{Slow, slow_member};
use super::*;

/// Messages in one frame of gossipsub, and frames.
const MESSAGES: u64 = 500;
const FRAMES: u64 = 40;

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

/// Frames of messages of a topic, each another one or all the same.
fn flood(topic: &str, is_new: bool) -> Vec<u8> {
    let frame = |frame: u64| {
        let message = |number: u64| {
            let number = u64::from(is_new) * (frame * MESSAGES + number);
            let data = field(2, &number.to_be_bytes());
            field(2, &[data, field(4, topic.as_bytes())].concat())
        };
        let messages = (0..MESSAGES).flat_map(message).collect::<Vec<u8>>();
        [length(messages.len()), messages].concat()
    };
    (0..FRAMES).flat_map(frame).collect()
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
        let (writes, reads) = (flood(&topic, is_new), false);
        let flood = (Slow { writes, reads }, "/meshsub/1.1.0", 1);
        let is_barred = victim.until_stats(|stats| {
            stats.peers.get(&flooder).is_some_and(|peer| {
                let why = peer.over_budget.as_deref().unwrap_or_default();
                peer.throttled > 0 && peer.bars > 0 && why.contains("messages")
            }) && (stats.gossip_foreign > 0) == foreign
        });
        tokio::select! {
            () = is_barred => {}
            () = slow_member(2, flood, &victim) => {}
        }
    }
}
