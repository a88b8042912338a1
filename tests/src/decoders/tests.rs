//! Malformed, oversized, truncated and non-canonical input to every decoder: a refusal, no panic.
//! (The fuzz targets in `tests/fuzz` run the same table for as long as one likes.)

use std::path::Path;

use fairmesh_model::{AccountPath, SharePolicy, Signed, Span, VoId, WallTime};
use proptest::prelude::*;

use super::heads::{key, table, two_heads};
use super::{DECODERS, decode};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_decoder_panics_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        for (_, decoder) in DECODERS {
            decoder(&bytes);
        }
    }

    #[test]
    fn no_decoder_panics_on_any_text(text in "[ -~\n\t]{0,600}") {
        for (_, decoder) in DECODERS {
            decoder(text.as_bytes());
        }
    }

    #[test]
    fn a_damaged_head_is_refused_and_never_panics(
        cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), flip in 1..=255u8,
    ) {
        let whole = two_heads().second;
        prop_assert!(decode("head", &whole));
        prop_assert!(!decode("head", &whole[..cut.index(whole.len())]));
        let mut flipped = whole.clone();
        flipped[at.index(whole.len())] ^= flip;
        prop_assert!(!decode("head", &flipped));
        let mut longer = whole;
        longer.push(flip);
        prop_assert!(!decode("head", &longer));
    }
}

#[test]
fn claims_of_size_are_refused_before_anything_is_allocated() {
    // Heads that promise 2^44 elements, text or bytes, and nothing behind them.
    for head in [0x9b_u8, 0xbb, 0x7b, 0x5b] {
        let bytes = [head, 0, 0, 0x10, 0, 0, 0, 0, 0];
        for (name, decoder) in DECODERS {
            assert!(
                !decoder(&bytes) || name == "swf",
                "{name} took a lie about its size"
            );
        }
    }
    let nested = [vec![0x81; 100_000], vec![0x00]].concat();
    assert!(!decode("cbor", &nested));
    assert!(!decode("head", &vec![0; 1 << 20]));
}

#[test]
fn one_document_is_never_taken_for_another() {
    let takers = |bytes: &[u8]| {
        DECODERS
            .iter()
            .filter(|(_, decoder)| decoder(bytes))
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
    };
    let heads = two_heads();
    assert_eq!(takers(&heads.second), ["cbor", "head"]);
    assert_eq!(takers(&policy()), ["cbor", "share_policy"]);
    assert_eq!(takers(&heads.delta), ["cbor", "gossip_delta"]);
    assert_eq!(takers(&table(7)), ["usage_table"]);
}

#[test]
fn what_counts_nothing_has_no_table_and_a_name_cut_off_is_none() {
    let day = fairmesh_usage::cut(Span::Day(7), std::iter::empty(), 1);
    assert!(day.is_empty());
    let of_a_day = [1, 0, 0, 0, 0, 15];
    assert!(decode("part_name", &of_a_day));
    assert!(!decode("part_name", &of_a_day[..5]));
}

proptest! {
    #[test]
    fn a_damaged_delta_or_table_never_panics_and_one_cut_off_is_refused(
        cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), flip in 1..=255u8,
    ) {
        let delta = two_heads().delta;
        for (name, whole) in [("gossip_delta", delta), ("usage_table", table(7))] {
            prop_assert!(decode(name, &whole));
            prop_assert!(!decode(name, &whole[..cut.index(whole.len())]));
            let mut flipped = whole.clone();
            flipped[at.index(whole.len())] ^= flip;
            // A table may become another one; a patch may have another form, with the same outcome.
            decode(name, &flipped);
        }
    }
}

#[test]
fn every_decoder_has_a_fuzz_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    for (name, _) in DECODERS {
        let file = folder.join(format!("{name}.rs"));
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            text.contains(&format!("\"{name}\"")),
            "{} does not fuzz `{name}`",
            file.display()
        );
    }
}

fn policy() -> Vec<u8> {
    let policy = SharePolicy {
        vo: VoId::from_bytes([1; 32]),
        path: AccountPath::root(),
        version: 1,
        previous: None,
        issued: WallTime(0),
        expires: WallTime(1),
        usage: None,
        distance: None,
        shares: Default::default(),
    };
    let signed = Signed::sign(policy, &[&key()]).expect("signs");
    signed.bytes().to_vec()
}
