//! A row: the counters of one site for its rights to one slice. It is the bounded counter.
//!
//! The counters only grow, and only their site writes them. Two forms of a row join by maximum, counter by counter,
//! as vector clocks do. Holds are two counters as well (`Held` less `Freed`), so that peers can give them back to a
//! site that has lost its store.
//!
//! A transfer is a counter in two rows: `Sent` in the sender's, `Taken` in the receiver's. So a site's rights follow
//! from its own row and its initial grant alone. Rights in transit are those sent and not yet taken.
//!
//! Rights that leaders pass on are a counter in the row of the whole: the site gives up rights of the whole and has
//! as many of the part ([`Cell::Passed`]). So a part has rights exactly where the whole has given them up.
//!
//! Invariant: in an accepted row no counter is 0, no more is returned than was used, no more freed than was held, and
//! no more settled than was owed.

use std::collections::BTreeMap;

use crdts::{CmRDT, CvRDT, Dot, VClock};
use fairmesh_model::cbor::{self, CborError};
use fairmesh_model::documents::PARTS_MAX;
use fairmesh_model::{AllocationId, SiteId, mutant};
use serde::{Deserialize, Serialize};

/// Most sites to which a site sends rights of one slice, and most from which it takes them. Bounds a row to the size
/// of one part of a head. It is plenty: a site that lacks rights asks two sites at a time.
pub const PARTNERS_MAX: usize = 512;

/// Largest row in bytes: with the most partners and parts.
const BYTES_MAX: usize = 60 << 10;

/// The counters of a row, in core-milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cell {
    /// Charged to jobs, in total.
    #[serde(rename = "u")]
    Used,
    /// The part of `Used` that corrections gave back.
    #[serde(rename = "b")]
    Returned,
    /// Held for jobs, in total.
    #[serde(rename = "h")]
    Held,
    /// The part of `Held` that is no longer held.
    #[serde(rename = "f")]
    Freed,
    /// Charged beyond the site's rights, in total.
    #[serde(rename = "o")]
    Overdraft,
    /// The part of `Overdraft` that later rights have paid.
    #[serde(rename = "p")]
    Settled,
    /// Sent to this site, in total.
    #[serde(rename = "s")]
    Sent(SiteId),
    /// Taken from what this site has sent, in total.
    #[serde(rename = "t")]
    Taken(SiteId),
    /// Passed on to this part of the allocation, in total.
    #[serde(rename = "d")]
    Passed(AllocationId),
}

/// The counters of one site for one slice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row(VClock<Cell>);

