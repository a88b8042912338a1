//! Which of many classes is worth most to a job: the same worth as of one class, without reading all of it.
//!
//! Requirements are looked at in an order of their own, those that go by numbers first. What is left can add so much at
//! most; where that does not lift a class above the best so far, its names are never read.
//!
//! Invariant: a class is passed over only if it is worth no more than what it is compared with.
//! Deliberately not here: the baselines, and which option was taken ([`Wishes::utility`]).

use fairmesh_model::{Factor, MachineClass, Millis};

use super::{Class, Requirement, Wish, Wishes};

/// What an option needs of a class. A time is the least speed that keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Need {
    Cpus(u64),
    MemMib(u64),
    DiskMib(u64),
    Spec(u64),
    Os(String),
    Arch(String),
    Tag(String),
}

/// A requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    /// Its options, the most valuable first, and the weighed value of each.
    options: Vec<(Need, u64)>,
    /// What it and all behind it can add.
    left: u64,
}

/// Requirements in the order in which they are looked at; `ranked` are the options of each by value.
pub(super) fn checks(
    requirements: &[Requirement],
    ranked: &[Vec<usize>],
    work: Millis,
) -> Vec<Check> {
    let options = |(of, order): (&Requirement, &Vec<usize>)| {
        let option = |index: &usize| {
            let choice = &of.options[*index];
            let value = u64::from(choice.value) * u64::from(of.weight);
            (Need::of(&choice.wish, work), value)
        };
        order.iter().map(option).collect::<Vec<_>>()
    };
    let mut all: Vec<Vec<(Need, u64)>> = requirements.iter().zip(ranked).map(options).collect();
    all.sort_by_key(|options| options.iter().any(|(need, _)| need.is_name()));
    let mut left = 0;
    let mut checks: Vec<Check> = all
        .into_iter()
        .rev()
        .map(|options| {
            left += options.first().map_or(0, |(_, most)| *most);
            Check { options, left }
        })
        .collect();
    checks.reverse();
    checks
}

impl Need {
    fn of(wish: &Wish, work: Millis) -> Self {
        match wish {
            Wish::Os(name) => Self::Os(name.clone()),
            Wish::Arch(name) => Self::Arch(name.clone()),
            Wish::Tag(name) => Self::Tag(name.clone()),
            Wish::Cpus(least) => Self::Cpus(*least),
            Wish::MemMib(least) => Self::MemMib(*least),
            Wish::DiskMib(least) => Self::DiskMib(*least),
            Wish::Spec(least) => Self::Spec(least.millionths().into()),
            Wish::Time(most) => {
                let work = u128::from(work.0) * u128::from(Factor::UNITS);
                let least = match (work, u128::from(most.0)) {
                    (0, _) => 0,
                    (_, 0) => u128::MAX,
                    (work, most) => work.div_ceil(most),
                };
                Self::Spec(u64::try_from(least).unwrap_or(u64::MAX))
            }
        }
    }

    fn is_name(&self) -> bool {
        matches!(self, Self::Os(_) | Self::Arch(_) | Self::Tag(_))
    }

    /// `names` are the class's operating system and architecture, once they were read.
    fn is_met<'a>(&self, class: &'a MachineClass, names: &mut Option<(&'a str, &'a str)>) -> bool {
        let mut names = || *names.get_or_insert_with(|| Class::names(class));
        match self {
            Self::Cpus(least) => u64::from(class.cpus) >= *least,
            Self::MemMib(least) => class.mem_mib >= *least,
            Self::DiskMib(least) => class.disk_mib >= *least,
            Self::Spec(least) => u64::from(class.spec.millionths()) >= *least,
            Self::Os(name) => names().0 == name,
            Self::Arch(name) => names().1 == name,
            Self::Tag(name) => class.properties.contains(name),
        }
    }
}

impl Wishes {
    /// What a class is worth, before it is divided by what all could be, if that is more than `than`.
    pub(crate) fn sum_above(&self, class: &MachineClass, than: u64) -> Option<u64> {
        let mut sum = 0;
        let mut names = None;
        for check in &self.checks {
            if sum + check.left <= than {
                return None;
            }
            let mut options = check.options.iter();
            let met = options.find(|(need, _)| need.is_met(class, &mut names));
            sum += met.map_or(0, |(_, value)| *value);
        }
        (sum > than).then_some(sum)
    }
}
