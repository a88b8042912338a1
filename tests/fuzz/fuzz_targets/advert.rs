//! Throws bytes at the decoder `advert`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("advert", bytes);
});
