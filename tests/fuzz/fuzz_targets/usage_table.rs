//! Throws bytes at the decoder `usage_table`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("usage_table", bytes);
});
