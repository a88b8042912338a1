//! What leaders pass on: a site makes rights of a part out of its own rights of the whole.
//!
//! A part is split among sites like any allocation. What the split gives a site it has of the part as soon as it has
//! given up as much of the whole, in the row of the whole ([`Cell::Passed`]): at once where it has that much left,
//! otherwise as holds are freed and rights arrive, for as long as the slice lasts. Others are asked for it only where
//! jobs need rights of the whole, and together with these: whatever came for the jobs alone would be passed on first.
//!
//! Invariant: what a site has of a part is gone from the whole there, so parts are granted nothing that the whole
//! was not, whatever leaders sign; and what was passed on does not come back.
//! Deliberately not here: who is a leader (`fairmesh-policy`).

use fairmesh_model::{SiteId, WallTime, mutant, mutated};

use super::Ledger;
use crate::grants::SliceId;
use crate::row::Cell;

impl Ledger {
    /// What a site has of a slice to begin with: by the split, or, of a part, what it has passed on of that.
    pub fn granted(&self, id: SliceId, site: SiteId) -> u64 {
        let of_split = self.grants.initial(id, site);
        let Some(whole) = self.grants.whole(id).filter(|_| !mutated!(PartsGranted)) else {
            return of_split;
        };
        let row = self.row_of(whole, site);
        let passed = row.map_or(0, |row| row.get(Cell::Passed(id.allocation)));
        passed.min(of_split)
    }

    /// Passes on what the site has left of wholes and their leaders want it to.
    pub(super) fn pass_on(&mut self, now: WallTime) {
        let due = self.due_parts.take();
        let mut due = due.unwrap_or_else(|| self.grants.all_parts());
        due.retain(|part| self.pass_part(now, *part));
        self.due_parts = Some(due);
    }

    /// What parts of a slice still lack here, as of the last look at the time.
    pub(super) fn lacking_parts(&self, whole: SliceId) -> u64 {
        let due = self.due_parts.iter().flatten();
        let due = due.filter(|part| self.grants.whole(**part) == Some(whole));
        due.fold(0, |sum, part| {
            let has_room = self.room_of(*part, self.me);
            sum.saturating_add(self.lacking(whole, *part).min(has_room))
        })
    }

    fn lacking(&self, whole: SliceId, part: SliceId) -> u64 {
        let due = self.grants.initial(part, self.me);
        due.saturating_sub(self.get(whole, Cell::Passed(part.allocation)))
    }

    /// Passes on what is there of one part; whether some of it still lacks.
    fn pass_part(&mut self, now: WallTime, part: SliceId) -> bool {
        let whole = self.grants.whole(part).zip(self.grants.slice(part));
        let Some((whole, slice)) = whole else {
            return false;
        };
        let cell = Cell::Passed(part.allocation);
        let lacking = self.lacking(whole, part);
        let own = self.own_row(whole);
        if now >= slice.end || own.is_some_and(|own| !own.has_room_for(cell)) {
            return false;
        }
        // Others may have sent some of the part before there was anything to pass on.
        let has_room = self.room_of(part, self.me);
        let there = lacking.min(self.spendable(whole)).min(has_room);
        let amount = mutant!(PassedUnchecked, there, lacking);
        self.add(whole, cell, amount);
        amount < lacking
    }
}
