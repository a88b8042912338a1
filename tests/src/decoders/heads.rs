//! A site's heads, as another one takes them: what a delta beside a true head does to a replica.
//!
//! Invariant: whatever stands beside a head that is truly signed, nothing but the content that its root
//! names comes into force.

use std::collections::BTreeSet;

use fairmesh_gossip::wire::Push;
use fairmesh_gossip::{Absorbed, Head, Kinds, PartKey, ReceivedAt, Replica};
use fairmesh_model::{Incarnation, Millis, MonoTime, Now, SigningKey, VoId, WallTime};

const VO: VoId = VoId::from_bytes([1; 32]);
const HISTORY: Millis = Millis::from_secs(86_400);

/// Parts of usage that are tables, as the site's own kinds check them.
struct Tables;

impl Kinds for Tables {
    fn check(&self, _: &Head, _: &PartKey, bytes: &[u8]) -> Result<u32, String> {
        fairmesh_usage::check(bytes).map_err(|error| error.to_string())
    }
}

/// Two heads of a site: the parts of the first, both as they are signed, and the delta between them.
pub(super) struct TwoHeads {
    pub(super) first: Vec<u8>,
    pub(super) part: (PartKey, Vec<u8>),
    pub(super) second: Vec<u8>,
    #[cfg(test)]
    pub(super) delta: Vec<u8>,
}

/// The site publishes a table of one cell, and then one with more in it.
pub(super) fn two_heads() -> TwoHeads {
    let key = key();
    let mut replica = Replica::new(VO, key.site_id());
    let name = PartKey::new(1, b"table");
    let mut publish = |charge: u8| {
        let parts = vec![(name.clone(), Some(table(charge)))];
        let (_, push) = replica.publish(&Tables, &key, Incarnation(1), WallTime(1), parts);
        Push::from_bytes(&push).expect("a site pushes its head")
    };
    let first = publish(7).head(None).expect("the first is whole");
    let next = publish(8);
    let second = next.head(Some(&first)).expect("the second follows");
    TwoHeads {
        part: (name, table(7)),
        second: second.bytes().to_vec(),
        #[cfg(test)]
        delta: match next {
            Push::Next(next) => next.delta(first.claimed()),
            other => panic!("a head behind another one: {other:?}"),
        },
        first: first.bytes().to_vec(),
    }
}

/// One account of one incarnation: one path without anything shared, one block, the charge's column.
pub(super) fn table(charge: u8) -> Vec<u8> {
    [&[1, 1, 0, 4][..], b"/ann", &[1, 1, 1, 1, charge]].concat()
}

/// Whether a member takes the second head with these bytes beside it.
pub(super) fn delta(bytes: &[u8]) -> bool {
    thread_local! {
        static HEADS: TwoHeads = two_heads();
    }
    HEADS.with(|heads| {
        let mut replica = Replica::new(VO, SigningKey::from_secret(&[8; 32]).site_id());
        replica.set_members(BTreeSet::from([key().site_id()]), HISTORY);
        let restored = replica.restore(&Tables, &heads.first, vec![heads.part.clone()]);
        restored.expect("it is whole");
        let received = ReceivedAt {
            now: Now {
                mono: MonoTime(1),
                wall: WallTime(1),
            },
            tolerance: Millis(1),
        };
        let taken = replica.take_push(
            &Tables,
            received,
            key().site_id(),
            &heads.second,
            Some(bytes),
        );
        matches!(taken, Ok(Absorbed::Changed(_)))
    })
}

pub(super) fn key() -> SigningKey {
    SigningKey::from_secret(&[7; 32])
}
