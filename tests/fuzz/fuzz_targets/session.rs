//! Carries out what bytes say with whole sites.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::session::run(bytes);
});
