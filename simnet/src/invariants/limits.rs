//! Queues, memory and per-peer state stay within named limits.
//!
//! Invariant checked: the lists that a site keeps for people, the batches that it stores of each
//! stream, and what waits in the world for each pair of nodes do not grow with time.

use std::collections::{BTreeMap, HashSet};

use fairmesh_model::{Incarnation, StreamId, VoId};
use fairmesh_site::gossip::wire::LONG_STREAM_BATCHES;
use fairmesh_site::{BatchId, Table, Write};

use super::{Invariant, Seen, Violation};

/// Notices that a site remembers (`site::NOTICES_MAX`).
const NOTICES_MAX: usize = 256;

/// Origins that map nowhere and are listed (`ingest::UNMAPPED_MAX`).
const UNMAPPED_MAX: usize = 10_000;

/// Checkpoints' worth of batches that a site keeps of its own streams: two (`usage::CHECKPOINTS_KEPT`)
/// and the ones towards the next. What peers had to give back is bounded as theirs.
const CHECKPOINTS_KEPT: u64 = 3;

/// Batches beside those: one publication may be cut into several.
const BATCHES_SLACK: u64 = 16;

/// Events that wait for each ordered pair of nodes: an exchange each way, its timeout, sessions that
/// are looked at, pushes under way and those that are played back later.
const QUEUED_PER_PAIR_MAX: usize = 400;

/// Deep checks between two looks at the stores: they cost O(rows).
const DEEP_BETWEEN: u64 = 64;

/// The checker.
pub(super) struct Limits {
    passed: u64,
    /// Who has lost a store: peers give streams back batch by batch, but not the one that it signs.
    has_lost: Vec<bool>,
    /// The life in which each site signs, on the store that it has now.
    signs_as: Vec<Option<Incarnation>>,
    /// Streams that have begun: who signs a first batch stores it before anybody else.
    begun: HashSet<(VoId, StreamId)>,
}

impl Limits {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            passed: 0,
            has_lost: vec![false; nodes],
            signs_as: vec![None; nodes],
            begun: HashSet::new(),
        }
    }

    fn hear_lives(&mut self, seen: &Seen<'_>) {
        let first = seen.facts.batches.iter();
        for batch in first.filter(|batch| batch.id.seq.0 == 1 && batch.body.is_some()) {
            if self.begun.insert((batch.id.vo, batch.id.stream)) {
                self.signs_as[batch.node] = Some(batch.id.stream.incarnation);
            }
        }
    }

    fn check_store(&self, seen: &Seen<'_>, node: usize) -> Result<u64, Violation> {
        let place = seen.world.node(node);
        let every = place.config.timing.checkpoint_batches;
        let mut batches: BTreeMap<(VoId, StreamId), u64> = BTreeMap::new();
        for (table, key, _) in place.disk.rows() {
            if table == Table::Batches
                && let Some(id) = BatchId::of(&Write::set(table, key, Vec::new()))
            {
                *batches.entry((id.vo, id.stream)).or_default() += 1;
            }
        }
        let honest = batches
            .iter()
            .filter(|((_, stream), _)| !seen.lies(stream.site));
        for ((_, stream), count) in honest {
            let is_whole = !self.has_lost[node] || self.signs_as[node] == Some(stream.incarnation);
            let is_own = stream.site == place.id && is_whole;
            // Checkpoints of others are pushed, and asked for once there is much to let go of.
            let asked = if is_own {
                0
            } else {
                LONG_STREAM_BATCHES as u64
            };
            let kept = every * CHECKPOINTS_KEPT + asked + BATCHES_SLACK;
            if *count > kept {
                let message = format!(
                    "stores {count} batches of stream {}/{}; {kept} is the limit",
                    stream.site.short(),
                    stream.incarnation.0
                );
                return Err(Violation::at(node, message));
            }
        }
        Ok(batches.len() as u64)
    }
}

impl Invariant for Limits {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        self.hear_lives(seen);
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
            *checks += 3;
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

    fn forgot(&mut self, node: usize, _keeps_side: bool) {
        self.has_lost[node] = true;
        self.signs_as[node] = None;
    }
}
