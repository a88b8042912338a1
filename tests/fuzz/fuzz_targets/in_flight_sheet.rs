//! Throws bytes at the decoder `in_flight_sheet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("in_flight_sheet", bytes);
});
