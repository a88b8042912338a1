//! The encoding of a table: the paths once, then column after column.
//!
//! A table is a version, its paths (each as the length of the prefix shared with the path before, and the rest), its
//! incarnations (each with the paths that it has cells for, as gaps), a mask of the columns that are not all zero, and
//! these columns as varints. A CPU column that equals the charge column is one bit in the mask.
//!
//! Invariant: paths and incarnations ascend strictly, every path is used, no cell is zero, every varint is minimal,
//! and nothing follows the last one. So a set of cells has exactly one encoding, and a table of n bytes has fewer
//! than n cells.

use fairmesh_model::units::COLUMNS;
use fairmesh_model::{AccountPath, Counters, Incarnation, mutant};
use unsigned_varint::{decode, encode};

const VERSION: u64 = 1;
const CHARGE: usize = 0;
const CPU: usize = 1;
const GPU: usize = 2;
/// Mask bit: the CPU column equals the charge column and is left out.
const CPU_IS_CHARGE: u64 = 1 << COLUMNS;

/// Why a table was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A varint is cut off, not minimal or too large for its column.
    #[error("bad number in its {0}")]
    Varint(&'static str),
    /// A path is not valid.
    #[error("bad path: {0}")]
    Path(String),
    /// Incarnations or their paths are out of order, or a path has no cell.
    #[error("its cells are out of order, or a path has none")]
    Order,
    /// All counters of a cell are 0. Such cells are forbidden, because otherwise one content would have several
    /// encodings.
    #[error("a cell of nothing")]
    Zero,
    /// The mask has unknown bits, or hides a column that could have been left out.
    #[error("bad column mask {0:#x}")]
    Mask(u64),
    /// Bytes follow the last column.
    #[error("{0} bytes behind the last column")]
    Trailing(usize),
}

/// One cell: its incarnation, the index of its path in the table, its counters.
pub(crate) type Indexed = (Incarnation, usize, Counters);

