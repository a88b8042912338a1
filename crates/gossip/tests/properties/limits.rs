//! What is refused, bounded and named.

use std::collections::BTreeMap;

use fairmesh_gossip::wire::{
    HeadContent, HeadItem, PUSH_BYTES_MAX, PullAnswer, Push, Request, Response,
};
use fairmesh_gossip::{
    Absorbed, HEAD_ROWS_MAX, HEADS_A_MINUTE_MAX, Head, HeldRow, KEY_BYTES_MAX, Kinds,
    PART_BYTES_MAX, PARTS_MAX, PartKey, Refusal,
};
use fairmesh_model::{ContentHash, Incarnation, Millis, Seq, Signed, WallTime, cbor};
use serde::Serialize;
use serde_bytes::ByteBuf;

use crate::exchange::Net;
use crate::support::{HISTORY, Node, Plain, VO, key, received, site};

#[test]
fn a_delta_that_does_not_come_to_the_signed_root_changes_nothing() {
    let (mut a, mut b) = (Node::new(0, 2), Node::new(1, 2));
    let first = a.publish(0, 1, &[(1, Some(b"one"))]);
    // The first push has no base: it is pulled.
    assert!(matches!(b.take(&first), Ok(Absorbed::Bare(_))));
    let mut liar = Node::new(0, 2);
    liar.publish(0, 1, &[(1, Some(b"other"))]);
    let lie = liar.publish(0, 1, &[(2, Some(b"more"))]);
    a.publish(0, 1, &[(2, Some(b"more"))]);
    let before = b.holds();
    assert!(matches!(b.take(&lie), Ok(Absorbed::Gap)));
    assert_eq!(b.holds(), before);
}

#[test]
fn a_delta_on_a_head_of_another_incarnation_does_not_change_the_one_that_is_held() {
    let [mut one, mut two, mut again] = [(); 3].map(|()| Node::new(0, 2));
    let mut honest = Node::new(1, 2);
    one.publish(0, 1, &[(1, Some(b"one"))]);
    two.publish(0, 2, &[(2, Some(b"two"))]);
    give(&one, &mut honest);
    give(&two, &mut honest);
    let before = honest.holds();
    // The head behind the second one stands for the first one and a part more.
    again.publish(0, 2, &[(1, Some(b"one"))]);
    again.publish(0, 2, &[(3, Some(b"three"))]);
    let delta = cbor::to_vec(&AnyDelta {
        b: (Incarnation(1), Seq(1)),
        p: vec![(ByteBuf::from([1, 3]), packed(b"three"))],
        g: Vec::new(),
    });
    let head = last_of(&again);
    let replica = &mut honest.replica;
    let taken = replica.take_push(&Plain, received(0), site(0), head.bytes(), Some(&delta));
    assert!(matches!(taken, Ok(Absorbed::Gap)), "{taken:?}");
    assert_eq!(honest.holds(), before);
}

/// A delta as it travels, made by somebody who is not bound to names or sizes.
#[derive(Serialize)]
struct AnyDelta {
    b: (Incarnation, Seq),
    p: Vec<(ByteBuf, ByteBuf)>,
    g: Vec<ByteBuf>,
}

/// A node that holds head 1 of a site; the site's head 2, as it is signed, and as a push.
fn before_a_true_head() -> (Node, Vec<u8>, Vec<u8>) {
    let (mut a, mut b) = (Node::new(0, 2), Node::new(1, 2));
    let held = vec![(PartKey::new(1, &[1]), b"one".to_vec())];
    let one = a.publish(0, 1, &[(1, Some(b"one"))]);
    let two = a.publish(0, 1, &[(2, Some(b"two"))]);
    let head_of = |push: &[u8], last: Option<&Signed<Head>>| {
        let push = Push::from_bytes(push).expect("a push");
        push.head(last).expect("of a head")
    };
    let first = head_of(&one, None);
    let second = head_of(&two, Some(&first)).bytes().to_vec();
    b.replica
        .restore(&Plain, first.bytes(), held)
        .expect("whole");
    (b, second, two)
}

