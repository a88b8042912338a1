//! Throws bytes at the decoder `place_grid`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("place_grid", bytes);
});
