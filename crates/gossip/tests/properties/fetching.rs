//! What is fetched first.

use std::collections::BTreeMap;

use fairmesh_gossip::wire::{HeadItem, Request, Told};
use fairmesh_gossip::{
    Absorbed, Gossip, HEAD_BYTES_MAX, Head, Intervals, ManifestRow, PART_BYTES_MAX, PartKey,
};
use fairmesh_model::{ContentHash, Incarnation, Millis, Seq, Signed, WallTime};

use crate::support::{Node, Plain, VO, key, seen, site};

/// A head of one part of each of these lengths, told by its manifest.
fn told(of: u8, lengths: &[usize]) -> HeadItem {
    let rows: Vec<ManifestRow> = (0..)
        .zip(lengths)
        .map(|(part, len): (u16, _)| {
            let name = PartKey::new(1, &part.to_be_bytes());
            let len = u32::try_from(*len).expect("parts are short");
            (name, ContentHash::of(&[of]), len)
        })
        .collect();
    let mut manifest = Vec::new();
    for (name, hash, len) in &rows {
        manifest.push(u8::try_from(name.as_bytes().len()).expect("short"));
        manifest.extend_from_slice(name.as_bytes());
        manifest.extend_from_slice(hash.as_bytes());
        manifest.extend_from_slice(&len.to_be_bytes());
    }
    let head = Head {
        vo: VO,
        site: site(of),
        incarnation: Incarnation(1),
        seq: Seq(1),
        at: WallTime(1_000_000),
        root: ContentHash::of(&manifest),
        covers: Vec::new(),
    };
    let signed = Signed::sign(head, &[&key(of)]).expect("well-formed");
    let head = serde_bytes::ByteBuf::from(signed.bytes().to_vec());
    let told = Told::Manifest(rows);
    HeadItem { head, told }
}

#[test]
fn members_that_sign_much_and_give_nothing_of_it_hold_nobody_up() {
    let mut node = Node::new(0, 8);
    let mut others: Vec<u8> = (1..8).collect();
    others.sort_by_key(|other| site(*other));
    // The one that would be the last to be asked for.
    let honest = others.pop().expect("there are some");
    let from = site(honest);
    let parts = usize::try_from(HEAD_BYTES_MAX).expect("small") / PART_BYTES_MAX;
    let mut take = |item| {
        let taken = node.replica.take_item(&Plain, seen(0), from, item);
        assert!(matches!(taken, Ok(Absorbed::Wanted)), "{taken:?}");
    };
    others
        .iter()
        .for_each(|liar| take(told(*liar, &vec![PART_BYTES_MAX; parts])));
    take(told(honest, &[10]));
    let intervals = Intervals {
        sync: Millis(1_000),
        request_timeout: Millis(1_000),
    };
    let mut gossip = Gossip::new(intervals, 1);
    gossip.connected(from);
    let out = gossip.tick(seen(0).now, &mut BTreeMap::from([(VO, node)]));
    let asked = out
        .iter()
        .filter_map(|out| match Request::from_bytes(&out.bytes) {
            Ok(Request::Parts { wanted, .. }) => Some(wanted),
            _ => None,
        });
    let asked: Vec<_> = asked.flatten().map(|(of, ..)| of).collect();
    assert!(asked.contains(&from), "{asked:?}");
}
