//! Throws bytes at the decoder `part_name`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("part_name", bytes);
});
