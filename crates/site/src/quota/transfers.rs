//! Rights that went and came, one by one: what rows, which only grow, do not say.
//!
//! Invariant: a transfer is written with the row that counts it, and stays until the VO's history has passed over it,
//! or [`TRANSFERS_MAX`] came later. The time is that of the ledger's last look at it, a second earlier at most.
//! Deliberately not here: what jobs hold and cost (their marks), and who granted what (the documents). A store that
//! is lost takes its transfers along: what they add up to is in the heads that others hold.

use std::collections::VecDeque;

use fairmesh_model::{VoId, WallTime, cbor};
use fairmesh_quota::Transfer;
use serde::{Deserialize, Serialize};

use crate::store::{Table, Write};

/// Transfers that are kept of one VO: some megabytes, and at one a minute a week.
pub(crate) const TRANSFERS_MAX: usize = 10_000;

/// Largest row in bytes.
const BYTES_MAX: usize = 1 << 10;

/// Rights that went to another site, or came from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// When this site counted it.
    pub at: WallTime,
    /// The slice, the other side and the amount.
    pub transfer: Transfer,
}

/// Those of one VO, the oldest first, each with its number.
#[derive(Debug, Default)]
pub(crate) struct Transfers(VecDeque<(u64, Moved)>);

impl Transfers {
    /// As rows of the store have them.
    pub(crate) fn restore(rows: impl IntoIterator<Item = (u64, Moved)>) -> Self {
        let mut all: Vec<(u64, Moved)> = rows.into_iter().collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        Self(all.into())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Moved> {
        self.0.iter().map(|(_, moved)| moved)
    }

    /// Takes one in; the rows that this changes.
    pub(crate) fn add(&mut self, vo: VoId, moved: Moved) -> Vec<Write> {
        let number = self.0.back().map_or(0, |(last, _)| last + 1);
        self.0.push_back((number, moved));
        let mut writes = vec![row(vo, number, Some(&moved))];
        let excess = self.0.len().saturating_sub(TRANSFERS_MAX);
        let gone = self.0.drain(..excess);
        writes.extend(gone.map(|(number, _)| row(vo, number, None)));
        writes
    }

    /// Lets go of those before a time.
    pub(crate) fn forget(&mut self, vo: VoId, before: WallTime) -> Vec<Write> {
        let past = self.0.iter().take_while(|(_, moved)| moved.at < before);
        let past = past.count();
        let gone = self.0.drain(..past);
        gone.map(|(number, _)| row(vo, number, None)).collect()
    }
}

fn row(vo: VoId, number: u64, moved: Option<&Moved>) -> Write {
    let key = [vo.as_bytes().as_slice(), &number.to_be_bytes()].concat();
    match moved {
        Some(moved) => Write::set(Table::Transfers, key, cbor::to_vec(moved)),
        None => Write::delete(Table::Transfers, key),
    }
}

/// Reads a row; `None` if it is none.
pub(crate) fn parse_transfer(key: &[u8], value: &[u8]) -> Option<(VoId, u64, Moved)> {
    let (vo, number) = key.split_first_chunk()?;
    let number = u64::from_be_bytes(number.try_into().ok()?);
    let moved = cbor::from_slice(value, BYTES_MAX).ok()?;
    Some((VoId::from_bytes(*vo), number, moved))
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{AllocationId, CoreMillis, SiteId};
    use fairmesh_quota::{Cell, SliceId};

    use super::*;

    #[test]
    fn transfers_are_read_back_and_the_oldest_go() {
        let vo = VoId::from_bytes([1; 32]);
        let moved = |at| Moved {
            at: WallTime(at),
            transfer: Transfer {
                slice: SliceId {
                    allocation: AllocationId::from_bytes([2; 32]),
                    index: 3,
                },
                cell: Cell::Sent(SiteId::from_bytes([4; 32])),
                amount: CoreMillis(5),
                before: CoreMillis(9),
                after: CoreMillis(4),
            },
        };
        let mut transfers = Transfers::restore([(8, moved(2)), (7, moved(1))]);
        let writes = transfers.add(vo, moved(3));
        let [write] = &writes[..] else {
            panic!("{writes:?}")
        };
        let value = write.value.as_ref().expect("it is set");
        assert_eq!(parse_transfer(&write.key, value), Some((vo, 9, moved(3))));
        assert_eq!(parse_transfer(&write.key[1..], value), None);
        let gone = transfers.forget(vo, WallTime(3));
        assert!(gone.len() == 2 && gone.iter().all(|write| write.value.is_none()));
        for at in 4..4 + TRANSFERS_MAX as u64 {
            let writes = transfers.add(vo, moved(at));
            let is_full = transfers.iter().count() == TRANSFERS_MAX;
            assert!(writes.len() == 1 || is_full);
        }
        assert_eq!(transfers.iter().next(), Some(&moved(4)));
    }
}
