//! The totals of a slice, by the rows that one site has received.
//!
//! Invariant: if all rows are up to date, granted = used + held + spendable + perished + in transit + passed on.
//! Rights in transit in one row may be taken in a newer one, so an old view shows too few or too many of them. What a
//! site may spend never depends on these totals.

use fairmesh_model::{AccountPath, WallTime};

use crate::grants::SliceId;
use crate::ledger::Ledger;
use crate::row::{Cell, Row};

/// Core-milliseconds of a slice, or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Granted by the authority; for a part, what was passed on to it.
    pub granted: u128,
    /// Passed on to its parts.
    pub passed_on: u128,
    /// For a part: what its split grants and sites could not pass on yet; 0 after its end.
    pub lacking: u128,
    /// Charged to jobs and not given back.
    pub used: u128,
    /// Held for running and accepted jobs.
    pub held: u128,
    /// Left at all sites, of slices that have begun and not ended.
    pub spendable: u128,
    /// The part of `spendable` at this site.
    pub here: u128,
    /// Left at all sites, of slices that have not begun.
    pub to_come: u128,
    /// Left when its slice ended.
    pub perished: u128,
    /// Sent by one site and not yet taken by another.
    pub on_the_way: u128,
    /// Charged beyond the rights and not settled.
    pub overdraft: u128,
}

impl Totals {
    /// The sum of two totals, field by field.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            granted: self.granted + other.granted,
            passed_on: self.passed_on + other.passed_on,
            lacking: self.lacking + other.lacking,
            used: self.used + other.used,
            held: self.held + other.held,
            spendable: self.spendable + other.spendable,
            here: self.here + other.here,
            to_come: self.to_come + other.to_come,
            perished: self.perished + other.perished,
            on_the_way: self.on_the_way + other.on_the_way,
            overdraft: self.overdraft + other.overdraft,
        }
    }
}

impl Ledger {
    /// The totals of one slice.
    pub fn slice_totals(&self, id: SliceId, now: WallTime) -> Totals {
        let Some(slice) = self.grants().slice(id) else {
            return Totals::default();
        };
        let mut totals = Totals {
            granted: u128::from(slice.amount.0),
            ..Totals::default()
        };
        let empty = Row::default();
        // Sites that have not published a row still have their initial rights.
        let initial = self.grants().initial_sites(id).map(|(site, _)| site);
        let mut sites: Vec<_> = self.rows(id).map(|(site, _)| site).chain(initial).collect();
        sites.sort_unstable();
        sites.dedup();
        let row = |site| self.row_of(id, site).unwrap_or(&empty);
        let (mut left, mut granted_to_sites) = (0, 0);
        for site in sites {
            let own = row(site);
            let granted = self.granted(id, site);
            let spendable = u128::from(own.spendable(granted));
            granted_to_sites += u128::from(granted);
            totals.passed_on += own.passed();
            totals.used += u128::from(own.used());
            totals.held += u128::from(own.held());
            totals.overdraft += u128::from(own.overdraft());
            left += spendable;
            if site == self.me() {
                totals.here = spendable;
            }
            totals.on_the_way += own.cells().fold(0, |sum, (cell, amount)| match cell {
                Cell::Sent(to) => {
                    let taken = row(to).get(Cell::Taken(site));
                    sum + u128::from(amount.saturating_sub(taken))
                }
                _ => sum,
            });
        }
        if self.grants().whole(id).is_some() {
            let lacking = totals.granted.saturating_sub(granted_to_sites);
            totals.lacking = if now < slice.end { lacking } else { 0 };
            totals.granted = granted_to_sites;
        }
        // What is left is exactly one of the three, by the time.
        let of_time = match (now < slice.start, now < slice.end) {
            (true, _) => &mut totals.to_come,
            (_, true) => &mut totals.spendable,
            (_, false) => &mut totals.perished,
        };
        *of_time = left;
        if now < slice.start || now >= slice.end {
            totals.here = 0;
        }
        totals
    }

    /// The totals of all slices of a path.
    pub fn account_totals(&self, path: &AccountPath, now: WallTime) -> Totals {
        self.sum_up(now, path, |_| true)
    }

    /// The totals of the slices of a path that a user may spend.
    pub fn totals_for(&self, path: &AccountPath, user: &AccountPath, now: WallTime) -> Totals {
        self.sum_up(now, path, |id| self.grants().admits(id.allocation, user))
    }

    fn sum_up(
        &self,
        now: WallTime,
        path: &AccountPath,
        counts: impl Fn(SliceId) -> bool,
    ) -> Totals {
        let slices = self.grants().slices_of(path).into_iter();
        let slices = slices.filter(|(id, _)| counts(*id));
        let totals = slices.map(|(id, _)| self.slice_totals(id, now));
        totals.fold(Totals::default(), Totals::plus)
    }
}
