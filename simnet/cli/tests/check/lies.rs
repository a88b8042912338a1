//! Members that lie, each with the lie of one row of the table.
//!
//! Invariant: every lie of the table is withstood, by a Grid whose seed nobody chose.

use fairmesh_cluster::Seed;
use simnet::check::{Run, pool};
use simnet::liar::{Choice, LIES};
use simnet::swarm::Options;

/// Sites of each Grid: two of them lie at most.
const SITES: usize = 6;

/// Simulated minutes.
const MINUTES: u64 = 60;

#[test]
fn honest_sites_withstand_every_lie() {
    let run = |index: usize| {
        let seed = Seed(index as u64 + 1);
        let options = Options::draw_of(seed, SITES, Some(MINUTES));
        Run::new(seed, options.with_lies(seed, Choice::One(&LIES[index]))).finish()
    };
    pool::in_order(LIES.len(), pool::threads(), run, |index, outcome| {
        assert_eq!(outcome.failure, None, "{}", LIES[index].name);
        true
    });
}
