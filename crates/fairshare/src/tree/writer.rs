//! The one writer of a tree's usage.
//!
//! Invariants: after every call the sums equal the exact Σ raw amount × weight over what was booked,
//! whatever the order of the calls; a delta touches one leaf and what is above it, O(depth).
//! Deliberately not here: deduplication (feed increases, once) and clocks (reference windows are
//! handed in).

mod sweep;

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{AccountPath, Chunks, Span, Window, mutant, mutated};

use self::sweep::Sweep;
use super::amounts::{Change, InFlight, Reach, weighted};
use super::cells::Booked;
use super::entry::EntryId;
use super::reader::TreeReader;
use super::snapshot::Snapshot;
use super::sums::SumStore;
use super::topology::{Place, Topology};

/// One amount for [`TreeWriter::load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageItem {
    /// Where it is booked.
    pub entry: EntryId,
    /// When it was used, in windows of the entry's history.
    pub span: Span,
    /// How much, in core-ms.
    pub charge: u64,
    /// Whether the usage is of this site or of all sites.
    pub reach: Reach,
}

/// Feeds usage into a tree. There is one; readers are as many as one likes.
#[derive(Debug)]
pub struct TreeWriter {
    pub(super) topology: Arc<Topology>,
    store: Arc<SumStore>,
    pub(super) booked: Chunks<Booked>,
    references: Vec<Window>,
    sweep: Option<Sweep>,
    /// What jobs that run have used and that counts locally alone, by span.
    running: BTreeMap<(EntryId, Span), u64>,
    /// Whether amounts are booked and not summed up yet.
    is_loading: bool,
}

