//! Cutting the cells of one span into tables of bounded size.
//!
//! Accounts are distributed over slices by a hash of their path. The number of slices doubles when one becomes too
//! large. So a new cell changes one slice, and the others keep their hashes.
//!
//! Invariant: a slice's name contains its span. How a site cuts is its own decision; readers join whatever arrives.

use std::ops::RangeInclusive;

use fairmesh_model::{AccountPath, ContentHash, Counters, Incarnation, Span, mutated};

use crate::columns::{Indexed, encode_table};

/// Cells at which the number of slices of a span doubles: bounds how much one change rewrites.
const SLICE_CELLS: usize = 1_024;

/// Most doublings: 4,096 slices of a span. The hash prefix in a name has 16 bits.
const DEPTH_MAX: u8 = 12;

/// Name of a table: its span, the number of slices as a power of two, and the index of the slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slice {
    /// The hour or day that the cells count in.
    pub span: Span,
    depth: u8,
    index: u16,
}

impl Slice {
    /// The lowest name of a table of `span`, for range look-ups.
    pub const fn first_of(span: Span) -> Self {
        let (depth, index) = (0, 0);
        Self { span, depth, index }
    }

    /// The range of all names of tables of `span`.
    pub fn all_of(span: Span) -> RangeInclusive<Self> {
        let at = |depth, index| Self { span, depth, index };
        Self::first_of(span)..=at(u8::MAX, u16::MAX)
    }

    /// The name as 5 bytes, or 8 if there are several slices. Byte order is the order of spans.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.span.code().to_be_bytes()[3..].to_vec();
        if self.depth > 0 {
            bytes.push(self.depth);
            bytes.extend_from_slice(&self.index.to_be_bytes());
        }
        bytes
    }

    /// The inverse of [`Slice::to_bytes`]; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (span, rest) = bytes.split_at_checked(5)?;
        let mut code = [0; 8];
        code[3..].copy_from_slice(span);
        let (depth, index) = match rest {
            [] => (0, 0),
            [depth @ 1..=DEPTH_MAX, high, low] => (*depth, u16::from_be_bytes([*high, *low])),
            _ => return None,
        };
        let is_one = u32::from(index) < 1 << depth;
        let span = Span::from_code(u64::from_be_bytes(code)).filter(|_| is_one)?;
        Some(Self { span, depth, index })
    }
}

/// Cuts the cells of a span, sorted by (path, incarnation), into tables of at most `bytes_max` bytes. Zero cells are
/// left out.
pub fn cut<'a>(
    span: Span,
    cells: impl Iterator<Item = (&'a AccountPath, Incarnation, Counters)>,
    bytes_max: usize,
) -> Vec<(Slice, Vec<u8>)> {
    let cells: Vec<_> = cells
        .filter(|(_, _, counters)| !counters.is_zero())
        .collect();
    // By the number of cells first: then the cut changes only when a power of two is passed, not with every change in
    // size.
    let mut depth = 0;
    while cells.len() >> depth > SLICE_CELLS && depth < DEPTH_MAX {
        depth += 1;
    }
    loop {
        let slices = cut_at(span, &cells, depth);
        let fits = slices.iter().all(|(_, bytes)| bytes.len() <= bytes_max);
        if fits || depth == DEPTH_MAX {
            return slices;
        }
        depth += 1;
    }
}

fn cut_at(
    span: Span,
    cells: &[(&AccountPath, Incarnation, Counters)],
    depth: u8,
) -> Vec<(Slice, Vec<u8>)> {
    let mut slices: Vec<Vec<&(&AccountPath, Incarnation, Counters)>> = vec![Vec::new(); 1 << depth];
    let lost = usize::from(depth > 0 && mutated!(CutLosesLast));
    for cell in &cells[..cells.len() - lost] {
        slices[usize::from(index_of(cell.0, depth))].push(cell);
    }
    let full = slices
        .into_iter()
        .zip(0u16..)
        .filter(|(slice, _)| !slice.is_empty());
    full.map(|(slice, index)| (Slice { span, depth, index }, table_of(&slice)))
        .collect()
}

fn table_of(slice: &[&(&AccountPath, Incarnation, Counters)]) -> Vec<u8> {
    let mut paths: Vec<&AccountPath> = slice.iter().map(|cell| cell.0).collect();
    paths.dedup();
    let mut position = 0;
    let mut cells: Vec<Indexed> = Vec::with_capacity(slice.len());
    for (path, incarnation, counters) in slice {
        while paths[position] != *path {
            position += 1;
        }
        cells.push((*incarnation, position, *counters));
    }
    cells.sort_by_key(|(incarnation, path, _)| (*incarnation, *path));
    encode_table(&paths, &cells)
}

fn index_of(path: &AccountPath, depth: u8) -> u16 {
    if depth == 0 {
        return 0;
    }
    // A hash of the path alone, so that an account stays in its slice in every span and after every start.
    let hash = ContentHash::of(path.as_str().as_bytes());
    let high = u16::from_be_bytes([hash.as_bytes()[0], hash.as_bytes()[1]]);
    high >> (16 - depth)
}
