//! What sites really do, as it is seen between them and the world.
//!
//! Invariant: a watch changes nothing but the bytes that its garbage option breaks on purpose; a
//! layer below it that lies comes first, so that what is noted is what then happens.
//!
//! Deliberately not here: judging what was seen (the invariants).

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use fairmesh_cluster::Stream;
use fairmesh_model::{
    Checkpoint, ContentHash, InFlightSheet, JobKey, Signed, SiteId, StreamId, UsageBatch, VoId,
};
use fairmesh_site::gossip::wire::{Probe, Request, Response, Summary};
use fairmesh_site::{BatchId, Effect, Event, JobMark, Table, Write};

use crate::world::{RestartPlan, Tamper};

/// A batch that a site stores: its own, which it has just signed, or another's, which it believes.
#[derive(Debug, Clone)]
pub struct BatchSeen {
    /// Who stores it.
    pub node: usize,
    /// Which.
    pub id: BatchId,
    /// Hash of its exact bytes.
    pub hash: ContentHash,
    /// What it says, where its own site has signed it.
    pub body: Option<Box<UsageBatch>>,
}

/// What a node says that it holds of a VO.
#[derive(Debug, Clone, Copy)]
pub struct ProbeSeen {
    /// Who.
    pub node: usize,
    /// Of which VO.
    pub vo: VoId,
    /// What.
    pub summary: Summary,
}

/// A moment at which a site has signed something, by its own clock.
#[derive(Debug, Clone, Copy)]
pub struct SignedSeen {
    /// Who.
    pub site: SiteId,
    /// Of which VO.
    pub vo: VoId,
    /// The stream and the position that must be held to know of it; none for in-flight sheets.
    pub of: Option<(StreamId, u64)>,
    /// When.
    pub at_ms: u64,
}

/// What was seen since the last step.
#[derive(Debug, Default)]
pub struct Facts {
    /// Batches, in order.
    pub batches: Vec<BatchSeen>,
    /// Probes, in order.
    pub probes: Vec<ProbeSeen>,
    /// Checkpoints and sheets of their own that sites have signed.
    pub signed: Vec<SignedSeen>,
    /// Messages that were broken on their way.
    pub garbage: u64,
    /// Whether nothing is broken any more.
    pub is_calm: bool,
}

/// Facts, shared with whoever judges them.
pub type SharedFacts = Rc<RefCell<Facts>>;

/// The layer itself.
pub struct Watch {
    facts: SharedFacts,
    inner: Option<Box<dyn Tamper>>,
    garbage: Option<(Stream, u64)>,
    node_of: HashMap<SiteId, usize>,
}

impl Watch {
    /// A layer above `inner`, which breaks so many of a thousand messages, if any.
    pub fn new(
        facts: SharedFacts,
        inner: Option<Box<dyn Tamper>>,
        garbage: Option<(Stream, u64)>,
        node_of: HashMap<SiteId, usize>,
    ) -> Self {
        Self {
            facts,
            inner,
            garbage,
            node_of,
        }
    }

    fn note_writes(&self, node: usize, writes: &[Write]) {
        for write in writes {
            match (write.table, &write.value) {
                (Table::Batches, Some(bytes)) => self.note_batch(node, write, bytes),
                (Table::Checkpoints, Some(bytes)) => self.note_checkpoint(node, bytes),
                (Table::InFlight, Some(bytes)) => self.note_sheet(node, bytes),
                _ => {}
            }
        }
    }

    fn note_batch(&self, node: usize, write: &Write, bytes: &[u8]) {
        let Some(id) = BatchId::of(write) else { return };
        let own = self.node_of.get(&id.stream.site) == Some(&node);
        let parsed = own.then(|| Signed::<UsageBatch>::parse(bytes).ok());
        let body = parsed.flatten().map(|signed| signed.claimed().clone());
        self.facts.borrow_mut().batches.push(BatchSeen {
            node,
            id,
            hash: ContentHash::of(bytes),
            body: body.map(Box::new),
        });
    }

    fn note_checkpoint(&self, node: usize, bytes: &[u8]) {
        let Ok(signed) = Signed::<Checkpoint>::parse(bytes) else {
            return;
        };
        let body = signed.claimed();
        if self.node_of.get(&body.site) == Some(&node) {
            self.facts.borrow_mut().signed.push(SignedSeen {
                site: body.site,
                vo: body.vo,
                of: Some((body.stream(), body.seq.0)),
                at_ms: body.at.0,
            });
        }
    }

    fn note_sheet(&self, node: usize, bytes: &[u8]) {
        let Ok(signed) = Signed::<InFlightSheet>::parse(bytes) else {
            return;
        };
        let body = signed.claimed();
        if self.node_of.get(&body.site) == Some(&node) {
            self.facts.borrow_mut().signed.push(SignedSeen {
                site: body.site,
                vo: body.vo,
                of: None,
                at_ms: body.at.0,
            });
        }
    }

    fn note_probe(&self, node: usize, probe: &Probe) {
        let seen = probe.vos.iter().map(|(vo, summary)| ProbeSeen {
            node,
            vo: *vo,
            summary: *summary,
        });
        self.facts.borrow_mut().probes.extend(seen);
    }

    fn break_bytes(&mut self, bytes: &mut Vec<u8>) {
        let Some((random, permille)) = &mut self.garbage else {
            return;
        };
        if self.facts.borrow().is_calm || bytes.is_empty() || random.below(1_000) >= *permille {
            return;
        }
        self.facts.borrow_mut().garbage += 1;
        match random.below(3) {
            0 => {
                let at = random.index(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            1 => bytes.truncate(random.index(bytes.len())),
            _ => {
                let length = random.index(2_000);
                *bytes = (0..length)
                    .map(|_| u8::try_from(random.below(256)).expect("a byte"))
                    .collect();
            }
        }
    }
}

impl Tamper for Watch {
    fn event(&mut self, node: usize, event: &mut Event) {
        if let Event::Pushed { bytes, .. }
        | Event::Asked { bytes, .. }
        | Event::Answered {
            bytes: Some(bytes), ..
        } = event
        {
            self.break_bytes(bytes);
        }
        if let Some(inner) = &mut self.inner {
            inner.event(node, event);
        }
    }

    fn effects(&mut self, node: usize, effects: &mut Vec<Effect>) {
        if let Some(inner) = &mut self.inner {
            inner.effects(node, effects);
        }
        for effect in effects.iter() {
            match effect {
                Effect::Persist(writes) => self.note_writes(node, writes),
                Effect::Ask { bytes, .. } => {
                    if let Ok(Request::Probe(probe)) = Request::from_bytes(bytes) {
                        self.note_probe(node, &probe);
                    }
                }
                Effect::Answer { bytes, .. } => {
                    if bytes.len() < PROBE_BYTES_MAX
                        && let Ok(Response::Probe(probe)) = Response::from_bytes(bytes)
                    {
                        self.note_probe(node, &probe);
                    }
                }
                _ => {}
            }
        }
    }

    fn restart(&mut self, node: usize, plan: &mut RestartPlan) {
        if let Some(inner) = &mut self.inner {
            inner.restart(node, plan);
        }
    }

    fn mark(&mut self, node: usize, job: &JobKey, mark: &mut Option<JobMark>) {
        if let Some(inner) = &mut self.inner {
            inner.mark(node, job, mark);
        }
    }
}

/// Longest answer that is looked at: a probe of a few VOs is shorter, and longer ones are pulls.
const PROBE_BYTES_MAX: usize = 4_096;
