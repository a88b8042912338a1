//! Layers that lie to sites, or about them.
//!
//! Invariant: each breaks one thing and is honest otherwise, and draws nothing: the run around it is
//! the run of its seed. Deliberately not here: which invariant finds it.

use std::collections::BTreeMap;

use fairmesh_model::{Charter, Incarnation, JobKey, SharePolicy, Signed, SiteId, UsageBatch};
use fairmesh_site::gossip::wire::{Push, Request, Response};
use fairmesh_site::{BatchId, Effect, Event, JobMark, Reply, Table, Write};

use crate::vo::{site_id, site_key};
use crate::world::{RestartPlan, Tamper};

/// Node 1 has other counters than its vector says.
#[derive(Default)]
pub(super) struct OtherCounters {
    probes: u64,
}

impl Tamper for OtherCounters {
    fn effects(&mut self, node: usize, effects: &mut Vec<Effect>) {
        for effect in effects.iter_mut().filter(|_| node == 1) {
            let Effect::Ask { bytes, .. } = effect else {
                continue;
            };
            if let Ok(Request::Probe(mut probe)) = Request::from_bytes(bytes) {
                self.probes += 1;
                for (_, summary) in probe.vos.iter_mut().filter(|_| self.probes > 20) {
                    summary.counters[0] ^= 1;
                }
                *bytes = Request::Probe(probe).to_bytes();
            }
        }
    }
}

/// A report is acknowledged, and only the marks of its jobs are written.
pub(super) struct LedgerNotWritten;

impl Tamper for LedgerNotWritten {
    fn effects(&mut self, _node: usize, effects: &mut Vec<Effect>) {
        for effect in effects {
            if let Effect::Persist(writes) = effect {
                writes.retain(|write| write.table != Table::Ledger);
            }
        }
    }
}

/// Of every report the last record never arrives.
pub(super) struct RecordsDropped;

impl Tamper for RecordsDropped {
    fn event(&mut self, _node: usize, event: &mut Event) {
        if let Event::Report { records, .. } = event {
            records.pop();
        }
    }
}

/// No job is known.
pub(super) struct NoMarks;

impl Tamper for NoMarks {
    fn mark(&mut self, _node: usize, _job: &JobKey, mark: &mut Option<JobMark>) {
        *mark = None;
    }
}

/// Batches of others are not stored as they came.
pub(super) struct BatchesBroken;

impl Tamper for BatchesBroken {
    fn effects(&mut self, node: usize, effects: &mut Vec<Effect>) {
        for write in writes_of(effects) {
            let of = BatchId::of(write).map(|id| id.stream.site);
            if let (Some(of), Some(value)) = (of, &mut write.value)
                && of != site_id(node)
                && let Some(last) = value.last_mut()
            {
                *last ^= 1;
            }
        }
    }
}

/// Every life of a site goes on under the incarnation of the first.
#[derive(Default)]
pub(super) struct OneIncarnation {
    first: BTreeMap<usize, Incarnation>,
}

impl Tamper for OneIncarnation {
    fn effects(&mut self, node: usize, effects: &mut Vec<Effect>) {
        for write in writes_of(effects) {
            let Some(id) = BatchId::of(write).filter(|id| id.stream.site == site_id(node)) else {
                continue;
            };
            let first = *self.first.entry(node).or_insert(id.stream.incarnation);
            let Some(value) = write
                .value
                .as_mut()
                .filter(|_| first != id.stream.incarnation)
            else {
                continue;
            };
            let Ok(signed) = Signed::<UsageBatch>::parse(value) else {
                continue;
            };
            let batch = UsageBatch {
                incarnation: first,
                retired_below: Incarnation(0),
                settled_below: Incarnation(0),
                ..signed.claimed().clone()
            };
            if let Ok(signed) = Signed::sign(batch, &[&site_key(node)]) {
                *value = signed.bytes().to_vec();
                write.key[64..72].copy_from_slice(&first.0.to_be_bytes());
            }
        }
    }
}