/// What a node that holds head 1 of a site makes of deltas that somebody puts beside its head 2.
fn take_beside_a_true_head(deltas: &[AnyDelta]) -> Vec<Result<Absorbed, Refusal>> {
    let (mut b, second, two) = before_a_true_head();
    let deltas: Vec<Vec<u8>> = deltas.iter().map(cbor::to_vec).collect();
    let item = HeadItem {
        head: ByteBuf::from(second.clone()),
        content: HeadContent::Deltas(deltas.iter().cloned().map(ByteBuf::from).collect()),
    };
    let mut taken = vec![b.replica.take_item(&Plain, received(0), site(0), item)];
    for delta in deltas {
        let taken_push = b
            .replica
            .take_push(&Plain, received(0), site(0), &second, Some(&delta));
        taken.push(taken_push);
    }
    assert_eq!(b.holds()[&site(0)].len(), 1, "head 1 stays in force");
    assert!(matches!(b.take(&two), Ok(Absorbed::Changed(_))));
    taken
}

#[test]
fn a_name_that_no_part_has_gets_no_further_than_its_decoder() {
    for length in [0, KEY_BYTES_MAX + 1, 300] {
        let delta = AnyDelta {
            b: (Incarnation(1), Seq(1)),
            p: vec![(ByteBuf::from(vec![1; length]), packed(b"two"))],
            g: Vec::new(),
        };
        for taken in take_beside_a_true_head(&[delta]) {
            assert!(matches!(taken, Ok(Absorbed::Gap)), "{taken:?}");
        }
    }
}

#[test]
fn deltas_that_unpack_to_more_than_any_head_holds_are_pulled_instead() {
    let empty = packed(&vec![0; PART_BYTES_MAX]);
    let names = |delta: u16| {
        (0..256u16).map(move |name| [&[1][..], &(delta << 9 | name).to_be_bytes()].concat())
    };
    let deltas: Vec<AnyDelta> = (0..8)
        .map(|delta| AnyDelta {
            b: (Incarnation(1), Seq(1)),
            p: names(delta)
                .map(|name| (ByteBuf::from(name), empty.clone()))
                .collect(),
            g: Vec::new(),
        })
        .collect();
    let sent: usize = deltas.iter().map(|delta| cbor::to_vec(delta).len()).sum();
    assert!(sent < PUSH_BYTES_MAX, "{sent} bytes would become 134 MB");
    for taken in take_beside_a_true_head(&deltas) {
        assert!(matches!(taken, Ok(Absorbed::Gap)), "{taken:?}");
    }
}

/// What becomes of deltas beside the head 2 of a site that stands for what head 1 does, where that is held.
fn take_beside_a_head_without_changes(deltas: &[AnyDelta]) -> Result<Absorbed, Refusal> {
    let (mut a, mut b) = (Node::new(0, 2), Node::new(1, 2));
    a.publish(0, 1, &[(1, Some(b"one"))]);
    give(&a, &mut b);
    a.publish_at(0, 1, 1_000_001, &[]);
    let deltas = deltas
        .iter()
        .map(|delta| ByteBuf::from(cbor::to_vec(delta)));
    let item = HeadItem {
        head: ByteBuf::from(last_of(&a).bytes().to_vec()),
        content: HeadContent::Deltas(deltas.collect()),
    };
    b.replica.take_item(&Plain, received(1), site(0), item)
}

#[test]
fn names_of_parts_that_never_were_change_nothing_and_are_few() {
    let names =
        |names: u16| (0..names).map(|name| ByteBuf::from([&[1][..], &name.to_be_bytes()].concat()));
    let delta = |patched, gone| AnyDelta {
        b: (Incarnation(1), Seq(1)),
        p: names(patched).map(|name| (name, packed(b""))).collect(),
        g: names(gone).collect(),
    };
    // They are said to have gone, or one delta brings them and the next one takes them away.
    for deltas in [vec![delta(0, 5_000)], vec![delta(900, 0), delta(0, 900)]] {
        match take_beside_a_head_without_changes(&deltas) {
            Ok(Absorbed::Changed(change)) => {
                assert!(change.rows.is_empty(), "{} rows", change.rows.len());
                assert!(change.parts.is_empty(), "{} parts", change.parts.len());
            }
            taken => panic!("{taken:?}"),
        }
    }
    let longer = [delta(0, 10_000), delta(0, 10_000)];
    let taken = take_beside_a_head_without_changes(&longer);
    assert!(matches!(taken, Ok(Absorbed::Gap)), "{taken:?}");
}

