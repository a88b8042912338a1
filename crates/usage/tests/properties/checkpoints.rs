//! Checkpoints and seals: a newcomer ends where everybody stands, and nothing counts before it is
//! whole.

use fairmesh_model::{Seq, StreamId, WallTime, WindowLength};
use fairmesh_usage::{Applied, Bound, CheckpointOffer, Refused, VersionVector, VoUsage};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::{
    AMPLE, Follower, Writer, agreed, any_steps, empty, history, hour, path, pull_all, used, value,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_newcomer_with_checkpoints_equals_one_who_heard_everything(
        steps in any_steps(50), at in proptest::collection::vec(any::<Index>(), 3), horizon in 0..40u64
    ) {
        let writers = history(&steps);
        let horizon = WallTime::from_unix_secs(horizon * 3_600);
        let (mut listener, mut newcomer) = (empty(), empty());
        listener.forget_ended_before(horizon);
        newcomer.forget_ended_before(horizon);
        let mut follower = Follower::default();
        for (writer, at) in writers.iter().zip(at).filter(|(writer, _)| !writer.batches.is_empty()) {
            let at = at.index(writer.batches.len()) + 1;
            let (document, seals) = writer.fork_after(at).checkpoint();
            match newcomer.offer_checkpoint(document, AMPLE).expect("honest") {
                CheckpointOffer::Wants(wanted) => {
                    prop_assert!(wanted.iter().all(|seal| seal.span.end(WindowLength::HOUR) > horizon));
                    let last = wanted.len() - 1;
                    for (index, seal) in wanted.into_iter().enumerate() {
                        prop_assert_eq!(newcomer.version_vector().get(&writer.stream), 0);
                        let changes = newcomer.offer_seal(seal, &seals[&seal.hash]).expect("honest");
                        prop_assert!(index == last || changes.is_empty());
                        follower.follow(changes);
                    }
                }
                CheckpointOffer::Adopted(changes) => {
                    // Nothing of its own, but it may declare an earlier life over.
                    prop_assert!(changes.iter().all(|change| newcomer.is_retired(change.stream)));
                    prop_assert!(seals.len() < 60);
                    follower.follow(changes);
                }
                CheckpointOffer::Behind => panic!("nothing is newer"),
            }
            prop_assert_eq!(newcomer.version_vector().get(&writer.stream), at as u64);
            for batch in &writer.batches {
                listener.apply_batch(batch.clone(), AMPLE).expect("honest");
                if let Applied::Fresh(changes) = newcomer.apply_batch(batch.clone(), AMPLE).expect("honest") {
                    follower.follow(changes);
                }
            }
        }
        prop_assert_eq!(agreed(&newcomer), agreed(&listener));
        follower.assert_mirrors(&newcomer);
    }
}

#[test]
fn spans_that_did_not_change_keep_their_seals() {
    let mut writer = Writer::new(1, 1);
    writer.count(0, &path("/a"), 1);
    writer.count(1, &path("/a"), 1);
    let (first, _) = writer.checkpoint();
    writer.count(1, &path("/a"), 1);
    let (second, _) = writer.checkpoint();
    assert_eq!(first.body().seals[0], second.body().seals[0]);
    assert_ne!(first.body().seals[1], second.body().seals[1]);
}

#[test]
fn a_listener_cuts_the_seals_itself_and_prunes() {
    let mut writer = Writer::new(1, 1);
    let mut listener = empty();
    let mut checkpoints = Vec::new();
    for window in 0..9 {
        listener
            .apply_batch(writer.count(window, &path("/a"), 1), AMPLE)
            .expect("honest");
        if window % 3 == 1 {
            checkpoints.push(writer.checkpoint().0);
        }
    }
    for checkpoint in &checkpoints {
        let offer = listener.offer_checkpoint(checkpoint.clone(), AMPLE);
        assert_eq!(offer, Ok(CheckpointOffer::Adopted(Vec::new())));
    }
    assert_eq!(
        listener.offer_checkpoint(checkpoints[0].clone(), AMPLE),
        Ok(CheckpointOffer::Behind)
    );
    let pruned = listener.prune(writer.stream);
    assert_eq!(pruned.seqs, (1..=5).map(Seq).collect::<Vec<_>>());
    assert_eq!(pruned.checkpoints, [checkpoints[0].hash()]);
    assert_eq!(pruned.seals, [], "later checkpoints hold them too");
    let delta = listener.delta_since(&VersionVector::new(), usize::MAX);
    assert_eq!(
        delta.items.len(),
        2,
        "the newest checkpoint and the batch behind it"
    );
    let mut newcomer = empty();
    pull_all(&mut newcomer, &listener, usize::MAX);
    assert_eq!(agreed(&newcomer), agreed(&writer.own));
}