/// What peers answer is thrown away.
pub(super) struct AnswersLost;

impl Tamper for AnswersLost {
    fn event(&mut self, _node: usize, event: &mut Event) {
        if let Event::Answered { bytes, .. } = event {
            *bytes = None;
        }
    }
}

/// Node 0 sends its last request to a peer again as soon as the peer has answered.
#[derive(Default)]
pub(super) struct AsksForEver {
    last: BTreeMap<SiteId, Vec<u8>>,
    answered: Option<SiteId>,
    asked: u64,
}

impl Tamper for AsksForEver {
    fn event(&mut self, node: usize, event: &mut Event) {
        if let Event::Answered { from, bytes, .. } = event {
            self.answered = (node == 0 && bytes.is_some()).then_some(*from);
        }
    }

    fn effects(&mut self, node: usize, effects: &mut Vec<Effect>) {
        for effect in effects.iter().filter(|_| node == 0) {
            if let Effect::Ask { to, bytes, .. } = effect {
                self.last.insert(*to, bytes.clone());
            }
        }
        if let Some(to) = self.answered.take_if(|_| node == 0)
            && let Some(bytes) = self.last.get(&to).cloned()
        {
            self.asked += 1;
            let id = u64::MAX - self.asked;
            effects.push(Effect::Ask { to, id, bytes });
        }
    }
}

/// Whoever hands a document in is told that all is well, and nothing of it is kept.
pub(super) struct DocumentsDropped;

impl Tamper for DocumentsDropped {
    fn event(&mut self, _node: usize, event: &mut Event) {
        if let Event::Publish { bytes, .. } = event {
            bytes.clear();
        }
    }

    fn effects(&mut self, _node: usize, effects: &mut Vec<Effect>) {
        for effect in effects {
            if let Effect::Reply {
                reply: Reply::Published(result),
                ..
            } = effect
            {
                *result = Ok("it is adopted".to_owned());
            }
        }
    }
}

/// A node starts with the first documents, whatever it has adopted since.
pub(super) struct DocumentsForgotten;

impl Tamper for DocumentsForgotten {
    fn restart(&mut self, _node: usize, plan: &mut RestartPlan) {
        plan.rows.retain(|(table, _, value)| match table {
            Table::Policy => false,
            Table::Documents => {
                let charter = Signed::<Charter>::parse(value);
                let policy = Signed::<SharePolicy>::parse(value);
                charter.is_ok_and(|signed| signed.claimed().version == 1)
                    || policy.is_ok_and(|signed| signed.claimed().version == 1)
            }
            _ => true,
        });
    }
}

/// What peers say about their machines is thrown away.
pub(super) struct DescriptionsLost;

impl Tamper for DescriptionsLost {
    fn event(&mut self, _node: usize, event: &mut Event) {
        let (Event::Answered {
            bytes: Some(bytes), ..
        }
        | Event::Pushed { bytes, .. }) = event
        else {
            return;
        };
        if let Ok(Response::Pull(mut answer)) = Response::from_bytes(bytes) {
            answer.descriptions.clear();
            *bytes = Response::Pull(answer).to_bytes();
        } else if let Ok(Push::Description(_)) = Push::from_bytes(bytes, bytes.len()) {
            bytes.clear();
        }
    }
}

/// Whatever a checkpoint covers stays in the store.
pub(super) struct NothingDeleted;

impl Tamper for NothingDeleted {
    fn effects(&mut self, _node: usize, effects: &mut Vec<Effect>) {
        for effect in effects {
            if let Effect::Persist(writes) = effect {
                writes.retain(|write| write.table != Table::Batches || write.value.is_some());
            }
        }
    }
}

fn writes_of(effects: &mut [Effect]) -> impl Iterator<Item = &mut Write> {
    effects
        .iter_mut()
        .filter_map(|effect| match effect {
            Effect::Persist(writes) => Some(writes),
            _ => None,
        })
        .flatten()
}
