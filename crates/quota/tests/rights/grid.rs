//! What a Grid is drawn as: its sites, its slices, and what happens.

use proptest::prelude::*;
use proptest::sample::Index;

/// What may go wrong beside the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Faults {
    /// Nodes are killed, between any two writes.
    Crashes,
    /// And lose their stores.
    Losses,
    /// Some members lie; nobody loses anything.
    Lies,
}

/// What a liar says, beside what is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    /// That it has sent more than it has.
    Sends(u8),
    /// That it has taken what nobody has sent.
    Takes(u8),
    /// That it has passed on what it does not have.
    Passes,
    /// Nothing of what it has used.
    HidesUse,
    /// That it has sent nothing, in a new incarnation.
    StartsAnew,
}

/// What happens.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A job wants to run; the same one may ask again, for more or less.
    Hold { at: u8, job: u8, amount: u64 },
    /// A job is charged so many hundredths of what it holds.
    Commit { at: u8, job: u8, percent: u64 },
    /// A job does not run.
    Release { at: u8, job: u8 },
    /// A charge was an error, in part.
    Correct { at: u8, job: u8, amount: u64 },
    /// Time is told.
    Tick { at: u8 },
    /// A site asks for rights, as it sees fit or for so much.
    Ask { at: u8, amount: Option<u64> },
    /// A site sends its head to all.
    Publish { at: u8 },
    /// A site hands over what it holds of another.
    HandOver { at: u8, of: u8 },
    /// A site asks another whether it witnesses what it was sent.
    Confirm { at: u8, by: u8 },
    /// A message arrives.
    Deliver { which: Index },
    /// A message arrives, and will again.
    Repeat { which: Index },
    /// A message is lost.
    Drop { which: Index },
    /// A site sends all its rights away.
    Drain { at: u8 },
    /// A node is killed and starts again.
    Kill { at: u8 },
    /// The next thing that a node does is not written, and it starts again.
    Tear { at: u8 },
    /// A node's store is copied.
    Copy { at: u8 },
    /// A node's store is lost, and the copy put back, if any.
    Lose { at: u8, copy: bool },
    /// Time passes, in hundredths of a slice.
    Later { percent: u64 },
    /// A liar begins to tell a lie.
    Tell { at: u8, lie: Lie, amount: u64 },
}

/// A Grid and what happens in it.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Weights of the split, one a site.
    pub(super) weights: Vec<u64>,
    /// Amounts of the slices.
    pub(super) amounts: Vec<u64>,
    /// Whether all slices begin at once, or one after the other.
    pub(super) is_expiring: bool,
    /// Hundredths of each slice that are passed on to the user, if any.
    pub(super) passed: Option<u64>,
    /// How many of the sites, the last ones, lie.
    pub(super) liars: u8,
    pub(super) steps: Vec<Step>,
}

fn any_step(faults: Faults) -> impl Strategy<Value = Step> {
    let at = 0..5u8;
    let of = 0..5u8;
    let job = 0..6u8;
    let amount = 1..150u64;
    let ordinary = prop_oneof![
        6 => (at.clone(), job.clone(), amount.clone()).prop_map(|(at, job, amount)| Step::Hold { at, job, amount }),
        4 => (at.clone(), job.clone(), 0..160u64).prop_map(|(at, job, percent)| Step::Commit { at, job, percent }),
        1 => (at.clone(), job.clone()).prop_map(|(at, job)| Step::Release { at, job }),
        1 => (at.clone(), job, amount.clone()).prop_map(|(at, job, amount)| Step::Correct { at, job, amount }),
        1 => at.clone().prop_map(|at| Step::Tick { at }),
        3 => (at.clone(), proptest::option::of(amount.clone())).prop_map(|(at, amount)| Step::Ask { at, amount }),
        4 => at.clone().prop_map(|at| Step::Publish { at }),
        12 => (at.clone(), of.clone()).prop_map(|(at, by)| Step::Confirm { at, by }),
        8 => any::<Index>().prop_map(|which| Step::Deliver { which }),
        2 => any::<Index>().prop_map(|which| Step::Repeat { which }),
        2 => any::<Index>().prop_map(|which| Step::Drop { which }),
        1 => (0..60u64).prop_map(|percent| Step::Later { percent }),
    ];
    let crashes = prop_oneof![
        2 => at.clone().prop_map(|at| Step::Kill { at }),
        2 => at.clone().prop_map(|at| Step::Tear { at }),
        1 => at.clone().prop_map(|at| Step::Drain { at }),
    ];
    let losses = prop_oneof![
        2 => (at.clone(), any::<bool>()).prop_map(|(at, copy)| Step::Lose { at, copy }),
        1 => at.clone().prop_map(|at| Step::Copy { at }),
        6 => (at.clone(), of.clone()).prop_map(|(at, of)| Step::HandOver { at, of }),
    ];
    let lie = prop_oneof![
        of.clone().prop_map(Lie::Sends),
        of.prop_map(Lie::Takes),
        Just(Lie::Passes),
        Just(Lie::HidesUse),
        Just(Lie::StartsAnew),
    ];
    let lies = (at, lie, amount).prop_map(|(at, lie, amount)| Step::Tell { at, lie, amount });
    match faults {
        Faults::Crashes => prop_oneof![20 => ordinary, 3 => crashes].boxed(),
        Faults::Losses => prop_oneof![20 => ordinary, 2 => crashes, 5 => losses].boxed(),
        Faults::Lies => prop_oneof![20 => ordinary, 1 => crashes, 4 => lies].boxed(),
    }
}

/// A Grid of two to five sites with up to three slices.
pub(super) fn any_plan(faults: Faults) -> impl Strategy<Value = Plan> {
    let shape = (
        proptest::collection::vec(0..4u64, 2..6),
        proptest::collection::vec(1..400u64, 1..4),
        any::<bool>(),
        1..3u8,
        proptest::option::of(1..=100u64),
    );
    let steps = proptest::collection::vec(any_step(faults), 0..160);
    (shape, steps).prop_map(move |(shape, steps)| {
        let (mut weights, amounts, is_expiring, liars, passed) = shape;
        weights[0] += 1;
        Plan {
            weights,
            amounts,
            is_expiring,
            passed,
            liars: if faults == Faults::Lies { liars } else { 0 },
            steps,
        }
    })
}
