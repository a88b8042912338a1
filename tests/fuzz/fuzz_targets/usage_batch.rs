//! Throws bytes at the decoder `usage_batch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("usage_batch", bytes);
});
