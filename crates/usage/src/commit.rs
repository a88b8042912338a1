//! How a join becomes final: totals, capacity, digest, path table, and the list of changes.
//!
//! Invariant: between [`VoUsage::join`] and [`VoUsage::commit`] (or [`VoUsage::revert`]) only the
//! sheets and the path table are ahead; after either, everything agrees again. A join that claims
//! more than its bound is undone edit by edit, backwards, and leaves no trace.

use fairmesh_model::documents::PathCells;
use fairmesh_model::{StreamId, mutated};

use crate::capacity::{Bound, Moved};
use crate::digest::CellHasher;
use crate::edit::{CellChange, Edit, Joining};
use crate::refused::Refused;
use crate::stream;
use crate::vo_usage::VoUsage;

impl VoUsage {
    /// Joins cells into a stream's sheets, to be committed or reverted.
    pub(crate) fn join(&mut self, id: StreamId, cells: &PathCells, joining: &mut Joining) {
        let ids = stream::intern(cells.paths(), &mut self.paths, &mut joining.paths);
        let stream = self.streams.entry(id).or_default();
        stream.sheets.join(cells.cells(), &ids, self.rule, joining);
    }

    /// Makes a join final, or takes it back where it claims more than `bound`.
    pub(crate) fn commit(
        &mut self,
        id: StreamId,
        joining: Joining,
        bound: Option<Bound>,
    ) -> Result<Vec<CellChange>, Refused> {
        let moved = Moved::by(&joining.edits, self.rule.length);
        self.totals.shift(id.site, &moved);
        let checked = bound.map_or(Ok(()), |bound| {
            self.totals.check(id.site, &moved, bound, self.rule.length)
        });
        if let Err(refused) = checked {
            let undone: Vec<Edit> = joining.edits.iter().map(|edit| edit.undone()).collect();
            self.totals
                .shift(id.site, &Moved::by(&undone, self.rule.length));
            self.revert(id, &joining);
            return Err(refused);
        }
        self.stats.late_cells += joining.late;
        self.stats.absorbed_cells += joining.absorbed;
        Ok(self.settle(id, joining))
    }

    /// Takes a join back that was not committed.
    pub(crate) fn revert(&mut self, id: StreamId, joining: &Joining) {
        let stream = self.streams.entry(id).or_default();
        for edit in joining.edits.iter().rev() {
            stream.sheets.set(edit.span, edit.path, edit.before);
        }
        if stream.is_blank() {
            self.streams.remove(&id);
        }
        self.paths.sweep(joining.paths.iter().copied());
    }

    /// Follows edits that are in the sheets and in the totals: digest, path table, changes.
    pub(crate) fn settle(&mut self, id: StreamId, joining: Joining) -> Vec<CellChange> {
        let mut changes = Vec::with_capacity(joining.edits.len());
        let mut hasher: Option<CellHasher> = None;
        for edit in &joining.edits {
            let hasher = match &mut hasher {
                Some(hasher) if hasher.span() == edit.span => hasher,
                stale => stale.insert(CellHasher::new(id, edit.span)),
            };
            let key = self.paths.key(edit.path);
            if let Some(before) = edit.before.filter(|_| !mutated!(DigestKeepsOld)) {
                self.digest.subtract(hasher.hash(key, before));
            }
            if let Some(after) = edit.after {
                self.digest.add(hasher.hash(key, after));
            }
            let (before, after) = (
                edit.before.unwrap_or_default(),
                edit.after.unwrap_or_default(),
            );
            if before != after {
                let path = self.paths.path(edit.path).clone();
                changes.push(CellChange {
                    span: edit.span,
                    path,
                    stream: id,
                    before,
                    after,
                });
            }
            match (edit.before, edit.after) {
                (None, Some(_)) => self.paths.acquire(edit.path),
                (Some(_), None) => self.paths.release(edit.path),
                _ => {}
            }
        }
        let fallen = joining
            .edits
            .iter()
            .filter(|edit| edit.after.is_none())
            .map(|edit| edit.path);
        self.paths
            .sweep(fallen.chain(joining.paths.iter().copied()));
        changes
    }
}
