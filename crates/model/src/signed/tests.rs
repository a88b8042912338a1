use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::documents::{Charter, SharePolicy};
use crate::path::AccountPath;
use crate::time::WallTime;

fn key(seed: u8) -> SigningKey {
    SigningKey::from_secret(&[seed; 32])
}

fn policy() -> SharePolicy {
    SharePolicy {
        vo: VoId::from_bytes([1; 32]),
        path: AccountPath::root(),
        version: 1,
        previous: None,
        issued: WallTime(0),
        expires: WallTime(1),
        usage: None,
        distance: None,
        shares: BTreeMap::new(),
    }
}

fn role(keys: &[&SigningKey], threshold: u32) -> Role {
    Role {
        keys: keys.iter().map(|key| key.key_id()).collect(),
        threshold,
    }
}

#[test]
fn bytes_survive_the_journey_unchanged() {
    let signed = Signed::sign(policy(), &[&key(1)]).expect("signs");
    let bytes = signed.bytes().clone();
    let verified = Signed::<SharePolicy>::parse(&bytes)
        .expect("parses")
        .verify(&[&role(&[&key(1)], 1)])
        .expect("verifies");
    assert_eq!(verified.bytes(), &bytes);
    assert_eq!(verified.body(), &policy());
}

#[test]
fn what_is_signed_is_what_cose_says() {
    let signed = Signed::sign(policy(), &[&key(1), &key(2)]).expect("signs");
    let built = CoseSignBuilder::new()
        .payload(b"payload".to_vec())
        .add_signature(unsigned_signature(key(3).key_id()))
        .build();
    for envelope in [&*signed.envelope, &built] {
        for signature in &envelope.signatures {
            let theirs = envelope.tbs_data(b"aad", signature);
            assert_eq!(to_be_signed(envelope, signature, b"aad"), theirs);
        }
    }
}

#[test]
fn remembered_bytes_are_read_as_others_are() {
    let bytes = Signed::sign(policy(), &[&key(1)])
        .expect("signs")
        .bytes()
        .to_vec();
    let mut broken = bytes.clone();
    broken.pop();
    remember_documents();
    for _ in 0..2 {
        let read = Signed::<SharePolicy>::parse(&bytes).expect("parses");
        assert_eq!(read.claimed(), &policy());
        assert_eq!(read.bytes()[..], bytes[..]);
        assert!(Signed::<SharePolicy>::parse(&broken).is_err());
        assert!(Signed::<Charter>::parse(&bytes).is_err(), "another kind");
    }
}

#[test]
fn a_threshold_counts_distinct_keys_of_the_role_only() {
    let (a, b, stranger) = (key(1), key(2), key(3));
    let mut signed = Signed::sign(policy(), &[&a, &stranger]).expect("signs");
    signed.add_signature(&a).expect("a repeat changes nothing");
    let needed = role(&[&a, &b], 2);
    assert_eq!(signed.count_valid(&needed.keys), 1);
    assert!(matches!(
        signed.clone().verify(&[&needed]),
        Err(DocumentError::Threshold {
            valid: 1,
            threshold: 2,
            ..
        })
    ));
    signed.add_signature(&b).expect("signs");
    assert!(signed.verify(&[&needed]).is_ok());
}

#[test]
fn a_signature_for_one_thing_is_never_good_for_another() {
    let site = key(1);
    let signed = Signed::sign(policy(), &[&site]).expect("signs");
    // The same signature under another VO's document, and under another document type.
    let mut other = policy();
    other.vo = VoId::from_bytes([2; 32]);
    let mut moved = Signed::sign(other, &[]).expect("parses");
    let signatures = signed.envelope.signatures.clone();
    Arc::make_mut(&mut moved.envelope).signatures = signatures;
    assert_eq!(moved.count_valid(&BTreeSet::from([site.key_id()])), 0);
    assert!(Signed::<Charter>::parse(signed.bytes()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_changed_byte_is_noticed(position in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let site = key(1);
        let mut bytes = Signed::sign(policy(), &[&site]).expect("signs").bytes().to_vec();
        let at = position.index(bytes.len());
        bytes[at] ^= flip;
        let accepted = Signed::<SharePolicy>::parse(&bytes).and_then(|signed| signed.verify(&[&Role::single(site.site_id())]));
        prop_assert!(accepted.is_err());
    }

    #[test]
    fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Signed::<SharePolicy>::parse(&bytes);
    }
}

/// The same signature twice, and a key that signs once more, would look like two of two.
#[test]
fn a_key_that_signs_twice_or_is_listed_twice_is_refused_by_name() {
    let signed = Signed::sign(policy(), &[&key(1)]).expect("signs");
    let mut twice = CoseSign::clone(&signed.envelope);
    twice.signatures.push(twice.signatures[0].clone());
    let refused = Signed::<SharePolicy>::parse(&to_bytes(twice)).expect_err("twice");
    let id = key(1).key_id();
    assert_eq!(
        refused.to_string(),
        format!("share-policy: {id} has signed it twice")
    );

    #[derive(serde::Serialize)]
    struct Listed {
        keys: Vec<KeyId>,
        threshold: u32,
    }
    let listed = |keys: &[KeyId]| {
        let bytes = cbor::to_vec(&Listed {
            keys: keys.to_vec(),
            threshold: 1,
        });
        cbor::from_slice::<Role>(&bytes, 1_024)
    };
    assert_eq!(listed(&[id]), Ok(Role::single(id)));
    let refused = listed(&[id, id]).expect_err("twice").to_string();
    assert!(
        refused.contains(&format!("{id} is listed twice")),
        "{refused}"
    );
}