/// Why bytes are not a row. State is unchanged; the site that signed them is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// Not canonical CBOR of the right shape and size.
    #[error("rights: {0}")]
    Encoding(#[from] CborError),
    /// Its counters contradict each other, or there are too many.
    #[error("rights: {0}")]
    Invalid(&'static str),
}

impl Row {
    /// The value of a counter, 0 if it was never raised.
    pub fn get(&self, cell: Cell) -> u64 {
        self.0.get(&cell)
    }

    /// Raises a counter, at most to `u64::MAX`.
    pub fn add(&mut self, cell: Cell, amount: u64) {
        let sum = self.get(cell).saturating_add(amount);
        self.0.apply(Dot::new(cell, sum));
    }

    /// Joins another form of the row: the larger value of each counter.
    pub fn join(&mut self, other: Self) {
        if fairmesh_model::mutated!(RowsAddedUp) {
            other
                .cells()
                .for_each(|(cell, amount)| self.add(cell, amount));
            return;
        }
        self.0.merge(other.0);
    }

    /// The counters that are not 0.
    pub fn cells(&self) -> impl Iterator<Item = (Cell, u64)> {
        self.0.iter().map(|dot| (*dot.actor, dot.counter))
    }

    /// Whether all counters are 0.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Core-milliseconds used and not given back.
    pub fn used(&self) -> u64 {
        self.get(Cell::Used)
            .saturating_sub(self.get(Cell::Returned))
    }

    /// Core-milliseconds held for jobs now.
    pub fn held(&self) -> u64 {
        self.get(Cell::Held).saturating_sub(self.get(Cell::Freed))
    }

    /// Core-milliseconds owed now: overdrawn and not settled.
    pub fn overdraft(&self) -> u64 {
        self.get(Cell::Overdraft)
            .saturating_sub(self.get(Cell::Settled))
    }

    /// The sum over all sites of what was sent.
    pub fn sent(&self) -> u128 {
        self.sum(|cell| matches!(cell, Cell::Sent(_)))
    }

    /// The sum over all sites of what was taken.
    pub fn taken(&self) -> u128 {
        self.sum(|cell| matches!(cell, Cell::Taken(_)))
    }

    /// The sum over all parts of the allocation of what was passed on.
    pub fn passed(&self) -> u128 {
        self.sum(|cell| matches!(cell, Cell::Passed(_)))
    }

    /// Core-milliseconds left to hold, send or use, for a site with `granted` initial rights. 0 if a liar's row has
    /// given away more than it had.
    pub fn spendable(&self, granted: u64) -> u64 {
        let has = u128::from(granted) + self.taken() + u128::from(self.get(Cell::Returned));
        let gone = mutant!(SentKept, self.sent(), 0) + u128::from(self.get(Cell::Used));
        let gone = gone + mutant!(PassedKept, self.passed(), 0);
        let held = mutant!(HoldsForgotten, u128::from(self.held()), 0);
        u64::try_from(has.saturating_sub(gone + held)).unwrap_or(u64::MAX)
    }

    /// The row as canonical CBOR, at most 60 KiB.
    pub fn to_bytes(&self) -> Vec<u8> {
        cbor::to_vec(&self.0.dots)
    }

    /// Reads the bytes of [`Row::to_bytes`].
    ///
    /// # Errors
    /// Why no honest site would sign them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RowError> {
        let dots: BTreeMap<Cell, u64> = cbor::from_slice(bytes, BYTES_MAX)?;
        // A counter of 0 is the same as none: it would be a second encoding of the row.
        if dots.values().any(|counter| *counter == 0) {
            return Err(RowError::Invalid("a counter of nothing"));
        }
        let row = Self(VClock { dots });
        // Names can be encoded in several ways that decode to one counter, so the bytes are compared.
        if row.to_bytes() != bytes {
            return Err(RowError::Invalid("another form of it"));
        }
        let pairs = [
            (Cell::Used, Cell::Returned, "more given back than used"),
            (Cell::Held, Cell::Freed, "more freed than held"),
            (Cell::Overdraft, Cell::Settled, "more settled than owed"),
        ];
        if let Some((.., what)) = pairs
            .iter()
            .find(|(all, part, _)| row.get(*part) > row.get(*all))
        {
            return Err(RowError::Invalid(what));
        }
        let count = |kind: fn(Cell) -> bool| row.cells().filter(|(cell, _)| kind(*cell)).count();
        let sent = count(|cell| matches!(cell, Cell::Sent(_)));
        let taken = count(|cell| matches!(cell, Cell::Taken(_)));
        if sent.max(taken) > PARTNERS_MAX {
            return Err(RowError::Invalid("too many partners"));
        }
        if count(|cell| matches!(cell, Cell::Passed(_))) > PARTS_MAX {
            return Err(RowError::Invalid("too many parts"));
        }
        Ok(row)
    }

    /// Whether the row may count in `cell`: it does so already, or has room for one more partner or part. A site must
    /// check this before it writes, because every member would refuse a larger row and with it the whole head.
    pub(crate) fn has_room_for(&self, cell: Cell) -> bool {
        let is_like = |other: &Cell| std::mem::discriminant(other) == std::mem::discriminant(&cell);
        let most = match cell {
            Cell::Passed(_) => PARTS_MAX,
            _ => PARTNERS_MAX,
        };
        self.get(cell) > 0 || self.cells().filter(|(other, _)| is_like(other)).count() < most
    }

    fn sum(&self, kind: impl Fn(Cell) -> bool) -> u128 {
        let counted = self.cells().filter(|(cell, _)| kind(*cell));
        counted.map(|(_, amount)| u128::from(amount)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(number: u8) -> SiteId {
        SiteId::from_bytes([number; 32])
    }

    fn row(cells: &[(Cell, u64)]) -> Row {
        let mut row = Row::default();
        cells
            .iter()
            .for_each(|(cell, amount)| row.add(*cell, *amount));
        row
    }

    #[test]
    fn the_fullest_row_fits_a_part() {
        let mut full = Row::default();
        for number in 0..PARTNERS_MAX {
            let mut bytes = [7; 32];
            bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
            full.add(Cell::Sent(SiteId::from_bytes(bytes)), u64::MAX);
            full.add(Cell::Taken(SiteId::from_bytes(bytes)), u64::MAX);
            if number < PARTS_MAX {
                full.add(Cell::Passed(AllocationId::from_bytes(bytes)), u64::MAX);
            }
        }
        for cell in [Cell::Used, Cell::Returned, Cell::Held, Cell::Freed] {
            full.add(cell, u64::MAX);
        }
        for cell in [Cell::Overdraft, Cell::Settled] {
            full.add(cell, u64::MAX);
        }
        assert!(!full.has_room_for(Cell::Passed(AllocationId::from_bytes([1; 32]))));
        assert!(!full.has_room_for(Cell::Sent(site(1))));
        let read = Row::from_bytes(&full.to_bytes());
        assert_eq!(read, Ok(full.clone()));
        full.add(Cell::Taken(site(1)), 1);
        assert!(Row::from_bytes(&full.to_bytes()).is_err());
    }

    #[test]
    fn what_no_honest_site_signs_is_refused() {
        for (cells, what) in [
            ([(Cell::Used, 1), (Cell::Returned, 2)], "given back"),
            ([(Cell::Held, 1), (Cell::Freed, 2)], "freed"),
            ([(Cell::Overdraft, 1), (Cell::Settled, 2)], "settled"),
        ] {
            let error = Row::from_bytes(&row(&cells).to_bytes()).expect_err(what);
            assert!(error.to_string().contains(what), "{error}");
        }
        let nothing = cbor::to_vec(&BTreeMap::from([(Cell::Used, 0_u64)]));
        assert!(Row::from_bytes(&nothing).is_err());
        assert!(Row::from_bytes(b"\xa1\x61u\x18\x01").is_err());
    }
}
