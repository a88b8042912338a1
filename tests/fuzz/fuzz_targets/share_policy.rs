//! Throws bytes at the decoder `share_policy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("share_policy", bytes);
});
