//! Handing an event to a site, and doing what it wants done, in order.
//!
//! Invariant: what follows a change of the store is done only when that change is durable. A process
//! that ends in the middle has done a first part of its effects and nothing of the rest; of a change
//! that was being written, all or nothing is on the disk.
//!
//! Deliberately not here: gathering the effects of several events for one write, as the real driver
//! does for speed; making things durable earlier than asked is always safe.

use std::collections::BTreeSet;

use fairmesh_model::{SiteId, VoId};
use fairmesh_site::{Effect, Event, PushToken, Verdict, Write};

use super::{Queued, StepKind, World};
use crate::event_log::{Entry, NOBODY, hash_bytes};
use crate::network::{Content, PUSH_BYTES_MAX, Parcel, Payload};
use crate::node::{Flow, StopReason, Traffic};

/// A push that a site has been handed and has not judged yet.
#[derive(Debug)]
pub(crate) struct Judging {
    pub(super) token: PushToken,
    pub(super) from: usize,
    pub(super) topic: usize,
    pub(super) payload: Payload,
}

impl World {
    /// Hands an event to a node's site, if it runs. With what came from a peer goes which, and the
    /// payload's hash.
    pub(super) fn handle(&mut self, node: usize, mut event: Event, from: Option<(usize, u128)>) {
        if self.nodes[node].site.is_none() {
            return;
        }
        if let Some(tamper) = &mut self.tamper {
            tamper.event(node, &mut event);
        }
        self.log_event(node, &event, from);
        if matches!(event, Event::Tick) {
            self.nodes[node].ticked_ms = self.now_ms;
        }
        let now = self.now_at(node);
        let site = self.nodes[node].site.as_mut().expect("it runs");
        let is_tick = matches!(event, Event::Tick);
        let mut effects = site.handle(now, event);
        if is_tick && self.flood.open.is_some() {
            let vos: Vec<VoId> = self.vos.iter().map(|vo| vo.id).collect();
            let sites: Vec<SiteId> = self.nodes.iter().map(|node| node.id).collect();
            self.flood.add(node, &mut effects, &vos, &sites);
        }
        self.carry_out_all(node, effects);
    }

    pub(super) fn carry_out_all(&mut self, node: usize, mut effects: Vec<Effect>) {
        if let Some(tamper) = &mut self.tamper {
            tamper.effects(node, &mut effects);
        }
        for effect in effects {
            match &mut self.nodes[node].crash_after {
                Some(0) => {
                    self.crash_at(node, effect);
                    break;
                }
                Some(left) => *left -= 1,
                None => {}
            }
            self.carry_out(node, effect);
            if self.nodes[node].site.is_none() {
                break;
            }
        }
        self.judging = None;
        self.set_wakeup(node);
    }

