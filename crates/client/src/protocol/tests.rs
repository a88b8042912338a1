use proptest::prelude::*;

use fairmesh_model::cbor::{self, CborError};
use fairmesh_model::{ContentHash, Millis, WallTime, Window};

use super::*;

fn view() -> View {
    View {
        as_of: WallTime(0x0193_4a6d_8c00),
        age: Millis(4_500),
        sites_known: 2,
        sites_total: 3,
        reference_window: Window(481_200),
        digest: ContentHash::from_bytes([0xd1; 32]),
        flags: 0,
        generation: 5,
        ranking: 7,
        step: 250_000_000,
    }
}

fn body(frame: &[u8]) -> &[u8] {
    let (body, used) = split_frame(frame)
        .expect("a good length")
        .expect("a whole frame");
    assert_eq!(used, frame.len());
    body
}

fn request(want: Want, accounts: Accounts<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    let request = Request {
        id: 7,
        want,
        accounts,
    };
    encode_request(&mut frame, &request).expect("fits in a frame");
    frame
}

/// The bytes of the blocks of hexadecimal digits in the documentation, up to the first word.
fn documented(nth: usize) -> Vec<u8> {
    let source = include_str!("../protocol.rs");
    let block = source
        .split("//! ```text")
        .skip(1)
        .map(|block| block.split("//! ```").next().expect("a block ends"))
        .filter(|block| block.trim_start().starts_with("//! 00 00 00"))
        .nth(nth)
        .expect("the example is there");
    let is_byte = |word: &&str| word.len() == 2 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let byte = |word: &str| u8::from_str_radix(word, 16).expect("two digits");
    block
        .lines()
        .flat_map(|line| {
            let mut words = line.trim_start_matches("//!").split_whitespace();
            let mut bytes: Vec<u8> = words
                .by_ref()
                .take_while(|word| is_byte(word))
                .map(byte)
                .collect();
            if line.contains("(32 times)") {
                let last = *bytes.last().expect("a byte to repeat");
                bytes.extend([last; 31]);
            }
            bytes
        })
        .collect()
}

#[test]
fn the_documented_examples() {
    let names = NameBlockBuf::of(&[Who::user_account("alice", "physics")]).expect("good names");
    let frame = request(Want::Factors, Accounts::Names(names.as_block()));
    assert_eq!(frame, documented(0));

    let mut answer = Vec::new();
    encode_answer(&mut answer, 7, &view(), &[0], false, |_| Some(750_000_000)).expect("fits");
    assert_eq!(answer, documented(1));
}

