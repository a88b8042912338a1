//! Column blocks: many cells in few bytes.
//!
//! A block is a varint count and then one column after another, each a run of varints: spans (as
//! differences), path indices, and the five counters. A counter column that is all zero, or a CPU
//! column that equals the charge, is a bit in the mask and nothing more. (6.8 bytes a cell where
//! CBOR tuples take 16.8.)
//!
//! Invariant: rows are strictly ascending by (span, path), every varint is minimal and nothing
//! follows the last one, so a set of cells has exactly one block.

use unsigned_varint::{decode, encode};

use crate::units::{COLUMNS, Counters};
use crate::window::Span;

/// Most cells in one block: bounds what a decoder allocates (64 bytes a row) for one frame.
pub const CELLS_MAX: usize = 65_536;

const CHARGE: usize = 0;
const CPU: usize = 1;
/// Mask bit: the CPU column equals the charge column and is left out.
const CPU_IS_CHARGE: u64 = 1 << COLUMNS;

/// One cell of a block. `path` is an index into the path table of the surrounding document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// When.
    pub span: Span,
    /// Index of the account path.
    pub path: u32,
    /// Absolute counters since the incarnation began.
    pub counters: Counters,
}

/// Why a block was refused. State is unchanged; the sender is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CellsError {
    /// A varint is cut off, not minimal or too large for its column.
    #[error("bad varint in the {0} column")]
    Varint(&'static str),
    /// More than [`CELLS_MAX`] cells.
    #[error("{0} cells are more than {CELLS_MAX}")]
    TooMany(u64),
    /// Rows are not strictly ascending.
    #[error("row {0} is not behind the row before it")]
    Order(usize),
    /// A path index beyond the path table.
    #[error("path index {index} in a table of {paths}")]
    Path {
        /// The index.
        index: u32,
        /// Paths in the table.
        paths: usize,
    },
    /// The mask has unknown bits, or hides a column that could have been left out.
    #[error("bad column mask {0:#x}")]
    Mask(u64),
    /// Bytes behind the last column.
    #[error("{0} bytes behind the last column")]
    Trailing(usize),
}

/// Encodes `cells`, which must be strictly ascending by (span, path).
///
/// # Panics
/// If the rows are out of order: the caller's bug.
pub fn encode_block(cells: &[Cell]) -> Vec<u8> {
    assert!(
        cells.is_sorted_by(|a, b| sort_key(a) < sort_key(b)),
        "rows ascend"
    );
    let mut block = Vec::with_capacity(cells.len() * 8 + 8);
    let mask = mask_of(cells);
    put(&mut block, cells.len() as u64);
    put(&mut block, mask);
    let mut previous = 0;
    for cell in cells {
        let code = cell.span.code();
        // Within one kind of span codes ascend; the kinds are told apart by the lowest bit.
        put(&mut block, zigzag(code, previous));
        previous = code;
    }
    cells
        .iter()
        .for_each(|cell| put(&mut block, u64::from(cell.path)));
    for column in (0..COLUMNS).filter(|column| mask & (1 << column) != 0) {
        cells
            .iter()
            .for_each(|cell| put(&mut block, cell.counters.to_columns()[column]));
    }
    block
}

/// Decodes a block whose paths are indices below `paths`.
pub fn decode_block(block: &[u8], paths: usize) -> Result<Vec<Cell>, CellsError> {
    let mut rest = block;
    let count = take(&mut rest, "count")?;
    let rows = usize::try_from(count)
        .ok()
        .filter(|rows| *rows <= CELLS_MAX)
        .ok_or(CellsError::TooMany(count))?;
    // A row takes two bytes or more, so a longer claim is a lie: refuse before allocating.
    if rows > rest.len() {
        return Err(CellsError::Varint("span"));
    }
    let mask = take(&mut rest, "mask")?;
    if mask >> (COLUMNS + 1) != 0 {
        return Err(CellsError::Mask(mask));
    }
    let mut spans = Vec::with_capacity(rows);
    let mut previous = 0;
    for _ in 0..rows {
        previous =
            unzigzag(take(&mut rest, "span")?, previous).ok_or(CellsError::Varint("span"))?;
        spans.push(Span::from_code(previous).ok_or(CellsError::Varint("span"))?);
    }
    let mut cells = Vec::with_capacity(rows);
    for (row, span) in spans.into_iter().enumerate() {
        let index = take(&mut rest, "path")?;
        let path = u32::try_from(index).map_err(|_| CellsError::Varint("path"))?;
        if path as usize >= paths {
            return Err(CellsError::Path { index: path, paths });
        }
        let cell = Cell {
            span,
            path,
            counters: Counters::default(),
        };
        if cells
            .last()
            .is_some_and(|last| sort_key(last) >= sort_key(&cell))
        {
            return Err(CellsError::Order(row));
        }
        cells.push(cell);
    }
    read_counters(&mut rest, mask, &mut cells)?;
    if !rest.is_empty() {
        return Err(CellsError::Trailing(rest.len()));
    }
    if mask_of(&cells) != mask {
        Err(CellsError::Mask(mask))
    } else {
        Ok(cells)
    }
}

