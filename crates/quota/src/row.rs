//! A row: what one site says of its rights to one slice. It is the bounded counter.
//!
//! A row is a set of counters that only grow and that only its site writes; two forms of it join by maximum,
//! counter by counter, as vector clocks do. What a site holds back (`Held` less `Freed`) is two such counters,
//! too, so that peers can give it back to a site that has lost its store.
//!
//! A transfer is a counter in two rows: what its sender has `Sent`, and what its receiver has `Taken` of that.
//! So a site's rights follow from its own row and the initial grant alone, and what is on the way is what is
//! sent and not yet taken.
//!
//! What leaders pass on is a counter in the row of the whole: its site had rights of the whole, and has so many of the
//! part instead ([`Cell::Passed`]). So a part has rights where, and only where, the whole has given them up.
//!
//! Invariant: of bytes that are taken as a row, no counter is 0, nothing is given back that was not used,
//! freed that was not held, or settled that was not owed.

use std::collections::BTreeMap;

use crdts::{CmRDT, CvRDT, Dot, VClock};
use fairmesh_model::cbor::{self, CborError};
use fairmesh_model::documents::PARTS_MAX;
use fairmesh_model::{AllocationId, SiteId, mutant};
use serde::{Deserialize, Serialize};

/// Most sites that a site sends rights of one slice to, and as many that it takes them from. Bounds a row to
/// what one part of a head holds; a site that lacks rights asks two at once.
pub const PARTNERS_MAX: usize = 512;

/// Largest row in bytes: all its partners, and all parts.
const BYTES_MAX: usize = 60 << 10;

/// What is counted, core-milliseconds each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cell {
    /// Charged.
    #[serde(rename = "u")]
    Used,
    /// Given back of that, by corrections.
    #[serde(rename = "b")]
    Returned,
    /// Ever held for jobs.
    #[serde(rename = "h")]
    Held,
    /// No longer held.
    #[serde(rename = "f")]
    Freed,
    /// Charged beyond the rights that there were.
    #[serde(rename = "o")]
    Overdraft,
    /// Of that, settled by rights that came later.
    #[serde(rename = "p")]
    Settled,
    /// Ever sent to this site.
    #[serde(rename = "s")]
    Sent(SiteId),
    /// Ever taken of what this site has sent.
    #[serde(rename = "t")]
    Taken(SiteId),
    /// Ever passed on to this part of the allocation.
    #[serde(rename = "d")]
    Passed(AllocationId),
}

/// The counters of one site for one slice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row(VClock<Cell>);

/// Why bytes are no row. State is unchanged; the site that signed them is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// Not canonical CBOR of the right shape and size.
    #[error("rights: {0}")]
    Encoding(#[from] CborError),
    /// It contradicts itself.
    #[error("rights: {0}")]
    Invalid(&'static str),
}

impl Row {
    /// A counter.
    pub fn get(&self, cell: Cell) -> u64 {
        self.0.get(&cell)
    }

    /// Lets a counter grow, up to what it can count.
    pub fn add(&mut self, cell: Cell, amount: u64) {
        let sum = self.get(cell).saturating_add(amount);
        self.0.apply(Dot::new(cell, sum));
    }

    /// Takes the larger of each counter.
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

    /// Whether nothing was ever counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is used and not given back.
    pub fn used(&self) -> u64 {
        self.get(Cell::Used)
            .saturating_sub(self.get(Cell::Returned))
    }

    /// What is held for jobs.
    pub fn held(&self) -> u64 {
        self.get(Cell::Held).saturating_sub(self.get(Cell::Freed))
    }

    /// What is owed.
    pub fn overdraft(&self) -> u64 {
        self.get(Cell::Overdraft)
            .saturating_sub(self.get(Cell::Settled))
    }

    /// What was sent to all other sites.
    pub fn sent(&self) -> u128 {
        self.sum(|cell| matches!(cell, Cell::Sent(_)))
    }

    /// What was taken from all other sites.
    pub fn taken(&self) -> u128 {
        self.sum(|cell| matches!(cell, Cell::Taken(_)))
    }

    /// What was passed on to all parts of the allocation.
    pub fn passed(&self) -> u128 {
        self.sum(|cell| matches!(cell, Cell::Passed(_)))
    }

    /// What is left to hold, send or use, where the site was `granted` so much to begin with. 0 where the row
    /// says more than that allows.
    pub fn spendable(&self, granted: u64) -> u64 {
        let has = u128::from(granted) + self.taken() + u128::from(self.get(Cell::Returned));
        let gone = mutant!(SentKept, self.sent(), 0) + u128::from(self.get(Cell::Used));
        let gone = gone + mutant!(PassedKept, self.passed(), 0);
        let held = mutant!(HoldsForgotten, u128::from(self.held()), 0);
        u64::try_from(has.saturating_sub(gone + held)).unwrap_or(u64::MAX)
    }

    /// The row as canonical CBOR.
    pub fn to_bytes(&self) -> Vec<u8> {
        cbor::to_vec(&self.0.dots)
    }

    /// Reads what [`Row::to_bytes`] has written.
    ///
    /// # Errors
    /// What no honest site signs.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RowError> {
        let dots: BTreeMap<Cell, u64> = cbor::from_slice(bytes, BYTES_MAX)?;
        if dots.values().any(|counter| *counter == 0) {
            return Err(RowError::Invalid("a counter of nothing"));
        }
        let row = Self(VClock { dots });
        // The names of counters are read from bytes, too.
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
        let of = |kind: fn(Cell) -> bool| row.cells().filter(|(cell, _)| kind(*cell)).count();
        let sent = of(|cell| matches!(cell, Cell::Sent(_)));
        let taken = of(|cell| matches!(cell, Cell::Taken(_)));
        if sent.max(taken) > PARTNERS_MAX {
            return Err(RowError::Invalid("too many partners"));
        }
        if of(|cell| matches!(cell, Cell::Passed(_))) > PARTS_MAX {
            return Err(RowError::Invalid("too many parts"));
        }
        Ok(row)
    }

    /// Whether it may count a transfer in `cell`, or has too many partners, or parts, already.
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