impl TreeWriter {
    pub(super) fn new(topology: Arc<Topology>, references: &[Window]) -> Self {
        let entries = topology.nodes.len();
        let store = Arc::new(SumStore::new(&topology, references));
        let booked = std::iter::repeat_with(Booked::default)
            .take(entries)
            .collect();
        Self {
            topology,
            store,
            booked,
            references: references.to_vec(),
            sweep: None,
            running: BTreeMap::new(),
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

    /// The entry where usage of `account` is to be booked. An account without a line gets an entry of its own.
    pub fn place(&mut self, account: &AccountPath) -> EntryId {
        match self.topology.place(account) {
            Place::Entry { id, .. } => EntryId(id),
            Place::Others { others, account } => {
                if let Some(id) = self.topology.unlisted.find(account.as_str()) {
                    return EntryId(id);
                }
                // Its sums come first: a reader that finds the account reads them.
                self.store.add_unlisted(self.topology.unlisted.len());
                self.booked.push(Booked::default());
                self.topology.add_unlisted(others, account.into_owned())
            }
        }
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
        let length = self.topology.histories[history].length();
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
        let day = span.day(self.topology.histories[history].length());
        self.add(entry, (change, day), next.map(|next| (next, day)));
    }

    /// Replaces what is in flight on `entry` itself.
    pub fn set_in_flight(&mut self, entry: EntryId, in_flight: InFlight) {
        let before = std::mem::replace(&mut self.booked[entry.index()].in_flight, in_flight);
        let before = mutant!(RunningNeverFalls, before, InFlight::default());
        let history = self.topology.history_of(entry);
        let is_of_vo = self.topology.is_of_vo(history);
        let (old, new) = (before.weighted(is_of_vo), in_flight.weighted(is_of_vo));
        let change = Change {
            local: new.local - old.local,
            global: new.global - old.global,
        };
        // What runs is usage of now, as each generation sees it.
        let length = self.topology.histories[history].length();
        let dated = |references: &[Window]| (change, length.day_of(references[history]));
        let next = self.swept(entry).map(dated);
        self.add(entry, dated(&self.references), next);
    }

    /// Changes what is in flight on `entry` itself, by core-ms; stops at zero and at 2^64 − 1.
    pub fn change_in_flight(&mut self, entry: EntryId, local: i64, global: i64) {
        let before = self.in_flight(entry);
        let after = InFlight {
            local: before.local.saturating_add_signed(local),
            global: before.global.saturating_add_signed(global),
        };
        self.set_in_flight(entry, after);
    }

    /// What is in flight on `entry` itself.
    pub fn in_flight(&self, entry: EntryId) -> InFlight {
        self.booked[entry.index()].in_flight
    }

    /// Adds `charge` core-ms, used in `span` by jobs that run, to the local sums of `entry` alone. They
    /// weigh by their age, as if they were booked; [`TreeWriter::take_running`] takes them out again.
    pub fn add_running(&mut self, entry: EntryId, span: Span, charge: u64) {
        let sum = self.running.entry((entry, span)).or_default();
        let added = sum.saturating_add(charge) - *sum;
        *sum += added;
        self.weigh_running(entry, span, added, |local| local);
    }

    /// Takes `charge` core-ms of what was added by [`TreeWriter::add_running`] out again, or what there is.
    pub fn take_running(&mut self, entry: EntryId, span: Span, charge: u64) {
        let Some(sum) = self.running.get_mut(&(entry, span)) else {
            return;
        };
        let taken = charge.min(*sum);
        *sum -= taken;
        if *sum == 0 {
            self.running.remove(&(entry, span));
        }
        self.weigh_running(entry, span, taken, |local| -local);
    }

    fn weigh_running(
        &mut self,
        entry: EntryId,
        span: Span,
        amount: u64,
        sign: impl Fn(i128) -> i128,
    ) {
        let history = self.topology.history_of(entry);
        let weigh = |references: &[Window]| {
            let weights = self.topology.weights(history, span, references);
            Change {
                local: sign(weighted(amount, 0, weights).local),
                global: 0,
            }
        };
        let change = weigh(&self.references);
        let next = self.swept(entry).map(weigh);
        let day = span.day(self.topology.histories[history].length());
        self.add(entry, (change, day), next.map(|next| (next, day)));
    }

    /// What jobs that run have used of `entry` itself from the day `since` on, weighed; nothing for most
    /// entries, and where no VO leaves it out for all.
    fn running_weighted(&self, entry: EntryId, references: &[Window], since: u32) -> i128 {
        if self.running.is_empty() {
            return 0;
        }
        let history = self.topology.history_of(entry);
        // Windows come before days.
        let all = (entry, Span::Window(Window(0)))..=(entry, Span::Day(u32::MAX));
        let length = self.topology.histories[history].length();
        let of_entry = self.running.range(all);
        let of_entry = of_entry.filter(|((_, span), _)| span.day(length) >= since);
        let weigh = |((_, span), amount): (&(EntryId, Span), &u64)| {
            let weights = self.topology.weights(history, *span, references);
            weighted(*amount, 0, weights).local
        };
        of_entry.map(weigh).sum()
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

    /// Adds a change of usage of some day to the sums: to what readers see, and to the next generation if it
    /// already holds what is booked on `entry`. Entries whose period begins later do not count it.
    fn add(&self, entry: EntryId, change: (Change, u32), next: Option<(Change, u32)>) {
        let chain = self.topology.chain(entry);
        let current = self.store.generation();
        let counting = |day: u32| {
            let begins_later = |id: &&u32| self.topology.period(EntryId(**id)) > day;
            let later = match self.topology.periods.is_empty() || mutated!(PeriodsIgnored) {
                true => 0,
                false => chain.ids().iter().take_while(begins_later).count(),
            };
            &chain.ids()[later..]
        };
        // Sums that lack what was booked are seen by nobody, and replaced.
        let (change, day) = change;
        if change != Change::default() && !self.is_loading {
            let add = || {
                self.store
                    .add(&self.topology, counting(day), current, change)
            };
            self.store.write(add);
        }
        if let Some((next, day)) = next {
            self.store
                .add(&self.topology, counting(day), current ^ 1, next);
        }
    }

    /// The next reference windows, if the sweep towards them has passed `entry`.
    fn swept(&self, entry: EntryId) -> Option<&[Window]> {
        let sweep = self.sweep.as_ref().filter(|_| !mutated!(SweepBlind))?;
        sweep.has_passed(entry.index()).then_some(&sweep.references)
    }
}
