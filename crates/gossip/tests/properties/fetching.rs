//! What is fetched first.

use std::collections::BTreeMap;

use fairmesh_gossip::wire::{HeadContent, HeadItem, Request, RequestId};
use fairmesh_gossip::{
    Absorbed, Gossip, HEAD_BYTES_MAX, Head, Intervals, ManifestRow, PART_BYTES_MAX, PartKey,
};
use fairmesh_model::{ContentHash, Incarnation, Millis, Seq, Signed, SiteId, VoId, WallTime};

use crate::support::{Node, Plain, VO, key, received, site};

/// A head of one part of each of these lengths, told by its manifest.
fn told(of: u8, lengths: &[usize]) -> HeadItem {
    let parts = lengths.iter().map(|len| (ContentHash::of(&[of]), *len));
    told_by(of, (1, 1), parts)
}

/// A head of parts of these hashes and lengths, told by its manifest.
fn told_by(
    of: u8,
    (incarnation, seq): (u64, u64),
    parts: impl Iterator<Item = (ContentHash, usize)>,
) -> HeadItem {
    let rows: Vec<ManifestRow> = (0..)
        .zip(parts)
        .map(|(part, (hash, len)): (u16, _)| {
            let name = PartKey::new(1, &part.to_be_bytes());
            let len = u32::try_from(len).expect("parts are short");
            (name, hash, len)
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
        incarnation: Incarnation(incarnation),
        seq: Seq(seq),
        at: WallTime(1_000_000),
        root: ContentHash::of(&manifest),
        covers: Vec::new(),
    };
    let signed = Signed::sign(head, &[&key(of)]).expect("well-formed");
    let head = serde_bytes::ByteBuf::from(signed.bytes().to_vec());
    let content = HeadContent::Manifest(rows);
    HeadItem { head, content }
}

pub(crate) fn gossip_with(peer: SiteId) -> Gossip {
    let intervals = Intervals {
        sync: Millis(1_000),
        request_timeout: Millis(1_000),
    };
    let mut gossip = Gossip::new(intervals, 1);
    gossip.connected(peer);
    gossip
}

/// Names of parts that are asked for now, and of whose heads, each with the number of its request.
fn asked_for(
    gossip: &mut Gossip,
    vos: &mut BTreeMap<VoId, Node>,
    mono: u64,
) -> Vec<(RequestId, SiteId, PartKey)> {
    let mut asked = Vec::new();
    for out in gossip.tick(received(mono).now, vos) {
        if let Ok(Request::Parts { wanted, .. }) = Request::from_bytes(&out.bytes) {
            for (of, _, names) in wanted {
                asked.extend(names.into_iter().map(|name| (out.id, of, name)));
            }
        }
    }
    asked
}

#[test]
fn a_part_that_is_not_as_long_as_was_signed_is_not_kept() {
    let (long, short) = (vec![7; PART_BYTES_MAX], b"short".to_vec());
    let head = |seq, lengths: [usize; 2]| {
        let hashes = [&long, &short].map(|part| ContentHash::of(part));
        told_by(1, (1, seq), hashes.into_iter().zip(lengths))
    };
    let mut vos = BTreeMap::from([(VO, Node::new(0, 4))]);
    let mut gossip = gossip_with(site(2));
    // A part that came as it was signed in one head is not in the next one's way, either.
    for (mono, seq, lengths, asks) in [
        (0, 1, [10, short.len()], 2),
        (2_000, 1, [10, short.len()], 1),
        (4_000, 2, [10, 10], 2),
    ] {
        let replica = &mut vos.get_mut(&VO).expect("there").replica;
        let taken = replica.take_item(&Plain, received(mono), site(2), head(seq, lengths));
        assert!(matches!(taken, Ok(Absorbed::Wanted)), "{taken:?}");
        let asked = asked_for(&mut gossip, &mut vos, mono);
        assert_eq!(asked.len(), asks, "{asked:?}");
        let replica = &mut vos.get_mut(&VO).expect("there").replica;
        let parts = vec![long.clone(), short.clone()];
        let whole = replica.take_parts(&Plain, received(mono).now.mono, site(2), asked[0].0, parts);
        assert!(whole.is_empty(), "{whole:?}");
    }
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
        let taken = node.replica.take_item(&Plain, received(0), from, item);
        assert!(matches!(taken, Ok(Absorbed::Wanted)), "{taken:?}");
    };
    others
        .iter()
        .for_each(|liar| take(told(*liar, &vec![PART_BYTES_MAX; parts])));
    take(told(honest, &[10]));
    let mut gossip = gossip_with(from);
    let out = gossip.tick(received(0).now, &mut BTreeMap::from([(VO, node)]));
    let asked = out
        .iter()
        .filter_map(|out| match Request::from_bytes(&out.bytes) {
            Ok(Request::Parts { wanted, .. }) => Some(wanted),
            _ => None,
        });
    let asked: Vec<_> = asked.flatten().map(|(of, ..)| of).collect();
    assert!(asked.contains(&from), "{asked:?}");
}

