//! Cutting a stream's sheets into seals.
//!
//! Invariant: the seals of a sheet are a function of its content alone, each at most
//! [`SEAL_BYTES_MAX`] bytes, and together they hold every cell once. So a span that did not change
//! keeps its hashes, on whichever node they are computed.

use std::collections::BTreeSet;

use fairmesh_model::cells::CELLS_MAX;
use fairmesh_model::documents::{PathCells, SEAL_BYTES_MAX};
use fairmesh_model::{AccountPath, ContentHash, Counters, Seal, SealRef, Span};

use crate::paths::PathTable;
use crate::sheet::Sheet;
use crate::sheets::Sheets;

/// Bytes of a seal besides its rows: keys, span, mask, the first span code, length heads. Measured
/// at under 60.
const SEAL_HEAD_BYTES: usize = 128;

/// A seal and its name.
pub(crate) struct Cut {
    pub(crate) reference: SealRef,
    pub(crate) bytes: Vec<u8>,
}

/// The seals of all sheets, ascending by reference.
pub(crate) fn cut_all(sheets: &Sheets, paths: &PathTable) -> Vec<Cut> {
    let mut seals: Vec<Cut> = sheets
        .iter()
        .flat_map(|(span, sheet)| cut(span, sheet, paths))
        .collect();
    seals.sort_by_key(|seal| seal.reference);
    seals
}

/// The seals of the sheets of `spans`.
pub(crate) fn cut_spans(sheets: &Sheets, spans: &BTreeSet<Span>, paths: &PathTable) -> Vec<Cut> {
    let sheets = spans
        .iter()
        .filter_map(|span| Some((*span, sheets.sheet(*span)?)));
    sheets
        .flat_map(|(span, sheet)| cut(span, sheet, paths))
        .collect()
}

fn cut(span: Span, sheet: &Sheet, paths: &PathTable) -> Vec<Cut> {
    let mut rows: Vec<(&AccountPath, Counters)> = sheet
        .rows()
        .map(|(path, counters)| (paths.path(path), counters))
        .collect();
    rows.sort_by_key(|(path, _)| *path);
    let mut pieces = Vec::new();
    let (mut start, mut bytes) = (0, SEAL_HEAD_BYTES);
    for (row, (path, counters)) in rows.iter().enumerate() {
        let more = row_bytes_max(path, *counters);
        if row > start && (bytes + more > SEAL_BYTES_MAX || row - start == CELLS_MAX) {
            pieces.push(seal(span, &rows[start..row]));
            (start, bytes) = (row, SEAL_HEAD_BYTES);
        }
        bytes += more;
    }
    pieces.push(seal(span, &rows[start..]));
    pieces
}

fn seal(span: Span, rows: &[(&AccountPath, Counters)]) -> Cut {
    let rows = rows
        .iter()
        .map(|(path, counters)| (span, (*path).clone(), *counters));
    let bytes = Seal {
        span,
        cells: PathCells::from_rows(rows),
    }
    .to_bytes();
    Cut {
        reference: SealRef {
            span,
            hash: ContentHash::of(&bytes),
        },
        bytes,
    }
}

/// The most that a row can take: its path with a head, a span step of one byte, a path index, and
/// every counter as a varint.
fn row_bytes_max(path: &AccountPath, counters: Counters) -> usize {
    let varint = |value: u64| (64 - value.max(1).leading_zeros()).div_ceil(7) as usize;
    path.as_str().len() + 3 + 1 + 3 + counters.to_columns().into_iter().map(varint).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{WallTime, Window, WindowLength};

    use super::*;
    use crate::edit::{Joining, Rule};

    #[test]
    fn a_large_sheet_is_cut_into_small_seals_that_hold_every_cell_once() {
        let span = Span::Window(Window(500_000));
        let rule = Rule {
            length: WindowLength::HOUR,
            horizon: WallTime(0),
        };
        let (mut paths, mut sheets) = (PathTable::default(), Sheets::default());
        let rows: Vec<_> = (0..20_000u64)
            .map(|user| {
                let path = AccountPath::parse(&format!("/project/{user:0>300}")).expect("valid");
                (
                    paths.intern(&path),
                    Counters::from_columns([u64::MAX, user, 1, 1, 1]),
                )
            })
            .collect();
        sheets.join_rows(span, rows.into_iter(), rule, &mut Joining::default());
        let seals = cut_all(&sheets, &paths);
        assert!(seals.len() > 20_000 * 300 / SEAL_BYTES_MAX);
        let mut cells = 0;
        for cut in &seals {
            let seal = Seal::from_bytes(&cut.bytes, &cut.reference).expect("reads back");
            cells += seal.cells.cells().len();
        }
        assert_eq!(cells, 20_000);
    }
}
