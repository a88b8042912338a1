//! A day of a site that is too large for a step.
//!
//! Its tables are read some at a time, summed up on another thread, and what comes of that is moved some accounts at a
//! time. One day is counted so at any time, which bounds what that takes of the memory.
//!
//! Invariant: the tables of the day and its totals are put in place with the last accounts that move; a sum that comes
//! back for a day that was given up is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_gossip::Replica;
use fairmesh_model::{SiteId, Span, WindowLength};
use fairmesh_usage::{Capacity, PathId, Slice, Table, Total};

use super::{Forms, Published, Update, gross, net, sums_of, totals};
use crate::moved::{Moved, moved};

/// Bytes of a table that take as long as an entry that is swept: half a cell, whose account may be new here.
const ENTRY_BYTES: usize = 4;

/// What a step has done.
#[derive(Debug)]
pub(crate) enum Step {
    /// This is to be applied.
    Counted(Update),
    /// This is to be summed up beside the site.
    Sum(Box<Sum>),
    /// Tables were read, or nothing could be done yet.
    Nothing,
}

/// The day.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) site: SiteId,
    spans: BTreeSet<Span>,
    /// The tables that come, as far as they are read.
    come: Forms,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// These tables are still to be read.
    Reading(Vec<Slice>),
    /// The sum that has this name is made.
    Summing(Arc<()>),
    /// These accounts are still to be moved.
    Moving(Summed, std::vec::IntoIter<Moved<(Span, PathId)>>),
}

/// What is to be summed up of a day, before and after its tables change.
#[derive(Debug)]
pub(crate) struct Sum {
    name: Arc<()>,
    before: Vec<(Slice, Table)>,
    after: Vec<(Slice, Table)>,
    capacity: Capacity,
    length: WindowLength,
}

/// What it sums up to.
#[derive(Debug)]
pub(crate) struct Summed {
    name: Arc<()>,
    moved: Vec<Moved<(Span, PathId)>>,
    taken_back: u64,
    totals: BTreeMap<Span, Total>,
    over: BTreeSet<Span>,
}

impl Sum {
    /// Sums up: some tenths of a second for the fullest day.
    pub(crate) fn run(self) -> Summed {
        let tables = |of: &[(Slice, Table)]| {
            sums_of(of.iter().map(|(slice, table)| (*slice, table)), self.length)
        };
        let mut before = tables(&self.before);
        let charged = gross(&before);
        self.capacity.clamp(&mut before, self.length);
        let before: Vec<_> = net(&before).collect();
        let mut after = tables(&self.after);
        let taken_back = charged.saturating_sub(gross(&after));
        let totals = totals(&after);
        let over = self.capacity.clamp(&mut after, self.length);
        Summed {
            moved: moved(before, net(&after)),
            name: self.name,
            taken_back,
            totals,
            over,
        }
    }
}

impl Large {
    /// Of these spans some tables `come`, and some are `left` to be read.
    pub(super) fn read(site: SiteId, spans: BTreeSet<Span>, come: Forms, left: Vec<Slice>) -> Self {
        let stage = Stage::Reading(left);
        Self {
            site,
            spans,
            come,
            stage,
        }
    }

    pub(super) fn is_summing(&self) -> bool {
        matches!(self.stage, Stage::Summing(_))
    }

    pub(super) fn into_tables(self) -> Vec<Vec<Table>> {
        self.come.into_values().collect()
    }
}

impl Published {
    /// Goes on with a large day, by so many entries.
    pub(super) fn go_on(
        &mut self,
        replica: &Replica,
        mut large: Large,
        capacity: Capacity,
        room: &mut usize,
    ) -> Step {
        match &mut large.stage {
            Stage::Reading(left) => {
                while *room > 0
                    && let Some(slice) = left.pop()
                {
                    let tables = self.read_tables(replica, large.site, [slice]);
                    let bytes = tables.values().flatten().map(Table::bytes_len).sum();
                    *room = room.saturating_sub(entries(bytes));
                    large.come.extend(tables);
                }
                let sum = left.is_empty().then(|| self.sum(&large, capacity));
                if let Some(sum) = &sum {
                    large.stage = Stage::Summing(Arc::clone(&sum.name));
                }
                self.turns.large = Some(large);
                sum.map_or(Step::Nothing, |sum| Step::Sum(Box::new(sum)))
            }
            Stage::Moving(_, left) => {
                let moved: Vec<_> = left.take(*room).collect();
                *room -= moved.len();
                if !left.as_slice().is_empty() {
                    self.turns.large = Some(large);
                    return Step::Counted(Update {
                        moved,
                        ..Update::default()
                    });
                }
                self.wake();
                Step::Counted(self.put(large, moved))
            }
            Stage::Summing(_) => {
                self.turns.large = Some(large);
                Step::Nothing
            }
        }
    }

    /// A day was summed up.
    pub(crate) fn take_sum(&mut self, mut summed: Summed) {
        let large = self.turns.large.as_mut();
        let of = large.filter(
            |large| matches!(&large.stage, Stage::Summing(name) if Arc::ptr_eq(name, &summed.name)),
        );
        if let Some(of) = of {
            let moved = std::mem::take(&mut summed.moved).into_iter();
            of.stage = Stage::Moving(summed, moved);
        }
    }

    /// Counts a day in one step.
    pub(super) fn count_at_once(
        &mut self,
        replica: &Replica,
        mut large: Large,
        capacity: Capacity,
    ) -> Update {
        if let Stage::Reading(left) = &mut large.stage {
            let left = std::mem::take(left);
            large
                .come
                .extend(self.read_tables(replica, large.site, left));
        }
        let mut summed = self.sum(&large, capacity).run();
        let moved = std::mem::take(&mut summed.moved);
        large.stage = Stage::Moving(summed, Vec::new().into_iter());
        self.put(large, moved)
    }

    fn sum(&self, large: &Large, capacity: Capacity) -> Sum {
        let held = self.tables_in(large.site, &large.spans);
        let before: Vec<(Slice, Table)> =
            held.map(|(slice, table)| (slice, table.clone())).collect();
        let stays = before
            .iter()
            .filter(|(slice, _)| !large.come.contains_key(slice));
        let come = large.come.iter().flat_map(|(slice, forms)| {
            let forms = forms.iter();
            forms.map(|table| (*slice, table.clone()))
        });
        Sum {
            name: Arc::default(),
            after: stays.cloned().chain(come).collect(),
            before,
            capacity,
            length: self.length,
        }
    }

    /// Puts the tables of a day in place of those that are held, with the last accounts that move.
    fn put(&mut self, large: Large, moved: Vec<Moved<(Span, PathId)>>) -> Update {
        let Stage::Moving(summed, _) = large.stage else {
            return Update::default();
        };
        let retired = self.put_tables(large.site, large.come);
        self.set_totals(large.site, &large.spans, summed.totals, summed.over);
        Update {
            moved,
            taken_back: summed.taken_back,
            retired,
        }
    }
}

/// As how many entries so many bytes of tables count.
pub(super) fn entries(bytes: usize) -> usize {
    bytes.div_ceil(ENTRY_BYTES).max(1)
}
