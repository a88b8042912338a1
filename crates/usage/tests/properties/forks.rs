//! Forks: proved by two batches, met by falling back to the prefix before them.

use std::sync::Arc;

use crdts::CvRDT;
use fairmesh_model::{ContentHash, Role, SealRef, Seq, Signed, UsageBatch, WallTime};
use fairmesh_usage::{Applied, CheckpointOffer, ForkProof, Refused, VoUsage};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::{
    AMPLE, Batch, Follower, Step, Writer, agreed, any_steps, empty, hour, path, pull_all,
    take_step, value,
};

fn hear(usage: &mut VoUsage, batches: &[Batch], follower: &mut Follower) {
    for batch in batches {
        match usage.apply_batch(batch.clone(), AMPLE) {
            Ok(Applied::Fresh(changes)) => follower.follow(changes),
            Ok(Applied::Fork(proof)) => follower.follow(usage.apply_fork(&proof)),
            Ok(Applied::Known | Applied::Gap { .. }) | Err(Refused::Forked { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// One stream with two endings, the first of which may keep checkpoints.
fn two_endings(steps: &[(usize, Step)], behind: Index) -> (Writer, Writer, usize) {
    let mut main = Writer::new(1, 1);
    steps
        .iter()
        .for_each(|(_, step)| take_step(&mut main, step));
    let behind = behind.index(main.batches.len());
    let mut other = main.fork_after(behind);
    for window in 0..5 {
        take_step(
            &mut other,
            &Step::Count {
                window,
                account: 2,
                ms: 7,
            },
        );
    }
    (main, other, behind)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whoever_learns_of_a_fork_falls_back_to_the_prefix(
        steps in any_steps(30), behind in any::<Index>(), heard in any::<Index>()
    ) {
        let (main, other, behind) = two_endings(&steps, behind);
        let prefix = main.fork_after(behind);
        let (mut first, mut second, mut third) = (empty(), empty(), empty());
        let mut followers = [Follower::default(), Follower::default(), Follower::default()];
        hear(&mut first, &main.batches, &mut followers[0]);
        hear(&mut first, &other.batches, &mut followers[0]);
        hear(&mut second, &other.batches, &mut followers[1]);
        hear(&mut second, &main.batches, &mut followers[1]);
        // The third hears of the fork early, and pulls what is left of the prefix later.
        hear(&mut third, &main.batches[..heard.index(main.batches.len() + 1)], &mut followers[2]);
        let proof = first.forks().next().expect("both endings were heard").clone();
        followers[2].follow(third.apply_fork(&proof));
        followers[2].follow(pull_all(&mut third, &first, 300));
        prop_assert_eq!(proof.cap(), Seq(behind as u64));
        for (usage, follower) in [&first, &second, &third].into_iter().zip(&followers) {
            prop_assert_eq!(agreed(usage), agreed(&prefix.own));
            follower.assert_mirrors(usage);
        }
        prop_assert_eq!(value(&first), value(&second));
        prop_assert_eq!(value(&first), value(&third));
    }

    #[test]
    fn a_pruned_history_falls_back_to_its_checkpoints(steps in any_steps(30), behind in any::<Index>(), kept in any::<[Index; 2]>()) {
        let (main, other, behind) = two_endings(&steps, behind);
        let mut kept = kept.map(|index| index.index(main.batches.len()) + 1);
        kept.sort_unstable();
        let (mut usage, mut follower) = (empty(), Follower::default());
        for batch in &main.batches {
            hear(&mut usage, std::slice::from_ref(batch), &mut follower);
            let seq = usize::try_from(batch.body().seq.0).expect("small");
            if kept.contains(&seq) {
                usage.offer_checkpoint(main.fork_after(seq).checkpoint().0, AMPLE).expect("honest");
            }
        }
        usage.prune(main.stream);
        let proof = ForkProof::new(main.batches[behind].clone(), other.batches[behind].clone()).expect("they differ");
        follower.follow(usage.apply_fork(&proof));
        follower.assert_mirrors(&usage);
        let seq = usage.version_vector().get(&main.stream);
        let pruned = if kept[0] == kept[1] { 0 } else { kept[0] };
        if behind >= pruned {
            prop_assert_eq!(agreed(&usage), agreed(&main.fork_after(behind).own));
        } else {
            prop_assert_eq!((seq, usage.cells().count()), (0, 0));
            pull_all(&mut usage, &main.fork_after(behind).own, 400);
            prop_assert_eq!(agreed(&usage), agreed(&main.fork_after(behind).own));
        }
    }
}

#[test]
fn nothing_behind_a_fork_is_taken() {
    let mut main = Writer::new(1, 1);
    main.count(0, &path("/a"), 1);
    let mut other = main.fork_after(1);
    main.count(1, &path("/a"), 1);
    other.count(1, &path("/a"), 2);
    let third = main.count(2, &path("/a"), 3);
    let mut usage = empty();
    hear(&mut usage, &main.batches, &mut Follower::default());
    let Ok(Applied::Fork(proof)) = usage.apply_batch(other.batches[1].clone(), AMPLE) else {
        panic!("a fork")
    };
    assert_eq!(
        usage.total(&path("/a")).charge,
        5,
        "believing is for the caller to say"
    );
    let changes = usage.apply_fork(&proof);
    assert!(
        changes
            .iter()
            .all(|change| change.after.charge < change.before.charge)
    );
    let refused = usage.apply_batch(third, AMPLE);
    assert_eq!(
        refused,
        Err(Refused::Forked {
            stream: main.stream,
            first_refused: Seq(2)
        })
    );
    assert_eq!(
        usage.offer_checkpoint(main.checkpoint().0, AMPLE),
        Err(Refused::Forked {
            stream: main.stream,
            first_refused: Seq(2)
        })
    );
    assert_eq!(usage.apply_fork(&proof), []);
}

#[test]
fn a_proof_survives_the_journey_as_bytes() {
    let mut main = Writer::new(1, 1);
    let mut other = main.fork_after(0);
    main.count(0, &path("/a"), 1);
    other.count(0, &path("/a"), 2);
    let proof =
        ForkProof::new(main.batches[0].clone(), other.batches[0].clone()).expect("they differ");
    let again = |bytes: &[u8]| {
        let signed = Signed::<UsageBatch>::parse(bytes).expect("parses");
        Arc::new(
            signed
                .verify(&[&Role::single(main.stream.site)])
                .expect("verifies"),
        )
    };
    let received = ForkProof::new(again(proof.b().bytes()), again(proof.a().bytes()));
    assert_eq!(received.as_ref(), Some(&proof));
    assert_eq!(proof.cap(), Seq(0));
    assert_eq!(
        ForkProof::new(main.batches[0].clone(), main.batches[0].clone()),
        None
    );
    let next = main.count(1, &path("/a"), 1);
    assert_eq!(
        ForkProof::new(main.batches[0].clone(), next),
        None,
        "a successor is no contradiction"
    );
}

#[test]
fn a_successor_of_another_batch_proves_a_fork_below_itself() {
    let mut main = Writer::new(1, 1);
    main.count(0, &path("/a"), 1);
    let mut other = main.fork_after(1);
    main.count(1, &path("/a"), 1);
    other.count(1, &path("/a"), 2);
    other.count(2, &path("/a"), 2);
    let mut usage = empty();
    hear(&mut usage, &main.batches, &mut Follower::default());
    let Ok(Applied::Fork(proof)) = usage.apply_batch(other.batches[2].clone(), AMPLE) else {
        panic!("a fork")
    };
    assert_eq!(proof.cap(), Seq(1));
    // Two batches at one position that name different predecessors dispute those as well.
    main.count(2, &path("/a"), 9);
    let deeper =
        ForkProof::new(main.batches[2].clone(), other.batches[2].clone()).expect("they differ");
    assert_eq!(deeper.cap(), Seq(1));
}

#[test]
fn a_fall_back_never_jumps_over_batches_that_are_not_here() {
    let mut main = Writer::new(1, 1);
    for window in 0..9 {
        main.count(window, &path("/a"), 1);
    }
    // One who heard the beginning learns the rest from one who began with a checkpoint.
    let (mut early, mut late) = (main.fork_after(2).own, empty());
    let (document, seals) = main.fork_after(5).checkpoint();
    let offer = late.offer_checkpoint(document, AMPLE);
    let Ok(CheckpointOffer::Wants(wanted)) = offer else {
        panic!("a newcomer")
    };
    for seal in wanted {
        late.offer_seal(seal, &seals[&seal.hash]).expect("honest");
    }
    hear(&mut late, &main.batches[5..], &mut Follower::default());
    early.merge(late);
    assert_eq!(agreed(&early), agreed(&main.own));
    let mut other = main.fork_after(3);
    other.count(9, &path("/a"), 1);
    let proof = ForkProof::new(main.batches[3].clone(), other.batches[3].clone());
    early.apply_fork(&proof.expect("they differ"));
    assert_eq!(agreed(&early), agreed(&main.fork_after(2).own));
}

#[test]
fn a_fall_back_drops_what_was_pending_on_the_cells_that_go() {
    let mut main = Writer::new(1, 1);
    for window in 0..6 {
        main.count(window, &path("/a"), 1);
    }
    let mut usage = empty();
    hear(&mut usage, &main.batches, &mut Follower::default());
    for seq in [2, 3] {
        let kept = main.fork_after(seq).checkpoint().0;
        usage.offer_checkpoint(kept, AMPLE).expect("honest");
    }
    usage.prune(main.stream);
    // Some of its seals are cut here, one is nowhere to be had.
    let early = main.fork_after(4);
    let (mut body, _) = early
        .own
        .checkpoint_of(main.stream, WallTime(0))
        .expect("something was said");
    let hash = ContentHash::of(b"nowhere");
    body.seals.push(SealRef {
        span: hour(40),
        hash,
    });
    let pending = main.sign_checkpoint(body, Vec::new()).0;
    let offer = usage.offer_checkpoint(pending, AMPLE);
    assert!(matches!(offer, Ok(CheckpointOffer::Wants(wanted)) if wanted.len() == 1));
    let mut other = main.fork_after(5);
    other.count(9, &path("/a"), 1);
    let proof = ForkProof::new(main.batches[5].clone(), other.batches[5].clone());
    usage.apply_fork(&proof.expect("they differ"));
    assert_eq!(usage.wanted_seals(), []);
    assert_eq!(agreed(&usage), agreed(&main.fork_after(5).own));
}