#[test]
fn lists_that_are_longer_than_any_honest_node_sends_are_not_read() {
    let is_read = |response: Response| Response::from_bytes(&response.to_bytes()).is_ok();
    let documents = |count, bytes: &[u8]| PullAnswer {
        documents: vec![ByteBuf::from(bytes); count],
        ..PullAnswer::default()
    };
    let proofs = |count| PullAnswer {
        proofs: vec![<(ByteBuf, ByteBuf)>::default(); count],
        ..PullAnswer::default()
    };
    let heads = |count, content: HeadContent| PullAnswer {
        heads: vec![
            HeadItem {
                head: ByteBuf::new(),
                content
            };
            count
        ],
        ..PullAnswer::default()
    };
    let with = |content| Response::Pull(heads(1, content));
    let empty = || HeadContent::Deltas(Vec::new());
    let name = || PartKey::new(1, &[]);
    let deltas = |count| with(HeadContent::Deltas(vec![ByteBuf::new(); count]));
    let whole = |count| with(HeadContent::Whole(vec![(name(), ByteBuf::new()); count]));
    let gone = |count| with(HeadContent::Since(Vec::new(), vec![name(); count]));
    let parts = |count| Response::Parts(vec![ByteBuf::new(); count]);
    for (most, one_more) in [
        (
            Response::Pull(documents(16_384, &[1])),
            Response::Pull(documents(16_385, &[1])),
        ),
        (
            Response::Pull(documents(1, &[1])),
            Response::Pull(documents(1, &[])),
        ),
        (Response::Pull(proofs(2_001)), Response::Pull(proofs(2_002))),
        (
            Response::Pull(heads(2_048, empty())),
            Response::Pull(heads(2_049, empty())),
        ),
        (deltas(4_096), deltas(4_097)),
        (whole(PARTS_MAX), whole(PARTS_MAX + 1)),
        (gone(1_024), gone(1_025)),
        (parts(PARTS_MAX), parts(PARTS_MAX + 1)),
    ] {
        assert!(is_read(most.clone()), "{most:?}");
        assert!(!is_read(one_more));
    }
    let is_asked = |names: &[usize]| {
        let of = |names: &usize| (site(0), Incarnation(1), vec![name(); *names]);
        let wanted = names.iter().map(of).collect();
        Request::from_bytes(&Request::Parts { vo: VO, wanted }.to_bytes()).is_ok()
    };
    assert!(is_asked(&[PARTS_MAX - 1, 1]) && is_asked(&[0; PARTS_MAX]));
    assert!(!is_asked(&[PARTS_MAX, 1]) && !is_asked(&[0; PARTS_MAX + 1]));
}

/// A few kilobytes that become so many whole parts.
fn zeros(parts: u16) -> Vec<u8> {
    let empty = packed(&vec![0; PART_BYTES_MAX]);
    let name = |part: u16| ByteBuf::from([&[1][..], &part.to_be_bytes()].concat());
    cbor::to_vec(&AnyDelta {
        b: (Incarnation(1), Seq(1)),
        p: (0..parts).map(|part| (name(part), empty.clone())).collect(),
        g: Vec::new(),
    })
}

/// What becomes of a true push of a peer that has sent something before, and whether that was so.
fn take_behind(
    before: impl Fn(&mut Node, &[u8]),
    (from, mono): (u8, u64),
) -> Result<Absorbed, Refusal> {
    let (mut node, second, two) = before_a_true_head();
    before(&mut node, &second);
    node.take_from(site(from), received(mono), &two)
}

#[test]
fn what_a_peer_has_unpacked_in_vain_is_bounded_by_the_minute_and_others_are_read() {
    let push = |times: u32, parts| {
        move |node: &mut Node, second: &[u8]| {
            for _ in 0..times {
                let (delta, from) = (zeros(parts), site(3));
                let replica = &mut node.replica;
                let taken = replica.take_push(&Plain, received(0), from, second, Some(&delta));
                assert!(matches!(taken, Ok(Absorbed::Gap)), "{taken:?}");
            }
        }
    };
    let answer = |node: &mut Node, second: &[u8]| {
        let item = HeadItem {
            head: ByteBuf::from(second.to_vec()),
            content: HeadContent::Deltas(vec![ByteBuf::from(zeros(512))]),
        };
        let taken = node.replica.take_item(&Plain, received(0), site(3), item);
        assert!(matches!(taken, Ok(Absorbed::Gap)), "{taken:?}");
    };
    for (from, mono, is_read) in [(3, 59_999, false), (3, 60_000, true), (2, 0, true)] {
        for taken in [
            take_behind(push(8, 64), (from, mono)),
            take_behind(answer, (from, mono)),
        ] {
            assert_eq!(matches!(taken, Ok(Absorbed::Changed(_))), is_read);
        }
    }
    // What is more than a push may unpack to is not even begun.
    let taken = take_behind(push(20, 65), (3, 0));
    assert!(matches!(taken, Ok(Absorbed::Changed(_))), "{taken:?}");
}

