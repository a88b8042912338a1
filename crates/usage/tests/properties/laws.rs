//! The laws of the lattice, and the agreement of its state-based and operation-based forms.

use std::collections::BTreeMap;

use crdts::{CmRDT, CvRDT, GCounter};
use fairmesh_model::{AccountPath, Seq, WallTime};
use fairmesh_usage::{Applied, MergeRefused, Refused, VoUsage};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::{
    ACCOUNTS, AMPLE, Follower, Step, Value, Writer, any_steps, empty, history, path, replica,
    take_step, value, vo,
};

fn merged(mut a: VoUsage, b: VoUsage) -> VoUsage {
    a.validate_merge(&b).expect("one VO");
    a.merge(b);
    a
}

fn merged_value(a: VoUsage, b: VoUsage) -> Value {
    value(&merged(a, b))
}

/// What one replica has heard, on which branch of stream 0, and what it has forgotten.
#[derive(Debug, Clone)]
struct Hearing {
    prefixes: Vec<Index>,
    branch: bool,
    horizon_hours: u64,
    checkpoint: bool,
}

fn any_hearing() -> impl Strategy<Value = Hearing> {
    let horizon = prop_oneof![3 => Just(0), 1 => 0..60u64];
    (
        proptest::collection::vec(any::<Index>(), 3),
        proptest::bool::weighted(0.3),
        horizon,
        any::<bool>(),
    )
        .prop_map(|(prefixes, branch, horizon_hours, checkpoint)| Hearing {
            prefixes,
            branch,
            horizon_hours,
            checkpoint,
        })
}

fn hear(hearing: &Hearing, writers: &[Writer], branch: &[Writer]) -> VoUsage {
    let mut usage = replica(
        if hearing.branch { branch } else { writers },
        &hearing.prefixes,
    );
    usage.forget_ended_before(WallTime::from_unix_secs(hearing.horizon_hours * 3_600));
    let writer = &writers[2];
    let heard = usage.version_vector().get(&writer.stream);
    if hearing.checkpoint && heard > 0 && heard == writer.batches.len() as u64 {
        usage
            .offer_checkpoint(writer.checkpoint().0, AMPLE)
            .expect("honest");
    }
    usage
}

/// The same history, in which site 1 goes another way behind some batch.
fn other_branch(steps: &[(usize, Step)], writers: &[Writer], behind: Index) -> Vec<Writer> {
    let mut branch = history(steps);
    let behind = behind.index(writers[0].batches.len() + 1);
    branch[0] = writers[0].fork_after(behind);
    take_step(
        &mut branch[0],
        &Step::Count {
            window: 3,
            account: 1,
            ms: 77,
        },
    );
    take_step(&mut branch[0], &Step::CompactBefore { day: 2 });
    take_step(
        &mut branch[0],
        &Step::Count {
            window: 50,
            account: 0,
            ms: 78,
        },
    );
    branch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn merging_is_commutative_associative_and_idempotent(
        steps in any_steps(40),
        behind in any::<Index>(),
        hearings in proptest::collection::vec(any_hearing(), 3),
    ) {
        let writers = history(&steps);
        let branch = other_branch(&steps, &writers, behind);
        let heard: Vec<VoUsage> = hearings.iter().map(|hearing| hear(hearing, &writers, &branch)).collect();
        let [a, b, c] = [0, 1, 2].map(|index: usize| heard[index].clone());
        prop_assert_eq!(merged_value(a.clone(), b.clone()), merged_value(b.clone(), a.clone()));
        let left = merged(merged(a.clone(), b.clone()), c.clone());
        let right = merged(a.clone(), merged(b.clone(), c));
        prop_assert_eq!(value(&left), value(&right));
        prop_assert_eq!(merged_value(a.clone(), a.clone()), value(&a));
        let ab = merged(a.clone(), b.clone());
        prop_assert_eq!(merged_value(ab.clone(), b), value(&ab));
    }

    #[test]
    fn operations_in_any_order_equal_a_merge(steps in any_steps(40), order in any::<[u8; 8]>()) {
        let writers = history(&steps);
        let state = writers.iter().fold(empty(), |state, writer| merged(state, writer.own.clone()));
        let mut waiting: Vec<_> = writers.iter().flat_map(|writer| writer.batches.clone()).collect();
        waiting.sort_by_key(|batch| {
            let mix: Vec<u8> = batch.hash().as_bytes().iter().zip(order.iter().cycle()).map(|(a, b)| a ^ b).collect();
            mix
        });
        let mut operated = empty();
        while !waiting.is_empty() {
            waiting.retain(|batch| match operated.validate_op(batch) {
                Ok(()) => {
                    operated.apply(batch.clone());
                    operated.apply(batch.clone());
                    false
                }
                Err(Refused::Gap { .. }) => true,
                Err(other) => panic!("{other}"),
            });
        }
        prop_assert_eq!(value(&operated), value(&state));
    }

    #[test]
    fn grid_totals_equal_grow_only_counters(steps in any_steps(60)) {
        let writers = history(&steps);
        let mut oracle: BTreeMap<AccountPath, GCounter<usize>> = BTreeMap::new();
        // The second writer is a later life of the first one's site.
        let is_over = steps.iter().any(|step| matches!(step, (1, Step::Retire)));
        for (writer, step) in steps.iter().filter(|(writer, _)| !(is_over && *writer == 0)) {
            if let Step::Count { account, ms, .. } = step {
                let counter = oracle.entry(path(ACCOUNTS[*account])).or_default();
                counter.apply(counter.inc_many(*writer, *ms));
            }
        }
        let grid = writers.iter().fold(empty(), |state, writer| merged(state, writer.own.clone()));
        let totals = grid.totals_by_path();
        prop_assert_eq!(totals.len(), oracle.len());
        for (account, counter) in &oracle {
            prop_assert_eq!(counter.read(), totals[account].charge.into());
            prop_assert_eq!(grid.total(account), totals[account]);
        }
        let by_site: u64 = grid.by_site(&path("/p")).values().map(|sum| sum.charge).sum();
        prop_assert_eq!(by_site, grid.total(&path("/p")).charge);
    }

    #[test]
    fn sums_that_follow_the_changes_stay_exact(steps in any_steps(60), horizon in 0..60u64) {
        let writers = history(&steps);
        let (mut usage, mut follower) = (empty(), Follower::default());
        for (half, batch) in writers.iter().flat_map(|writer| writer.batches.iter().enumerate()) {
            if half == 5 {
                follower.follow(usage.forget_ended_before(WallTime::from_unix_secs(horizon * 3_600)));
            }
            let Applied::Fresh(changes) = usage.apply_batch(batch.clone(), AMPLE).expect("honest") else {
                panic!("in order");
            };
            follower.follow(changes);
        }
        follower.assert_mirrors(&usage);
        follower.follow(usage.forget_ended_before(WallTime(u64::MAX)));
        follower.assert_mirrors(&usage);
        prop_assert_eq!(usage.state_digest(), [0; 32]);
        prop_assert_eq!(usage.totals_by_path(), BTreeMap::new());
    }
}

