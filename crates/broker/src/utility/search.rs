//! Which of a site's classes is worth most to a job: the same worth as of each class by itself, without looking at
//! each.
//!
//! A requirement parts a set of classes by the best option that they have, and the next one parts what came of it. What
//! is left can add so much at most; where that lifts no class to the best so far, the set is passed over.
//!
//! Invariant: the best is the first by name of those that are worth most by [`Wishes::worth`].
//! Deliberately not here: the baselines, and which options were taken ([`Wishes::utility`]).

use std::cmp::Reverse;
use std::ops::Range;

use fairmesh_model::{Factor, Millis};

use super::{Matching, Requirement, Wish, Wishes};
use crate::machines::{Amount, Block, Classes, Name};

/// What an option needs of a class. A time is the least speed that keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Need {
    AtLeast(Amount, u64),
    Named(Name),
    /// No class has it.
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    /// Its options, the most valuable first.
    options: Range<usize>,
    /// What it and all behind it can add.
    left: u64,
}

/// What a job wishes, as sites are searched for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Plan {
    /// Those that can add most come first.
    checks: Vec<Check>,
    /// What each option needs, and its weighed value.
    options: Vec<(Need, u64)>,
}

/// The search of one site.
pub(crate) struct Search<'a> {
    plan: &'a Plan,
    /// What sums are divided by.
    whole: u64,
    /// Of each option the classes of a block that have it.
    having: Vec<Classes>,
    /// The place of the block's first class.
    first: usize,
    /// The best so far: what it is worth, in millionths, and its place. `None` where the job is served by none.
    pub(crate) best: Option<(u32, usize)>,
    /// The least sum that is worth as much.
    least: u64,
}

impl Plan {
    /// `ranked` are the options of each requirement by value.
    pub(super) fn new(requirements: &[Requirement], ranked: &[Vec<usize>], work: Millis) -> Self {
        let value = |of: &Requirement, index: usize| {
            u64::from(of.options[index].value) * u64::from(of.weight)
        };
        let most = |(of, order): &(&Requirement, &Vec<usize>)| value(of, order[0]);
        let mut all: Vec<(&Requirement, &Vec<usize>)> = requirements.iter().zip(ranked).collect();
        all.sort_by_key(|of| Reverse(most(of)));
        let mut left: u64 = all.iter().map(most).sum();
        let (mut checks, mut options) = (Vec::new(), Vec::new());
        for of in all {
            let first = options.len();
            options.extend(of.1.iter().map(|index| {
                let need = Need::of(&of.0.options[*index].wish, work);
                (need, value(of.0, *index))
            }));
            let options = first..options.len();
            checks.push(Check { options, left });
            left -= most(&of);
        }
        Self { checks, options }
    }
}

impl Need {
    fn of(wish: &Wish, work: Millis) -> Self {
        match wish {
            Wish::Os(_) | Wish::Arch(_) | Wish::Tag(_) => Self::Named(wish.clone().into()),
            Wish::Cpus(least) => Self::AtLeast(Amount::Cpus, *least),
            Wish::MemMib(least) => Self::AtLeast(Amount::MemMib, *least),
            Wish::DiskMib(least) => Self::AtLeast(Amount::DiskMib, *least),
            Wish::Spec(least) => Self::AtLeast(Amount::Spec, least.millionths().into()),
            Wish::Time(most) => {
                let work = u128::from(work.0) * u128::from(Factor::UNITS);
                let least = match (work, u128::from(most.0)) {
                    (0, _) => Some(0),
                    (_, 0) => None,
                    (work, most) => Some(work.div_ceil(most)),
                };
                let least = least.and_then(|least| u64::try_from(least).ok());
                least.map_or(Self::Nothing, |least| Self::AtLeast(Amount::Spec, least))
            }
        }
    }

    fn met_by(&self, block: &Block) -> Classes {
        match self {
            Self::AtLeast(amount, least) => block.at_least(*amount, *least),
            Self::Named(name) => block.having(name),
            Self::Nothing => 0,
        }
    }
}

impl Wishes {
    /// A search for the class of a site that is worth most. `normalised` as for [`Wishes::worth`].
    pub(crate) fn search(&self, normalised: bool) -> Search<'_> {
        Search {
            plan: &self.plan,
            whole: self.whole(Matching::Partial, normalised),
            having: Vec::with_capacity(self.plan.options.len()),
            first: 0,
            best: None,
            least: 1,
        }
    }
}

impl Search<'_> {
    /// Looks at some classes of a block whose first has the place `first`.
    pub(crate) fn look(&mut self, first: usize, block: &Block, classes: Classes) {
        self.first = first;
        self.having.clear();
        let options = self.plan.options.iter();
        self.having
            .extend(options.map(|(need, _)| need.met_by(block)));
        self.part(0, classes, 0);
    }

    /// Parts `classes`, which are worth `sum` by the requirements before this one.
    fn part(&mut self, at: usize, classes: Classes, sum: u64) {
        let plan = self.plan;
        let Some(check) = plan.checks.get(at) else {
            return self.found(classes, sum);
        };
        if sum + check.left < self.least {
            return;
        }
        let mut rest = classes;
        for option in check.options.clone() {
            let met = rest & self.having[option];
            if met != 0 {
                self.part(at + 1, met, sum + plan.options[option].1);
                rest &= !met;
            }
            if rest == 0 {
                return;
            }
        }
        self.part(at + 1, rest, sum);
    }

    /// Classes that are all worth `sum`: the first of them may be the best.
    fn found(&mut self, classes: Classes, sum: u64) {
        let worth = sum.checked_div(self.whole).unwrap_or(0);
        let worth = u32::try_from(worth).expect("a mean of values is not above 1");
        let place = self.first + classes.trailing_zeros() as usize;
        let is_better = |(most, first)| (worth, Reverse(place)) > (most, Reverse(first));
        // What is worth nothing is no reason to go there.
        if worth > 0 && self.best.is_none_or(is_better) {
            self.best = Some((worth, place));
            self.least = u64::from(worth) * self.whole;
        }
    }
}
