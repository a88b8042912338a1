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

use super::topology::{CHAIN_MAX, Chain, at};

/// Weighted usage of an entry and all below it, in core-ms × 2^-32.
///
/// Wraps beyond 2^128, which 2^32 cells of the largest weighted charge (2^96) do not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Counted at this site, weighed by the site's history.
    pub local: u128,
    /// Counted at all sites, weighed by the VO's history.
    pub global: u128,
}

/// A change of [`Sums`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    pub(crate) local: i128,
    pub(crate) global: i128,
}

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
    slots: Vec<Slot>,
}

impl Sums {
    pub(crate) fn plus(self, change: Change) -> Self {
        Self {
            local: self.local.wrapping_add_signed(change.local),
            global: self.global.wrapping_add_signed(change.global),
        }
    }
}

impl SumStore {
    pub(crate) fn new(entries: usize, references: &[Window]) -> Self {
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
            slots: std::iter::repeat_with(Slot::default)
                .take(entries)
                .collect(),
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

    pub(crate) fn sums(&self, entry: usize, generation: usize) -> Sums {
        let words = &self.slots[entry].generations[generation];
        let pair = |low: usize| {
            let word = |index: usize| u128::from(words[index].load(Ordering::Relaxed));
            word(low) | (word(low + 1) << 64)
        };
        Sums {
            local: pair(0),
            global: pair(2),
        }
    }

    /// Replaces the sums of one entry. For the writer: inside [`SumStore::write`], unless the
    /// generation is the one that readers do not use.
    pub(crate) fn set_sums(&self, entry: usize, generation: usize, sums: Sums) {
        let words = &self.slots[entry].generations[generation];
        for (low, sum) in [(0, sums.local), (2, sums.global)] {
            words[low].store(low_word(sum), Ordering::Relaxed);
            words[low + 1].store(low_word(sum >> 64), Ordering::Relaxed);
        }
    }

    /// Adds `change` to an entry and everything above it; as [`SumStore::set_sums`].
    pub(crate) fn add(&self, chain: &Chain, generation: usize, change: Change) {
        for id in chain.ids() {
            self.set_sums(
                at(*id),
                generation,
                self.sums(at(*id), generation).plus(change),
            );
        }
    }

    pub(crate) fn chain_sums(&self, chain: &Chain, generation: usize) -> [Sums; CHAIN_MAX] {
        let mut sums = [Sums::default(); CHAIN_MAX];
        for (sum, id) in sums.iter_mut().zip(chain.ids()) {
            *sum = self.sums(at(*id), generation);
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

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}

fn low_word(sum: u128) -> u64 {
    u64::try_from(sum & u128::from(u64::MAX)).expect("masked to 64 bits")
}
