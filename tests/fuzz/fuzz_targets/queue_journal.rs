//! Throws bytes at the decoder `queue_journal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("queue_journal", bytes);
});
