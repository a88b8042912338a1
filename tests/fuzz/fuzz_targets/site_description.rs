//! Throws bytes at the decoder `site_description`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("site_description", bytes);
});