    fn carry_out(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Persist(writes) => self.persist(node, writes),
            // In a driver's own time, which no run is long enough for.
            Effect::ForgetMarks { .. } => {}
            Effect::Push { vo, bytes } => self.push(node, vo, &bytes),
            Effect::Judge { token, verdict } => self.judge(node, token, verdict),
            Effect::Ask { to, id, bytes } => self.ask(node, to, id, &bytes),
            Effect::Answer { channel, bytes } => {
                if let Some(asker) = self.nodes[node].channels.remove(&channel) {
                    let (id, life) = (asker.id, asker.life);
                    let payload = Payload::new(&bytes);
                    self.send(node, asker.node, Content::Answer { id, life }, &payload);
                }
            }
            Effect::Reply { ticket, reply } => self.nodes[node].reply(ticket, reply),
            Effect::Allow { sites, .. } => {
                let index_of = &self.index_of;
                let sites = sites.iter().filter_map(|site| index_of.get(site).copied());
                self.network.allow(node, sites);
            }
            Effect::Subscribe { vo, members } => {
                let members: BTreeSet<usize> = members
                    .iter()
                    .filter_map(|site| self.index_of.get(site).copied())
                    .filter(|member| *member != node)
                    .collect();
                self.network.meshes.subscribe(node, vo, members);
            }
            Effect::Unsubscribe { vo } => self.network.meshes.unsubscribe(node, vo),
            Effect::View(view) => self.nodes[node].view = Some(view),
            Effect::Notice(notice) => self.nodes[node].say(notice),
        }
    }

    /// The process ends while this effect is under way.
    fn crash_at(&mut self, node: usize, effect: Effect) {
        if let Effect::Persist(writes) = effect {
            if self.crashes.below(2) == 0 {
                self.faults.count("lost_write");
            } else {
                self.faults.count("kept_write");
                self.persist(node, writes);
            }
        }
        self.crash(node);
    }

    fn persist(&mut self, node: usize, writes: Vec<Write>) {
        for write in &writes {
            let value = write.value.as_deref().unwrap_or(&[0]);
            for hash in [hash_bytes(&write.key), hash_bytes(value)] {
                self.log.mix(short(hash));
            }
        }
        if self.nodes[node].disk.persist(writes).is_err() {
            self.faults.count("disk_full");
            self.end(node, StopReason::DiskFull);
        }
    }

    fn push(&mut self, node: usize, vo: VoId, bytes: &[u8]) {
        if bytes.len() > PUSH_BYTES_MAX {
            return;
        }
        let payload = Payload::new(bytes);
        let span_ms = self.network.spec.duplicate_cache_ms;
        let topic = self.network.meshes.topic(vo);
        let seen = &mut self.nodes[node].seen;
        if seen.insert(payload.hash, self.now_ms, span_ms) {
            self.pass_on(node, node, topic, &payload);
        }
    }

    fn judge(&mut self, node: usize, token: PushToken, verdict: Verdict) {
        self.nodes[node].judged(verdict);
        let judged = self.judging.take().filter(|push| push.token == token);
        if let Some(push) = judged.filter(|_| verdict == Verdict::Accept) {
            self.pass_on(node, push.from, push.topic, &push.payload);
        }
    }

    /// Sends a push to all neighbours but the one that it came from.
    fn pass_on(&mut self, node: usize, from: usize, topic: usize, payload: &Payload) {
        let network = &mut self.network;
        let neighbours = network.meshes.neighbours(node, topic, &network.sessions);
        let neighbours: Vec<usize> = neighbours.iter().copied().collect();
        for to in neighbours.into_iter().filter(|to| *to != from) {
            self.send(node, to, Content::Push { topic }, payload);
        }
    }

    fn ask(&mut self, node: usize, to: SiteId, id: u64, bytes: &[u8]) {
        let life = self.nodes[node].life;
        let failed = Queued::Failed { node, id, life };
        let Some(to) = self.index_of(to) else {
            return;
        };
        self.nodes[node].asks.insert(id, to);
        let is_sent = self.send(node, to, Content::Ask { id, life }, &Payload::new(bytes));
        let wait_ms = if is_sent {
            self.network.spec.request_timeout_ms
        } else {
            0
        };
        self.queue.push(self.now_ms + wait_ms, failed);
    }

    /// Puts a message on its way; false where there is no session with its receiver.
    fn send(&mut self, from: usize, to: usize, content: Content, payload: &Payload) -> bool {
        let Some(session) = self.network.sessions[from].get(&to).copied() else {
            return false;
        };
        let bytes = payload.bytes.len();
        let flow = flow_of(&mut self.nodes[from].traffic, content);
        flow.sent += 1;
        flow.sent_bytes += bytes as u64;
        let is_reliable = !matches!(content, Content::Push { .. });
        let links = &mut self.network.links;
        let arrivals = links.send(
            (from, to),
            bytes,
            self.now_ms,
            is_reliable,
            &mut self.faults,
        );
        for at in [arrivals.first, arrivals.again].into_iter().flatten() {
            let parcel = Parcel {
                from,
                to,
                session,
                content,
                payload: payload.clone(),
                replay_after: None,
            };
            self.queue.push(at, Queued::Deliver(Box::new(parcel)));
        }
        true
    }

    /// Plans the node's next wake-up, unless an earlier one is planned that will look again.
    pub(super) fn set_wakeup(&mut self, node: usize) {
        let (now, tick_ms) = (self.now(), self.tick.0);
        let place = &mut self.nodes[node];
        let Some(site) = &place.site else { return };
        let wakeup = site.next_wakeup(place.clock.mono(now));
        let due = place.clock.true_time_of(wakeup).0;
        let due = due.max(place.ticked_ms + tick_ms.max(1)).max(self.now_ms);
        place.due_ms = due;
        if place.wake_queued_ms.is_none_or(|queued| due < queued) {
            place.wake_queued_ms = Some(due);
            self.queue.push(due, Queued::Wake { node });
        }
    }

    fn log_event(&mut self, node: usize, event: &Event, from: Option<(usize, u128)>) {
        let (peer, hash) = from.map_or((NOBODY, 0), |(peer, hash)| (number(peer), short(hash)));
        let (kind, bytes) = match event {
            Event::Tick => (StepKind::Tick, 0),
            Event::Connected(_) => (StepKind::Connected, 0),
            Event::Disconnected(_) => (StepKind::Disconnected, 0),
            Event::Pushed { bytes, .. } => (StepKind::Pushed, bytes.len()),
            Event::Asked { bytes, .. } => (StepKind::Asked, bytes.len()),
            Event::Answered {
                bytes: Some(bytes), ..
            } => (StepKind::Answered, bytes.len()),
            Event::Answered { bytes: None, .. } => (StepKind::Failed, 0),
            Event::Report { records, .. } => (StepKind::Report, records.len()),
            Event::Running { jobs, .. } => (StepKind::Running, jobs.len()),
            Event::Correct { correction, .. } => (StepKind::Report, correction.records.len()),
            Event::Publish { bytes, .. } => (StepKind::Publish, bytes.len()),
            Event::Reconfigured(_) => (StepKind::Reconfigured, 0),
            Event::Stopping => (StepKind::Stopping, 0),
        };
        self.log.push(Entry {
            at_ms: self.now_ms,
            kind,
            node: number(node),
            peer,
            bytes: number(bytes),
            hash,
        });
    }

    /// Writes down what no site is told.
    pub(super) fn log_fact(&mut self, node: usize, kind: StepKind) {
        self.log.push(Entry {
            at_ms: self.now_ms,
            kind,
            node: number(node),
            peer: NOBODY,
            bytes: 0,
            hash: 0,
        });
    }
}

pub(super) fn flow_of(traffic: &mut Traffic, content: Content) -> &mut Flow {
    match content {
        Content::Push { .. } => &mut traffic.push,
        Content::Ask { .. } => &mut traffic.ask,
        Content::Answer { .. } => &mut traffic.answer,
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NOBODY)
}

/// Half of a hash: enough for the log.
fn short(hash: u128) -> u64 {
    u64::try_from(hash >> 64).expect("64 bits are left")
}