#[test]
fn a_checkpoint_beyond_capacity_is_thrown_away_as_a_whole() {
    let mut writer = Writer::new(1, 1);
    writer.publish(vec![
        (hour(0), path("/a"), used(8 * 3_600_000)),
        (hour(1), path("/a"), used(1)),
    ]);
    let (document, seals) = writer.checkpoint();
    let mut usage = empty();
    let before = value(&usage);
    let Ok(CheckpointOffer::Wants(wanted)) =
        usage.offer_checkpoint(document.clone(), Bound::new(4, 4))
    else {
        panic!("nothing is here yet");
    };
    assert_eq!(
        usage.offer_seal(wanted[0], &seals[&wanted[0].hash]),
        Ok(Vec::new())
    );
    assert_eq!(usage.cells().count(), 0);
    let refused = usage.offer_seal(wanted[1], &seals[&wanted[1].hash]);
    assert!(
        matches!(
            refused,
            Err(Refused::OverCapacity {
                claimed: 28_800_000,
                ..
            })
        ),
        "{refused:?}"
    );
    assert_eq!(value(&usage), before);
    assert_eq!(usage.seal(&wanted[0].hash), None);
    assert!(matches!(
        usage.offer_checkpoint(document, AMPLE),
        Ok(CheckpointOffer::Wants(_))
    ));
}

#[test]
fn a_checkpoint_that_claims_more_than_its_batches_is_refused() {
    let mut honest = Writer::new(1, 1);
    let mut richer = Writer::new(1, 1);
    honest.count(0, &path("/a"), 1);
    richer.count(0, &path("/a"), 2);
    let (mut body, seals) = richer
        .own
        .checkpoint_of(richer.stream, WallTime(0))
        .expect("something was said");
    body.head = honest.batches[0].hash();
    let (document, seals) = richer.sign_checkpoint(body, seals);
    let mut usage = honest.own.clone();
    let Ok(CheckpointOffer::Wants(wanted)) = usage.offer_checkpoint(document, AMPLE) else {
        panic!("not its own")
    };
    let refused = usage.offer_seal(wanted[0], &seals[&wanted[0].hash]);
    assert_eq!(
        refused,
        Err(Refused::FalseCheckpoint {
            stream: honest.stream,
            seq: Seq(1)
        })
    );
    assert_eq!(value(&usage), value(&honest.own));
}

#[test]
fn wrong_bytes_and_unasked_seals_are_refused() {
    let mut writer = Writer::new(1, 1);
    writer.count(0, &path("/a"), 1);
    let (document, seals) = writer.checkpoint();
    let seal = document.body().seals[0];
    let mut usage = empty();
    assert_eq!(
        usage.offer_seal(seal, &seals[&seal.hash]),
        Err(Refused::UnwantedSeal(seal.hash))
    );
    usage.offer_checkpoint(document, AMPLE).expect("honest");
    assert!(matches!(
        usage.offer_seal(seal, b"something else"),
        Err(Refused::Seal(_))
    ));
    assert_eq!(usage.wanted_seals(), [(writer.stream, seal)]);
}

#[test]
fn a_seal_that_is_forgotten_is_waited_for_no_longer() {
    let mut writer = Writer::new(1, 1);
    writer.count(0, &path("/a"), 1);
    writer.count(5, &path("/a"), 2);
    let (document, seals) = writer.checkpoint();
    let mut usage = empty();
    let Ok(CheckpointOffer::Wants(wanted)) = usage.offer_checkpoint(document, AMPLE) else {
        panic!("two seals")
    };
    usage
        .offer_seal(wanted[1], &seals[&wanted[1].hash])
        .expect("honest");
    let changes = usage.forget_ended_before(WallTime::from_unix_secs(3_600));
    assert_eq!(changes.len(), 1);
    assert_eq!(usage.version_vector().get(&writer.stream), 2);
}

#[test]
fn equal_sheets_of_two_streams_are_one_seal() {
    let stream = |secret| {
        let mut writer = Writer::new(secret, 1);
        writer.count(0, &path("/a"), 1);
        writer
    };
    let (a, b) = (stream(1), stream(2));
    let mut usage = empty();
    let offer =
        |usage: &mut VoUsage, writer: &Writer| usage.offer_checkpoint(writer.checkpoint().0, AMPLE);
    let Ok(CheckpointOffer::Wants(wanted)) = offer(&mut usage, &a) else {
        panic!("a newcomer")
    };
    usage
        .offer_seal(wanted[0], &a.checkpoint().1[&wanted[0].hash])
        .expect("honest");
    assert!(
        matches!(offer(&mut usage, &b), Ok(CheckpointOffer::Adopted(changes)) if changes.len() == 1)
    );
    let heard = |stream: &StreamId| usage.version_vector().get(stream);
    assert_eq!((heard(&a.stream), heard(&b.stream)), (1, 1));
}
