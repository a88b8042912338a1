//! Throws bytes at the decoder `running_job`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("running_job", bytes);
});
