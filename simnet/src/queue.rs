//! What happens next.
//!
//! Invariant: events come in the order of their times. Events of one time come in the order in which they were queued,
//! so a run depends on nothing but what queued them.
//!
//! Deliberately not here: removing an event that no longer means anything. Its receiver checks that.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events by their times, `T`.
#[derive(Debug)]
pub struct Queue<T, E> {
    heap: BinaryHeap<Entry<T, E>>,
    number: u64,
}

#[derive(Debug)]
struct Entry<T, E> {
    at: T,
    number: u64,
    event: E,
}

impl<T, E> PartialEq for Entry<T, E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T, E> Eq for Entry<T, E> {}

impl<T: Ord, E> PartialOrd for Entry<T, E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Ord, E> Ord for Entry<T, E> {
    /// The heap gives its greatest first: that must be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (&other.at, other.number).cmp(&(&self.at, self.number))
    }
}

impl<T: Ord, E> Default for Queue<T, E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            number: 0,
        }
    }
}

impl<T: Ord + Copy, E> Queue<T, E> {
    /// Something will happen at this time.
    pub fn push(&mut self, at: T, event: E) {
        self.number += 1;
        let number = self.number;
        self.heap.push(Entry { at, number, event });
    }

    /// The next event, and its time.
    pub fn pop(&mut self) -> Option<(T, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// The next event that is due by `now`.
    pub fn pop_due(&mut self, now: T) -> Option<(T, E)> {
        self.next_at().filter(|at| *at <= now)?;
        self.pop()
    }

    /// When the next event happens.
    pub fn next_at(&self) -> Option<T> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// How many events there are.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}
