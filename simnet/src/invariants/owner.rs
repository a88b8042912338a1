//! Counters are monotone and changed only by their owner.
//!
//! Invariant checked: a batch that a node stores was stored by its own site first, byte for byte;
//! no site signs two contents under one position; positions come without gaps and cells never fall;
//! and a node's version vector never falls within a life and under one charter.

use std::collections::{BTreeMap, HashMap};

use fairmesh_model::{AccountPath, ContentHash, Counters, Seq, Span, StreamId, UsageBatch, VoId};

use super::{Invariant, Seen, Violation};

/// Last batch of each stream, by VO and version of its charter.
type Vectors = BTreeMap<(VoId, u64), BTreeMap<StreamId, Seq>>;

/// The checker.
pub(super) struct Owner {
    /// What was signed. Only looked up.
    signed: HashMap<(VoId, StreamId, Seq), ContentHash>,
    /// Cells of each stream as its site last signed them. Only looked up.
    cells: HashMap<(VoId, StreamId), HashMap<(AccountPath, Span), Counters>>,
    vectors: Vec<(u32, Vectors)>,
}

impl Owner {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            signed: HashMap::new(),
            cells: HashMap::new(),
            vectors: vec![(0, BTreeMap::new()); nodes],
        }
    }

    fn check_batches(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let honest = seen.facts.batches.iter();
        for batch in honest.filter(|batch| !seen.lies(batch.id.stream.site)) {
            *checks += 1;
            let id = batch.id;
            let place = (id.vo, id.stream, id.seq);
            let of = || format!("batch {} of site {}", id.seq.0, id.stream.site.short());
            let owner = seen.world.index_of(id.stream.site);
            let known = self.signed.get(&place).copied();
            if owner != Some(batch.node) {
                if known != Some(batch.hash) {
                    let message = format!("stores {} as that site never signed it", of());
                    return Err(Violation::at(batch.node, message));
                }
                continue;
            }
            match known {
                Some(hash) if hash != batch.hash => {
                    let message = format!("has signed two contents as {}", of());
                    return Err(Violation::at(batch.node, message));
                }
                // Its own, that it had lost and a peer has given back.
                Some(_) => continue,
                None => {}
            }
            let before = id.seq.0.checked_sub(1).filter(|seq| *seq > 0);
            let follows =
                before.is_none_or(|seq| self.signed.contains_key(&(id.vo, id.stream, Seq(seq))));
            if !follows {
                return Err(Violation::at(batch.node, format!("{} follows a gap", of())));
            }
            self.signed.insert(place, batch.hash);
            if let Some(body) = &batch.body
                && let Some(fell) = self.fell(body)
            {
                return Err(Violation::at(batch.node, format!("in {}: {fell}", of())));
            }
        }
        Ok(())
    }

    /// Takes the cells of a stream's next batch, and says which one is less than it was.
    fn fell(&mut self, batch: &UsageBatch) -> Option<String> {
        let cells = self.cells.entry((batch.vo, batch.stream())).or_default();
        let mut fell = None;
        for (span, path, counters) in batch.cells.rows() {
            let cell = cells.entry((path.clone(), span)).or_default();
            if counters.join(*cell) != counters {
                fell = Some(format!(
                    "{path} in {span:?} fell from {cell:?} to {counters:?}"
                ));
            }
            *cell = counters;
        }
        fell
    }

    fn check_vector(&mut self, seen: &Seen<'_>, node: usize) -> Result<u64, Violation> {
        let place = seen.world.node(node);
        let Some(site) = place.site() else {
            return Ok(0);
        };
        // With a charter that lists a site no more, or again, its streams begin anew.
        let status = site.vo_status(seen.world.now_at(node)).into_iter();
        let now: BTreeMap<(VoId, u64), BTreeMap<StreamId, Seq>> = status
            .map(|status| ((status.vo, status.charter_version), status.streams))
            .collect();
        let (life, before) = std::mem::take(&mut self.vectors[node]);
        let mut fell = None;
        if life == place.life() {
            for (vo, streams) in &before {
                for (stream, seq) in streams.iter().filter(|(stream, _)| !seen.lies(stream.site)) {
                    let held = now.get(vo).and_then(|streams| streams.get(stream));
                    if held.is_some_and(|held| held < seq) {
                        fell = Some(format!(
                            "knew site {} up to batch {} and now only up to {}",
                            stream.site.short(),
                            seq.0,
                            held.map_or(0, |held| held.0)
                        ));
                    }
                }
            }
        }
        self.vectors[node] = (place.life(), now);
        fell.map_or(Ok(1), |message| Err(Violation::at(node, message)))
    }
}

impl Invariant for Owner {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        self.check_batches(seen, checks)?;
        if seen.deep {
            for node in seen.nodes() {
                *checks += self.check_vector(seen, node)?;
            }
        }
        Ok(())
    }
}
