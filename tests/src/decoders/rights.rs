//! What members say to each other of rights, damaged on its way.
//!
//! Invariant: bytes that are cut off or go on are refused, and none that were changed make a decoder panic.

use fairmesh_model::{AllocationId, CoreMillis, VoId, WallTime, cbor};
use fairmesh_quota::{Claim, SliceId, Want};
use proptest::prelude::*;

use super::decode;

/// A request and an answer: frames of the byte that rights have to themselves.
pub(super) fn samples() -> [(&'static str, Vec<u8>); 2] {
    let want = Want {
        slice: SliceId {
            allocation: AllocationId::from_bytes([3; 32]),
            index: 1,
        },
        amount: CoreMillis(u64::MAX),
        taken: CoreMillis(70_000),
        claim: Some(Claim {
            is_refused: false,
            since: WallTime(1_767_615_600_000),
            short: CoreMillis(70_000),
        }),
    };
    let frame = |message: Vec<u8>| [&[2], &message[..]].concat();
    let vo = VoId::from_bytes([4; 32]);
    [
        ("rights_want", frame(cbor::to_vec(&(vo, want)))),
        ("rights_given", frame(cbor::to_vec(&70_000_u64))),
    ]
}

#[test]
fn a_request_is_no_answer_and_neither_is_anything_else() {
    for (name, whole) in samples() {
        let takers = super::DECODERS.iter().filter(|(_, of)| of(&whole));
        let takers: Vec<&str> = takers.map(|(name, _)| *name).collect();
        assert_eq!(takers, [name]);
    }
}

#[test]
fn a_frame_beyond_its_limit_is_refused() {
    for (name, whole) in samples() {
        let long = [&whole[..1], &cbor::to_vec(&vec![0_u8; 600])].concat();
        assert!(!decode(name, &long), "{name}");
    }
}

proptest! {
    #[test]
    fn what_is_damaged_never_panics_and_what_is_cut_off_is_refused(
        cut in any::<prop::sample::Index>(),
        places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        more in any::<u8>(),
    ) {
        for (name, whole) in samples() {
            prop_assert!(decode(name, &whole));
            prop_assert!(!decode(name, &whole[..cut.index(whole.len())]));
            prop_assert!(!decode(name, &[&whole[..], &[more]].concat()));
            // Another number is one, too.
            let mut changed = whole;
            for (at, byte) in places.iter() {
                let at = at.index(changed.len());
                changed[at] = *byte;
            }
            decode(name, &changed);
        }
    }
}
