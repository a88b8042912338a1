//! One event at a time.
//!
//! Invariant: a step touches one node, except for actions that concern the network as a whole; so a
//! checker that looks at the step's node after each step misses nothing. What has become pointless
//! by the time it is due is no step.
//!
//! Deliberately not here: the checkers.

use fairmesh_model::{Millis, MonoTime};
use fairmesh_site::{Done, Event};

use super::effects::flow_of;
use super::{Action, Queued, World};
use crate::event_log::StepKind;
use crate::network::{Content, Parcel, Payload};
use crate::node::{Asker, Judging};

/// How often a message that is stuck at a cut tries again, within its session.
const RETRY_MS: u64 = 1_000;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepInfo {
    /// When.
    pub at: MonoTime,
    /// The number of the step; the first is 1.
    pub number: u64,
    /// At which node; `None` where it concerned more than one.
    pub node: Option<usize>,
    /// What.
    pub kind: StepKind,
}

impl World {
    /// Takes one step; `None` where nothing will ever happen again.
    pub fn step(&mut self) -> Option<StepInfo> {
        self.step_until(MonoTime(u64::MAX))
    }

    /// Takes one step, if one is due by `end`. Time does not pass otherwise.
    pub fn step_until(&mut self, end: MonoTime) -> Option<StepInfo> {
        loop {
            self.settle_network();
            if self.queue.next_at()? > end.0 {
                return None;
            }
            let (at_ms, queued) = self.queue.pop()?;
            self.now_ms = self.now_ms.max(at_ms);
            if let Some((node, kind)) = self.dispatch(queued) {
                self.steps += 1;
                return Some(StepInfo {
                    at: self.now(),
                    number: self.steps,
                    node,
                    kind,
                });
            }
        }
    }

    /// Lets everything happen up to a true time.
    pub fn run_until(&mut self, time: MonoTime) {
        while self.step_until(time).is_some() {}
        self.now_ms = self.now_ms.max(time.0);
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Millis) {
        self.run_until(self.now().after(time));
    }

    /// Runs until all agree on all VOs, looking every `every`; false where `limit` passes first.
    pub fn run_until_quiet(&mut self, every: Millis, limit: Millis) -> bool {
        let end = self.now().after(limit);
        while !self.is_quiet() {
            if self.now() >= end {
                return false;
            }
            self.run_for(every);
        }
        true
    }

    fn settle_network(&mut self) {
        let nodes = &self.nodes;
        let changes = self.network.settle(|node| nodes[node].is_up());
        for change in changes {
            let (node, peer) = (change.node, change.peer);
            let looks = Queued::Session { node, peer };
            self.queue.push(self.now_ms + change.in_ms, looks);
        }
    }

    fn dispatch(&mut self, queued: Queued) -> Option<(Option<usize>, StepKind)> {
        match queued {
            Queued::Wake { node } => self.wake(node),
            Queued::Round { node } => self.flush(node).map(|kind| (Some(node), kind)),
            Queued::Deliver(parcel) => self.deliver(*parcel),
            Queued::Session { node, peer } => self.look_at_session(node, peer),
            Queued::Failed { node, id, life } => self.fail(node, id, life),
            Queued::Done { node, life, done } => self.hand_back(node, life, *done),
            Queued::Action(action) => Some(self.act(*action)),
        }
    }

    fn act(&mut self, action: Action) -> (Option<usize>, StepKind) {
        let node = match action.nodes() {
            [node] => Some(*node),
            _ => None,
        };
        self.log_fact(node.unwrap_or(usize::MAX), StepKind::Action);
        // What was not taken is seen in what nodes hold.
        let _ = self.apply(&action);
        (node, StepKind::Action)
    }

    fn wake(&mut self, node: usize) -> Option<(Option<usize>, StepKind)> {
        let place = &mut self.nodes[node];
        if place.wake_queued_ms != Some(self.now_ms) {
            // An earlier one was planned later, and has planned the next.
            return None;
        }
        place.wake_queued_ms = None;
        place.site.as_ref()?;
        if place.due_ms > self.now_ms {
            place.wake_queued_ms = Some(place.due_ms);
            self.queue.push(place.due_ms, Queued::Wake { node });
            return None;
        }
        let kind = self.arrive(node, Event::Tick, None)?;
        Some((Some(node), kind))
    }

    fn hand_back(
        &mut self,
        node: usize,
        life: u32,
        done: Done,
    ) -> Option<(Option<usize>, StepKind)> {
        let place = &self.nodes[node];
        if !place.is_up() || place.life != life {
            return None;
        }
        let kind = self.arrive(node, Event::Done(done), None)?;
        Some((Some(node), kind))
    }