#[test]
fn requests_are_canonical_and_read_back() {
    let rows = [
        Who::Path("/P-B1/U-B11"),
        Who::user_account("alice", "physics"),
        Who::Names(Names {
            subject: Some("/DC=org/CN=Åsa"),
            ..Names::default()
        }),
    ];
    let names = NameBlockBuf::of(&rows).expect("good names");
    let frame = request(Want::FactorsAndHandles, Accounts::Names(names.as_block()));
    assert_eq!(cbor::check(body(&frame), FRAME_BYTES_MAX), Ok(()));
    let Accounts::Names(read) = decode_request(body(&frame)).expect("decodes").accounts else {
        panic!("asked by name");
    };
    let read: Result<Vec<_>, _> = read.rows().collect();
    assert_eq!(read.as_deref(), Ok(rows.as_slice()));

    let column = [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
    let handles = HandleColumn::new(&column).expect("two handles");
    let accounts = Accounts::Handles {
        generation: 1 << 40,
        handles,
    };
    let frame = request(Want::Factors, accounts);
    assert_eq!(cbor::check(body(&frame), FRAME_BYTES_MAX), Ok(()));
    assert_eq!(
        decode_request(body(&frame)).map(|read| read.accounts),
        Ok(accounts)
    );
    assert_eq!(handles.iter().collect::<Vec<_>>(), [1, UNKNOWN]);
}

#[test]
fn answers_tell_unknown_accounts_and_handles_apart() {
    let mut frame = Vec::new();
    let factor = |entry| (entry == 3).then_some(FACTOR_MAX);
    encode_answer(&mut frame, 9, &view(), &[3, UNKNOWN, 4], true, factor).expect("fits");
    assert_eq!(cbor::check(body(&frame), FRAME_BYTES_MAX), Ok(()));
    let reply = decode_reply(body(&frame)).expect("decodes");
    let answer = reply.outcome.expect("answered");
    assert_eq!((reply.id, answer.view), (9, view()));
    assert_eq!(
        answer.factors().collect::<Vec<_>>(),
        [Some(FACTOR_MAX), None, None]
    );
    assert_eq!(
        (answer.factor(0), answer.factor(3), answer.len()),
        (Some(FACTOR_MAX), None, 3)
    );
    let handles = HandleColumn::new(answer.handles().expect("asked for")).expect("a column");
    assert_eq!(handles.iter().collect::<Vec<_>>(), [3, UNKNOWN, 4]);
}

#[test]
fn errors_are_cut_between_characters() {
    let mut frame = Vec::new();
    encode_error(
        &mut frame,
        1,
        Status::StaleHandles,
        &"å".repeat(ERROR_TEXT_BYTES_MAX),
    );
    let reply = decode_reply(body(&frame)).expect("decodes");
    let (status, text) = reply.outcome.expect_err("an error");
    assert_eq!(
        (status, text.len()),
        (Status::StaleHandles, ERROR_TEXT_BYTES_MAX)
    );
}

#[test]
fn each_bad_frame_has_its_own_error() {
    let too_large = (u32::try_from(FRAME_BYTES_MAX).expect("small") + 1).to_be_bytes();
    assert_eq!(
        split_frame(&too_large),
        Err(ProtocolError::FrameTooLarge(FRAME_BYTES_MAX + 1))
    );
    assert_eq!(split_frame(&[0; 4]), Err(ProtocolError::FrameEmpty));
    assert_eq!(split_frame(&[0, 0, 0]), Ok(None));
    assert_eq!(split_frame(&[0, 0, 0, 2, 0xa0]), Ok(None));

    let cases: [(&[u8], u64, ProtocolError); 8] = [
        (&[0xa1, 0x01], 0, ProtocolError::Truncated),
        (&[0xa0, 0x00], 0, CborError::Trailing(1).into()),
        (&[0xa0], 0, ProtocolError::Missing("version")),
        (&[0x80], 0, ProtocolError::Value("request")),
        (&[0xa2, 1, 2, 2, 9], 9, ProtocolError::Version(2)),
        (&[0xa2, 1, 1, 2, 9], 9, ProtocolError::Missing("want")),
        (&[0xa3, 1, 1, 2, 9, 3, 2], 9, ProtocolError::Value("want")),
        (
            &[0xa4, 1, 1, 2, 9, 3, 0, 5, 0x40],
            9,
            ProtocolError::Missing("name block, or handles and generation,"),
        ),
    ];
    for (bytes, id, error) in cases {
        assert_eq!(decode_request(bytes), Err((id, error)), "{bytes:02x?}");
    }
}

#[test]
fn each_bad_name_block_has_its_own_error() {
    let count = |rows: u32| rows.to_be_bytes().to_vec();
    assert_eq!(
        NameBlock::new(&count(65_537)),
        Err(ProtocolError::TooManyRows(65_537))
    );
    assert!(NameBlock::new(&[0, 0, 0]).is_err());
    assert!(NameBlock::new(&count(1)).is_err(), "a row takes bytes");
    assert!(
        NameBlock::new(&[0, 0, 0, 0, 1]).is_err(),
        "no row, yet bytes"
    );
    let rows: [(&[u8], &str); 10] = [
        (&[0, 0, 1, b'a'], "unknown mask"),
        (&[17, 0, 1, b'/'], "unknown mask"),
        (&[32, 0, 1, b'q'], "unknown mask"),
        (&[48, 0, 1, b'/'], "unknown mask"),
        (&[129, 0, 1, b'a'], "unknown mask"),
        (&[1, 0, 0], "a name is empty"),
        (&[1, 2, 1], "a name is too long"),
        (&[1, 0, 2, b'a'], "cut off"),
        (&[1, 0, 1, 0xff], "a name is not UTF-8"),
        (&[16, 0, 1, b'a'], "a path does not begin with `/`"),
    ];
    for (row, what) in rows {
        let block = [count(1).as_slice(), row].concat();
        let read = NameBlock::new(&block)
            .expect("plausible")
            .rows()
            .collect::<Vec<_>>();
        assert_eq!(read, [Err(ProtocolError::Row { row: 0, what })]);
    }
    let block = [count(1).as_slice(), &[1, 0, 1, b'a', 0]].concat();
    let read = NameBlock::new(&block).expect("plausible").rows().last();
    assert!(matches!(read, Some(Err(ProtocolError::Row { .. }))));
}

#[test]
fn a_caller_cannot_build_what_a_server_would_refuse() {
    let mut block = NameBlockBuf::new();
    let empty = Who::Names(Names::default());
    let nobody = Who::Names(Names {
        queue: Some("gpu"),
        qos: Some("high"),
        ..Names::default()
    });
    let long = "x".repeat(513);
    for who in [
        empty,
        nobody,
        Who::Path("a"),
        Who::Path(""),
        Who::user_account("a", &long),
    ] {
        assert!(block.push(&who).is_err(), "{who:?}");
    }
    assert!(block.as_block().is_empty());
    let who = Who::Path("/a");
    assert_eq!(
        NameBlockBuf::of(&vec![who; LOOKUP_BATCH_MAX + 1]).map(|_| ()),
        Err(ProtocolError::TooManyRows(LOOKUP_BATCH_MAX + 1))
    );
    let name = "x".repeat(512);
    let who = Who::Names(Names {
        user: Some(&name),
        account: Some(&name),
        group: Some(&name),
        subject: Some(&name),
        queue: Some(&name),
        qos: Some(&name),
    });
    let block = NameBlockBuf::of(&vec![who; ROWS_OF_ANY_NAMES]).expect("rows");
    let request = Request {
        id: 1,
        want: Want::FactorsAndHandles,
        accounts: Accounts::Names(block.as_block()),
    };
    assert_eq!(encode_request(&mut Vec::new(), &request), Ok(()));
    let block = NameBlockBuf::of(&vec![Who::user_account(&name, &name); 10_000]).expect("rows");
    let request = Request {
        id: 1,
        want: Want::Factors,
        accounts: Accounts::Names(block.as_block()),
    };
    let mut out = vec![1];
    assert!(matches!(
        encode_request(&mut out, &request),
        Err(ProtocolError::FrameTooLarge(_))
    ));
    assert_eq!(out, [1]);
}

#[test]
fn what_is_not_canonical_is_refused_wherever_it_is() {
    let head = [0xa5, 1, 1, 2, 7, 3, 0, 4, 0x44, 0, 0, 0, 0];
    let cases: [(&str, &[u8]); 7] = [
        ("a long head", &[9, 0x18, 1]),
        ("a long key", &[0x18, 9, 1]),
        ("a key twice", &[4, 0x44, 0, 0, 0, 0]),
        ("keys descending", &[0, 1]),
        ("an indefinite length", &[9, 0x9f, 0xff]),
        ("a float, within", &[9, 0x81, 0xf9, 0, 0]),
        ("no text", &[0x61, 0xff, 0]),
    ];
    for (name, entry) in cases {
        let body = [head.as_slice(), entry].concat();
        assert!(cbor::check(&body, FRAME_BYTES_MAX).is_err(), "{name}");
        assert!(decode_request(&body).is_err(), "{name}");
    }
    let deep = [head.as_slice(), &[9], &[0x81; 17], &[0]].concat();
    assert!(decode_request(&deep).is_err(), "nested too deep");
    let good = [head.as_slice(), &[9, 0x81, 0]].concat();
    assert!(decode_request(&good).is_ok());
}

#[test]
fn keys_from_the_future_are_skipped() {
    // {1: 1, 2: 7, 3: 0, 4: empty block, 99: [{1: h'00'}, tag 1 (0)], "x": null}
    let frame = [
        0xa6, 1, 1, 2, 7, 3, 0, 4, 0x44, 0, 0, 0, 0, 0x18, 99, 0x82, 0xa1, 1, 0x41, 0, 0xc1, 0,
        0x61, b'x', 0xf6,
    ];
    assert_eq!(decode_request(&frame).map(|request| request.id), Ok(7));
}

fn any_name() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[a-zåäö0-9/]{1,12}")
}

