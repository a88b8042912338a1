//! The cells of one stream in one span, as dense columns.
//!
//! Invariant: `paths` has no duplicates, `index` maps each of them to its row, and a column has
//! either one entry a row or none at all (all zero: most Grids never fill the GPU column). Rows
//! are in order of arrival; nothing that leaves this crate depends on that order.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use fairmesh_model::Counters;

use crate::paths::PathId;

const COLUMNS: usize = 5;

/// Spreads path ids, which are small and dense already, over a hash table. Deterministic.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only path ids are hashed, and they are u32");
    }

    fn write_u32(&mut self, id: u32) {
        // 2^64 / golden ratio: neighbours land far apart, also in the top bits.
        self.0 = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Counters by path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sheet {
    index: HashMap<PathId, u32, BuildHasherDefault<IdHasher>>,
    paths: Vec<PathId>,
    columns: [Vec<u64>; COLUMNS],
}

impl Sheet {
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    pub(crate) fn contains(&self, path: PathId) -> bool {
        self.index.contains_key(&path)
    }

    pub(crate) fn get(&self, path: PathId) -> Option<Counters> {
        self.index.get(&path).map(|row| self.row(*row as usize))
    }

    /// Rows in order of arrival.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (PathId, Counters)> {
        self.paths
            .iter()
            .enumerate()
            .map(|(row, path)| (*path, self.row(row)))
    }

    /// Joins counters into a cell; what was there before and is now, if that differs. `hint` is the
    /// row where the cell is expected: sheets mostly come in the order in which they came before,
    /// which saves the look-up.
    pub(crate) fn join(
        &mut self,
        path: PathId,
        counters: Counters,
        hint: &mut usize,
    ) -> Option<(Option<Counters>, Counters)> {
        let row = if self.paths.get(*hint) == Some(&path) {
            *hint
        } else if let Some(row) = self.index.get(&path) {
            *row as usize
        } else {
            self.push(path, counters);
            *hint = self.paths.len();
            return Some((None, counters));
        };
        *hint = row + 1;
        let before = self.row(row);
        let after = before.join(counters);
        if after == before {
            return None;
        }
        self.write(row, after);
        Some((Some(before), after))
    }

    /// Sets or removes a cell.
    pub(crate) fn set(&mut self, path: PathId, counters: Option<Counters>) {
        match (self.index.get(&path), counters) {
            (Some(row), Some(counters)) => self.write(*row as usize, counters),
            (None, Some(counters)) => self.push(path, counters),
            (Some(_), None) => {
                self.remove(path);
            }
            (None, None) => {}
        }
    }

    /// Takes a cell out.
    pub(crate) fn remove(&mut self, path: PathId) -> Option<Counters> {
        let row = self.index.remove(&path)? as usize;
        let counters = self.row(row);
        self.paths.swap_remove(row);
        for column in self.columns.iter_mut().filter(|column| !column.is_empty()) {
            column.swap_remove(row);
        }
        if let Some(moved) = self.paths.get(row) {
            self.index.insert(*moved, row_number(row));
        }
        Some(counters)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let columns: usize = self.columns.iter().map(Vec::capacity).sum();
        columns * 8 + self.paths.capacity() * 4 + self.index.capacity() * 9 * 8 / 7
    }

    fn row(&self, row: usize) -> Counters {
        Counters::from_columns(std::array::from_fn(|column| {
            self.columns[column].get(row).copied().unwrap_or(0)
        }))
    }

    fn write(&mut self, row: usize, counters: Counters) {
        let rows = self.paths.len();
        for (column, value) in self.columns.iter_mut().zip(counters.to_columns()) {
            if column.is_empty() && value != 0 {
                column.resize(rows, 0);
            }
            if let Some(cell) = column.get_mut(row) {
                *cell = value;
            }
        }
    }

    fn push(&mut self, path: PathId, counters: Counters) {
        let row = self.paths.len();
        self.index.insert(path, row_number(row));
        self.paths.push(path);
        for (column, value) in self.columns.iter_mut().zip(counters.to_columns()) {
            if value != 0 && column.len() < row {
                column.resize(row, 0);
            }
            if value != 0 || (column.len() == row && row != 0) {
                column.push(value);
            }
        }
    }
}

fn row_number(row: usize) -> u32 {
    u32::try_from(row).expect("a sheet has no more rows than there are path ids")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in proptest::collection::vec((0..6u32, proptest::option::of([0..3u64, 0..2, 0..1, 0..9, 0..2])), 0..60)) {
            let (mut sheet, mut map) = (Sheet::default(), BTreeMap::new());
            for (path, counters) in steps {
                let (path, counters) = (PathId(path), counters.map(Counters::from_columns));
                sheet.set(path, counters);
                match counters {
                    Some(counters) => map.insert(path, counters),
                    None => map.remove(&path),
                };
                let mut rows: Vec<_> = sheet.rows().collect();
                rows.sort_by_key(|(path, _)| *path);
                prop_assert_eq!(&rows, &map.clone().into_iter().collect::<Vec<_>>());
                prop_assert!(map.iter().all(|(path, counters)| sheet.get(*path) == Some(*counters)));
            }
        }
    }

    #[test]
    fn a_wrong_hint_costs_a_look_up_and_nothing_else() {
        let mut sheet = Sheet::default();
        let one = Counters {
            charge: 1,
            ..Counters::default()
        };
        let mut hint = 7;
        assert_eq!(sheet.join(PathId(3), one, &mut hint), Some((None, one)));
        hint = 7;
        assert_eq!(sheet.join(PathId(3), one, &mut hint), None);
        assert_eq!(sheet.rows().count(), 1);
    }
}
