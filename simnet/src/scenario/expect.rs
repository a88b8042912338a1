//! What can be expected in a scenario.
//!
//! Nodes that may be left out are all of them, and so are VOs.
//!
//! Invariant: an expectation reads and changes nothing, but that `agree` may let time pass.
//! Deliberately not here: how it is decided (`judge`).

use fairmesh_model::Millis;
use serde::Deserialize;

use crate::world::{Percent, words};

/// Something that must hold.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs)]
pub enum Expect {
    /// All running members hold and compute the same, at the latest after `within`. Feeds hold back
    /// what they have while it is awaited.
    Agree {
        vo: Option<String>,
        #[serde(default, with = "crate::length")]
        within: Millis,
    },
    /// They do not.
    Differ { vo: Option<String> },
    /// Nodes know of exactly what was acknowledged anywhere, to the unit.
    Total {
        nodes: Option<Vec<usize>>,
        vo: Option<String>,
    },
    /// Nodes know of less than that.
    Less {
        nodes: Option<Vec<usize>>,
        vo: Option<String>,
    },
    /// Nodes have told their operators this.
    Notice {
        nodes: Option<Vec<usize>>,
        code: String,
    },
    /// They have not.
    NoNotice {
        nodes: Option<Vec<usize>>,
        code: String,
    },
    /// Heads of just so many member sites were received that were signed no longer ago than `younger_than`.
    Coverage {
        nodes: Option<Vec<usize>>,
        vo: Option<String>,
        received: usize,
        #[serde(with = "crate::length")]
        younger_than: Millis,
    },
    /// No site has refused a document or a counter of another one.
    NobodyRefused {},
    /// Nodes run.
    Up { nodes: Option<Vec<usize>> },
    /// Nodes do not.
    Down { nodes: Vec<usize> },
    /// Nodes are connected to just so many.
    Peers {
        nodes: Option<Vec<usize>>,
        count: usize,
    },
    /// Nodes have set just so many damaged stores aside.
    SetAside {
        nodes: Option<Vec<usize>>,
        count: u32,
    },
    /// An account of a VO has this share of its parent.
    Share {
        nodes: Option<Vec<usize>>,
        vo: Option<String>,
        path: String,
        percent: Percent,
    },
    /// Nodes hold uncovered heads of so many incarnations of one site.
    Incarnations {
        nodes: Option<Vec<usize>>,
        vo: Option<String>,
        site: usize,
        #[serde(default = "one")]
        least: usize,
        most: usize,
    },
    /// Nodes have rejected at least so many pushes.
    Rejected {
        nodes: Option<Vec<usize>>,
        least: u64,
    },
    /// It has happened at least so often: the scenario is what it says it is.
    Fault {
        kind: Word,
        #[serde(default = "one")]
        least: usize,
    },
    /// Stores have at most so many rows, all tables together without those of jobs: nobody makes them
    /// grow without end.
    Rows {
        nodes: Option<Vec<usize>>,
        most: usize,
    },
}

fn one() -> usize {
    1
}

/// A word that can be counted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Word(pub(super) String);

impl TryFrom<String> for Word {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        if words().any(|known| known == word) {
            return Ok(Self(word));
        }
        let known: Vec<&str> = words().collect();
        Err(format!("it is one of: {}", known.join(", ")))
    }
}
