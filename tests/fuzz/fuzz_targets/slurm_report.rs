//! Throws bytes at the decoder `slurm_report`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("slurm_report", bytes);
});
