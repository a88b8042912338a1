//! What a share tree is built from.
//!
//! Invariant: a [`TreeSpec`] is plain data and may be wrong; [`TreeSpec::build`] checks it and names
//! the entry at fault. Nothing is built from a wrong one.
//! Deliberately not here: reading a policy, mounting a VO.

use fairmesh_model::{AccountPath, Date, Distance, HashSecret, Scope, Share, ShareRule};

use crate::history::WeightTable;

/// One entry of the tree.
#[derive(Debug, Clone)]
pub struct EntrySpec {
    /// Where it is. Not the root, which is implied. `/cms/*` stands for the accounts below `/cms` without a line.
    pub path: AccountPath,
    /// Its weight among its siblings, in any unit that they share. Where shares are read as published: its
    /// target, in units of 10^-9 of its parent.
    pub weight: u64,
    /// The most that it may have of its parent before all others of its level go first; the whole is no limit.
    pub at_most: Share,
    /// The scope of the level between this entry and its parent: whose usage makes `actual`. Siblings have
    /// the same one.
    pub scope: Scope,
    /// How far it is from its target is measured so; the same for siblings.
    pub distance: Distance,
    /// Index into [`TreeSpec::histories`]: weighs the global sums of what is booked here, and says
    /// how long its windows are. What has the local history is of no VO: it is in no global sum.
    pub history: usize,
    /// Usage before this day counts neither at its level nor below it; it does count at the levels above.
    pub since: Option<Date>,
}

/// A whole tree, in any order of entries.
#[derive(Debug, Clone)]
pub struct TreeSpec {
    /// How shares are read.
    pub rule: ShareRule,
    /// How the site weighs usage by its age, and the mounted VOs.
    pub histories: Vec<WeightTable>,
    /// Index of the history that weighs all local sums.
    pub local_history: usize,
    /// Index of the history of usage booked on the root. The same as `local_history`, unless a VO
    /// is mounted at the root.
    pub root_history: usize,
    /// What paths are hashed behind, for look-ups. Where others choose them it must be one that they cannot tell.
    pub secret: HashSecret,
    /// The entries in any order; parents must be among them.
    pub entries: Vec<EntrySpec>,
    /// Former paths and the entries that they have become: usage there, and below, counts here. A former path
    /// that is an entry, or that was given before, is left out.
    pub moves: Vec<(AccountPath, AccountPath)>,
}

/// Why a tree was not built. Nothing changed; the specification is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The root is implied.
    #[error("the root `/` is listed as an entry")]
    RootListed,
    /// Two entries have one path.
    #[error("`{0}` is listed twice")]
    Duplicate(AccountPath),
    /// The entry above is not there.
    #[error("`{path}` is listed, but `{missing}` above it is not")]
    MissingParent {
        /// The entry without a parent.
        path: AccountPath,
        /// The parent that is missing.
        missing: AccountPath,
    },
    /// An entry below `*`.
    #[error("`{0}` is listed below `*`, which stands for accounts without a line")]
    BelowOthers(AccountPath),
    /// An index beyond the list of histories.
    #[error("`{path}` has history {index}, but there are only {count}")]
    UnknownHistory {
        /// The entry, or the root.
        path: AccountPath,
        /// The index that is out of range.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The reference windows do not match the histories one to one.
    #[error("{given} reference windows were given for {histories} histories")]
    References {
        /// How many were given.
        given: usize,
        /// How many are needed.
        histories: usize,
    },
    /// More entries than ids.
    #[error("more than 2^31 entries")]
    TooMany,
}

impl TreeSpec {
    /// A tree without entries, whose root and local sums use `histories[local_history]`.
    pub const fn new(histories: Vec<WeightTable>, local_history: usize) -> Self {
        Self {
            rule: ShareRule::Weights,
            histories,
            local_history,
            root_history: local_history,
            secret: HashSecret::new(0),
            entries: Vec::new(),
            moves: Vec::new(),
        }
    }
}
