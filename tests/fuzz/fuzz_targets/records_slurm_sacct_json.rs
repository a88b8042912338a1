//! Throws bytes at the decoder `records_slurm_sacct_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("records_slurm_sacct_json", bytes);
});
