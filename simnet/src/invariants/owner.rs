//! What a site publishes is changed only by that site.
//!
//! Invariant checked: a head that a node stores was signed by its own site first, bit for bit; no site
//! signs two heads under one number, and its numbers rise; and what a node holds of a site never falls
//! within an incarnation of the node and under one charter.

use std::collections::{BTreeMap, HashMap};

use fairmesh_model::{ContentHash, Incarnation, IncarnationId, Seq, SiteId, VoId};

use super::{Invariant, Seen, Violation};

/// The heads held, by VO and version of its charter.
type Vectors = BTreeMap<(VoId, u64), BTreeMap<IncarnationId, Seq>>;

pub(super) struct Owner {
    /// What was signed. Only looked up.
    signed: HashMap<(VoId, SiteId, Incarnation, Seq), ContentHash>,
    /// The last number of each incarnation. Only looked up.
    last: HashMap<(VoId, SiteId, Incarnation), Seq>,
    vectors: Vec<(u32, Vectors)>,
}

impl Owner {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            signed: HashMap::new(),
            last: HashMap::new(),
            vectors: vec![(0, BTreeMap::new()); nodes],
        }
    }

    fn check_heads(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let honest = seen.facts.heads.iter();
        // What a liar pushes, or stores, of others is judged where it is taken.
        let honest = honest.filter(|found| !seen.is_liar(found.node));
        for found in honest.filter(|found| !seen.lies(found.head.site)) {
            *checks += 1;
            let head = &found.head;
            let place = (head.vo, head.site, head.incarnation, head.seq);
            let of = || format!("head {} of site {}", head.seq.0, head.site.short());
            let known = self.signed.get(&place).copied();
            if !found.own {
                let is_ours = seen.world.index_of(head.site).is_some();
                if is_ours && known != Some(found.hash) {
                    let message = format!("stores {} as that site never signed it", of());
                    return Err(Violation::at(found.node, message));
                }
                continue;
            }
            if known.is_some_and(|known| known != found.hash) {
                let message = format!("has signed two contents as {}", of());
                return Err(Violation::at(found.node, message));
            }
            if known.is_none() {
                let last = self
                    .last
                    .entry((head.vo, head.site, head.incarnation))
                    .or_default();
                if head.seq <= *last {
                    let message = format!("has signed {} behind {}", of(), last.0);
                    return Err(Violation::at(found.node, message));
                }
                *last = head.seq;
                self.signed.insert(place, found.hash);
            }
        }
        Ok(())
    }

    fn check_vector(&mut self, seen: &Seen<'_>, node: usize) -> Result<u64, Violation> {
        let place = seen.world.node(node);
        let Some(site) = place.site() else {
            return Ok(0);
        };
        // With a charter that lists a site no more, or again, what is held of it begins anew.
        let now: BTreeMap<(VoId, u64), BTreeMap<IncarnationId, Seq>> = site
            .held()
            .map(|(vo, held)| ((vo, held.charter_version), held.heads))
            .collect();
        let (life, before) = std::mem::take(&mut self.vectors[node]);
        let mut fell = None;
        if life == place.life() {
            for (vo, streams) in &before {
                for (stream, seq) in streams.iter().filter(|(stream, _)| !seen.lies(stream.site)) {
                    let held = now.get(vo).and_then(|streams| streams.get(stream));
                    if held.is_some_and(|held| held < seq) {
                        fell = Some(format!(
                            "held head {1} of site {0} and now only {2}",
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
        self.check_heads(seen, checks)?;
        if seen.deep {
            for node in seen.nodes() {
                *checks += self.check_vector(seen, node)?;
            }
        }
        Ok(())
    }
}