#[test]
fn a_head_whose_changes_unpack_to_more_than_a_push_may_comes_without_them() {
    let mut site = Node::new(0, 2);
    let key = key(0);
    let mut push = |parts: u16, byte: u8| {
        let part = |part: u16| {
            let bytes = vec![byte; PART_BYTES_MAX];
            (PartKey::new(1, &part.to_be_bytes()), Some(bytes))
        };
        let (incarnation, at) = (Incarnation(1), WallTime(1_000_000));
        let parts = (0..parts).map(part).collect();
        let replica = &mut site.replica;
        let (_, push) = replica.publish(&Anything, &key, incarnation, at, parts);
        Push::from_bytes(&push).expect("a push")
    };
    assert!(matches!(push(0, 0), Push::Head(_, None)));
    assert!(matches!(push(64, 1), Push::Next(_)));
    assert!(matches!(push(65, 2), Push::Head(_, None)));
}

fn packed(bytes: &[u8]) -> ByteBuf {
    ByteBuf::from(zstd::bulk::compress(bytes, 3).expect("memory"))
}

/// Who signs so does not check itself.
struct Anything;

impl Kinds for Anything {
    fn check(&self, _: &Head, _: &PartKey, _: &[u8]) -> Result<u32, String> {
        Ok(0)
    }
}

#[test]
fn a_head_that_no_honest_site_signs_is_refused_by_all_and_not_asked_for_again() {
    let mut net = Net::new(3);
    net.node(0).publish(0, 1, &[(1, Some(b"good"))]);
    net.settle().expect("settles");
    let lie = |bytes: Vec<u8>| vec![(PartKey::new(1, &[1]), Some(bytes))];
    let mut liar = Node::new(0, 3);
    liar.publish(0, 1, &[(1, Some(b"good"))]);
    let (_, push) = liar.replica.publish(
        &Anything,
        &key(0),
        Incarnation(1),
        WallTime(1_000_000),
        lie(b"!".to_vec()),
    );
    for node in 1..3 {
        let refused = net.node(node).take(&push).expect_err("refused");
        assert!(refused.is_lie(), "{refused}");
        assert!(net.node(node).take(&push).is_err());
        assert_eq!(
            net.node(node).holds()[&site(0)].len(),
            1,
            "what was in force stays"
        );
    }
}

#[test]
fn a_head_holds_no_more_rows_than_all_members_keep() {
    let mut liar = Node::new(0, 2);
    let part = vec![1u8; 60_000];
    let most = usize::try_from(HEAD_ROWS_MAX).expect("small") / part.len();
    let all: Vec<(u8, Option<&[u8]>)> = (0..=u8::try_from(most).expect("few"))
        .map(|name| (name, Some(&part[..])))
        .collect();
    let mut honest = Node::new(1, 2);
    liar.publish(0, 1, &all[..1]);
    hold(&liar, &mut honest, &part);
    let push = liar.publish(0, 1, &all[1..]);
    let refused = honest.take(&push).expect_err("refused");
    assert!(refused.to_string().contains("rows"), "{refused}");
}

/// A kind whose parts count so many rows each, and can be spared in the order of their names; and one that cannot.
struct Aged(u32);

impl Kinds for Aged {
    fn check(&self, _: &Head, _: &PartKey, _: &[u8]) -> Result<u32, String> {
        Ok(self.0)
    }

    fn spare_since(&self, key: &PartKey) -> Option<WallTime> {
        let age = key.key().try_into().ok().map(u16::from_be_bytes)?;
        (key.kind() == 1).then(|| WallTime(age.into()))
    }
}

