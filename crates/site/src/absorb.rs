//! What peers give back of this site's own: counters, corrections and rights that its store does not know.

use std::collections::BTreeSet;

use fairmesh_gossip::PartKey;
use fairmesh_model::{AccountPath, HashSecret, Incarnation, Now, VoId};
use fairmesh_usage::{Cell, Paths, Table as UsageTable};

use crate::audit;
use crate::audit::AuditEntry;
use crate::kinds::{AUDIT, REACH, USAGE, usage_slice};
use crate::notice::Notice;
use crate::own::is_placed;
use crate::reach::{Reach, reach_row};
use crate::usage::UsageHandler;

impl UsageHandler<'_> {
    /// A peer gave back what this site had published and does not know: it is joined in, and the next
    /// head covers it.
    pub(crate) fn absorb_own(&mut self, now: Now, vo: VoId, parts: &[PartKey]) {
        let held = &self.vos[&vo];
        let window = held.window();
        let audits = parts.iter().filter(|key| key.kind() == AUDIT);
        let audits = audits.flat_map(|key| held.replica.variants(self.cx.id, key));
        let audits: Vec<AuditEntry> = audits
            .filter_map(|bytes| audit::entries(bytes))
            .flatten()
            .collect();
        // Whole days, with their earlier counters: a head arrives as a difference.
        let days = parts.iter().filter_map(usage_slice);
        let days: BTreeSet<u32> = days.map(|slice| slice.span.day(window)).collect();
        let mut cells = self.published_in(vo, |_, day| days.contains(&day));
        if cells.iter().any(|cell| is_placed(cell.0)) {
            // Of all days, and but for what this start has said: it may have published what has a place.
            cells = self.published_in(vo, |head, _| head != self.own.incarnation());
        }
        let past = self.past_reach(now, vo);
        let mut reach = self.own.reach.get(&Some(vo)).copied().unwrap_or_default();
        let absorbed = self.change_own(Some(vo), |own| {
            let mut counted = own.absorb(vo, cells, window);
            if !counted.spans().is_empty() {
                reach = reach.given_back(past);
                counted.writes.push(reach_row(Some(vo), reach));
            }
            counted
        });
        if absorbed {
            self.own.reach.insert(Some(vo), reach);
            self.cx.notice(now.mono, Notice::Recovered { vo });
        }
        self.vos
            .change_audit(self.own, vo, |audit| audit.join(audits));
        self.rights().absorb_own_rights(vo, parts);
        // It is covered at once, so that peers need not keep it. Another machine that runs would answer with a head.
        if self.cx.clock.twin_at.is_none() {
            let held = self.vos.listed(vo);
            held.published_at = None;
        }
    }

    /// The usage in heads of this site, by the heads' incarnations and by days.
    fn published_in(
        &self,
        vo: VoId,
        which: impl Fn(Incarnation, u32) -> bool,
    ) -> Vec<Cell<AccountPath>> {
        let (replica, window) = (&self.vos[&vo].replica, self.vos[&vo].window());
        let mut paths = Paths::new(HashSecret::of(&self.cx.key));
        let mut cells = Vec::new();
        for head in replica.heads_of(self.cx.id) {
            let head = head.body().incarnation;
            for (key, bytes) in replica.parts_of(self.cx.id, head, USAGE) {
                let Some(slice) = usage_slice(key).filter(|of| which(head, of.span.day(window)))
                else {
                    continue;
                };
                let table = UsageTable::read(bytes.clone(), &mut paths);
                cells.extend(table.cells().map(|(incarnation, id, counters)| {
                    (incarnation, slice.span, paths.path(id).clone(), counters)
                }));
            }
        }
        cells
    }

    /// Until when the counters reach in heads of this site's earlier starts that are held. What a second machine with
    /// its key signs meanwhile reaches to now: what came before this start is older than that, by whichever clock is
    /// ahead, ours or the members'.
    pub(crate) fn past_reach(&self, now: Now, vo: VoId) -> Reach {
        let replica = &self.vos[&vo].replica;
        let heads = replica
            .heads_of(self.cx.id)
            .map(|head| head.body().incarnation);
        let past = heads.filter(|head| *head != self.own.incarnation());
        let parts = past.flat_map(|head| replica.parts_of(self.cx.id, head, REACH));
        let reaches = parts.filter_map(|(_, bytes)| Reach::from_bytes(bytes));
        let reach = reaches.fold(Reach::default(), Reach::join);
        if now.mono == self.cx.clock.started.mono {
            // It was in the store.
            return reach;
        }
        let wall = self
            .cx
            .clock
            .own
            .wall
            .max(self.cx.clock.members.unwrap_or_default());
        let began = wall.before(now.mono.since(self.cx.clock.started.mono));
        // Jobs count that end as much later.
        reach.no_later_than(began.after(self.cx.config.timing.clock_tolerance))
    }
}
