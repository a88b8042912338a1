//! Throws bytes at the decoder `lookup_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("lookup_request", bytes);
});