#[test]
fn a_site_leaves_the_oldest_out_of_what_is_more_than_a_head_may_hold() {
    let part = |kind, age: usize, bytes| {
        let age = u16::try_from(age).expect("few").to_be_bytes();
        (PartKey::new(kind, &age), Some(vec![7; bytes]))
    };
    // Parts that a head may hold, rows and bytes of each.
    for (parts, rows, bytes) in [(PARTS_MAX, 1, 1), (8, 1 << 16, 1), (256, 1, PART_BYTES_MAX)] {
        let (mut a, mut b) = (Node::new(0, 2), Node::new(1, 2));
        let mut publish = |changes| {
            let (key, at) = (key(0), WallTime(1_000_000));
            let replica = &mut a.replica;
            let (change, _) = replica.publish(&Aged(rows), &key, Incarnation(1), at, changes);
            change.left_out
        };
        let full = (2..parts + 2).map(|age| part(1, age, bytes)).collect();
        assert_eq!(publish(full), []);
        // An older one that comes late, a newer one, and one that has to stay.
        let more = vec![
            part(1, 1, bytes),
            part(1, parts + 2, bytes),
            part(2, 0, bytes),
        ];
        assert_eq!(publish(more), [1, 2, 3].map(|age| part(1, age, bytes).0));
        assert_eq!(publish(vec![part(1, 4, bytes)]), []);
        let held = a.replica.rows_of_site(site(0)).into_iter();
        let (head, held): (Vec<_>, Vec<_>) = held.partition(|row| row.part.is_none());
        let bytes = |row: &HeldRow| row.bytes.as_ref().expect("held").to_vec();
        let parts = held
            .iter()
            .filter_map(|row| Some((row.part.clone()?, bytes(row))));
        let taken = b
            .replica
            .restore(&Aged(rows), &bytes(&head[0]), parts.collect());
        assert!(taken.is_ok(), "{taken:?}");
    }
}

/// Has a node hold the first site's head, whose one part, named 0, is known.
fn hold(of: &Node, node: &mut Node, part: &[u8]) {
    let rows = of.replica.rows_of_site(site(0));
    let head = rows
        .iter()
        .find(|row| row.part.is_none())
        .and_then(|row| row.bytes.clone())
        .expect("signed");
    let held = vec![(PartKey::new(1, &[0]), part.to_vec())];
    node.replica.restore(&Plain, &head, held).expect("whole");
}

/// Has a node hold all heads of the first site that another one holds.
fn give(from: &Node, to: &mut Node) {
    let rows = from.replica.rows_of_site(site(0));
    for head in rows.iter().filter(|row| row.part.is_none()) {
        let of_head = rows
            .iter()
            .filter(|row| row.incarnation == head.incarnation);
        let parts =
            of_head.filter_map(|row| Some((row.part.clone()?, row.bytes.as_ref()?.to_vec())));
        let bytes = head.bytes.as_ref().expect("signed");
        to.replica
            .restore(&Plain, bytes, parts.collect())
            .expect("whole");
    }
}

#[test]
fn a_machine_whose_head_another_one_with_its_key_has_covered_goes_on_behind_it() {
    let (mut a, mut twin, mut b) = (Node::new(0, 2), Node::new(0, 2), Node::new(1, 2));
    a.publish(0, 1, &[(1, Some(b"one"))]);
    give(&a, &mut twin);
    twin.publish(0, 2, &[(1, Some(b"one")), (2, Some(b"two"))]);
    give(&twin, &mut a);
    give(&twin, &mut b);
    assert_eq!(a.replica.heads_of(site(0)).count(), 1);
    let push = a.publish(0, 1, &[(1, Some(b"one")), (3, Some(b"three"))]);
    assert!(matches!(b.take(&push), Ok(Absorbed::Changed(_))));
    let heads = b.replica.heads_of(site(0));
    let seqs: Vec<Seq> = heads.map(|head| head.body().seq).collect();
    assert_eq!(seqs, [Seq(2), Seq(1)]);
}

#[test]
fn a_store_brings_no_head_back_that_the_history_has_passed_over() {
    let (mut first, mut last) = (Node::new(0, 2), Node::new(0, 2));
    first.publish_at(0, 1, 1_000_000, &[(1, Some(b"one"))]);
    last.publish_at(0, 2, 1_000_001 + HISTORY.0, &[(1, Some(b"two"))]);
    let mut node = Node::new(1, 2);
    give(&first, &mut node);
    give(&last, &mut node);
    let heads = node.replica.heads_of(site(0));
    let held: Vec<Incarnation> = heads.map(|head| head.body().incarnation).collect();
    assert_eq!(held, [Incarnation(2)]);
}

