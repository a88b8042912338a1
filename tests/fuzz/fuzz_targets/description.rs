//! Throws bytes at the decoder `description`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("description", bytes);
});