    fn look_at_session(&mut self, node: usize, peer: usize) -> Option<(Option<usize>, StepKind)> {
        self.nodes[node].site()?;
        let current = self.network.sessions[node].get(&peer).copied();
        let wanted = self.network.wanted(node, peer);
        if current == wanted {
            return None;
        }
        let peer_id = self.nodes[peer].id;
        if let (None, Some(session)) = (current, wanted) {
            self.network.sessions[node].insert(peer, session);
            let network = &mut self.network;
            network.meshes.connected(node, peer, &network.sessions);
            let kind = self.arrive(node, Event::Connected(peer_id), Some((peer, 0)))?;
            return Some((Some(node), kind));
        }
        self.network.sessions[node].remove(&peer);
        self.network.meshes.disconnected(node, peer);
        let life = self.nodes[node].life;
        let lost = self.nodes[node].asks.iter().filter(|(_, to)| **to == peer);
        for id in lost.map(|(id, _)| *id) {
            let failed = Queued::Failed { node, id, life };
            self.queue.push(self.now_ms, failed);
        }
        if wanted.is_some() {
            let again = Queued::Session { node, peer };
            self.queue.push(self.now_ms, again);
        }
        let kind = self.arrive(node, Event::Disconnected(peer_id), Some((peer, 0)))?;
        Some((Some(node), kind))
    }

    fn fail(&mut self, node: usize, id: u64, life: u32) -> Option<(Option<usize>, StepKind)> {
        if self.nodes[node].life != life {
            return None;
        }
        let peer = self.nodes[node].asks.remove(&id)?;
        let from = self.nodes[peer].id;
        let bytes = None;
        let kind = self.arrive(node, Event::Answered { from, id, bytes }, Some((peer, 0)))?;
        Some((Some(node), kind))
    }

    /// How many stores were lost, or replaced by older ones.
    fn store_losses(&self) -> u64 {
        let kinds = ["wipe", "restore_backup", "store_set_aside"];
        kinds.iter().map(|kind| self.faults.of(kind)).sum()
    }

    fn deliver(&mut self, parcel: Parcel) -> Option<(Option<usize>, StepKind)> {
        let (from, to) = (parcel.from, parcel.to);
        self.nodes[to].site()?;
        if let Some(losses) = parcel.replay_after {
            // What a store had said before it was lost may count twice if it is heard later
            // (docs/counting.md, "What cannot be known").
            if losses != self.store_losses() {
                return None;
            }
            self.faults.count("replay");
        } else {
            if self.network.sessions[to].get(&from) != Some(&parcel.session) {
                return None;
            }
            if !self.network.rules.reaches(from, to) {
                if matches!(parcel.content, Content::Ask { .. } | Content::Answer { .. }) {
                    let at = self.now_ms + RETRY_MS;
                    self.queue.push(at, Queued::Deliver(Box::new(parcel)));
                }
                return None;
            }
            if parcel.content == Content::DontWant {
                self.take_control(&parcel);
                return None;
            }
            if let Some(at) = self.network.links.replay(from, to, self.now_ms) {
                let again = Parcel {
                    replay_after: Some(self.store_losses()),
                    ..parcel.clone()
                };
                self.queue.push(at, Queued::Deliver(Box::new(again)));
            }
        }
        let flow = flow_of(&mut self.nodes[to].traffic, parcel.content);
        flow.take(parcel.content, parcel.payload.bytes.len());
        let kind = self.receive(parcel)?;
        Some((Some(to), kind))
    }

    /// A push becomes an event where it comes for the first time.
    pub(super) fn receive_push(
        &mut self,
        from: usize,
        to: usize,
        topic: usize,
        payload: Payload,
    ) -> Option<StepKind> {
        let span_ms = self.network.spec.duplicate_cache_ms;
        if !self.network.meshes.is_subscribed(to, topic) {
            return None;
        }
        let place = &mut self.nodes[to];
        if !place.seen.insert(payload.hash, self.now_ms, span_ms) {
            place.verdicts.duplicates += 1;
            return None;
        }
        self.announce(to, from, topic, &payload);
        let token = self.number();
        let event = Event::Pushed {
            from: self.nodes[from].id,
            vo: self.network.meshes.vo(topic),
            bytes: payload.bytes.to_vec(),
            token,
        };
        let origin = Some((from, payload.hash));
        let judging = Judging {
            from,
            topic,
            payload,
        };
        self.nodes[to].judging.insert(token, judging);
        self.arrive(to, event, origin)
    }

    /// What has arrived becomes an event, unless it means nothing any more.
    fn receive(&mut self, parcel: Parcel) -> Option<StepKind> {
        let Parcel {
            from, to, payload, ..
        } = parcel;
        let sender = self.nodes[from].id;
        let bytes = &payload.bytes;
        let origin = Some((from, payload.hash));
        match parcel.content {
            Content::Push { topic } => self.receive_push(from, to, topic, payload),
            Content::Ask { id, life } => {
                let channel = self.number();
                let asker = Asker {
                    node: from,
                    id,
                    life,
                };
                self.nodes[to].channels.insert(channel, asker);
                let event = Event::Requested {
                    from: sender,
                    bytes: bytes.to_vec(),
                    channel,
                };
                self.arrive(to, event, origin)
            }
            Content::DontWant => None,
            Content::Answer { id, life } => {
                let place = &mut self.nodes[to];
                let is_awaited = place.life == life && place.asks.get(&id) == Some(&from);
                if !is_awaited && parcel.replay_after.is_none() {
                    return None;
                }
                if is_awaited {
                    place.asks.remove(&id);
                }
                let event = Event::Answered {
                    from: sender,
                    id,
                    bytes: Some(bytes.to_vec()),
                };
                self.arrive(to, event, origin)
            }
        }
    }
}
