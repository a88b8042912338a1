//! Throws bytes at the decoder `gossip_packed_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fairmesh_tests::decoders::decode("gossip_packed_response", bytes);
});
