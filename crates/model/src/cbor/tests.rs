use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LIMIT: usize = 1 << 16;

#[test]
fn each_way_to_be_malleable_is_refused() {
    let cases: [(&str, &[u8]); 14] = [
        ("one in two bytes", &[0x18, 0x01]),
        ("length in two bytes", &[0x58, 0x01, 0x00]),
        ("indefinite array", &[0x9f, 0x01, 0xff]),
        ("indefinite text", &[0x7f, 0x61, 0x61, 0xff]),
        ("keys descending", &[0xa2, 0x02, 0x00, 0x01, 0x00]),
        ("key twice", &[0xa2, 0x01, 0x00, 0x01, 0x00]),
        ("trailing byte", &[0x01, 0x00]),
        ("float", &[0xf9, 0x00, 0x00]),
        ("undefined", &[0xf7]),
        ("lone break", &[0xff]),
        ("not UTF-8", &[0x61, 0xff]),
        ("truncated text", &[0x62, 0x61]),
        ("array of 2^44", &[0x9b, 0, 0, 0x10, 0, 0, 0, 0, 0]),
        ("nothing", &[]),
    ];
    for (name, bytes) in cases {
        assert!(check(bytes, LIMIT).is_err(), "{name} was accepted");
    }
}

#[test]
fn size_and_depth_have_limits() {
    assert_eq!(
        check(&[0; 11], 10),
        Err(CborError::TooLarge {
            bytes: 11,
            limit: 10
        })
    );
    let nested = [vec![0x81; 100_000], vec![0x01]].concat();
    assert!(matches!(
        check(&nested, 1 << 20),
        Err(CborError::TooDeep(_))
    ));
}

#[test]
fn unknown_keys_pass() {
    #[derive(serde::Deserialize)]
    struct Known {
        a: u8,
    }
    let newer = to_vec(&BTreeMap::from([("zz-from-the-future", 7), ("a", 1)]));
    assert_eq!(
        from_slice::<Known>(&newer, LIMIT).map(|known| known.a),
        Ok(1)
    );
}

proptest! {
    #[test]
    fn encoding_is_canonical_and_round_trips(
        map in proptest::collection::btree_map("[a-z]{0,9}", proptest::collection::vec(any::<u64>(), 0..5), 0..9)
    ) {
        let bytes = to_vec(&map);
        prop_assert_eq!(check(&bytes, LIMIT), Ok(()));
        prop_assert_eq!(from_slice::<BTreeMap<String, Vec<u64>>>(&bytes, LIMIT), Ok(map));
    }

    #[test]
    fn whatever_is_accepted_re_encodes_to_the_same_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if check(&bytes, LIMIT).is_ok() {
            let value: Value = ciborium::from_reader(bytes.as_slice()).expect("accepted bytes decode");
            prop_assert_eq!(to_vec(&value), bytes);
        }
    }
}
