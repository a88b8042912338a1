//! Deltas: equal to a merge, without gaps, fair, and enough to converge after any disorder.

use crdts::CvRDT;
use fairmesh_model::Seq;
use fairmesh_usage::{Applied, DeltaItem, VersionVector, VoUsage};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::{
    AMPLE, Follower, Writer, agreed, any_steps, apply_delta, empty, history, path, pull_all,
    replica, value,
};

/// A server that keeps checkpoints, and has pruned what lies behind them.
fn pruned_server(writers: &mut [Writer], every: usize) -> VoUsage {
    let mut server = empty();
    for writer in writers {
        let mut again = writer.fork_after(0);
        for batch in &writer.batches {
            server.apply_batch(batch.clone(), AMPLE).expect("honest");
            again.own.apply_batch(batch.clone(), AMPLE).expect("honest");
            if batch.body().seq.0 % every as u64 == 0 {
                server
                    .offer_checkpoint(again.checkpoint().0, AMPLE)
                    .expect("honest");
                server.prune(writer.stream);
            }
        }
    }
    server
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_delta_equals_a_full_merge(
        steps in any_steps(50),
        here in proptest::collection::vec(any::<Index>(), 3),
        there in proptest::collection::vec(any::<Index>(), 3),
        bytes_max in 1..4_000usize,
    ) {
        let writers = history(&steps);
        let (mut receiver, server) = (replica(&writers, &here), replica(&writers, &there));
        let mut merged = receiver.clone();
        merged.merge(server.clone());
        let mut follower = Follower::default();
        follower.follow(pull_all(&mut empty(), &receiver, usize::MAX));
        follower.follow(pull_all(&mut receiver, &server, bytes_max));
        prop_assert_eq!(value(&receiver), value(&merged));
        follower.assert_mirrors(&receiver);
        let nothing = server.delta_since(&receiver.version_vector(), bytes_max);
        // Or lives of which the server has not heard that they are over.
        prop_assert!(nothing.items.iter().all(|item| receiver.is_retired(item.stream())));
    }

    #[test]
    fn a_delta_with_checkpoints_equals_a_full_merge(
        steps in any_steps(60),
        here in proptest::collection::vec(any::<Index>(), 3),
        every in 2..6usize,
        bytes_max in 1..4_000usize,
    ) {
        let mut writers = history(&steps);
        let server = pruned_server(&mut writers, every);
        let mut receiver = replica(&writers, &here);
        let mut merged = receiver.clone();
        merged.merge(server.clone());
        pull_all(&mut receiver, &server, bytes_max);
        prop_assert_eq!(agreed(&receiver), agreed(&merged));
        prop_assert_eq!(agreed(&receiver), agreed(&server));
        let mut newcomer = empty();
        pull_all(&mut newcomer, &receiver, bytes_max);
        prop_assert_eq!(agreed(&newcomer), agreed(&server));
    }

    #[test]
    fn loss_disorder_and_repetition_are_healed(
        steps in any_steps(50),
        pushes in proptest::collection::vec((0..3usize, any::<Index>()), 0..120),
        rounds in proptest::collection::vec((0..3usize, 0..3usize), 0..6),
    ) {
        let writers = history(&steps);
        let all: Vec<_> = writers.iter().flat_map(|writer| writer.batches.clone()).collect();
        let mut nodes = [empty(), empty(), empty()];
        for (node, batch) in pushes {
            let pushed = nodes[node].apply_batch(batch.get(&all).clone(), AMPLE).expect("honest");
            prop_assert!(!matches!(pushed, Applied::Fork(_)));
        }
        for writer in &writers {
            for batch in &writer.batches {
                nodes[0].apply_batch(batch.clone(), AMPLE).expect("honest");
            }
        }
        for (receiver, server) in rounds.into_iter().chain([(1, 0), (2, 1)]) {
            let server = nodes[server].clone();
            pull_all(&mut nodes[receiver], &server, 500);
        }
        prop_assert_eq!(agreed(&nodes[0]), agreed(&nodes[1]));
        prop_assert_eq!(agreed(&nodes[1]), agreed(&nodes[2]));
    }
}

#[test]
fn a_small_writer_is_not_starved_by_a_large_one() {
    // Whoever of them has the lower id.
    for secrets in [[1, 2, 3], [2, 1, 3], [3, 2, 1]] {
        let [mut large, mut small, mut unseen] = secrets.map(|secret| Writer::new(secret, 1));
        for window in 0..40 {
            large.count(window, &path("/large"), 1);
            unseen.count(window, &path("/unseen"), 1);
        }
        small.count(0, &path("/small"), 1);
        small.count(1, &path("/small"), 1);
        let mut server = large.own.clone();
        server.merge(small.own.clone());
        server.merge(unseen.own.clone());
        let digest = VersionVector {
            dots: [(large.stream, 1), (small.stream, 1)].into(),
        };
        let frame = 5 * unseen.batches[0].bytes().len();
        let delta = server.delta_since(&digest, frame);
        let order: Vec<_> = delta.items.iter().map(DeltaItem::stream).collect();
        assert_eq!(order[..3], [unseen.stream, small.stream, large.stream]);
        assert!(!delta.complete);
    }
}

#[test]
fn one_document_always_fits() {
    let mut writer = Writer::new(1, 1);
    writer.count(0, &path("/a"), 1);
    writer.count(1, &path("/a"), 1);
    let delta = writer.own.delta_since(&VersionVector::new(), 0);
    assert_eq!(delta.items, [DeltaItem::Batch(writer.batches[0].clone())]);
    assert!(!delta.complete);
}

#[test]
fn a_gap_is_named_and_filled() {
    let mut writer = Writer::new(1, 1);
    for window in 0..3 {
        writer.count(window, &path("/a"), 1);
    }
    let mut usage = empty();
    usage
        .apply_batch(writer.batches[0].clone(), AMPLE)
        .expect("honest");
    let before = value(&usage);
    let applied = usage.apply_batch(writer.batches[2].clone(), AMPLE);
    assert_eq!(
        applied,
        Ok(Applied::Gap {
            have: Seq(1),
            got: Seq(3)
        })
    );
    assert_eq!(value(&usage), before);
    let delta = writer.own.delta_since(&usage.version_vector(), usize::MAX);
    apply_delta(&mut usage, delta, &writer.own);
    assert_eq!(value(&usage), value(&writer.own));
}
