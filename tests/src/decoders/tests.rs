//! Malformed, oversized, truncated and non-canonical input to every decoder: a refusal, no panic.
//! (The fuzz targets in `tests/fuzz` run the same table for as long as one likes.)

use std::path::Path;

use fairmesh_model::documents::PathCells;
use fairmesh_model::{
    InFlightSheet, Incarnation, Seq, Signed, SigningKey, UsageBatch, VoId, WallTime,
};
use proptest::prelude::*;

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
    fn a_damaged_batch_is_refused_and_never_panics(
        cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), flip in 1..=255u8,
    ) {
        let whole = batch();
        prop_assert!(decode("usage_batch", &whole));
        prop_assert!(!decode("usage_batch", &whole[..cut.index(whole.len())]));
        let mut flipped = whole.clone();
        flipped[at.index(whole.len())] ^= flip;
        prop_assert!(!decode("usage_batch", &flipped));
        let mut longer = whole;
        longer.push(flip);
        prop_assert!(!decode("usage_batch", &longer));
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
    assert!(!decode("usage_batch", &vec![0; 1 << 20]));
}

#[test]
fn one_document_is_never_taken_for_another() {
    let sheet = InFlightSheet {
        vo: VoId::from_bytes([1; 32]),
        site: key().site_id(),
        incarnation: Incarnation(1),
        version: 1,
        at: WallTime(0),
        rows: Vec::new(),
    };
    let sheet = Signed::sign(sheet, &[&key()])
        .expect("signs")
        .bytes()
        .to_vec();
    let takers = |bytes: &[u8]| {
        DECODERS
            .iter()
            .filter(|(_, decoder)| decoder(bytes))
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
    };
    assert_eq!(takers(&sheet), ["cbor", "in_flight_sheet"]);
    assert_eq!(takers(&batch()), ["cbor", "usage_batch"]);
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

fn key() -> SigningKey {
    SigningKey::from_secret(&[7; 32])
}

fn batch() -> Vec<u8> {
    let batch = UsageBatch {
        vo: VoId::from_bytes([1; 32]),
        site: key().site_id(),
        incarnation: Incarnation(1),
        seq: Seq(1),
        previous: None,
        at: WallTime(0),
        retired_below: Incarnation(0),
        settled_below: Incarnation(0),
        cells: PathCells::default(),
    };
    Signed::sign(batch, &[&key()])
        .expect("signs")
        .bytes()
        .to_vec()
}
