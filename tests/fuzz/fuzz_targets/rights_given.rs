//! Throws bytes at the decoder `rights_given`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("rights_given", bytes);
});
