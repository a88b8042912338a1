//! A vector that grows by chunks.
//!
//! Invariant: no element moves, so a push never takes longer than to make one chunk, whatever is there already. The
//! push that doubles a [`Vec`] of a million elements copies tens of megabytes.

use std::ops::{Index, IndexMut};

/// Elements of a chunk: few enough for a small vector, and enough for the list of chunks to stay short.
const CHUNK: usize = 256;

/// Elements that never move.
#[derive(Debug)]
pub struct Chunks<T>(Vec<Vec<T>>);

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Chunks<T> {
    /// Adds an element at the end.
    pub fn push(&mut self, element: T) {
        match self.0.last_mut().filter(|last| last.len() < CHUNK) {
            Some(last) => last.push(element),
            None => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(element);
                self.0.push(chunk);
            }
        }
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        let last = self.0.last().map_or(CHUNK, Vec::len);
        self.0.len() * CHUNK + last - CHUNK
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> FromIterator<T> for Chunks<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut chunks = Self::default();
        elements
            .into_iter()
            .for_each(|element| chunks.push(element));
        chunks
    }
}

impl<T> Index<usize> for Chunks<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.0[index / CHUNK][index % CHUNK]
    }
}

impl<T> IndexMut<usize> for Chunks<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.0[index / CHUNK][index % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_stay_where_they_are_while_others_come() {
        let mut chunks: Chunks<usize> = (0..CHUNK).collect();
        let first = std::ptr::from_ref(&chunks[0]);
        (CHUNK..4 * CHUNK + 7).for_each(|number| chunks.push(number));
        assert_eq!(chunks.len(), 4 * CHUNK + 7);
        assert_eq!(std::ptr::from_ref(&chunks[0]), first);
        chunks[CHUNK] = 3;
        assert_eq!(
            (chunks[CHUNK - 1], chunks[CHUNK], chunks[4 * CHUNK + 6]),
            (CHUNK - 1, 3, 4 * CHUNK + 6)
        );
        assert_eq!(Chunks::<u8>::default().len(), 0);
    }
}
