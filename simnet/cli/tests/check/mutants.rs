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
const SEEDS_MAX: u64 = 12;

/// For each invariant the fault that is meant for it and is found soonest.
const OWN: [(&str, &str); 25] = [
    ("agreement", "DigestKeepsOld"),
    ("nothing-lost", "LedgerUnwritten"),
    ("nothing-twice", "MarksUnread"),
    ("incarnations", "IncarnationGoesOn"),
    ("owner", "SeqStays"),
    ("policies", "CharterSignedByItself"),
    ("priorities", "GlobalLevelsLocal"),
    ("prices", "PricesUnread"),
    ("privacy", "StrangersServed"),
    ("quotas", "EndedUncommitted"),
    ("limits", "PartsUnstored"),
    ("expired", "ExpiryUnsaid"),
    ("vouched", "LackUnsaid"),
    ("liars", "RefusalUnsaid"),
    ("total", "LastMillisecondLost"),
    ("answers", "DecayOneWindowOff"),
    ("clocks", "OwnClockBelieved"),
    ("coverage", "SignedYounger"),
    ("fresh", "HeartbeatsRare"),
    ("audit", "AuditAddedUp"),
    ("descriptions", "HostsUnsaid"),
    ("adverts", "FreeNeverOld"),
    ("verdicts", "LastCallFirst"),
    ("holds", "QueueTimeForgotten"),
    (LIVENESS, "DocumentDropped"),
];

#[test]
fn each_invariant_finds_a_fault_that_is_meant_for_it() {
    let names = INVARIANTS.iter().map(|entry| entry.name);
    assert!(
        names
            .chain([LIVENESS])
            .eq(OWN.iter().map(|(name, _)| *name))
    );
    let find = |index: usize| {
        let (name, fault) = OWN[index];
        let mutant = TABLE.iter().find(|mutant| mutant.name == fault);
        let mutant = mutant.filter(|mutant| mutant.meant == name);
        let mutant = mutant.expect("it is in the table, and meant for it");
        hunt_for_its_own(mutant, Seed(1), SEEDS_MAX).found
    };
    pool::in_order(OWN.len(), pool::threads(), find, |index, found| {
        let (name, fault) = OWN[index];
        let by = found.map(|found| found.by);
        assert_eq!(by.as_deref(), Some(name), "{fault}");
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
