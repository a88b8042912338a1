//! Throws bytes at the decoder `forward_told`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("forward_told", bytes);
});
