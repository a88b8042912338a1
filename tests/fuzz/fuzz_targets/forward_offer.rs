//! Throws bytes at the decoder `forward_offer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("forward_offer", bytes);
});