#[test]
fn states_of_two_vos_do_not_merge() {
    let other = VoUsage::new(
        fairmesh_model::VoId::from_bytes([8; 32]),
        fairmesh_model::WindowLength::HOUR,
    );
    assert_eq!(
        empty().validate_merge(&other),
        Err(MergeRefused::OtherVo(vo(), other.vo()))
    );
}

#[test]
fn merging_by_day_moves_the_hours_into_the_day_and_absorbs_late_hours() {
    let mut writer = Writer::new(1, 1);
    let account = path("/p/u");
    let mut usage = empty();
    let mut follower = Follower::default();
    writer.count(3, &account, 10);
    writer.count(4, &account, 5);
    let rows = writer.own.compact_days(writer.stream, 1);
    assert_eq!(rows.len(), 1);
    writer.publish(rows);
    for batch in &writer.batches {
        let Ok(Applied::Fresh(changes)) = usage.apply_batch(batch.clone(), AMPLE) else {
            panic!("in order")
        };
        follower.follow(changes);
    }
    follower.assert_mirrors(&usage);
    assert_eq!(usage.cells().count(), 1);
    assert_eq!(usage.total(&account).charge, 15);
    let absorbed = writer.publish(vec![(
        crate::support::hour(5),
        account.clone(),
        crate::support::used(9),
    )]);
    assert_eq!(
        usage.apply_batch(absorbed, AMPLE),
        Ok(Applied::Fresh(Vec::new()))
    );
    assert_eq!(usage.stats().absorbed_cells, 1);
    // What the site counts from now on goes where it is kept.
    let late = writer.count(5, &account, 9);
    usage.apply_batch(late, AMPLE).expect("within capacity");
    assert_eq!(usage.total(&account).charge, 24);
    assert_eq!(usage.version_vector().get(&writer.stream), Seq(5).0);
}

#[test]
fn late_cells_are_counted_and_ignored() {
    let mut writer = Writer::new(1, 1);
    let mut usage = empty();
    usage.forget_ended_before(WallTime::from_unix_secs(10 * 3_600));
    usage
        .apply_batch(writer.count(9, &path("/a"), 1), AMPLE)
        .expect("within capacity");
    assert_eq!((usage.cells().count(), usage.stats().late_cells), (0, 1));
    usage
        .apply_batch(writer.count(10, &path("/a"), 1), AMPLE)
        .expect("within capacity");
    assert_eq!((usage.cells().count(), usage.stats().late_cells), (1, 1));
}