/// Seed 40002374: the site's clock had been ahead, as a member's was that lied, and its store was lost.
#[test]
fn a_site_takes_back_what_it_signed_itself_while_its_clock_was_ahead() {
    let push = Node::new(0, 2).publish_at(0, 1, 9_000_000, &[(1, Some(b"one"))]);
    let (mut other, mut back) = (Node::new(1, 2), Node::new(0, 2));
    assert!(matches!(other.take(&push), Err(Refusal::Future { .. })));
    assert!(back.take(&push).is_ok(), "it may have to ask for more");
}

#[test]
fn more_heads_a_minute_than_a_site_signs_wait_and_others_do_not() {
    let (mut liar, mut honest, mut other) = (Node::new(0, 3), Node::new(1, 3), Node::new(2, 3));
    liar.publish(0, 1, &[(0, Some(b"zero"))]);
    hold(&liar, &mut honest, b"zero");
    let mut late = 0;
    for version in 0..=HEADS_A_MINUTE_MAX {
        let bytes = version.to_be_bytes();
        let push = liar.publish(0, 1, &[(1, Some(&bytes))]);
        late += u32::from(matches!(honest.take(&push), Err(Refusal::TooOften(_))));
    }
    assert_eq!(late, 1);
    for version in 0..=HEADS_A_MINUTE_MAX {
        let bytes = version.to_be_bytes();
        liar.publish(0, 1, &[(2, Some(&bytes))]);
        let item = item_of(&liar);
        let taken = honest.replica.take_item(&Plain, received(0), site(0), item);
        late += u32::from(matches!(taken, Err(Refusal::TooOften(_))));
    }
    assert_eq!(late, 2, "those that answers bring, too");
    let push = other.publish(2, 1, &[(1, Some(b"one"))]);
    assert!(matches!(honest.take(&push), Ok(Absorbed::Bare(_))));
}

#[test]
fn a_head_that_comes_again_and_again_takes_nothing_from_its_sites_budget() {
    let junk = |at: u8| AnyDelta {
        b: (Incarnation(1), Seq(u64::from(at))),
        p: Vec::new(),
        g: Vec::new(),
    };
    let repeated: Vec<AnyDelta> = (0..=u8::try_from(HEADS_A_MINUTE_MAX).expect("few"))
        .map(junk)
        .collect();
    for taken in take_beside_a_true_head(&repeated) {
        assert!(!matches!(taken, Err(Refusal::TooOften(_))), "{taken:?}");
    }
}

/// The last head of the first site as an answer brings it, to whoever holds nothing of it.
fn item_of(node: &Node) -> HeadItem {
    let rows = node.replica.rows_of_site(site(0)).into_iter();
    let bytes = |bytes: Option<std::sync::Arc<[u8]>>| ByteBuf::from(bytes.expect("held").to_vec());
    let parts = rows.filter_map(|row| Some((row.part?, bytes(row.bytes))));
    HeadItem {
        head: ByteBuf::from(last_of(node).bytes().to_vec()),
        content: HeadContent::Whole(parts.collect()),
    }
}

#[test]
fn heads_wait_behind_one_of_many_rows_however_they_come() {
    let (mut liar, mut honest, mut other) = (Node::new(0, 3), Node::new(1, 3), Node::new(2, 3));
    let rows = vec![1; 60_000];
    liar.publish(0, 1, &[(0, Some(&rows))]);
    hold(&liar, &mut honest, &rows);
    let mut next = |byte| liar.publish(0, 1, &[(1, Some(&[byte]))]);
    let (one, two) = (next(1), next(2));
    let at = |mono| (site(0), received(mono));
    let take = |honest: &mut Node, mono| honest.take_from(at(mono).0, at(mono).1, &two);
    assert!(matches!(honest.take(&one), Ok(Absorbed::Changed(_))));
    // It has been gone through by then, 60,000 rows before it and as many after it.
    assert!(matches!(take(&mut honest, 100), Err(Refusal::Waits(_))));
    assert!(matches!(take(&mut honest, 579), Err(Refusal::Waits(_))));
    let offer = |honest: &mut Node, mono| {
        let (from, received) = at(mono);
        honest
            .replica
            .take_item(&Plain, received, from, item_of(&liar))
    };
    let early = offer(&mut honest, 579);
    assert!(matches!(early, Err(Refusal::Waits(_))), "{early:?}");
    let push = other.publish(2, 1, &[(1, Some(b"one"))]);
    assert!(matches!(honest.take(&push), Ok(Absorbed::Bare(_))));
    let later = offer(&mut honest, 580);
    assert!(matches!(later, Ok(Absorbed::Changed(_))), "{later:?}");
    assert!(matches!(take(&mut honest, 581), Ok(Absorbed::Known)));
}

