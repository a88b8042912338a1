//! The bytes of a table: paths once, then one column after another.
//!
//! A table is a version, its paths (each as how much it shares with the one before, and the rest), its
//! incarnations (each with the paths that it has cells of, as gaps), a mask of the columns that are not
//! all zero, and these columns as varints. A CPU column that equals the charge is a bit in the mask.
//!
//! Invariant: paths and incarnations ascend strictly, every path is used, no cell is zero, every varint
//! is minimal and nothing follows the last one; so a set of cells has exactly one table, and a table of
//! n bytes has fewer than n cells.

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
    /// A path that is none, or out of order.
    #[error("bad path: {0}")]
    Path(String),
    /// Incarnations or their paths are out of order, or a path has no cell.
    #[error("its cells are out of order, or a path has none")]
    Order,
    /// A cell that counts nothing.
    #[error("a cell of nothing")]
    Zero,
    /// The mask has unknown bits, or hides a column that could have been left out.
    #[error("bad column mask {0:#x}")]
    Mask(u64),
    /// Bytes behind the last column.
    #[error("{0} bytes behind the last column")]
    Trailing(usize),
}

/// One cell: its incarnation, its path as a position among the table's paths, its counters.
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
        // Mostly all paths have a cell: then there is nothing to say.
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

/// Hands each path to `each`, in order; returns how many there are, and the bytes behind them.
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
        // Of two that share so much, and no more, the next byte says which comes first; one that is
        // all of the other comes before it.
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

/// Decodes the cells behind the paths.
pub(crate) fn decode_cells(bytes: &[u8], paths: usize) -> Result<Vec<Indexed>, TableError> {
    let (cells, mask) = read_cells(bytes, paths)?;
    if cells.iter().any(|(_, _, counters)| counters.is_zero()) {
        return Err(TableError::Zero);
    }
    if mask_of(&cells) == mask {
        Ok(cells)
    } else {
        Err(TableError::Mask(mask))
    }
}

/// The cells and the mask of columns, as they are where [`decode_cells`] has taken the bytes before.
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
        // Every cell takes a byte or more of some column, so what claims more is a lie.
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

/// A count of things that take a byte or more each.
fn count(rest: &mut &[u8], of: &'static str) -> Result<usize, TableError> {
    let count = count_of(take(rest, of)?);
    if count <= rest.len() {
        Ok(count)
    } else {
        Err(TableError::Varint(of))
    }
}

fn count_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn put(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(encode::u64(value, &mut encode::u64_buffer()));
}

fn take(rest: &mut &[u8], of: &'static str) -> Result<u64, TableError> {
    if let Some((byte @ ..0x80, behind)) = rest.split_first() {
        *rest = behind;
        return Ok(u64::from(*byte));
    }
    let (value, behind) = decode::u64(rest).map_err(|_| TableError::Varint(of))?;
    // The decoder refuses what is not minimal, but drops what a tenth byte has beyond 64 bits: that is
    // another form of the number.
    let form = &rest[..rest.len() - behind.len()];
    if form.get(9).is_some_and(|tenth| *tenth > 1) {
        return Err(TableError::Varint(of));
    }
    *rest = behind;
    Ok(value)
}
