//! The accounts without a line: entries that a tree gets while it is fed.
//!
//! A policy lists the entries of a tree, and usage arrives for other accounts as well. Each of them becomes an
//! entry below the `*` of the deepest entry above it, so that these accounts are served in the order of their
//! use too. The tree's writer adds one when its first usage is booked.
//!
//! Invariant: an account is added once, by the one writer, and never changes or goes away; readers look without
//! a lock. A reader that has not seen the newest account takes it for one that has used nothing.
//! Deliberately not here: usage sums (`sums`), and which `*` an account belongs to (`topology`).

use std::sync::atomic::{AtomicU32, Ordering};

use fairmesh_model::{AccountPath, HashSecret};

use super::entry::Node;

/// Accounts that move from a full index to the next one with each new account: with the 64 of `papaya`'s default a step
/// that adds some thousand accounts moves all, a tenth of a second of a million.
const MOVED_AT_ONCE: usize = 4;

/// An account, its place, and its path as people see it.
#[derive(Debug)]
pub(crate) struct Unlisted {
    pub(crate) node: Node,
    pub(crate) path: AccountPath,
}

#[derive(Debug)]
pub(crate) struct UnlistedAccounts {
    accounts: boxcar::Vec<Unlisted>,
    /// For look-ups only, never iterated.
    index: papaya::HashMap<AccountPath, u32, HashSecret>,
    depth: AtomicU32,
}

impl UnlistedAccounts {
    pub(crate) fn new(secret: HashSecret) -> Self {
        Self {
            accounts: boxcar::Vec::new(),
            index: papaya::HashMap::builder()
                .hasher(secret)
                .resize_mode(papaya::ResizeMode::Incremental(MOVED_AT_ONCE))
                .build(),
            depth: AtomicU32::new(0),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.accounts.count()
    }

    /// Levels below the root of the deepest one; 0 without any.
    pub(crate) fn depth(&self) -> usize {
        usize::try_from(self.depth.load(Ordering::Relaxed)).expect("a depth is small")
    }

    pub(crate) fn get(&self, index: usize) -> &Unlisted {
        &self.accounts[index]
    }

    /// The entry of an account.
    pub(crate) fn find(&self, account: &str) -> Option<u32> {
        self.index.pin().get(account).copied()
    }

    /// Adds an account as entry `id`. For the writer.
    pub(crate) fn add(&self, account: AccountPath, id: u32, unlisted: Unlisted) {
        let depth = u32::from(unlisted.node.depth);
        self.depth.fetch_max(depth, Ordering::Relaxed);
        let other_name = (unlisted.path != account).then(|| unlisted.path.clone());
        self.accounts.push(unlisted);
        let index = self.index.pin();
        for name in [Some(account), other_name].into_iter().flatten() {
            index.insert(name, id);
        }
    }
}
