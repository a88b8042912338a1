//! Throws bytes at the decoder `checkpoint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("checkpoint", bytes);
});
