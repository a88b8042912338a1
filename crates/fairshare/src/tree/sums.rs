//! The usage sums of all entries, read by many threads while one writes, without locks.
//!
//! Invariants: what [`SumStore::read`] returns was true at one moment; the writer never waits and
//! is never blocked; there is one writer (the tree's `&mut self`).
//!
//! A sequence counter guards everything (a seqlock): odd while a change is being written. A reader
//! that saw it odd, or different afterwards, reads again. All data are atomics with relaxed
//! ordering, so a torn read is a wrong number that gets thrown away and no data race. There are two
//! generations of sums, each seen from its own reference windows; readers use the current one while
//! the writer fills the other, and one store swaps them. All entries thus move to a new reference
//! window together: sums seen from different windows cannot be divided by each other.
//! Source: Boehm, "Can seqlocks get along with programming language memory models?", 2012.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use fairmesh_model::Window;

use super::amounts::{Change, Sums};
use super::entry::{EntryId, at};
use super::topology::{CHAIN_MAX, Chain, Topology};

/// Slots of accounts without a line that are made at once. `boxcar` puts a flag next to each element, which would
/// double an aligned slot, and clears as many elements at once as there are already.
const CHUNK: usize = 64;

/// Both generations of one entry's sums: one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    generations: [[AtomicU64; 4]; 2],
}

#[derive(Debug)]
pub(crate) struct SumStore {
    sequence: AtomicU64,
    current: AtomicU32,
    references: [Vec<AtomicU32>; 2],
    /// Of entries with a line, and of the entries `*`.
    slots: Vec<Slot>,
    /// Of accounts without a line.
    unlisted: boxcar::Vec<Box<[Slot; CHUNK]>>,
    /// Of what counts at a level, where that is not what counts for its parent.
    levels: Vec<Slot>,
}

impl SumStore {
    pub(crate) fn new(topology: &Topology, references: &[Window]) -> Self {
        let slots = |count| std::iter::repeat_with(Slot::default).take(count).collect();
        let windows = || {
            references
                .iter()
                .map(|window| AtomicU32::new(window.0))
                .collect()
        };
        Self {
            sequence: AtomicU64::new(0),
            current: AtomicU32::new(0),
            references: [windows(), windows()],
            slots: slots(topology.nodes.len()),
            unlisted: boxcar::Vec::new(),
            levels: slots(topology.level_sums),
        }
    }

    /// Grows with each write.
    pub(crate) fn version(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Calls `look` with the current generation until nothing was written meanwhile.
    pub(crate) fn read<T>(&self, mut look: impl FnMut(usize) -> T) -> T {
        loop {
            if let Some(seen) = self.try_read(&mut look) {
                return seen;
            }
            std::hint::spin_loop();
        }
    }

    /// One attempt at [`SumStore::read`].
    pub(crate) fn try_read<T>(&self, look: impl FnOnce(usize) -> T) -> Option<T> {
        let before = self.sequence.load(Ordering::Acquire);
        if before & 1 == 1 {
            return None;
        }
        let seen = look(self.generation());
        // Orders the reads above before the load below: had any of them seen a later write, the
        // load would see that write's sequence number.
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == before).then_some(seen)
    }

    /// Writes what readers must see all of or nothing of. For the one writer only.
    pub(crate) fn write(&self, change: impl FnOnce()) {
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(before + 1, Ordering::Relaxed);
        // Orders the odd number before the writes below.
        fence(Ordering::Release);
        change();
        self.sequence.store(before + 2, Ordering::Release);
    }

    /// The generation that readers use.
    pub(crate) fn generation(&self) -> usize {
        at(self.current.load(Ordering::Relaxed) & 1)
    }

    fn slot(&self, entry: usize) -> &Slot {
        match entry.checked_sub(self.slots.len()) {
            None => &self.slots[entry],
            Some(index) => &self.unlisted[index / CHUNK][index % CHUNK],
        }
    }

    /// Makes room for another account without a line, in addition to so many. For the writer.
    pub(crate) fn add_unlisted(&self, accounts: usize) {
        if accounts == self.unlisted.count() * CHUNK {
            self.unlisted
                .push(Box::new(std::array::from_fn(|_| Slot::default())));
        }
    }

