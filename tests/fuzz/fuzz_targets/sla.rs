//! Throws bytes at the decoder `sla`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("sla", bytes);
});