fn read_counters(rest: &mut &[u8], mask: u64, cells: &mut [Cell]) -> Result<(), CellsError> {
    const NAMES: [&str; COLUMNS] = ["charge", "cpu", "gpu", "memory", "jobs", "refunds"];
    for column in 0..COLUMNS {
        for cell in cells.iter_mut() {
            let mut columns = cell.counters.to_columns();
            if mask & (1 << column) != 0 {
                columns[column] = take(rest, NAMES[column])?;
            } else if column == CPU && mask & CPU_IS_CHARGE != 0 {
                columns[column] = columns[CHARGE];
            }
            cell.counters = Counters::from_columns(columns);
        }
    }
    Ok(())
}

fn mask_of(cells: &[Cell]) -> u64 {
    let used = |column: usize| {
        cells
            .iter()
            .any(|cell| cell.counters.to_columns()[column] != 0)
    };
    let mut mask = (0..COLUMNS)
        .filter(|column| used(*column))
        .fold(0, |mask, column| mask | (1 << column));
    let cpu_is_charge = cells
        .iter()
        .all(|cell| cell.counters.cpu_ms == cell.counters.charge);
    if cpu_is_charge && mask & (1 << CPU) != 0 {
        mask = (mask & !(1 << CPU)) | CPU_IS_CHARGE;
    }
    mask
}

fn sort_key(cell: &Cell) -> (Span, u32) {
    (cell.span, cell.path)
}

fn zigzag(code: u64, previous: u64) -> u64 {
    if code >= previous {
        (code - previous) << 1
    } else {
        ((previous - code) << 1) | 1
    }
}

fn unzigzag(step: u64, previous: u64) -> Option<u64> {
    match (step & 1, step >> 1) {
        (0, ahead) => previous.checked_add(ahead),
        // A step of zero has one form only.
        (_, 0) => None,
        (_, back) => previous.checked_sub(back),
    }
}

fn put(block: &mut Vec<u8>, value: u64) {
    block.extend_from_slice(encode::u64(value, &mut encode::u64_buffer()));
}

fn take(rest: &mut &[u8], column: &'static str) -> Result<u64, CellsError> {
    let (value, behind) = decode::u64(rest).map_err(|_| CellsError::Varint(column))?;
    *rest = behind;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::window::Window;

    fn any_cells() -> impl Strategy<Value = Vec<Cell>> {
        let span = prop_oneof![
            any::<u32>().prop_map(|w| Span::Window(Window(w))),
            any::<u32>().prop_map(Span::Day)
        ];
        let counters = prop_oneof![
            any::<[u64; COLUMNS]>().prop_map(Counters::from_columns),
            any::<u64>().prop_map(|ms| Counters {
                charge: ms,
                cpu_ms: ms,
                jobs: 1,
                ..Counters::default()
            }),
        ];
        proptest::collection::btree_map((span, 0..50u32), counters, 0..40).prop_map(|cells| {
            cells
                .into_iter()
                .map(|((span, path), counters)| Cell {
                    span,
                    path,
                    counters,
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn blocks_round_trip(cells in any_cells()) {
            prop_assert_eq!(decode_block(&encode_block(&cells), 50), Ok(cells));
        }

        #[test]
        fn whatever_decodes_is_the_only_encoding(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(cells) = decode_block(&bytes, 50) {
                prop_assert_eq!(encode_block(&cells), bytes);
            }
        }
    }

    #[test]
    fn lies_are_refused_before_anything_is_allocated() {
        assert_eq!(
            decode_block(&[0xff, 0xff, 0xff, 0xff, 0x0f], 1),
            Err(CellsError::TooMany(0xffff_ffff))
        );
        assert_eq!(
            decode_block(&[0x7f, 0x00], 1),
            Err(CellsError::Varint("span"))
        );
    }

    #[test]
    fn typical_cells_take_few_bytes() {
        let cells: Vec<Cell> = (0..100)
            .map(|path| Cell {
                span: Span::Window(Window(450_000)),
                path,
                counters: Counters {
                    charge: 3_600_000 + u64::from(path),
                    cpu_ms: 3_600_000 + u64::from(path),
                    jobs: 1,
                    ..Counters::default()
                },
            })
            .collect();
        assert!(
            encode_block(&cells).len() <= 7 * cells.len() + 8,
            "{}",
            encode_block(&cells).len()
        );
    }
}