#[test]
fn heads_wait_behind_one_that_lets_many_rows_go_as_well() {
    let (mut liar, mut honest) = (Node::new(0, 2), Node::new(1, 2));
    let rows = vec![1; 60_000];
    liar.publish(0, 1, &[(0, Some(&rows))]);
    hold(&liar, &mut honest, &rows);
    let none = liar.publish(0, 1, &[(0, None), (1, Some(b"one"))]);
    assert!(matches!(honest.take(&none), Ok(Absorbed::Changed(_))));
    let two = liar.publish(0, 1, &[(1, Some(b"two"))]);
    let mut take = |mono| honest.take_from(site(0), received(mono), &two);
    assert!(matches!(take(1), Err(Refusal::Waits(_))));
    assert!(matches!(take(240), Err(Refusal::Waits(_))));
    assert!(matches!(take(241), Ok(Absorbed::Changed(_))));
}

#[test]
fn what_a_removed_site_had_published_is_kept_until_its_history_has_passed() {
    let mut net = Net::new(3);
    net.node(0).publish(0, 1, &[(1, Some(b"used"))]);
    net.settle().expect("settles");
    let node = net.node(1);
    let everybody: std::collections::BTreeSet<_> = (0..3).map(site).collect();
    let without: std::collections::BTreeSet<_> = (1..3).map(site).collect();
    let digest = node.replica.digest();
    node.replica.set_members(without.clone(), HISTORY);
    assert_ne!(node.replica.digest(), digest);
    assert_eq!(node.replica.heads().count(), 0, "it does not count");
    assert!(node.replica.forget_removed(WallTime(1)).is_empty());
    node.replica.set_members(everybody.clone(), HISTORY);
    assert_eq!(node.replica.digest(), digest, "and is here again");
    node.replica.set_members(without, HISTORY);
    assert_eq!(node.replica.forget_removed(WallTime(1_000_001)).len(), 2);
    node.replica.set_members(everybody, Millis(1));
    assert_eq!(node.replica.heads().count(), 0);
}

#[test]
fn two_heads_of_one_seq_are_proved_to_everybody_and_the_next_one_goes_on() {
    let mut net = Net::new(3);
    net.node(0).publish(0, 1, &[(1, Some(b"one"))]);
    net.settle().expect("settles");
    let mut twin = Node::new(0, 3);
    twin.publish(0, 1, &[(1, Some(b"one"))]);
    let mine = net.node(0).publish(0, 1, &[(1, Some(b"two"))]);
    let other = twin.publish(0, 1, &[(1, Some(b"three"))]);
    assert!(matches!(net.node(1).take(&mine), Ok(Absorbed::Changed(_))));
    assert!(matches!(net.node(2).take(&other), Ok(Absorbed::Changed(_))));
    net.settle().expect("settles, on the lower root");
    for node in 0..3 {
        assert_eq!(net.node(node).replica.forked().count(), 1);
    }
    net.node(0).publish(0, 1, &[(1, Some(b"four"))]);
    net.settle().expect("settles");
    let holds = net.node(2).holds();
    assert_eq!(
        holds[&site(0)].values().flatten().collect::<Vec<_>>(),
        [b"four"]
    );
}

/// The last head that a node has signed.
fn last_of(node: &Node) -> Signed<Head> {
    let head = node.replica.heads().next().expect("its last");
    Signed::parse(head.bytes()).expect("signed")
}

