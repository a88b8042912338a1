//! How long messages are on a node's connections: what is sent around their payloads.
//!
//! A push is a gossipsub RPC in protobuf, with the topic of its VO and nothing about its sender; its
//! name is the first 8 bytes of a hash. An exchange opens a stream, agrees on its protocol, and closes it. Both
//! go in frames of yamux and messages of Noise (libp2p 0.57; yamux 0.14, "Framing"; Noise, section 3).
//!
//! Invariant: lengths depend on the payload's length alone. Deliberately not here: TCP and IP below,
//! and what comes with a session and not with a message (handshakes, subscriptions, pings, grafts and
//! prunes, windows).

use super::Content;

/// `fm/` and the first bytes of a VO in hexadecimal digits.
const TOPIC: usize = 3 + 16;

/// The name of a push.
const ID: usize = 8;

/// Bytes for one name in the payload of a control message here.
pub(crate) const HASH: usize = 16;

/// A push that is longer in protobuf is announced before it is judged, so that nobody sends it again.
pub(crate) const ANNOUNCED_ABOVE: usize = 100;

/// `/multistream/1.0.0` and `/fairmesh/sync/1`, with their lengths and line ends.
const NEGOTIATION: usize = 20 + 18;

/// The length before a request or an answer.
const LENGTH: usize = 4;

/// A frame's header, and how much goes into one frame.
const YAMUX: (usize, usize) = (12, 16 << 10);

/// A message's length and its tag, and how much goes into one message.
const NOISE: (usize, usize) = (2 + 16, 65_535 - 1_024);

/// What a message takes on the wire, whose payload is so long.
pub(crate) fn length(content: Content, payload: usize) -> usize {
    let ids = payload / HASH * field(ID);
    match content {
        Content::Push { .. } => rpc(field(push_message(payload))),
        Content::DontWant => rpc(field(field(ids))),
        Content::Ask { .. } | Content::Answer { .. } => {
            written(NEGOTIATION) + written(LENGTH + payload) + written(0)
        }
    }
}

/// A push as protobuf has it.
pub(crate) fn push_message(payload: usize) -> usize {
    field(payload) + field(TOPIC)
}

fn rpc(length: usize) -> usize {
    written(varint(length) + length)
}

/// A field of bytes, with its tag and its length.
fn field(length: usize) -> usize {
    1 + varint(length) + length
}

fn varint(number: usize) -> usize {
    let bits = (usize::BITS - number.leading_zeros()).max(1) as usize;
    bits.div_ceil(7)
}

/// Bytes that are written to a stream at once; none, where it is closed.
fn written(length: usize) -> usize {
    let framed = length + YAMUX.0 * length.div_ceil(YAMUX.1).max(1);
    framed + NOISE.0 * framed.div_ceil(NOISE.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_formats() {
        let push = Content::Push { topic: 0 };
        // 1 + 2 + 300 of data, 1 + 1 + 19 of topic; 1 + 2 around the message, 2 before the RPC.
        assert_eq!(push_message(300), 324);
        assert_eq!(length(push, 300), 324 + 3 + 2 + 12 + 18);
        // Two names of 10 bytes each, in a list, in a control message, in an RPC.
        assert_eq!(
            length(Content::DontWant, 2 * HASH),
            20 + 2 + 2 + 1 + 12 + 18
        );
        let ask = Content::Ask { id: 0, life: 0 };
        assert_eq!(length(ask, 100), (38 + 30) + (104 + 30) + 30);
        assert_eq!((varint(0), varint(127), varint(128)), (1, 1, 2));
        // Five frames, two messages.
        assert_eq!(written(65_536 + 1), 65_537 + 5 * 12 + 2 * 18);
    }
}
