//! Throws bytes at the decoder `share_tree`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("share_tree", bytes);
});
