//! Partial utility: how much of what a job wishes a class of machines has.
//!
//! A job states requirements, each with options that are worth different values to its user; a class is
//! worth the sum of the best options that it satisfies, over the number of requirements (equation 1). A job
//! is served where at least one requirement is met.
//!
//! Invariant: a utility is from 0 to 1, in millionths, rounded down; it does not depend on the order of
//! options or requirements, and neither another option nor a higher value lowers it.
//! Deliberately not here: whether the SLA lets the job have the machines (`engine`).
//! Source: Vasques, "A Decentralized Utility-based Grid Scheduling Algorithm", equation 1; the division by
//! the weights is ours.

mod search;

use std::cmp::Reverse;

use fairmesh_model::{Factor, Millis, mutant, mutated};
use serde::{Deserialize, Serialize};

pub use crate::wish::{Class, Wish};

/// Most requirements of a job: bounds the work of one placement.
pub const REQUIREMENTS_MAX: usize = 32;

/// Most options of a requirement: bounds the work of one placement.
pub const OPTIONS_MAX: usize = 64;

/// Most classes of a site that a broker looks at: bounds the work of one placement and what a site publishes.
pub const CLASSES_MAX: usize = 64;

/// Utilities are integers in millionths of this.
pub const ONE: u32 = Factor::UNITS;

/// One way to meet a requirement, and what it is worth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// What is asked for.
    pub wish: Wish,
    /// Its value (alpha), in millionths, at most [`ONE`].
    pub value: u32,
}

/// One thing that a job asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// Ways to meet it, in any order.
    pub options: Vec<Choice>,
    /// How much it matters (beta), in millionths, at most [`ONE`].
    pub weight: u32,
}

/// All that a job asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wishes {
    requirements: Vec<Requirement>,
    /// Of each requirement its options by their index, the most valuable first, and of equal ones the least by what
    /// they ask: the first that is satisfied is the one that counts.
    ranked: Vec<Vec<usize>>,
    /// The same, as sites are searched for it.
    plan: search::Plan,
    /// Its time on the reference machine.
    pub work: Millis,
}

/// How utilities are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Matching {
    /// PU: the best option that is satisfied, by its value.
    #[default]
    Partial,
    /// BU: one option a requirement, the one worth most to the user, is satisfied (1) or not.
    Binary,
    /// MM: 1 where those options are all satisfied, and otherwise nothing.
    All,
}

/// Why wishes were refused. State is unchanged; the job is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WishesError {
    /// Nothing is asked for.
    #[error("a job with wishes has at least one requirement")]
    Empty,
    /// More requirements or options than a job may have.
    #[error("more than {most} {what}")]
    TooMany {
        /// The wish that is wrong.
        what: &'static str,
        /// How many it may have.
        most: usize,
    },
    /// A requirement without options, or a value or weight above 1.
    #[error("requirement {0}: it has no options, or a value or weight above 1")]
    Requirement(usize),
}

/// What a class is worth to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Utility {
    /// In millionths.
    pub millionths: u32,
    /// Of each requirement, the index of the option that was taken.
    pub taken: Vec<Option<usize>>,
}

impl Wishes {
    /// Checks and takes what a job asks for.
    ///
    /// # Errors
    /// The first limit that it passes. Requirements are counted from 1.
    pub fn new(requirements: Vec<Requirement>, work: Millis) -> Result<Self, WishesError> {
        let too_many = |what, most| WishesError::TooMany { what, most };
        if requirements.is_empty() {
            return Err(WishesError::Empty);
        }
        if requirements.len() > REQUIREMENTS_MAX {
            return Err(too_many("requirements", REQUIREMENTS_MAX));
        }
        for (index, requirement) in requirements.iter().enumerate() {
            if requirement.options.len() > OPTIONS_MAX {
                return Err(too_many("options of a requirement", OPTIONS_MAX));
            }
            let values = requirement.options.iter().map(|choice| choice.value);
            let is_high = values.chain([requirement.weight]).any(|value| value > ONE);
            if is_high || requirement.options.is_empty() {
                return Err(WishesError::Requirement(index + 1));
            }
        }
        let ranked = requirements.iter().map(|of| {
            let mut order: Vec<usize> = (0..of.options.len()).collect();
            order
                .sort_by_key(|index| (Reverse(of.options[*index].value), &of.options[*index].wish));
            order
        });
        let ranked: Vec<_> = ranked.collect();
        Ok(Self {
            plan: search::Plan::new(&requirements, &ranked, work),
            ranked,
            requirements,
            work,
        })
    }