/// Encodes cells that ascend by (incarnation, path), of paths that ascend and are all used.
pub(crate) fn encode_table(paths: &[&AccountPath], cells: &[Indexed]) -> Vec<u8> {
    let mut out = Vec::with_capacity(paths.len() * 12 + cells.len() * 8 + 16);
    put(&mut out, VERSION);
    put(&mut out, paths.len() as u64);
    let mut before = "";
    for path in paths {
        let text = path.as_str();
        let shared = before
            .bytes()
            .zip(text.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        put(&mut out, shared as u64);
        put(&mut out, (text.len() - shared) as u64);
        out.extend_from_slice(&text.as_bytes()[shared..]);
        before = text;
    }
    let blocks: Vec<&[Indexed]> = cells.chunk_by(|a, b| a.0 == b.0).collect();
    put(&mut out, blocks.len() as u64);
    for block in blocks {
        put(&mut out, block[0].0.0);
        put(&mut out, block.len() as u64);
        // Mostly every path has a cell, and then no gaps are written.
        if block.len() < paths.len() {
            let mut next = 0;
            for (_, path, _) in block {
                put(&mut out, (path - next) as u64);
                next = path + 1;
            }
        }
    }
    let mask = mask_of(cells);
    put(&mut out, mask);
    for column in (0..COLUMNS).filter(|column| mask & (1 << column) != 0) {
        cells
            .iter()
            .for_each(|(_, _, counters)| put(&mut out, counters.to_columns()[column]));
    }
    out
}

/// Calls `each` with every path, in order. Returns the number of paths and the bytes after them.
pub(crate) fn read_paths(
    bytes: &[u8],
    mut each: impl FnMut(&str) -> Result<(), TableError>,
) -> Result<(usize, &[u8]), TableError> {
    let mut rest = bytes;
    if take(&mut rest, "version")? != VERSION {
        return Err(TableError::Varint("version"));
    }
    let count = count(&mut rest, "paths")?;
    let mut text: Vec<u8> = Vec::new();
    for _ in 0..count {
        let shared = count_of(take(&mut rest, "paths")?);
        let length = count_of(take(&mut rest, "paths")?);
        let own = rest
            .split_at_checked(length)
            .filter(|_| shared <= text.len());
        let (own, behind) = own.ok_or(TableError::Varint("paths"))?;
        // After the shared prefix the next byte decides the order; a path that is a prefix of the other comes first.
        // This also refuses a shared length that is shorter than it could be: the encoding would not be unique.
        let ascends = own
            .first()
            .is_some_and(|first| text.get(shared).is_none_or(|before| before < first));
        if !ascends {
            return Err(TableError::Order);
        }
        text.truncate(shared);
        text.extend_from_slice(own);
        rest = behind;
        each(std::str::from_utf8(&text).map_err(|error| TableError::Path(error.to_string()))?)?;
    }
    Ok((count, rest))
}

/// Decodes and checks the cells after the paths, for bytes from a peer.
pub(crate) fn decode_cells(bytes: &[u8], paths: usize) -> Result<Vec<Indexed>, TableError> {
    let (cells, mask) = read_cells(bytes, paths)?;
    if cells.iter().any(|(_, _, counters)| counters.is_zero()) {
        return Err(TableError::Zero);
    }
    // The mask must be the one that the encoder writes, or equal contents could have different hashes.
    if mask_of(&cells) == mask {
        Ok(cells)
    } else {
        Err(TableError::Mask(mask))
    }
}

/// The cells and the column mask. Does not check for zero cells and the canonical mask; [`decode_cells`] does.
pub(crate) fn read_cells(bytes: &[u8], paths: usize) -> Result<(Vec<Indexed>, u64), TableError> {
    let mut rest = bytes;
    let blocks = count(&mut rest, "incarnations")?;
    let mut cells: Vec<Indexed> = Vec::new();
    let mut used = vec![false; paths];
    for _ in 0..blocks {
        let incarnation = Incarnation(take(&mut rest, "incarnations")?);
        let rows = count_of(take(&mut rest, "cells")?);
        let is_later = cells.last().is_none_or(|(last, ..)| *last < incarnation);
        if rows == 0 || rows > paths || !is_later {
            return Err(TableError::Order);
        }
        let mut next = 0usize;
        for _ in 0..rows {
            let gap = if rows < paths {
                count_of(take(&mut rest, "cells")?)
            } else {
                0
            };
            let path = next.saturating_add(gap);
            *used.get_mut(path).ok_or(TableError::Order)? = true;
            next = path + 1;
            cells.push((incarnation, path, Counters::default()));
        }
        // Each cell takes at least one byte in some column. Checked here, before memory for more cells is taken.
        if cells.len() > rest.len() {
            return Err(TableError::Varint("cells"));
        }
    }
    if used.contains(&false) {
        return Err(TableError::Order);
    }
    let mask = take(&mut rest, "mask")?;
    if mask >> (COLUMNS + 1) != 0 {
        return Err(TableError::Mask(mask));
    }
    read_counters(&mut rest, mask, &mut cells)?;
    if !rest.is_empty() {
        return Err(TableError::Trailing(rest.len()));
    }
    Ok((cells, mask))
}

fn read_counters(rest: &mut &[u8], mask: u64, cells: &mut [Indexed]) -> Result<(), TableError> {
    const NAMES: [&str; COLUMNS] = ["charge", "cpu", "gpu", "memory", "jobs", "refunds"];
    let mut columns = vec![[0; COLUMNS]; cells.len()];
    for column in (0..COLUMNS).filter(|column| mask & (1 << column) != 0) {
        for row in &mut columns {
            row[column] = take(rest, NAMES[column])?;
        }
    }
    for (cell, mut row) in cells.iter_mut().zip(columns) {
        if mask & CPU_IS_CHARGE != 0 {
            row[CPU] = row[CHARGE];
        }
        cell.2 = Counters::from_columns(row);
    }
    Ok(())
}

fn mask_of(cells: &[Indexed]) -> u64 {
    let mut mask = 0;
    let mut cpu_is_charge = true;
    for (_, _, counters) in cells {
        let row = counters.to_columns();
        cpu_is_charge &= row[CPU] == row[CHARGE];
        let lost = mutant!(GpuColumnLost, COLUMNS, GPU);
        let used = (0..COLUMNS).filter(|column| row[*column] != 0 && *column != lost);
        mask = used.fold(mask, |mask, column| mask | (1 << column));
    }
    if cpu_is_charge && mask & (1 << CPU) != 0 {
        mask = (mask & !(1 << CPU)) | CPU_IS_CHARGE;
    }
    mask
}

/// Reads a number of items that take at least a byte each: a higher number is refused before memory is taken for it.
fn count(rest: &mut &[u8], column: &'static str) -> Result<usize, TableError> {
    let count = count_of(take(rest, column)?);
    if count <= rest.len() {
        Ok(count)
    } else {
        Err(TableError::Varint(column))
    }
}

fn count_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn put(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(encode::u64(value, &mut encode::u64_buffer()));
}

fn take(rest: &mut &[u8], column: &'static str) -> Result<u64, TableError> {
    if let Some((byte @ ..0x80, behind)) = rest.split_first() {
        *rest = behind;
        return Ok(u64::from(*byte));
    }
    let (value, behind) = decode::u64(rest).map_err(|_| TableError::Varint(column))?;
    // The decoder refuses varints that are not minimal, but ignores bits of a tenth byte above 64 bits. Those would
    // be a second encoding of the number.
    let form = &rest[..rest.len() - behind.len()];
    if form.get(9).is_some_and(|tenth| *tenth > 1) {
        return Err(TableError::Varint(column));
    }
    *rest = behind;
    Ok(value)
}
