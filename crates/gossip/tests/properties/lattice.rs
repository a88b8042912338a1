//! Sets of heads are a lattice.

use std::collections::BTreeMap;
use std::sync::Arc;

use crdts::CvRDT;
use fairmesh_gossip::{Head, HeadSet};
use fairmesh_model::Verified;
use proptest::prelude::*;

use crate::support::head;

type Heads = Vec<Arc<Verified<Head>>>;

fn set(heads: &[Arc<Verified<Head>>]) -> HeadSet {
    let mut set = HeadSet::new(None);
    heads.iter().for_each(|head| {
        set.insert(head.clone());
    });
    set
}

fn joined(a: &HeadSet, b: &HeadSet) -> HeadSet {
    let mut all = a.clone();
    all.merge(b.clone());
    all
}

/// Heads of a site that starts again, restores backups and is cloned, and that covers what it holds with
/// all that this covers, as every honest site does.
fn honest() -> impl Strategy<Value = Heads> {
    proptest::collection::vec((0..4u8, any::<proptest::sample::Index>()), 1..14).prop_map(|steps| {
        let mut heads: Heads = Vec::new();
        let mut machines: Vec<(u64, u64, BTreeMap<u64, u64>)> = vec![(1, 0, BTreeMap::new())];
        let mut incarnations = 1;
        for (step, index) in steps {
            let place = index.index(machines.len());
            match step {
                0 => {
                    incarnations += 1;
                    let (incarnation, seq, mut covers) = machines[place].clone();
                    if seq > 0 {
                        covers.insert(incarnation, seq);
                    }
                    machines[place] = (incarnations, 0, covers);
                }
                1 if machines.len() < 3 => {
                    incarnations += 1;
                    let (incarnation, seq, mut covers) = machines[place].clone();
                    if seq > 0 {
                        covers.insert(incarnation, seq);
                    }
                    machines.push((incarnations, 0, covers));
                }
                _ => {
                    let (incarnation, seq, covers) = &mut machines[place];
                    *seq += 1;
                    let covers: Vec<(u64, u64)> =
                        covers.iter().map(|(of, seq)| (*of, *seq)).collect();
                    heads.push(head(1, *incarnation, *seq, 1, &covers));
                }
            }
        }
        heads
    })
}

/// Any heads at all.
fn any_heads() -> impl Strategy<Value = Heads> {
    let covers = proptest::collection::btree_map(1..7u64, 1..4u64, 0..3);
    let one = (1..7u64, 1..4u64, 0..3u8, covers);
    proptest::collection::vec(one, 0..10).prop_map(|heads| {
        let one = |(incarnation, seq, root, covers): (u64, u64, u8, BTreeMap<u64, u64>)| {
            let covers: Vec<(u64, u64)> = covers
                .into_iter()
                .filter(|(of, _)| *of < incarnation)
                .collect();
            head(1, incarnation, seq, root, &covers)
        };
        heads.into_iter().map(one).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn joining_honest_heads_is_commutative_associative_and_idempotent(
        heads in honest(),
        cuts in (any::<proptest::sample::Index>(), any::<proptest::sample::Index>()),
    ) {
        let (low, high) = (cuts.0.index(heads.len() + 1), cuts.1.index(heads.len() + 1));
        let (low, high) = (low.min(high), low.max(high));
        let (a, b, c) = (set(&heads[..low]), set(&heads[low..high]), set(&heads[high..]));
        prop_assert_eq!(joined(&a, &b), joined(&b, &a));
        prop_assert_eq!(joined(&joined(&a, &b), &c), joined(&a, &joined(&b, &c)));
        prop_assert_eq!(joined(&a, &a), a.clone());
        prop_assert_eq!(joined(&joined(&a, &b), &c), set(&heads));
    }

    #[test]
    fn any_two_sets_that_were_offered_each_other_are_equal(ours in any_heads(), theirs in any_heads()) {
        let (mut a, mut b) = (set(&ours), set(&theirs));
        for _ in 0..3 {
            (a, b) = (joined(&a, &b), joined(&b, &a));
        }
        prop_assert_eq!(&a, &b);
        prop_assert!(a.iter().count() <= fairmesh_gossip::HEADS_MAX);
        prop_assert_eq!(joined(&a, &a), a);
    }
}

#[test]
fn of_two_heads_with_one_seq_the_lower_root_stays_and_the_next_one_covers_both() {
    let (low, high, next) = (
        head(1, 1, 5, 3, &[]),
        head(1, 1, 5, 9, &[]),
        head(1, 1, 6, 9, &[]),
    );
    for heads in [[low.clone(), high.clone()], [high, low.clone()]] {
        let held = set(&heads);
        assert_eq!(held, set(std::slice::from_ref(&low)));
        assert_eq!(
            joined(&held, &set(std::slice::from_ref(&next))),
            set(std::slice::from_ref(&next))
        );
    }
}
