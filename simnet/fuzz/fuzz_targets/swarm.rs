//! Runs of the simulator, steered by coverage.
#![no_main]

use simnet::check::Run;
use simnet::swarm::Options;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((seed, options)) = Options::steered(bytes) else {
        return;
    };
    let outcome = Run::new(seed, options.clone()).finish();
    if let Some(failure) = outcome.failure {
        panic!(
            "seed {}: {}: {}\n{}",
            seed.0,
            failure.invariant,
            failure.message,
            options.to_toml()
        );
    }
});
