//! The bytes of a published table of usage, read from their format alone.
//!
//! The name of a table is five bytes, which are the code of its span, and three more if the span has several tables.
//! A table is a version; its paths, each as the bytes that it shares with the path before and those that follow; its
//! incarnations, each with its number of cells, and with the gaps between their paths if not all paths have a cell; a
//! mask of columns; and these columns, number by number. Numbers are LEB128.
//! Source: `fairmesh-usage`, `columns` and `slice`.
//!
//! Deliberately not here: whether a table has the only form that its cells may have.

use fairmesh_model::{AccountPath, Incarnation, Span};

/// The version of the format.
const VERSION: u64 = 1;

/// The columns, of which the charge is the first.
const COLUMNS: u32 = 6;
/// The bit of the mask that stands for a CPU column which equals the charge.
const CPU_IS_CHARGE: u64 = 1 << COLUMNS;

/// The charges of a table.
pub(super) type Charges = Vec<(Incarnation, AccountPath, u64)>;

/// The span of the table of this name.
pub(super) fn span(name: &[u8]) -> Option<Span> {
    let (code, slice) = name.split_first_chunk::<5>()?;
    let code = code
        .iter()
        .fold(0, |code, byte| (code << 8) | u64::from(*byte));
    Span::from_code(code).filter(|_| matches!(slice.len(), 0 | 3))
}

/// The charges of a table; `None` for bytes that are no table.
pub(super) fn charges(bytes: &[u8]) -> Option<Charges> {
    let mut rest = bytes;
    if number(&mut rest)? != VERSION {
        return None;
    }
    let paths = paths(&mut rest)?;
    let mut cells = Vec::new();
    for _ in 0..number(&mut rest)? {
        let incarnation = Incarnation(number(&mut rest)?);
        let rows = number(&mut rest)?;
        let mut next = 0;
        for _ in 0..rows {
            let is_each = rows == paths.len() as u64;
            let gap = if is_each { 0 } else { number(&mut rest)? };
            let at = usize::try_from(gap).ok()?.checked_add(next)?;
            cells.push((incarnation, paths.get(at)?.clone(), 0));
            next = at + 1;
        }
    }
    let mask = number(&mut rest)?;
    for column in (0..COLUMNS).filter(|column| mask & (1 << column) != 0) {
        for (.., charge) in &mut cells {
            let number = number(&mut rest)?;
            *charge = if column == 0 { number } else { *charge };
        }
    }
    (rest.is_empty() && mask < 2 * CPU_IS_CHARGE).then_some(cells)
}

fn paths(rest: &mut &[u8]) -> Option<Vec<AccountPath>> {
    let mut text: Vec<u8> = Vec::new();
    let mut paths = Vec::new();
    for _ in 0..number(rest)? {
        let shared = usize::try_from(number(rest)?).ok()?;
        let length = usize::try_from(number(rest)?).ok()?;
        let (own, behind) = rest.split_at_checked(length)?;
        text.truncate(shared);
        text.extend_from_slice(own);
        paths.push(AccountPath::parse(std::str::from_utf8(&text).ok()?).ok()?);
        *rest = behind;
    }
    Some(paths)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
