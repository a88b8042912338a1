//! One entry of a built tree.
//!
//! Deliberately not here: its usage (`amounts`), and where it is (`topology`).

use fairmesh_model::Share;

/// An entry of a built tree. The ids of entries with a line, and of the entries `*`, run in path order (every
/// entry before those below it); accounts without a line follow in the order in which they were first used.
/// Ids mean nothing in another tree; the root is [`EntryId::ROOT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub(crate) u32);

impl EntryId {
    /// The root, which every tree has.
    pub const ROOT: Self = Self(0);

    /// The id as an index from 0 below [`crate::TreeReader::entries`].
    pub fn index(self) -> usize {
        usize::try_from(self.0).expect("32 bits fit an index")
    }
}

/// What an entry of a built tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// It has a line of its own, or is the root.
    Listed,
    /// `*` with a line: all accounts of its level without one.
    Others,
    /// The same where nobody wrote the line: its share is 0.
    ImpliedOthers,
    /// An account without a line; its parent is an entry `*`.
    Unlisted,
}

/// One entry, in 32 bytes: a look-up reads one a level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) parent: u32,
    /// The first id after the subtree.
    pub(crate) end: u32,
    pub(crate) weight: u64,
    pub(crate) at_most: Share,
    /// Index of the level that it is in.
    pub(crate) siblings: u32,
    pub(crate) history: u16,
    pub(crate) depth: u8,
    pub(crate) kind: EntryKind,
}

impl Node {
    /// The level that it is in, as an index.
    pub(crate) fn level(&self) -> usize {
        at(self.siblings)
    }

    pub(crate) const fn is_others(&self) -> bool {
        matches!(self.kind, EntryKind::Others | EntryKind::ImpliedOthers)
    }
}

/// A stored id as an index.
pub(crate) fn at(id: u32) -> usize {
    usize::try_from(id).expect("32 bits fit an index")
}
