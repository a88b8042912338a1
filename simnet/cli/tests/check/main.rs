//! The checker itself: it repeats, it finds nothing in sound code, and it finds what is planted
//! (`cargo test -p simnet --features mutants`).
//!
//! Invariant: nothing here is about one seed; the seeds are the first ones, and the command tries
//! others. Deliberately not here: single invariants, whose tests are the planted faults.

use fairmesh_cluster::Seed;
use simnet::check::{Run, pool};
use simnet::swarm::Options;

mod lies;
#[cfg(feature = "mutants")]
mod mutants;

#[test]
fn a_seed_has_one_trace() {
    let run = || Run::new(Seed(3), Options::draw(Seed(3))).finish();
    assert_eq!(run(), run());
}

#[test]
fn options_come_back_from_what_is_printed() {
    for seed in 0..200 {
        let options = Options::draw(Seed(seed));
        assert_eq!(Options::from_toml(&options.to_toml()), Ok(options));
    }
}

#[test]
fn sound_code_passes() {
    let run = |index: usize| {
        let seed = Seed(index as u64 + 1);
        Run::new(seed, Options::draw(seed)).finish()
    };
    pool::in_order(20, pool::threads(), run, |_, outcome| {
        assert_eq!(outcome.failure, None, "seed {}", outcome.seed.0);
        assert!(outcome.stats.healed_ms.is_some());
        true
    });
}
