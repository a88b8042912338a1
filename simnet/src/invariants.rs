//! What must hold, whatever happens: one file each, and the table of them.
//!
//! After a step only the node that it touched is looked at. What two nodes must agree on is kept by
//! what they hold, so that each is compared with all others and with all time at the cost of one
//! look-up. What costs more is done every so many steps, and at rest.
//!
//! Invariant: a checker reads and never changes the world, and a check that is counted was made.
//! Deliberately not here: which faults are drawn, and how failures are shown.

use std::collections::BTreeMap;
use std::fmt;

use fairmesh_model::{AccountPath, SiteId, VoId};
use fairmesh_site::Site;

use crate::facts::Books;
use crate::facts::watch::Facts;
use crate::liar::Liar;
use crate::oracle::Oracle;
use crate::world::{StepKind, World};

mod adverts;
mod agreement;
mod answers;
mod audit;
mod clocks;
mod coverage;
mod descriptions;
mod expired;
mod fresh;
mod holds;
mod incarnations;
mod lag;
mod liars;
mod limits;
mod liveness;
mod lost;
mod owner;
mod policies;
mod prices;
mod priorities;
mod privacy;
mod quotas;
mod total;
mod twice;
mod verdicts;
mod vouched;

pub(crate) use answers::clocks_were_wrong;
pub(crate) use fresh::SEES_TIME_WITHIN;
pub use lag::Lag;
pub use liveness::{Liveness, Slowest, Steps};

/// What a checker is shown.
pub struct Seen<'a> {
    /// The world, behind the step.
    pub world: &'a World,
    /// The node that was touched; `None` for all.
    pub node: Option<usize>,
    /// What was done.
    pub kind: StepKind,
    /// What was seen between the sites and the world.
    pub facts: &'a Facts,
    /// The ledger.
    pub oracle: &'a Oracle,
    /// What sites have answered about quotas.
    pub books: &'a Books,
    /// Whether it is time for checks that cost more.
    pub deep: bool,
    /// Whether the site has got everything back that its disk may have lost: nothing was lost, or
    /// all is at rest.
    pub whole: &'a [bool],
    /// The VOs.
    pub vos: &'a [VoId],
    /// Members that lie. Nothing is claimed of what their own nodes do.
    pub liars: &'a [Liar],
}

impl Seen<'_> {
    /// Whether it is time for a check that is dear: at rest, and each so many deep ones, which are counted.
    fn is_due(&self, passed: &mut u64, between: u64) -> bool {
        *passed += u64::from(self.deep);
        self.deep && (self.node.is_none() || passed.is_multiple_of(between))
    }

    /// The nodes to look at: honest ones.
    pub fn nodes(&self) -> impl Iterator<Item = usize> + '_ {
        let all = 0..self.world.nodes().len();
        all.filter(|node| self.node.is_none_or(|only| only == *node) && !self.is_liar(*node))
    }

    /// Whether a site lies.
    pub fn is_liar(&self, node: usize) -> bool {
        self.liars.iter().any(|liar| liar.site == node)
    }

    /// Whether the site of that identity lies.
    pub fn lies(&self, site: SiteId) -> bool {
        self.world
            .index_of(site)
            .is_some_and(|node| self.is_liar(node))
    }

    /// What a site counts of honest sites in a VO, account by account.
    pub fn honest_charges(&self, site: &Site, vo: VoId) -> BTreeMap<AccountPath, u64> {
        let mut sums = BTreeMap::new();
        let cells = site.usage_cells().filter(|cell| cell.vo == Some(vo));
        for cell in cells.filter(|cell| !self.lies(cell.site)) {
            *sums.entry(cell.path).or_default() += cell.counters.charge;
        }
        sums
    }
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// At which node, if at one.
    pub node: Option<usize>,
    /// What was seen, and what should have been.
    pub message: String,
}

impl Violation {
    /// At a node.
    pub fn at(node: usize, message: impl Into<String>) -> Self {
        Self {
            node: Some(node),
            message: message.into(),
        }
    }

    /// Of the whole Grid.
    pub fn of_all(message: impl Into<String>) -> Self {
        Self {
            node: None,
            message: message.into(),
        }
    }
}

/// One invariant.
pub trait Invariant {
    /// Looks at what a step did. Adds to `checks` how often it has compared something.
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation>;

    /// Looks at everything once the Grid is at rest: healed, without load, and converged.
    fn at_rest(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        self.after_step(seen, checks)
    }

    /// Looks at all nodes between two steps, at a moment of the runner's choice.
    fn between_steps(&mut self, _seen: &Seen<'_>, _checks: &mut u64) -> Result<(), Violation> {
        Ok(())
    }

    /// A node has lost its store, or been given an older one, and its side file unless it
    /// `keeps_side`.
    fn forgot(&mut self, _node: usize, _keeps_side: bool) {}
}

