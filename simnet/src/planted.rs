//! Bugs that are put into a run on purpose, one or more for each invariant.
//!
//! Most are a layer between the world and its sites that lies. What no such layer can reach, because
//! a site computes it for itself, is shown to the checker falsely.
//!
//! Invariant: a planted bug counts as found only where the invariant that it breaks says so. Deliberately
//! not here: bugs that were real; those have tests where they were.

use fairmesh_cluster::Seed;

use crate::check::Run;
use crate::swarm::Options;
use crate::world::Tamper;

mod lies;

/// What a checker is shown that is not so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shown {
    /// Nothing.
    #[default]
    True,
    /// Node 0 orders the accounts of its VOs otherwise.
    OtherPriorities,
    /// Node 0 says that it has heard from others a second later than they signed.
    YoungerCoverage,
    /// The ledger has one core-millisecond more of each account.
    LedgerOff,
}

/// A bug.
pub struct Bug {
    /// Its name.
    pub name: &'static str,
    /// The invariant that it breaks.
    pub breaks: &'static str,
    /// Makes the layer that lies, if it is one.
    pub tamper: fn() -> Option<Box<dyn Tamper>>,
    /// What is shown falsely.
    pub shown: Shown,
}

/// All of them.
pub const BUGS: [Bug; 15] = [
    lie(
        "a node's counters are others than its batches say",
        "agreement",
        || Some(Box::new(lies::OtherCounters::default())),
    ),
    lie(
        "counters are not written before the reply",
        "nothing-lost",
        || Some(Box::new(lies::LedgerNotWritten)),
    ),
    lie(
        "records are dropped between feed and site",
        "nothing-lost",
        || Some(Box::new(lies::RecordsDropped)),
    ),
    lie("marks of jobs are not found", "nothing-twice", || {
        Some(Box::new(lies::NoMarks))
    }),
    lie("a batch is stored otherwise than it came", "owner", || {
        Some(Box::new(lies::BatchesBroken))
    }),
    lie(
        "a new life signs under the first one's incarnation",
        "incarnations",
        || Some(Box::new(lies::OneIncarnation::default())),
    ),
    lie("answers of peers are not read", "liveness", || {
        Some(Box::new(lies::AnswersLost))
    }),
    lie(
        "a node asks again whenever it is answered",
        "liveness",
        || Some(Box::new(lies::AsksForEver::default())),
    ),
    lie(
        "a document is acknowledged and not kept",
        "liveness",
        || Some(Box::new(lies::DocumentsDropped)),
    ),
    lie(
        "newer documents are forgotten at a restart",
        "policies",
        || Some(Box::new(lies::DocumentsForgotten)),
    ),
    lie("a site's prices are not read", "prices", || {
        Some(Box::new(lies::DescriptionsLost))
    }),
    lie("old batches are never deleted", "limits", || {
        Some(Box::new(lies::NothingDeleted))
    }),
    shown(
        "one node orders accounts otherwise",
        "priorities",
        Shown::OtherPriorities,
    ),
    shown(
        "one node makes others younger than they are",
        "coverage",
        Shown::YoungerCoverage,
    ),
    shown("one core-millisecond is missing", "total", Shown::LedgerOff),
];

const fn lie(
    name: &'static str,
    breaks: &'static str,
    tamper: fn() -> Option<Box<dyn Tamper>>,
) -> Bug {
    Bug {
        name,
        breaks,
        tamper,
        shown: Shown::True,
    }
}

const fn shown(name: &'static str, breaks: &'static str, shown: Shown) -> Bug {
    Bug {
        name,
        breaks,
        tamper: || None,
        shown,
    }
}

impl Bug {
    /// How many seeds from `first` on it takes until the bug's invariant says so; `None` where
    /// `seeds_max` do not.
    pub fn seeds_to_find(&self, first: Seed, seeds_max: u64) -> Option<u64> {
        (0..seeds_max).find_map(|index| {
            let seed = Seed(first.0.wrapping_add(index));
            let run = Run::with_bug(seed, Options::draw(seed), (self.tamper)(), self.shown);
            let failure = run.finish().failure?;
            (failure.invariant == self.breaks).then_some(index + 1)
        })
    }
}
