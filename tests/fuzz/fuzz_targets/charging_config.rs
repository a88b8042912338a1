//! Throws bytes at the decoder `charging_config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("charging_config", bytes);
});