/// When to sign two heads so that their hashes begin with the same four bytes.
fn alike(one: &Head, two: &Head) -> [WallTime; 2] {
    let at = |step: u64| WallTime(900_000 + step);
    let hash = |head: &Head, step| {
        let at = at(step);
        ContentHash::of(&cbor::to_vec(&Head { at, ..head.clone() }))
    };
    let begins = |head, step| *hash(head, step).as_bytes().first_chunk::<4>().expect("32");
    let ones: BTreeMap<[u8; 4], u64> = (0..90_000).map(|step| (begins(one, step), step)).collect();
    let both = (0..90_000).find_map(|step| Some((*ones.get(&begins(two, step))?, step)));
    let (of_one, of_two) = both.expect("of eight billion pairs some are alike");
    [at(of_one), at(of_two)]
}

#[test]
fn two_heads_whose_hashes_begin_alike_are_told_apart_and_who_passes_on_what_follows_is_believed() {
    let sign = |at: WallTime, part: &[u8]| {
        let mut liar = Node::new(0, 3);
        let push = liar.publish_at(0, 1, at.0, &[(1, Some(part))]);
        (liar, push)
    };
    let body = |part| last_of(&sign(WallTime(1), part).0).claimed().clone();
    let [at_one, at_two] = alike(&body(b"one"), &body(b"two"));
    let ((mut one, _), (two, _)) = (sign(at_one, b"one"), sign(at_two, b"two"));
    let first = last_of(&one).hash();
    let second = last_of(&two).hash();
    assert_eq!(first.as_bytes()[..4], second.as_bytes()[..4]);
    let mut net = Net::new(3);
    give(&one, net.node(1));
    give(&two, net.node(2));
    let next = one.publish_at(0, 1, at_one.0, &[(3, Some(b"three"))]);
    // Whoever holds the other one has no proof yet that there are two.
    let taken = net.node(2).take(&next);
    assert!(matches!(taken, Ok(Absorbed::Gap)), "{taken:?}");
    net.settle().expect("settles, on the lower root");
    for node in 1..3 {
        assert_eq!(net.node(node).replica.forked().count(), 1, "node {node}");
    }
    // It is behind the one of the higher root, which nobody holds any more.
    for node in 1..3 {
        let taken = net.node(node).take(&next);
        assert!(matches!(taken, Ok(Absorbed::Gap)), "{taken:?}");
    }
}

/// What becomes of a head that contradicts one that is held, when it is one more than is taken in a minute.
fn take_a_fork_that_is_one_too_many(mine: &[u8], other: &[u8]) -> Result<Absorbed, Refusal> {
    let (mut a, mut twin, mut b) = (Node::new(0, 2), Node::new(0, 2), Node::new(1, 2));
    let first = |node: &mut Node| node.publish(0, 1, &[(1, Some(&[0]))]);
    let push = Push::from_bytes(&first(&mut a)).expect("a push");
    first(&mut twin);
    let held = vec![(PartKey::new(1, &[1]), vec![0])];
    let head = push.head(None).expect("whole");
    b.replica
        .restore(&Plain, head.bytes(), held)
        .expect("whole");
    for number in 1..HEADS_A_MINUTE_MAX {
        let number = number.to_be_bytes();
        let push = a.publish(0, 1, &[(1, Some(&number))]);
        twin.publish(0, 1, &[(1, Some(&number))]);
        assert!(matches!(b.take(&push), Ok(Absorbed::Changed(_))));
    }
    let mine = a.publish(0, 1, &[(1, Some(mine))]);
    assert!(matches!(b.take(&mine), Ok(Absorbed::Changed(_))));
    assert!(b.replica.forks_found().is_empty());
    twin.publish(0, 1, &[(1, Some(other))]);
    let other = twin.replica.heads().next().expect("its last").bytes();
    let taken = b
        .replica
        .take_push(&Plain, received(0), site(0), other, None);
    assert_eq!(b.replica.forks_found(), [site(0)]);
    assert!(b.replica.forks_found().is_empty(), "it is told once");
    taken
}

#[test]
fn a_fork_is_found_though_the_head_that_shows_it_is_refused() {
    let taken = [(b"one", b"two"), (b"two", b"one")]
        .map(|(mine, other)| take_a_fork_that_is_one_too_many(mine, other));
    // One of them goes before the other.
    let refused = |taken: &&Result<_, _>| matches!(taken, Err(Refusal::TooOften(_)));
    assert_eq!(taken.iter().filter(refused).count(), 1, "{taken:?}");
}
