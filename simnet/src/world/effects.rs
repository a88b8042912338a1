//! Doing what a site wants done, effect by effect.
//!
//! Invariant: what is sent leaves within a session, and is counted where it leaves. Deliberately not
//! here: what comes before the effects of a round (`round`).

use std::collections::BTreeSet;

use fairmesh_model::{SiteId, VoId};
use fairmesh_site::{Effect, PushToken, Verdict, Work};

use super::{Queued, World};
use crate::event_log::{Entry, NOBODY, StepKind, number};
use crate::network::{Content, PUSH_BYTES_MAX, Parcel, Payload, wire_length};
use crate::node::{Flow, Traffic};

/// The longest that work takes: longer than a tick and shorter than anybody waits for.
const WORK_MS_MAX: u64 = 2_000;

impl World {
    pub(super) fn carry_out(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Persist(_) => unreachable!("has become operations"),
            Effect::ForgetMarks { before, .. } => self.nodes[node].disk.forget_marks(before),
            Effect::Push { vo, bytes } => self.push(node, vo, &bytes),
            Effect::ReportValidation { token, verdict } => self.judge(node, token, verdict),
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
            Effect::Work(work) => self.work(node, work),
            Effect::View(view) => self.nodes[node].view = Some(view),
            Effect::Notice(notice) => self.nodes[node].say(notice),
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
            self.push_own(node, topic, &payload);
        }
    }

    fn judge(&mut self, node: usize, token: PushToken, verdict: Verdict) {
        self.nodes[node].judged(verdict);
        let judged = self.nodes[node].judging.remove(&token);
        if let Some(push) = judged.filter(|_| verdict == Verdict::Accept) {
            self.pass_on(node, push.from, push.topic, &push.payload);
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

    /// Runs what a site has handed out, and hands it back at once or later.
    fn work(&mut self, node: usize, work: Work) {
        let takes_ms = match self.works.below(2) {
            0 => 0,
            _ => self.works.between(1, WORK_MS_MAX),
        };
        let (life, done) = (self.nodes[node].life, Box::new(work.run()));
        let done = Queued::Done { node, life, done };
        self.queue.push(self.now_ms + takes_ms, done);
    }

    /// Puts a message on its way; false where there is no session with its receiver.
    pub(super) fn send(
        &mut self,
        from: usize,
        to: usize,
        content: Content,
        payload: &Payload,
    ) -> bool {
        let Some(session) = self.network.sessions[from].get(&to).copied() else {
            return false;
        };
        let bytes = payload.bytes.len();
        flow_of(&mut self.nodes[from].traffic, content).send(content, bytes);
        let is_reliable = matches!(content, Content::Ask { .. } | Content::Answer { .. });
        let links = &mut self.network.links;
        let arrivals = links.send(
            (from, to),
            wire_length(content, bytes),
            self.now_ms,
            is_reliable,
            &mut |word| self.faults.count(word),
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
        Content::DontWant => &mut traffic.control,
    }
}
