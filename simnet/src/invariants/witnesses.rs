//! Rights that were sent are taken when the other members have witnessed them, and not before.
//!
//! Invariant checked, at honest sites: when a site takes what another has sent it, each other honest member that it has
//! been connected to since the offer came holds that so much was sent, unless 5 s have passed: after these a member
//! counts as cut off (docs/witnesses.md). A row never shrinks while a node runs, so a member that has witnessed an offer
//! still holds it.
//!
//! A node that ever lost its store gets back what it had taken, and members that leave a VO witness anything: neither is
//! judged.

use std::collections::BTreeMap;

use fairmesh_model::{Millis, MonoTime, SiteId, VoId};
use fairmesh_site::rights::{Cell, SliceId};

use super::{Invariant, Seen, Violation};
use crate::check;

/// After this a member that has not witnessed an offer counts as cut off.
const WAIT_MAX: Millis = Millis(5_000);

/// An offer: to which node, in which VO, by which site, of which slice.
type Place = (usize, VoId, SiteId, SliceId);

/// What was offered, and is not taken.
#[derive(Debug)]
struct Pending {
    since: MonoTime,
    /// How often the node had started.
    life: u32,
    taken: u64,
    /// Members that are asked, and how often they had started.
    witnesses: BTreeMap<usize, u32>,
}

/// The checker.
#[derive(Default)]
pub(super) struct Witnesses {
    pending: BTreeMap<Place, Pending>,
}

/// Honest members that a node is connected to, that follow the slice, and how often they have started.
fn connected(seen: &Seen<'_>, (node, vo, from, slice): Place) -> BTreeMap<usize, u32> {
    let site = seen.world.site(node);
    let peers = site.map(fairmesh_site::Site::peers).unwrap_or_default();
    let knows = |other: SiteId| {
        peers
            .iter()
            .any(|peer| peer.site == other && peer.connected)
    };
    let others = seen.world.peers_of(node).filter(|other| {
        let of = seen.world.node(*other);
        let ledger = of.site().and_then(|site| site.ledger(vo));
        let follows = ledger.is_some_and(|of| of.grants().get(slice.allocation).is_some());
        follows && knows(of.id) && of.id != from && !seen.is_liar(*other)
    });
    let life = |other: usize| (other, seen.world.node(other).life());
    others.map(life).collect()
}

impl Witnesses {
    fn look(&mut self, seen: &Seen<'_>, node: usize, vo: VoId) -> Result<u64, Violation> {
        let site = seen.world.site(node);
        let Some(ledger) = site.and_then(|site| site.ledger(vo)) else {
            return Ok(0);
        };
        let (now, life) = (seen.world.now_at(node).mono, seen.world.node(node).life());
        let mut checks = 0;
        for (from, slice, sent) in check::sent(ledger) {
            let place = (node, vo, from, slice);
            let own = ledger.own_row(slice);
            let taken = own.map_or(0, |row| row.get(Cell::Taken(from)));
            let before = self.pending.get(&place).filter(|of| of.life == life);
            if let Some(before) = before.filter(|before| taken > before.taken) {
                checks += 1;
                check_taken(seen, place, before, taken)?;
            }
            if sent <= taken {
                self.pending.remove(&place);
                continue;
            }
            let connected = connected(seen, place);
            let is_known = before.is_some_and(|before| before.taken == taken);
            let pending = Pending {
                since: now,
                life,
                taken,
                witnesses: connected.clone(),
            };
            let entry = self.pending.entry(place).or_insert(pending);
            if is_known {
                let witnesses = &mut entry.witnesses;
                witnesses.retain(|other, life| connected.get(other) == Some(life));
            } else {
                (entry.since, entry.life, entry.taken) = (now, life, taken);
                entry.witnesses = connected;
            }
        }
        Ok(checks)
    }
}

fn check_taken(
    seen: &Seen<'_>,
    (node, vo, from, slice): Place,
    pending: &Pending,
    taken: u64,
) -> Result<(), Violation> {
    let now = seen.world.now_at(node).mono;
    if now >= pending.since.after(WAIT_MAX) {
        return Ok(());
    }
    let own = seen.world.node(node).id;
    for (other, life) in &pending.witnesses {
        let of = seen.world.node(*other);
        let ledger = of.site().and_then(|site| site.ledger(vo));
        let Some(ledger) = ledger.filter(|_| of.life() == *life) else {
            continue;
        };
        let row = ledger.row_of(slice, from);
        let sent = row.map_or(0, |row| row.get(Cell::Sent(own)));
        if sent < taken {
            let waited = now.since(pending.since).0;
            let message = format!(
                "takes {taken} core-ms after {waited} ms, and site {other} holds that {sent} were sent"
            );
            return Err(Violation::at(node, message));
        }
    }
    Ok(())
}

impl Invariant for Witnesses {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let faults = seen.world.faults();
        let all_stay = faults.of("remove") + faults.of("unmount") == 0;
        let node = seen
            .node
            .filter(|node| !seen.is_liar(*node) && !seen.books.lost.contains(node));
        if let Some(node) = node.filter(|_| all_stay && seen.books.has_quotas) {
            for vo in seen.vos {
                *checks += self.look(seen, node, *vo)?;
            }
        }
        Ok(())
    }
}