#[test]
fn members_that_give_a_part_a_minute_do_not_keep_a_larger_head_away_for_good() {
    let mut sites: Vec<u8> = (1..10).collect();
    sites.sort_by_key(|other| site(*other));
    // Seven of them take all that is fetched at a time, one waits, and so does the honest site, which is the last.
    let honest = sites.pop().expect("there are some");
    let part = |of: u8, number: u8| [&[of, number][..], &[0; PART_BYTES_MAX - 2]].concat();
    let head = |of: u8| {
        // Those parts that are given are true ones.
        let hash = move |number: u8| match number {
            0..25 => ContentHash::of(&part(of, number)),
            _ => ContentHash::of(&[of, number]),
        };
        let parts = if of == honest { 147 } else { 146 };
        told_by(
            of,
            (1, 1),
            (0..parts).map(move |number| (hash(number), PART_BYTES_MAX)),
        )
    };
    let heads: BTreeMap<u8, HeadItem> = (1..10).map(|of| (of, head(of))).collect();
    let mut gossip = gossip_with(site(honest));
    sites.iter().for_each(|liar| gossip.connected(site(*liar)));
    let mut vos = BTreeMap::from([(VO, Node::new(0, 10))]);
    let mut given = BTreeMap::new();
    let is_asked = (0..24).any(|round| {
        let mono = round * 50_000;
        for (of, item) in &heads {
            let replica = &mut vos.get_mut(&VO).expect("there").replica;
            let taken = replica.take_item(&Plain, received(mono), site(*of), item.clone());
            assert!(matches!(taken, Ok(Absorbed::Wanted)), "{taken:?}");
        }
        let asked = asked_for(&mut gossip, &mut vos, mono);
        let replica = &mut vos.get_mut(&VO).expect("there").replica;
        for liar in &sites {
            let number = given.entry(*liar).or_insert(0);
            let name = PartKey::new(1, &u16::from(*number).to_be_bytes());
            let request = asked
                .iter()
                .find(|(_, of, asked)| *of == site(*liar) && *asked == name);
            if let Some((id, ..)) = request {
                let parts = vec![part(*liar, *number)];
                replica.take_parts(&Plain, received(mono).now.mono, site(*liar), *id, parts);
                *number += 1;
            }
        }
        asked.iter().any(|(_, of, _)| *of == site(honest))
    });
    assert!(is_asked);
    assert!(given.values().all(|given| *given > 0), "{given:?}");
}

#[test]
fn an_earlier_head_does_not_end_the_fetch_of_a_later_one() {
    for (of, seq) in [(1, 1), (1, 3), (2, 1)] {
        let mut vos = BTreeMap::from([(VO, Node::new(0, 4))]);
        let mut gossip = gossip_with(site(2));
        let part = b"one".to_vec();
        let offer = |vos: &mut BTreeMap<VoId, Node>, from, place, bytes: &[u8]| {
            let node = vos.get_mut(&VO).expect("there");
            let parts = std::iter::once((ContentHash::of(bytes), bytes.len()));
            let item = told_by(1, place, parts);
            let taken = node
                .replica
                .take_item(&Plain, received(0), site(from), item);
            assert!(matches!(taken, Ok(Absorbed::Wanted)), "{taken:?}");
        };
        offer(&mut vos, 2, (1, 2), &part);
        let asked = asked_for(&mut gossip, &mut vos, 0);
        offer(&mut vos, 3, (of, seq), b"nobody has it");
        let (now, id) = (received(0).now.mono, asked[0].0);
        let replica = &mut vos.get_mut(&VO).expect("there").replica;
        let came = replica.take_parts(&Plain, now, site(2), id, vec![part.clone()]);
        let is_taken = matches!(came[..], [Ok(Absorbed::Changed(_))]);
        assert_eq!(is_taken, (of, seq) == (1, 1), "{came:?}");
    }
}

#[test]
fn a_head_that_is_offered_and_never_given_is_fetched_for_a_minute() {
    let mut node = Node::new(0, 4);
    for mono in [0, 30_000, 59_000] {
        let item = told(1, &[10]);
        let taken = node
            .replica
            .take_item(&Plain, received(mono), site(3), item);
        assert!(matches!(taken, Ok(Absorbed::Wanted)), "{taken:?}");
    }
    let mut gossip = gossip_with(site(3));
    let mut vos = BTreeMap::from([(VO, node)]);
    gossip.tick(received(60_000).now, &mut vos);
    assert!(!vos[&VO].replica.is_fetching(site(1)));
}
