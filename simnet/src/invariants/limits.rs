//! Queues, memory and per-peer state stay within named limits.
//!
//! Invariant checked: the lists that a site keeps for people, the heads and parts that it stores of
//! each site, and what waits in the world for each pair of nodes do not grow with time; and what a node
//! has stored it finds whole when it starts, unless its disk has flipped a bit; and nobody asks for ever
//! whoever has nothing to say.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_gossip::{HEADS_MAX, PARTS_MAX};
use fairmesh_model::{Millis, MonoTime, Signed, SiteId, Snapshot, VoId};
use fairmesh_site::{HeadId, Notice, Site, Table};

use super::lost::site_vos;
use super::{Invariant, Seen, Violation, clocks_were_wrong};

/// Notices that a site remembers (`site::NOTICES_MAX`).
const NOTICES_MAX: usize = 256;

/// Origins that map nowhere and are listed (`ingest::UNMAPPED_MAX`).
const UNMAPPED_MAX: usize = 10_000;

/// Events that wait for each ordered pair of nodes: an exchange each way, its timeout, sessions that
/// are looked at, and pushes under way.
const QUEUED_PER_PAIR_MAX: usize = 400;

/// How often in a row a peer is asked that answers each time that it is to be asked in full: by each kind
/// of pull of each VO twice, and some room.
const IN_VAIN_MAX: u32 = 32;

/// Snapshots of a VO that a node stores: one, and one that a charter may bring back.
const SNAPSHOTS_MAX: usize = 2;

/// Sync intervals within which all have heard what one has signed.
const SYNCS_UNTIL_HEARD: u64 = 3;

/// Deep checks between two looks at the stores: they cost O(rows).
const DEEP_BETWEEN: u64 = 64;

#[derive(Default)]
pub(super) struct Limits {
    passed: u64,
    /// Since when nothing is broken or said late any more.
    still_since: Option<MonoTime>,
}

impl Limits {
    fn check_store(&self, seen: &Seen<'_>, node: usize) -> Result<u64, Violation> {
        let mut heads: BTreeMap<(VoId, SiteId), u64> = BTreeMap::new();
        let mut parts: BTreeMap<HeadId, usize> = BTreeMap::new();
        let mut whole: BTreeSet<HeadId> = BTreeSet::new();
        let mut snapshots: BTreeMap<VoId, usize> = BTreeMap::new();
        for (table, key, value) in seen.world.node(node).disk.rows() {
            if table == Table::Documents
                && let Ok(signed) = Signed::<Snapshot>::parse(&value)
            {
                *snapshots.entry(signed.vo()).or_default() += 1;
            }
            let Some((id, _)) = HeadId::of_key(&key) else {
                continue;
            };
            match table {
                Table::Heads => {
                    *heads.entry((id.vo, id.site)).or_default() += 1;
                    whole.insert(id);
                }
                Table::Parts => *parts.entry(id).or_default() += 1,
                _ => {}
            }
        }
        if let Some(((_, site), count)) = heads.iter().find(|(_, count)| **count > HEADS_MAX as u64)
        {
            let message = format!(
                "stores {count} heads of site {}; {HEADS_MAX} is the limit",
                site.short()
            );
            return Err(Violation::at(node, message));
        }
        if let Some((vo, count)) = snapshots.iter().find(|(_, count)| **count > SNAPSHOTS_MAX) {
            let message = format!(
                "stores {count} snapshots of VO {}, of which one counts",
                vo.short()
            );
            return Err(Violation::at(node, message));
        }
        for (id, count) in &parts {
            if *count > PARTS_MAX || !whole.contains(id) {
                let message = format!(
                    "stores {count} parts of a head of site {} that it has not",
                    id.site.short()
                );
                return Err(Violation::at(node, message));
            }
        }
        Ok(heads.len() as u64)
    }
}

/// At rest one head of each member is held that has signed another one since: it names all before it.
fn check_heads(
    seen: &Seen<'_>,
    (node, site): (usize, &Site),
    rested: Millis,
) -> Result<u64, Violation> {
    let mut checks = 0;
    // A head that was signed by a clock that was ahead may have usage that no other one has before its time comes.
    if clocks_were_wrong(seen.world) {
        return Ok(0);
    }
    for vo in site_vos(seen, node) {
        let Some(held) = site.held_of(vo) else {
            continue;
        };
        let mut counts: BTreeMap<SiteId, usize> = BTreeMap::new();
        held.heads
            .keys()
            .for_each(|of| *counts.entry(of.site).or_default() += 1);
        for (of, count) in counts {
            let other = seen
                .world
                .index_of(of)
                .filter(|other| !seen.is_liar(*other));
            let has_signed = other.is_some_and(|other| {
                let timing = seen.world.node(other).config.timing;
                let heard = timing.sync.times(SYNCS_UNTIL_HEARD);
                site_vos(seen, other).contains(&vo) && rested.0 > timing.heartbeat.0 + 2 * heard.0
            });
            checks += 1;
            if has_signed && count > 1 {
                let message = format!(
                    "holds {count} heads of site {}, of which none names the others",
                    of.short()
                );
                return Err(Violation::at(node, message));
            }
        }
    }
    Ok(checks)
}

/// What a node stores together it finds together.
fn check_start(seen: &Seen<'_>, node: usize, site: &Site) -> Result<u64, Violation> {
    let is_bad = |notice: &&Notice| matches!(notice, Notice::BadRow { .. });
    match site.notices().find(is_bad) {
        Some(notice) if seen.world.faults().of("flip_bit") == 0 => {
            Err(Violation::at(node, format!("says: {notice}")))
        }
        _ => Ok(1),
    }
}

impl Invariant for Limits {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let mut in_vain = seen.facts.in_vain.iter();
        if let Some((node, of, times)) = in_vain.find(|(.., times)| *times > IN_VAIN_MAX) {
            let message = format!(
                "asks site {} for the {times}th time, which always says to ask in full",
                of.short()
            );
            return Err(Violation::at(*node, message));
        }
        if seen.facts.is_still {
            self.still_since.get_or_insert(seen.world.now());
        }
        if !seen.deep {
            return Ok(());
        }
        self.passed += 1;
        let count = seen.world.nodes().len();
        if seen.world.queued() > QUEUED_PER_PAIR_MAX * count * count {
            let message = format!("{} events wait", seen.world.queued());
            return Err(Violation::of_all(message));
        }
        for node in seen.nodes() {
            let Some(site) = seen.world.site(node) else {
                continue;
            };
            let lists = [
                ("notices", site.notices().count(), NOTICES_MAX),
                ("unmapped origins", site.unmapped().count(), UNMAPPED_MAX),
                ("peers", site.peers().len(), count),
            ];
            *checks += 3 + check_start(seen, node, site)?;
            if let Some((what, have, most)) = lists.into_iter().find(|(_, have, most)| have > most)
            {
                let message = format!("keeps {have} {what}; {most} is the limit");
                return Err(Violation::at(node, message));
            }
            if seen.node.is_none() || self.passed.is_multiple_of(DEEP_BETWEEN) {
                *checks += self.check_store(seen, node)?;
            }
        }
        Ok(())
    }

    fn at_rest(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        self.after_step(seen, checks)?;
        let now = seen.world.now();
        let rested = now.since(self.still_since.unwrap_or(now));
        for node in seen.nodes() {
            let site = seen.world.site(node).expect("all run when all is at rest");
            *checks += check_heads(seen, (node, site), rested)?;
        }
        Ok(())
    }
}
