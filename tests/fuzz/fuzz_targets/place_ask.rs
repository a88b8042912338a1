//! Throws bytes at the decoder `place_ask`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("place_ask", bytes);
});
