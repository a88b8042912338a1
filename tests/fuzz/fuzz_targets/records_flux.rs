//! Throws bytes at the decoder `records_flux`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("records_flux", bytes);
});