/// Reads a body both ways, to the last row: nothing may panic, and what decodes is canonical.
fn read_all(bytes: &[u8]) {
    if decode_request(bytes).is_ok() || decode_reply(bytes).is_ok() {
        assert_eq!(cbor::check(bytes, FRAME_BYTES_MAX), Ok(()));
    }
    if let Ok(Request {
        accounts: Accounts::Names(block),
        ..
    }) = decode_request(bytes)
    {
        assert!(block.rows().count() <= LOOKUP_BATCH_MAX);
    }
    if let Ok(Reply {
        outcome: Ok(answer),
        ..
    }) = decode_reply(bytes)
    {
        assert!(
            answer
                .factors()
                .flatten()
                .all(|factor| factor <= FACTOR_MAX)
        );
    }
}

proptest! {
    #[test]
    fn name_blocks_round_trip(rows in proptest::collection::vec(proptest::array::uniform6(any_name()), 0..20)) {
        let rows: Vec<Who<'_>> = rows
            .iter()
            .map(|names| {
                let [user, account, group, subject, queue, qos] =
                    names.each_ref().map(|name| name.as_deref());
                Names { user, account, group, subject, queue, qos }
            })
            .filter(|names| *names != Names { queue: names.queue, qos: names.qos, ..Names::default() })
            .map(Who::Names)
            .collect();
        let block = NameBlockBuf::of(&rows).expect("good names");
        let read: Result<Vec<_>, _> = block.as_block().rows().collect();
        prop_assert_eq!(read, Ok(rows));
    }

    #[test]
    fn whatever_rows_decode_have_one_block(bytes in proptest::collection::vec(0_u8..20, 4..40)) {
        if let Ok(block) = NameBlock::new(&bytes)
            && let Ok(rows) = block.rows().collect::<Result<Vec<_>, _>>()
        {
            let again = NameBlockBuf::of(&rows).expect("what is read can be written");
            prop_assert_eq!(again.as_block().as_bytes(), bytes);
        }
    }

    #[test]
    fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = split_frame(&bytes);
        read_all(&bytes);
    }

    #[test]
    fn maps_of_noise_never_panic(entries in proptest::collection::vec((1_u8..9, proptest::collection::vec(any::<u8>(), 1..6)), 1..9)) {
        let mut bytes = vec![0xa0 + u8::try_from(entries.len()).expect("few")];
        for (key, value) in &entries {
            bytes.push(*key);
            bytes.extend(value);
        }
        read_all(&bytes);
    }

    #[test]
    fn damaged_frames_never_panic(at in 0_usize..200, bit in 0_u8..8, cut in 0_usize..200) {
        let names = NameBlockBuf::of(&[Who::user_account("alice", "physics"), Who::Path("/a/b")]).expect("good");
        let asked = request(Want::FactorsAndHandles, Accounts::Names(names.as_block()));
        let mut answered = Vec::new();
        encode_answer(&mut answered, 7, &view(), &[1, 2, UNKNOWN], true, Some).expect("fits");
        for frame in [asked, answered] {
            let mut bytes = body(&frame).to_vec();
            let cut = cut % bytes.len();
            prop_assert!(decode_request(&bytes[..cut]).is_err());
            prop_assert!(decode_reply(&bytes[..cut]).is_err());
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            read_all(&bytes);
            read_all(&bytes[..cut]);
        }
    }
}
