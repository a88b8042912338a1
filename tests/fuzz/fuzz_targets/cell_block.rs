//! Throws bytes at the decoder `cell_block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("cell_block", bytes);
});
