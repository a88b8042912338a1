//! Throws bytes at the decoder `records_ogf_usage_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("records_ogf_usage_record", bytes);
});
