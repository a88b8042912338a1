//! What a site is shown to have counted when a job asks, as numbers for the oracle.
//!
//! Invariant: this copies documents, counters and marks and decides nothing.
//! Deliberately not here: what follows from them (`oracle::rights`).

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Allocation, Signed, VoId};
use fairmesh_quota::{Cell, Ledger, Mark, Row, State, Verdict};

use crate::oracle::rights::{Allocations, Counted, Place};
use crate::world::World;

/// A site as it stands; `None` where it does not run or does not know the VO.
pub(crate) fn place(world: &World, node: usize, vo: VoId) -> Option<Place> {
    let site = world.site(node)?;
    let ledger = site.ledger(vo)?;
    let signed = site.allocations(vo).into_iter().map(|bytes| {
        let signed = Signed::<Allocation>::parse(&bytes).expect("the site has read it");
        (signed.hash(), signed.claimed().clone())
    });
    let rows = ledger.own_rows();
    let counted = rows.map(|(id, row)| ((id.allocation, id.index), counted(row)));
    Some(Place {
        site: ledger.me(),
        at: world.now_at(node).wall,
        allocations: Allocations::new(signed),
        counted: counted.collect(),
        promised: promised(ledger),
        is_frozen: ledger.is_frozen(),
    })
}

fn counted(row: &Row) -> Counted {
    let mut counted = Counted::default();
    let less = |all, part| row.get(all).saturating_sub(row.get(part));
    for (cell, amount) in row.cells() {
        match cell {
            Cell::Taken(_) => counted.taken += u128::from(amount),
            Cell::Sent(_) => counted.sent += u128::from(amount),
            Cell::Passed(part) => _ = counted.passed.insert(part, amount),
            _ => {}
        }
    }
    counted.used = less(Cell::Used, Cell::Returned);
    counted.held = less(Cell::Held, Cell::Freed);
    counted.owed = less(Cell::Overdraft, Cell::Settled);
    counted
}

/// What jobs that run beyond their quota may cost beyond what they hold.
fn promised(ledger: &Ledger) -> BTreeMap<AccountPath, u64> {
    let is_beyond = |mark: &Mark| mark.state == State::Held && mark.verdict == Verdict::OverQuota;
    let mut promised = BTreeMap::new();
    for (_, mark) in ledger.marks().filter(|(_, mark)| is_beyond(mark)) {
        let holds: u64 = mark.parts.iter().map(|part| part.amount.0).sum();
        *promised.entry(mark.account.clone()).or_default() += mark.amount.0 - holds;
    }
    promised
}
