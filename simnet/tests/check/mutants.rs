//! Each invariant finds a fault that is planted for it.
//!
//! Invariant: a fault counts here only where the invariant that it is meant for says so, in seeds that
//! anybody can run again. Deliberately not here: the other faults of the table (`simnet mutants`).

use fairmesh_cluster::Seed;
use simnet::check::pool;
use simnet::invariants::{LIVENESS, TABLE as INVARIANTS};
use simnet::mutants::TABLE;
use simnet::mutants::hunt::{hunt, hunt_for_its_own};

/// Seeds in which an invariant must find its own.
const SEEDS_MAX: u64 = 20;

#[test]
fn each_invariant_finds_a_fault_that_is_meant_for_it() {
    let names: Vec<&str> = INVARIANTS
        .iter()
        .map(|entry| entry.name)
        .chain([LIVENESS])
        .collect();
    // All that are meant for it in one seed, before any in many: most need one.
    let find = |index: usize| {
        let meant: Vec<_> = TABLE
            .iter()
            .filter(|mutant| mutant.meant == names[index])
            .collect();
        let finds = |mutant, seeds_max| {
            let found = hunt_for_its_own(mutant, Seed(1), seeds_max).found;
            found.is_some_and(|found| found.by == names[index])
        };
        [1, 4, SEEDS_MAX]
            .into_iter()
            .any(|seeds_max| meant.iter().any(|mutant| finds(mutant, seeds_max)))
    };
    pool::in_order(names.len(), pool::threads(), find, |index, is_found| {
        assert!(
            is_found,
            "`{}` finds nothing that is meant for it",
            names[index]
        );
        true
    });
}

#[test]
fn a_hunt_leaves_nothing_behind() {
    // One that every Grid comes by: all usage is weighed.
    let mutant = TABLE
        .iter()
        .find(|mutant| mutant.name == "DecayOneWindowOff");
    let mutant = mutant.expect("it is in the table");
    let first = hunt(mutant, Seed(1), 1);
    assert!(first.reached > 0);
    assert!(!fairmesh_model::mutant::is_planted(&mutant.name));
    assert_eq!(hunt(mutant, Seed(1), 1), first);
}
