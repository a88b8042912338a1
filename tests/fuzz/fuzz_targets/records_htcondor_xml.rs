//! Throws bytes at the decoder `records_htcondor_xml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("records_htcondor_xml", bytes);
});
