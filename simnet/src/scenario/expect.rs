//! What can be expected in a scenario.
//!
//! Invariant: an expectation reads and changes nothing, but that [`Expect::Agree`] may let time pass.
//! Deliberately not here: how it is decided (`judge`).

use fairmesh_model::{Millis, Share};

use crate::world::FaultKind;

/// Something that must hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Expect {
    /// All running members hold and compute the same, at the latest after `within`. Feeds hold back
    /// what they have while it is awaited.
    Agree {
        /// Index of the VO; all if none is named.
        vo: Option<usize>,
        /// How long it may take.
        within: Millis,
    },
    /// They do not.
    Differ {
        /// Index of the VO; all if none is named.
        vo: Option<usize>,
    },
    /// Nodes know of exactly what was acknowledged anywhere, to the unit.
    Total(Knowledge),
    /// Nodes know of less than that.
    Less(Knowledge),
    /// Nodes have told their operators this.
    Notice {
        /// Who.
        nodes: Vec<usize>,
        /// The notice's code.
        code: String,
    },
    /// They have not.
    NoNotice {
        /// Who.
        nodes: Vec<usize>,
        /// The notice's code.
        code: String,
    },
    /// So many member sites were heard of not longer ago than `younger_than`.
    Coverage {
        /// Whose answers.
        nodes: Vec<usize>,
        /// Index of the VO.
        vo: usize,
        /// How many sites, exactly.
        heard: usize,
        /// How long ago at most.
        younger_than: Millis,
    },
    /// No site has refused a document or a counter of another one.
    NobodyRefused,
    /// Nodes run.
    Up(Vec<usize>),
    /// Nodes do not.
    Down(Vec<usize>),
    /// Nodes are connected to so many.
    Peers {
        /// Who.
        nodes: Vec<usize>,
        /// To how many, exactly.
        count: usize,
    },
    /// Nodes have set so many damaged stores aside.
    SetAside {
        /// Who.
        nodes: Vec<usize>,
        /// How many, exactly.
        count: usize,
    },
    /// An account of a VO has this share of its parent.
    Share {
        /// According to whom.
        nodes: Vec<usize>,
        /// Index of the VO.
        vo: usize,
        /// Path within the VO.
        path: String,
        /// The share.
        share: Share,
    },
    /// Nodes hold counters of so many lives of one site.
    Lives {
        /// Who.
        nodes: Vec<usize>,
        /// Index of the VO.
        vo: usize,
        /// Of which site.
        site: usize,
        /// Fewest.
        least: usize,
        /// Most.
        most: usize,
    },
    /// Nodes have rejected at least so many pushes.
    Rejected {
        /// Who.
        nodes: Vec<usize>,
        /// How many.
        least: u64,
    },
    /// A kind of fault has happened at least so often: the scenario is what it says it is.
    Fault {
        /// Which.
        kind: FaultKind,
        /// How often.
        least: u64,
    },
    /// A node's stores have at most so many rows: nobody makes them grow without end.
    Rows {
        /// Who.
        nodes: Vec<usize>,
        /// How many, all tables together, without those of jobs.
        most: usize,
    },
}

/// What nodes know of a VO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knowledge {
    /// Who.
    pub nodes: Vec<usize>,
    /// Index of the VO; all that the node mounts if none is named.
    pub vo: Option<usize>,
}