    /// What is asked for.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// What `class` is worth, and by which options. As [`Wishes::worth`].
    pub fn utility(
        &self,
        class: &Class<'_>,
        matching: Matching,
        normalised: bool,
    ) -> Option<Utility> {
        let millionths = self.worth(class, matching, normalised)?;
        let taken = self.by_rank();
        let taken = taken.map(|of| self.taken(of, class, matching)).collect();
        Some(Utility { millionths, taken })
    }

    /// What `class` is worth, in millionths. With `normalised` the weights do not shrink it. `None` where the job
    /// cannot be served there: no requirement is met, or by MM not all are. Nothing is allocated: most classes are
    /// looked at to be passed over.
    pub fn worth(&self, class: &Class<'_>, matching: Matching, normalised: bool) -> Option<u32> {
        let (mut met, mut sum) = (0, 0_u64);
        for (of, ranked) in self.by_rank() {
            let weight = Self::weight(of, matching);
            let Some(index) = self.taken((of, ranked), class, matching) else {
                continue;
            };
            met += 1;
            let value = match matching {
                Matching::Binary | Matching::All => ONE,
                Matching::Partial => of.options[index].value,
            };
            sum += u64::from(value) * weight;
        }
        let all = self.requirements.len();
        if met == 0 || (matching == Matching::All && met < all) {
            return None;
        }
        // A job whose requirements all weigh nothing wants nothing.
        let whole = self.whole(matching, normalised);
        let millionths = sum.checked_div(whole).unwrap_or(0);
        let millionths = u32::try_from(millionths).expect("a mean of values is not above 1");
        // What is worth nothing is no reason to go there.
        Some(millionths).filter(|millionths| *millionths > 0)
    }

    /// What a sum of weighed values is divided by: what all could be.
    fn whole(&self, matching: Matching, normalised: bool) -> u64 {
        let weights = self
            .requirements
            .iter()
            .map(|of| Self::weight(of, matching));
        match normalised {
            true => weights.sum(),
            false => self.requirements.len() as u64 * u64::from(ONE),
        }
    }

    fn weight(of: &Requirement, matching: Matching) -> u64 {
        match matching {
            Matching::Partial => u64::from(mutant!(WeightIgnored, of.weight, ONE)),
            // The baselines know no weights.
            Matching::Binary | Matching::All => u64::from(ONE),
        }
    }

    fn by_rank(&self) -> impl Iterator<Item = (&Requirement, &[usize])> {
        let ranked = self.ranked.iter().map(Vec::as_slice);
        self.requirements.iter().zip(ranked)
    }

    /// The option of a requirement that counts at `class`, if one does: of those satisfied the most valuable,
    /// and of equal ones the least by what they ask, so that their order plays no part.
    fn taken(
        &self,
        (of, ranked): (&Requirement, &[usize]),
        class: &Class<'_>,
        matching: Matching,
    ) -> Option<usize> {
        let satisfies = |index: &usize| self.satisfies(class, &of.options[*index].wish);
        match matching {
            Matching::Partial if mutated!(BestOptionUnseen) => {
                (0..of.options.len()).find(satisfies)
            }
            Matching::Partial => ranked.iter().copied().find(satisfies),
            Matching::Binary | Matching::All => ranked.first().copied().filter(satisfies),
        }
    }

    fn satisfies(&self, class: &Class<'_>, wish: &Wish) -> bool {
        match wish {
            Wish::Os(name) => class.os == *name,
            Wish::Arch(name) => class.arch == *name,
            Wish::Tag(name) => class.tags.is_some_and(|tags| tags.contains(name)),
            Wish::Cpus(least) => class.cpus >= *least,
            Wish::MemMib(least) => class.mem_mib >= *least,
            Wish::DiskMib(least) => class.disk_mib >= *least,
            Wish::Spec(least) => class.spec >= *least,
            // work / SPEC ≤ most, without a division.
            Wish::Time(most) => {
                let work = u128::from(self.work.0) * u128::from(Factor::UNITS);
                work <= u128::from(most.0) * u128::from(class.spec.millionths())
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