    pub(crate) fn sums(&self, entry: usize, generation: usize) -> Sums {
        self.slot(entry).sums(generation)
    }

    /// What counts at the level of an entry: of the entry and its siblings.
    pub(crate) fn level_sums(
        &self,
        topology: &Topology,
        entry: EntryId,
        generation: usize,
    ) -> Sums {
        match topology.level_sums(entry) {
            Some(level) => self.levels[at(level)].sums(generation),
            None => self.sums(at(topology.node(entry).parent), generation),
        }
    }

    /// The sums of the levels that have their own.
    pub(crate) fn own_level_sums(&self, generation: usize) -> Vec<Sums> {
        self.levels
            .iter()
            .map(|slot| slot.sums(generation))
            .collect()
    }

    /// Zeroes the sums of one entry. For the writer, in the generation that readers do not use.
    pub(crate) fn clear(&self, entry: usize, generation: usize) {
        self.slot(entry).set(generation, Sums::default());
    }

    /// The same of the levels that have sums of their own.
    pub(crate) fn clear_levels(&self, generation: usize) {
        for slot in &self.levels {
            slot.set(generation, Sums::default());
        }
    }

    /// Adds `change` to the entries of a chain and to their levels. For the writer: inside
    /// [`SumStore::write`], unless the generation is the one that readers do not use.
    pub(crate) fn add(
        &self,
        topology: &Topology,
        entries: &[u32],
        generation: usize,
        change: Change,
    ) {
        for id in entries {
            self.slot(at(*id)).add(generation, change);
            if let Some(level) = topology.level_sums(EntryId(*id)) {
                self.levels[at(level)].add(generation, change);
            }
        }
    }

    /// The sums of the entries of a chain, and of their levels.
    pub(crate) fn chain_sums(
        &self,
        topology: &Topology,
        chain: &Chain,
        generation: usize,
    ) -> [[Sums; CHAIN_MAX]; 2] {
        let mut sums = [[Sums::default(); CHAIN_MAX]; 2];
        for (index, id) in chain.ids().iter().enumerate() {
            sums[0][index] = self.sums(at(*id), generation);
            sums[1][index] = self.level_sums(topology, EntryId(*id), generation);
        }
        sums
    }

    pub(crate) fn reference(&self, history: usize, generation: usize) -> Window {
        Window(self.references[generation][history].load(Ordering::Relaxed))
    }

    pub(crate) fn references(&self, generation: usize) -> Vec<Window> {
        (0..self.references[generation].len())
            .map(|history| self.reference(history, generation))
            .collect()
    }

    /// Makes the other generation current, seen from `references`. For the writer.
    pub(crate) fn swap(&self, references: &[Window]) {
        let next = self.generation() ^ 1;
        self.write(|| {
            for (stored, window) in self.references[next].iter().zip(references) {
                stored.store(window.0, Ordering::Relaxed);
            }
            self.current.store(u32::from(next == 1), Ordering::Relaxed);
        });
    }
}

impl Slot {
    fn sums(&self, generation: usize) -> Sums {
        let words = &self.generations[generation];
        let pair = |low: usize| {
            let word = |index: usize| u128::from(words[index].load(Ordering::Relaxed));
            word(low) | (word(low + 1) << 64)
        };
        Sums {
            local: pair(0),
            global: pair(2),
        }
    }

    fn set(&self, generation: usize, sums: Sums) {
        let words = &self.generations[generation];
        for (low, sum) in [(0, sums.local), (2, sums.global)] {
            words[low].store(low_word(sum), Ordering::Relaxed);
            words[low + 1].store(low_word(sum >> 64), Ordering::Relaxed);
        }
    }

    fn add(&self, generation: usize, change: Change) {
        self.set(generation, self.sums(generation).plus(change));
    }
}

fn low_word(sum: u128) -> u64 {
    u64::try_from(sum & u128::from(u64::MAX)).expect("masked to 64 bits")
}