/// A row of the table.
pub struct Entry {
    /// The name.
    pub name: &'static str,
    /// What it says.
    pub says: &'static str,
    /// Makes a checker for a Grid of so many nodes.
    pub make: fn(usize) -> Box<dyn Invariant>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The name of the one that the runner itself checks, because it is about time.
pub const LIVENESS: &str = "liveness";

/// The name of what is broken where a node panics, whatever it was shown.
pub const NO_PANIC: &str = "no-panic";

/// All that are checked by looking at a moment.
pub const TABLE: [Entry; 24] = [
    Entry {
        name: "agreement",
        says: "nodes with the same documents and heads have the same counters, at any two times",
        make: |_| Box::new(agreement::Agreement::default()),
    },
    Entry {
        name: "nothing-lost",
        says: "what a site has acknowledged it counts, after every report and every start",
        make: |nodes| Box::new(lost::NothingLost::new(nodes)),
    },
    Entry {
        name: "nothing-twice",
        says: "nobody ever counts more than all feeds have offered, account by account",
        make: |_| Box::new(twice::NothingTwice::default()),
    },
    Entry {
        name: "incarnations",
        says: "no two starts of a site share an incarnation; while the site has its side file, incarnations rise",
        make: |nodes| Box::new(incarnations::Incarnations::new(nodes)),
    },
    Entry {
        name: "owner",
        says: "only a site writes its counters, its heads have no gaps, and its counters only grow",
        make: |nodes| Box::new(owner::Owner::new(nodes)),
    },
    Entry {
        name: "policies",
        says: "charters and share policies in force are those that were signed; versions never fall, over restarts too",
        make: |nodes| Box::new(policies::Policies::new(nodes)),
    },
    Entry {
        name: "priorities",
        says: "who has the same view of a VO gives all its accounts the same priorities",
        make: |_| Box::new(priorities::Priorities::default()),
    },
    Entry {
        name: "prices",
        says: "what a site's machines cost is what its owner said, and at rest what he says, everywhere",
        make: |nodes| Box::new(prices::Prices::new(nodes)),
    },
    Entry {
        name: "privacy",
        says: "what the members of a VO hold is told to its members only",
        make: |_| Box::new(privacy::Privacy),
    },
    Entry {
        name: "quotas",
        says: "no more is spent of a slice than was granted, and what was granted or charged stays so",
        make: |_| Box::new(quotas::Quotas::default()),
    },
    Entry {
        name: "limits",
        says: "queues, rows and lists stay within their named limits",
        make: |_| Box::new(limits::Limits::default()),
    },
    Entry {
        name: "expired",
        says: "whoever goes by documents that have expired says so, and nobody else",
        make: |_| Box::new(expired::Expired::default()),
    },
    Entry {
        name: "vouched",
        says: "whoever lacks what the VO's snapshot names, or has none that is valid, says so, and nobody else",
        make: |_| Box::new(vouched::Vouched::default()),
    },
    Entry {
        name: "liars",
        says: "what a liar moves stays under its capacity, what it costs under limits, and it is named",
        make: |_| Box::new(liars::Bounded::default()),
    },
    Entry {
        name: "total",
        says: "at rest the Grid's sum of each account is the oracle's, to the unit, at every node",
        make: |_| Box::new(total::Total),
    },
    Entry {
        name: "answers",
        says: "what a site answers follows from what feeds have told, as the papers say, to the digit",
        make: |_| Box::new(answers::Answers::default()),
    },
    Entry {
        name: "clocks",
        says: "a site signs nothing while its clock is ahead of its peers'",
        make: |_| Box::new(clocks::Clocks::default()),
    },
    Entry {
        name: "coverage",
        says: "no answer claims to rest on something younger than what is held, or on more sites",
        make: |_| Box::new(coverage::Coverage::default()),
    },
    Entry {
        name: "fresh",
        says: "a site that is connected signs, asks and enters windows when it is time, also by new intervals",
        make: |nodes| Box::new(fresh::Fresh::new(nodes)),
    },
    Entry {
        name: "audit",
        says: "what members publish of corrections is what was taken back, and once",
        make: |_| Box::new(audit::Audit),
    },
    Entry {
        name: "descriptions",
        says: "at rest each node shows of a site what its owner declares now, and nothing that no owner may declare",
        make: |_| Box::new(descriptions::Descriptions),
    },
    Entry {
        name: "adverts",
        says: "what heads say of free CPUs is of a time in which the site was told, and of its machines",
        make: |_| Box::new(adverts::Adverts),
    },
    Entry {
        name: "verdicts",
        says: "what becomes of a job that asks follows from documents and counters; the first that asked comes first",
        make: |_| Box::new(verdicts::Verdicts::default()),
    },
    Entry {
        name: "holds",
        says: "a hold stays open until its job ends or its time passes by a clock that is believed, and no longer",
        make: |nodes| Box::new(holds::Holds::new(nodes)),
    },
];
