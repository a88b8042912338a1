//! The one writer of a tree's usage.
//!
//! Invariants: after every call the sums equal the exact Σ raw amount × weight over what was booked,
//! whatever the order of the calls; a delta touches one leaf and what is above it, O(depth).
//! Deliberately not here: deduplication (feed increases, once) and clocks (reference windows are
//! handed in).

use std::sync::Arc;

use fairmesh_model::{Span, Window, mutant, mutated};

use super::cells::{Booked, weighted};
use super::reader::TreeReader;
use super::snapshot::Snapshot;
use super::spec::EntryId;
use super::sums::{Change, SumStore};
use super::sweep::Sweep;
use super::topology::Topology;
use crate::history::ONE;

/// Whose usage it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Counted at this site: part of the local and the global sums.
    Own,
    /// Counted at another site: part of the global sums only.
    Remote,
}

/// What running jobs have used, or will use, beyond what is counted already; in core-ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InFlight {
    /// At this site.
    pub own: u64,
    /// At all other sites together.
    pub remote: u64,
}

/// One amount for [`TreeWriter::load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageItem {
    /// Where it is booked.
    pub entry: EntryId,
    /// When it was used, in windows of the entry's history.
    pub span: Span,
    /// How much, in core-ms.
    pub charge: u64,
    /// Whose it is.
    pub reach: Reach,
}

/// Feeds usage into a tree. There is one; readers are as many as one likes.
#[derive(Debug)]
pub struct TreeWriter {
    pub(super) topology: Arc<Topology>,
    pub(super) store: Arc<SumStore>,
    pub(super) booked: Vec<Booked>,
    pub(super) references: Vec<Window>,
    pub(super) sweep: Option<Sweep>,
    /// Whether amounts are booked and not summed up yet.
    pub(super) is_loading: bool,
}

impl TreeWriter {
    pub(super) fn new(topology: Arc<Topology>, references: &[Window]) -> Self {
        let entries = topology.nodes.len();
        let store = Arc::new(SumStore::new(entries, references));
        let booked = std::iter::repeat_with(Booked::default)
            .take(entries)
            .collect();
        Self {
            topology,
            store,
            booked,
            references: references.to_vec(),
            sweep: None,
            is_loading: false,
        }
    }

    /// A reader of this tree, for any thread.
    pub fn reader(&self) -> TreeReader {
        TreeReader {
            topology: Arc::clone(&self.topology),
            store: Arc::clone(&self.store),
        }
    }

    /// All sums as they are now. Copies 32 bytes an entry; never has to be repeated, as a reader's
    /// copy may.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::copy(&self.topology, &self.store, self.store.generation())
    }

    /// Adds `charge` core-ms, used in `span` (in windows of the entry's history), to `entry`.
    ///
    /// # Panics
    /// If `entry` belongs to a larger tree: a bug of the caller, as are all such panics here.
    pub fn apply(&mut self, entry: EntryId, span: Span, charge: u64, reach: Reach) {
        let added = self.booked[entry.index()].add(span, charge, reach);
        self.weigh(entry, span, added, reach, |change| change);
    }

    /// Takes back `charge` core-ms that were added to `entry` for `span`, or as much of it as still
    /// weighs anything.
    pub fn take_back(&mut self, entry: EntryId, span: Span, charge: u64, reach: Reach) {
        let history = self.topology.history_of(entry);
        let length = self.topology.histories[history].weights.length();
        let day = Span::Day(span.day(length));
        let taken = self.booked[entry.index()].take(span, day, charge, reach);
        self.weigh(entry, span, taken, reach, |change| Change {
            local: -change.local,
            global: -change.global,
        });
    }

    fn weigh(
        &mut self,
        entry: EntryId,
        span: Span,
        amount: u64,
        reach: Reach,
        sign: impl Fn(Change) -> Change,
    ) {
        let (own, remote) = match reach {
            Reach::Own => (amount, 0),
            Reach::Remote => (0, amount),
        };
        let history = self.topology.history_of(entry);
        let weigh = |references: &[Window]| {
            let weights = self.topology.weights(history, span, references);
            sign(weighted(own, remote, weights))
        };
        let change = weigh(&self.references);
        let next = self.swept(entry).map(weigh);
        self.add(entry, change, next);
    }

    /// Replaces what is in flight on `entry` itself.
    pub fn set_in_flight(&mut self, entry: EntryId, in_flight: InFlight) {
        let before = std::mem::replace(&mut self.booked[entry.index()].in_flight, in_flight);
        let before = mutant!(RunningNeverFalls, before, InFlight::default());
        let old = weighted(before.own, before.remote, (ONE, ONE));
        let new = weighted(in_flight.own, in_flight.remote, (ONE, ONE));
        let change = Change {
            local: new.local - old.local,
            global: new.global - old.global,
        };
        let next = self.swept(entry).map(|_| change);
        self.add(entry, change, next);
    }

    /// Changes what is in flight on `entry` itself, by core-ms; stops at zero and at 2^64 − 1.
    pub fn change_in_flight(&mut self, entry: EntryId, own: i64, remote: i64) {
        let before = self.in_flight(entry);
        let after = InFlight {
            own: before.own.saturating_add_signed(own),
            remote: before.remote.saturating_add_signed(remote),
        };
        self.set_in_flight(entry, after);
    }

    /// What is in flight on `entry` itself.
    pub fn in_flight(&self, entry: EntryId) -> InFlight {
        self.booked[entry.index()].in_flight
    }

    /// Adds many amounts at once: O(amounts + entries), against O(amounts × depth) one by one.
    /// Readers see none of them until it returns, and then all.
    pub fn load(&mut self, items: impl IntoIterator<Item = UsageItem>) {
        self.book(items);
        self.recompute();
    }

    /// Adds amounts that nobody sees until [`TreeWriter::sum_up`] was called and
    /// [`TreeWriter::advance`] says so. Changes that come meanwhile are seen with them.
    pub fn book(&mut self, items: impl IntoIterator<Item = UsageItem>) {
        self.is_loading = true;
        for item in items {
            self.booked[item.entry.index()].add(item.span, item.charge, item.reach);
        }
    }

    /// Begins to sum up what was booked: in slices, by [`TreeWriter::advance`].
    pub fn sum_up(&mut self) {
        self.sweep = Some(Sweep::towards(self.references.clone()));
    }

    /// Adds a change to the sums: to what readers see, and to the next generation if it already
    /// holds what is booked on `entry`.
    fn add(&self, entry: EntryId, change: Change, next: Option<Change>) {
        let chain = self.topology.chain(entry);
        let current = self.store.generation();
        // Sums that lack what was booked are seen by nobody, and replaced.
        if change != Change::default() && !self.is_loading {
            self.store.write(|| self.store.add(&chain, current, change));
        }
        if let Some(next) = next {
            self.store.add(&chain, current ^ 1, next);
        }
    }

    /// The next reference windows, if the sweep towards them has passed `entry`.
    fn swept(&self, entry: EntryId) -> Option<&[Window]> {
        let sweep = self.sweep.as_ref().filter(|_| !mutated!(SweepBlind))?;
        sweep.has_passed(entry.index()).then_some(&sweep.references)
    }
}
