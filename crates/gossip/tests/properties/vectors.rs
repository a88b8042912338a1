//! What a pull says is held: what it costs, and what it leaves out.

use std::collections::BTreeMap;

use fairmesh_gossip::wire::{HeadContent, HeadItem, Pull, PullAnswer, Push, Request, Response};
use fairmesh_gossip::{Absorbed, Tag, Vector, VectorFrame};
use fairmesh_model::{ContentHash, Incarnation, Seq, SiteId};
use serde_bytes::ByteBuf;

use crate::fetching::gossip_with;
use crate::support::{Node, Plain, VO, received, site};

/// So many heads of sites that there may be somewhere.
fn invented(heads: u32) -> Vector {
    let head = |index: u32| {
        let mut site = [0; 32];
        site[..4].copy_from_slice(&index.to_be_bytes());
        let head = (SiteId::from_bytes(site), Incarnation(1));
        (head, (Seq(1), Tag::from_hash(ContentHash::of(&[]))))
    };
    (0..heads).map(head).collect()
}

/// What a node in a VO of two says to a vector, and to the difference of nothing from it.
fn answers(heads: u32) -> [Response; 2] {
    let (mut gossip, vector) = (gossip_with(site(1)), invented(heads));
    let vos = BTreeMap::from([(VO, Node::new(0, 2))]);
    let frames = [
        VectorFrame::full(&vector),
        VectorFrame::since(&vector, &vector),
    ];
    frames.map(|frame| {
        let pull = Pull {
            vo: VO,
            documents: None,
            heads: Some(frame),
            proofs: Vec::new(),
        };
        let bytes = Request::Pull(pull).to_bytes();
        gossip.answer(received(0).now, site(1), &bytes, &vos)
    })
}

fn is_answer(of: &Response, in_full: bool) -> bool {
    matches!(of, Response::Pull(PullAnswer { need_full, .. }) if *need_full == in_full)
}

#[test]
fn a_few_bytes_do_not_stand_for_more_heads_than_a_vo_has() {
    for (heads, is_kept) in [(6, true), (7, false), (8_004, false)] {
        let [full, none_new] = answers(heads);
        assert!(is_answer(&full, false), "{heads}: {full:?}");
        assert!(is_answer(&none_new, !is_kept), "{heads}: {none_new:?}");
    }
    let [full, _] = answers(8_005);
    assert!(matches!(full, Response::Refused(_)), "no VO has as many");
}

/// The heads that a node's next pull names.
fn asks_with(node: Node) -> Option<VectorFrame> {
    let mut gossip = gossip_with(site(2));
    let mut vos = BTreeMap::from([(VO, node)]);
    gossip.suspect_behind(site(2), VO);
    let probe = gossip.tick(received(0).now, &mut vos);
    gossip.answered(received(0).now, site(2), probe[0].id, None, &mut vos);
    let pull = gossip.tick(received(0).now, &mut vos);
    match Request::from_bytes(&pull[0].bytes) {
        Ok(Request::Pull(pull)) => pull.heads,
        other => panic!("a pull: {other:?}"),
    }
}

#[test]
fn a_site_is_asked_for_as_a_whole_until_its_head_is_here_another_way() {
    for comes in ["nowhere", "as a push", "as what is here"] {
        let (mut a, mut node) = (Node::new(0, 3), Node::new(1, 3));
        let one = a.publish(0, 1, &[(1, Some(b"one"))]);
        let Ok(Push::Head(head, None)) = Push::from_bytes(&one) else {
            panic!("the first comes as it is signed");
        };
        let parts = a.replica.rows_of_site(site(0)).into_iter();
        let parts = parts.filter_map(|row| Some((row.part?, ByteBuf::from(row.bytes?.to_vec()))));
        let content = HeadContent::Whole(parts.collect());
        let whole = HeadItem { head, content };
        let two = a.publish(0, 1, &[(2, Some(b"two"))]);
        let second = a.replica.heads().next().expect("signed").bytes().to_vec();
        let empty = HeadItem {
            head: ByteBuf::from(second),
            content: HeadContent::Deltas(Vec::new()),
        };
        let mut take = |item| node.replica.take_item(&Plain, received(0), site(2), item);
        assert!(matches!(take(whole.clone()), Ok(Absorbed::Changed(_))));
        assert!(matches!(take(empty), Ok(Absorbed::Gap)));
        match comes {
            "as a push" => assert!(matches!(node.take(&two), Ok(Absorbed::Changed(_)))),
            "as what is here" => assert!(matches!(take(whole), Ok(Absorbed::Known))),
            _ => {}
        }
        let held = match comes {
            "nowhere" => Vector::new(),
            _ => node.replica.vector(),
        };
        assert_eq!(asks_with(node), Some(VectorFrame::full(&held)), "{comes}");
    }
}
