//! Parts: a site turns its own rights of a whole allocation into rights of a part that leaders have signed.
//!
//! A part is split among sites like any allocation. A site has its share of the part once it has given up as much of
//! the whole, in the row of the whole ([`Cell::Passed`]): at once if it has that much left, otherwise as holds are
//! freed and rights arrive, until the slice ends. Other sites are asked for these rights only together with rights
//! that jobs need: otherwise what arrives for the jobs would be passed on first.
//!
//! Invariant: rights of a part are gone from the whole at the same site. So whatever leaders sign, parts never grant
//! more than the whole, and passed-on rights do not come back. Deliberately not here: who is a leader
//! (`fairmesh-policy`).

use fairmesh_model::{SiteId, WallTime, mutant, mutated};

use super::Ledger;
use crate::grants::SliceId;
use crate::row::Cell;

impl Ledger {
    /// The initial rights of a site: its share by the split, or, for a part, what it has passed on, at most that share.
    pub fn granted(&self, id: SliceId, site: SiteId) -> u64 {
        let of_split = self.grants.initial(id, site);
        let Some(whole) = self.grants.whole(id).filter(|_| !mutated!(PartsGranted)) else {
            return of_split;
        };
        let row = self.row_of(whole, site);
        let passed = row.map_or(0, |row| row.get(Cell::Passed(id.allocation)));
        passed.min(of_split)
    }

    /// Passes rights of wholes on to their parts, as far as they are left. Keeps a list of the parts that still lack
    /// some, so that a tick does not visit all parts.
    pub(super) fn pass_on(&mut self, now: WallTime) {
        let due = self.due_parts.take();
        let mut due = due.unwrap_or_else(|| self.grants.all_parts());
        due.retain(|part| self.pass_part(now, *part));
        self.due_parts = Some(due);
    }

    /// What parts of a slice still lack here, as of the last [`Ledger::tick`].
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

    /// Passes on what is left for one part. Returns whether the part still lacks some.
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
        // Other sites may have sent rights of the part before: then there is less room for passed-on ones.
        let has_room = self.room_of(part, self.me);
        let there = lacking.min(self.spendable(whole)).min(has_room);
        let amount = mutant!(PassedUnchecked, there, lacking);
        self.add(whole, cell, amount);
        amount < lacking
    }
}
