//! Throws bytes at the decoder `apel_summary`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("apel_summary", bytes);
});
