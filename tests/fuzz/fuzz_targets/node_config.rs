//! Throws bytes at the decoder `node_config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("node_config", bytes);
});
