//! What has come and is taken in bit by bit: documents from owners, and what peers' answers bring.
//!
//! A newcomer's answers are a megabyte of heads each, and a large policy takes longer to read than anybody
//! should wait for a look-up or an acknowledgement; so of answers some are taken in at a time, between
//! events, and large documents are read beside the site.
//!
//! Invariant: what peers bring is taken in in the order in which it came, and what owners hand in, too;
//! nothing more is asked for while anything waits, so what waits is bounded by the requests under way.

use std::collections::VecDeque;

use fairmesh_gossip::wire::SIGNED_BYTES;
use fairmesh_gossip::{Arrival, Replica};
use fairmesh_model::{SiteId, VoId};

use crate::tickets::Ticket;

/// Bytes of an answer that are taken in in one step: some 4,000 cells, a few milliseconds.
pub(crate) const STEP_BYTES: usize = 48 << 10;

/// Who brings a document.
#[derive(Debug, Clone)]
pub(crate) enum Bringer {
    /// Somebody here, who waits for a reply, and his name.
    Owner(Ticket, String),
    /// A peer, with those of a VO.
    Peer(SiteId, VoId),
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) handed_in: VecDeque<(Ticket, String, Vec<u8>)>,
    pub(crate) brought: VecDeque<(SiteId, VoId, Arrival)>,
    /// Who brought the document that is being read: nothing behind it is looked at before it is.
    pub(crate) reading: Option<Bringer>,
}

impl Inbox {
    /// Somebody here hands a document in.
    pub(crate) fn hand_in(&mut self, ticket: Ticket, by: String, bytes: Vec<u8>) {
        self.handed_in.push_back((ticket, by, bytes));
    }

    /// An answer of `from` has brought this.
    pub(crate) fn bring(&mut self, from: SiteId, arrivals: Vec<(VoId, Arrival)>) {
        let arrivals = arrivals.into_iter();
        let arrivals = arrivals.map(|(vo, arrival)| (from, vo, arrival));
        self.brought.extend(arrivals);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.handed_in.is_empty() && self.brought.is_empty() && self.reading.is_none()
    }

    /// Whether something could be taken in now.
    pub(crate) fn is_ready(&self) -> bool {
        self.reading.is_none() && !self.is_empty()
    }
}

/// Leaves as many parts as `room` bytes have, one at least. Returns the others.
pub(crate) fn split_off(arrival: &mut Arrival, room: usize) -> Option<Arrival> {
    let Arrival::Parts(id, parts) = arrival else {
        return None;
    };
    let mut bytes = 0;
    let fits = parts.iter().take_while(|part| {
        bytes += part.len();
        bytes <= room
    });
    let fits = fits.count().max(1);
    (fits < parts.len()).then(|| Arrival::Parts(*id, parts.split_off(fits)))
}

/// About as many bytes as taking it in goes through, beside what is `held` of its VO.
pub(crate) fn bytes_of(arrival: &Arrival, held: Option<&Replica>) -> usize {
    match arrival {
        Arrival::Document(bytes) => bytes.len().max(SIGNED_BYTES),
        Arrival::Head(item) => held.map_or(0, |held| held.cost_of(item)),
        Arrival::Parts(_, parts) => parts.iter().map(Vec::len).sum(),
        Arrival::Proof(..) => 2 * SIGNED_BYTES,
        Arrival::HeadsEnd => 0,
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_gossip::wire::{HeadContent, HeadItem};
    use fairmesh_gossip::{Head, Kinds, PARTS_MAX, PartKey};
    use fairmesh_model::{Incarnation, SigningKey, WallTime, cbor};
    use serde::Serialize;
    use serde_bytes::ByteBuf;

    use super::*;

    /// A delta as it travels.
    #[derive(Serialize)]
    struct Delta {
        b: (u64, u64),
        p: Vec<(PartKey, ByteBuf)>,
    }

    #[test]
    fn what_comes_packed_counts_as_what_it_unpacks_to() {
        // A frame of one block, which repeats one byte.
        let zeros = [0x28, 0xb5, 0x2f, 0xfd, 0x60, 0, 0xff, 3, 0, 8, 0];
        let name = |part: u16| PartKey::new(1, &part.to_be_bytes());
        let patches = (0..512).map(|part| (name(part), ByteBuf::from(zeros)));
        let delta = cbor::to_vec(&Delta {
            b: (1, 1),
            p: patches.collect(),
        });
        assert!(delta.len() < 16_000, "{} bytes", delta.len());
        let (head, content) = (
            ByteBuf::new(),
            HeadContent::Deltas(vec![ByteBuf::from(delta)]),
        );
        let item = Arrival::Head(HeadItem { head, content });
        let key = SigningKey::from_secret(&[1; 32]);
        let mut replica = Replica::new(VoId::from_bytes([7; 32]), key.site_id());
        assert!(bytes_of(&item, Some(&replica)) >= 32 << 20);
        let (head, content) = (ByteBuf::new(), HeadContent::Deltas(Vec::new()));
        let item = Arrival::Head(HeadItem { head, content });
        let signature = bytes_of(&item, Some(&replica));
        assert!(signature > 1_000, "its signature is checked");
        let document = Arrival::Document(ByteBuf::from([1]));
        assert_eq!(bytes_of(&document, None), signature);
        // What is told of a site as a difference is put beside all that is held of it.
        let parts =
            (0..PARTS_MAX).map(|part| (name(u16::try_from(part).expect("few")), Some(vec![1])));
        let (parts, of) = (parts.collect(), Incarnation(1));
        replica.publish(&Anything, &key, of, WallTime(1), parts);
        let head = replica.heads().next().expect("signed").bytes().to_vec();
        let (head, content) = (
            ByteBuf::from(head),
            HeadContent::Since(Vec::new(), Vec::new()),
        );
        let item = Arrival::Head(HeadItem { head, content });
        assert!(bytes_of(&item, Some(&replica)) > PARTS_MAX * 32);
    }

    /// Whoever tries this takes any part.
    struct Anything;

    impl Kinds for Anything {
        fn check(&self, _: &Head, _: &PartKey, _: &[u8]) -> Result<u32, String> {
            Ok(0)
        }
    }
}
