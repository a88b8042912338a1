//! Throws bytes at the decoder `account_path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("account_path", bytes);
});
