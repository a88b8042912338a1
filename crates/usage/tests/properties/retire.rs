//! Lives that their site declares over, and sites that count no more.

use crdts::CvRDT;
use fairmesh_model::Incarnation;
use fairmesh_usage::{Applied, CheckpointOffer, INCARNATIONS_MAX, Refused, VoUsage};

use crate::support::{AMPLE, Batch, Follower, Writer, agreed, empty, path, pull_all, value};

/// A life that counted, and a later one of the same site that has declared it over.
fn two_lives() -> (Writer, Writer) {
    let (mut first, mut second) = (Writer::new(1, 3), Writer::new(1, 7));
    first.count(1, &path("/a"), 10);
    first.count(2, &path("/p/u"), 20);
    second.count(3, &path("/a"), 30);
    second.retired_below = Incarnation(7);
    second.publish(Vec::new());
    (first, second)
}

fn hear(usage: &mut VoUsage, batches: &[Batch]) {
    for batch in batches {
        usage.apply_batch(batch.clone(), AMPLE).expect("honest");
    }
}

#[test]
fn a_life_that_is_over_is_dropped_and_not_taken_again_whoever_speaks_first() {
    let (first, second) = two_lives();
    let (mut early, mut late) = (empty(), empty());
    hear(&mut early, &first.batches);
    hear(&mut early, &second.batches);
    hear(&mut late, &second.batches);
    hear(&mut late, &first.batches);
    assert_eq!(agreed(&early), agreed(&late));
    assert_eq!(early.streams().count(), 1);
    assert_eq!(early.total(&path("/")).charge, 30);
    assert_eq!(
        early.apply_batch(first.batches[0].clone(), AMPLE),
        Ok(Applied::Known)
    );
    let (checkpoint, _) = first.checkpoint();
    assert_eq!(
        early.offer_checkpoint(checkpoint, AMPLE),
        Ok(CheckpointOffer::Behind)
    );
}

#[test]
fn what_was_dropped_is_told_to_the_store_and_to_whoever_follows() {
    let (first, second) = two_lives();
    let (mut usage, mut follower) = (empty(), Follower::default());
    for batch in first.batches.iter().chain(&second.batches) {
        match usage.apply_batch(batch.clone(), AMPLE).expect("honest") {
            Applied::Fresh(changes) => follower.follow(changes),
            other => panic!("{other:?}"),
        }
    }
    follower.assert_mirrors(&usage);
    let dropped = usage.take_dropped();
    assert_eq!(dropped.len(), 1);
    assert_eq!(dropped[0].0, first.stream);
    assert_eq!(dropped[0].1.seqs.len(), first.batches.len());
    assert!(usage.take_dropped().is_empty());
}

#[test]
fn a_newcomer_learns_from_the_checkpoint_which_lives_are_over() {
    let (first, mut second) = two_lives();
    let mut server = empty();
    hear(&mut server, &first.batches);
    hear(&mut server, &second.batches);
    for _ in 0..2 {
        second.publish(Vec::new());
        hear(&mut server, &second.batches[second.batches.len() - 1..]);
        let (checkpoint, seals) = second.checkpoint();
        if let Ok(CheckpointOffer::Wants(wanted)) = server.offer_checkpoint(checkpoint, AMPLE) {
            for seal in wanted {
                server.offer_seal(seal, &seals[&seal.hash]).expect("honest");
            }
        }
    }
    server.prune(second.stream);
    let mut newcomer = empty();
    pull_all(&mut newcomer, &server, 1);
    assert_eq!(newcomer.retired_below(first.stream.site), Incarnation(7));
    hear(&mut newcomer, &first.batches);
    assert_eq!(agreed(&newcomer), agreed(&server));
}

#[test]
fn merging_whole_states_drops_what_either_knows_to_be_over() {
    let (first, second) = two_lives();
    let (mut a, mut b) = (empty(), empty());
    hear(&mut a, &first.batches);
    hear(&mut b, &second.batches);
    let (mut ab, mut ba) = (a.clone(), b.clone());
    ab.merge(b);
    ba.merge(a);
    assert_eq!(value(&ab), value(&ba));
    assert_eq!(ab.streams().count(), 1);
}

#[test]
fn only_lives_without_a_live_cell_can_be_retired_and_never_the_current_one() {
    let (mut first, mut second) = (Writer::new(1, 3), Writer::new(1, 7));
    first.count(1, &path("/a"), 10);
    second.count(30, &path("/a"), 30);
    let current = Writer::new(1, 9).stream;
    let mut usage = empty();
    hear(&mut usage, &first.batches);
    hear(&mut usage, &second.batches);
    assert_eq!(usage.retirable_below(current), Incarnation(0));
    let hour = 3_600_000;
    usage.forget_ended_before(fairmesh_model::WallTime(10 * hour));
    assert_eq!(usage.retirable_below(current), Incarnation(4));
    assert_eq!(usage.retirable_below(second.stream), Incarnation(4));
    usage.forget_ended_before(fairmesh_model::WallTime(100 * hour));
    assert_eq!(usage.retirable_below(current), Incarnation(8));
    assert_eq!(usage.retirable_below(second.stream), Incarnation(4));
}

#[test]
fn a_site_with_too_many_lives_gets_on_by_declaring_some_over() {
    let mut usage = empty();
    let lives = u64::try_from(INCARNATIONS_MAX).expect("a small number");
    for life in 1..=lives {
        let mut writer = Writer::new(1, life);
        writer.publish(Vec::new());
        hear(&mut usage, &writer.batches);
    }
    let mut next = Writer::new(1, lives + 1);
    next.publish(Vec::new());
    assert_eq!(
        usage.apply_batch(next.batches[0].clone(), AMPLE),
        Err(Refused::TooManyIncarnations(next.stream.site))
    );
    let mut after = Writer::new(1, lives + 2);
    after.retired_below = Incarnation(lives - 3);
    after.publish(Vec::new());
    hear(&mut usage, &after.batches);
    hear(&mut usage, &next.batches);
    assert_eq!(usage.streams().count(), 6);
}

#[test]
fn a_site_that_counts_no_more_leaves_nothing_behind_and_may_come_back() {
    let (first, second) = two_lives();
    let mut other = Writer::new(2, 1);
    other.count(1, &path("/a"), 5);
    let (mut usage, mut follower) = (empty(), Follower::default());
    let all = [&other.batches[..], &first.batches[..1], &second.batches[..]].concat();
    let mut without = empty();
    hear(&mut without, &other.batches);
    for batch in &all {
        match usage.apply_batch(batch.clone(), AMPLE).expect("honest") {
            Applied::Fresh(changes) => follower.follow(changes),
            other => panic!("{other:?}"),
        }
    }
    let before = agreed(&usage);
    follower.follow(usage.drop_site(first.stream.site));
    follower.assert_mirrors(&usage);
    assert_eq!(agreed(&usage), agreed(&without));
    hear(&mut usage, &all);
    assert_eq!(agreed(&usage), before);
}
