//! Sites, the network between them, and time: all in memory, all decided by one seed.
//!
//! Invariant: effects are carried out in their order, as a driver does; what the network loses,
//! repeats, delays or reorders is decided by the dice alone.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_gossip::wire::Response;
use fairmesh_model::{Charter, Millis, MonoTime, Now, Signed, SiteId, UsageRecord, VoId};
use fairmesh_site::{Done, Effect, Event, Notice, Reply, Reported, SiteConfig, Timing};

use crate::liar::Liar;
use crate::node::{Node, Rows};
use crate::random::Dice;
use crate::vo::{self, START};

/// What the network does to a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    pub(crate) lost_percent: u64,
    pub(crate) repeated_percent: u64,
    pub(crate) delay_ms_max: u64,
}

pub(crate) const CALM: Faults = Faults {
    lost_percent: 0,
    repeated_percent: 0,
    delay_ms_max: 20,
};
pub(crate) const ROUGH: Faults = Faults {
    lost_percent: 25,
    repeated_percent: 15,
    delay_ms_max: 4_000,
};

#[derive(Debug, Clone)]
enum Parcel {
    Push(VoId, Vec<u8>),
    Ask(u64, Vec<u8>),
    Answer(u64, Vec<u8>),
}

/// The whole Grid.
pub(crate) struct Mesh {
    pub(crate) nodes: Vec<Node>,
    pub(crate) dice: Dice,
    pub(crate) faults: Faults,
    pub(crate) vo: VoId,
    pub(crate) charter: Signed<Charter>,
    pub(crate) elapsed_ms: u64,
    /// Members that run no node and answer with lies.
    pub(crate) liars: BTreeMap<SiteId, Liar>,
    /// Shortest time between two ticks of one node: long stories need not look every second.
    pub(crate) tick_ms: u64,
    side: Vec<usize>,
    wire: BTreeMap<(u64, u64), (usize, usize, Parcel)>,
    asked: BTreeMap<u64, (usize, u64)>,
    numbers: u64,
    /// How long work takes that a site hands out.
    pub(crate) work_ms: u64,
    /// Whether answers come without the documents in them.
    pub(crate) loses_documents: bool,
}

impl Mesh {
    /// `sites` members of one VO, all connected; the documents were handed in at the first one.
    pub(crate) fn found(seed: u64, sites: usize) -> Self {
        Self::found_with(seed, sites, vo::timing(), |_| {})
    }

    pub(crate) fn found_with(
        seed: u64,
        sites: usize,
        timing: Timing,
        change: impl FnOnce(&mut Charter),
    ) -> Self {
        let mut charter = vo::charter("grid", sites);
        change(&mut charter);
        let charter = vo::sign_charter(charter);
        let vo = charter.vo();
        let mut mesh = Self {
            nodes: Vec::new(),
            dice: Dice::new(seed),
            faults: CALM,
            vo,
            charter: charter.clone(),
            elapsed_ms: 0,
            liars: BTreeMap::new(),
            tick_ms: 1,
            side: Vec::new(),
            wire: BTreeMap::new(),
            asked: BTreeMap::new(),
            numbers: 0,
            work_ms: 0,
            loses_documents: false,
        };
        for index in 0..sites {
            let config = mesh.config(timing);
            mesh.add(index, config);
        }
        assert!(mesh.publish(0, charter.bytes()).is_ok());
        assert!(
            mesh.publish(0, &vo::sign_policy(vo::policy(vo, 1, 50)))
                .is_ok()
        );
        mesh.connect_all();
        mesh.run(Millis(10_000.max(timing.sync.0 * 2)));
        mesh
    }

    /// The usual configuration: everybody may introduce everybody.
    pub(crate) fn config(&self, timing: Timing) -> SiteConfig {
        let introducers: BTreeSet<SiteId> = (0..16).map(vo::site_id).collect();
        vo::config(&[("grid", self.vo)], introducers, timing)
    }

    pub(crate) fn add(&mut self, index: usize, config: SiteConfig) {
        assert_eq!(index, self.nodes.len());
        let now = self.now_of(0);
        self.nodes.push(Node::new(index, config, START.0, now));
        self.side.push(0);
    }

    fn now_of(&self, ahead_ms: u64) -> Now {
        Now {
            mono: MonoTime(self.elapsed_ms),
            wall: START.after(Millis(self.elapsed_ms + ahead_ms)),
        }
    }

    /// The time at a node.
    pub(crate) fn now(&self, node: usize) -> Now {
        self.now_of(self.nodes[node].ahead_ms)
    }

    /// Hands an event to a node and carries out what follows.
    pub(crate) fn handle(&mut self, node: usize, event: Event) {
        if !self.nodes[node].up {
            return;
        }
        let now = self.now(node);
        let effects = self.nodes[node].site.handle(now, event);
        for effect in effects {
            match &mut self.nodes[node].crash_after {
                Some(0) => {
                    self.stop(node);
                    return;
                }
                Some(left) => *left -= 1,
                None => {}
            }
            self.carry_out(node, effect);
        }
    }

    /// Has a site finish what it does at once, some at a time.
    pub(crate) fn settle(&mut self, node: usize) {
        let now = MonoTime(self.elapsed_ms);
        while self.nodes[node].site.next_wakeup(now) <= now {
            self.handle(node, Event::Tick);
            self.hand_back();
        }
    }

    pub(crate) fn carry_out(&mut self, node: usize, effect: Effect) {
        let place = &mut self.nodes[node];
        match effect {
            Effect::Persist(writes) => place.persist(writes),
            Effect::Push { vo, bytes } => {
                place.sent.push(bytes.clone());
                let others: Vec<usize> = (0..self.nodes.len()).filter(|to| *to != node).collect();
                for to in others {
                    if self.nodes[to].subscribed.contains(&vo) {
                        self.send(node, to, Parcel::Push(vo, bytes.clone()));
                    }
                }
            }
            Effect::ReportValidation { verdict, .. } => place.verdicts.push(verdict),
            Effect::Ask { to, id, bytes } => {
                place.sent.push(bytes.clone());
                if let Some(liar) = self.liars.get(&to) {
                    let bytes = Some(liar.respond(&bytes));
                    return self.handle(
                        node,
                        Event::Answered {
                            from: to,
                            id,
                            bytes,
                        },
                    );
                }
                let to = self.index_of(to);
                self.send(node, to, Parcel::Ask(id, bytes));
            }
            Effect::Answer { channel, bytes } => {
                place.sent.push(bytes.clone());
                if let Some((to, id)) = self.asked.remove(&channel) {
                    self.send(node, to, Parcel::Answer(id, bytes));
                }
            }
            Effect::Reply { reply, .. } => place.replies.push(reply),
            Effect::Subscribe { vo, .. } => {
                place.subscribed.insert(vo);
            }
            Effect::Unsubscribe { vo } => {
                place.subscribed.remove(&vo);
            }
            Effect::Notice(notice) => place.notices.push(notice),
            Effect::ForgetMarks { before, .. } => place.forget_before = before,
            Effect::Work(work) => {
                let at = self.elapsed_ms + self.work_ms;
                place.works.push_back((at, work.run()));
            }
            Effect::View(_) => place.views += 1,
            Effect::Allow { .. } => {}
        }
    }

    fn index_of(&self, site: SiteId) -> usize {
        (0..self.nodes.len())
            .find(|index| vo::site_id(*index) == site)
            .expect("a site of the mesh")
    }

    fn send(&mut self, from: usize, to: usize, parcel: Parcel) {
        let copies = if self.dice.percent(self.faults.lost_percent) {
            0
        } else {
            1 + u64::from(self.dice.percent(self.faults.repeated_percent))
        };
        for _ in 0..copies {
            self.numbers += 1;
            let at = self.elapsed_ms + 1 + self.dice.below(self.faults.delay_ms_max);
            self.wire
                .insert((at, self.numbers), (from, to, parcel.clone()));
        }
    }

    fn deliver(&mut self, from: usize, to: usize, parcel: Parcel) {
        let reachable = self.side[from] == self.side[to] && self.nodes[from].up;
        if !reachable || !self.nodes[to].up {
            return;
        }
        let (sender, bytes_of) = (vo::site_id(from), |bytes| Some(bytes));
        match parcel {
            Parcel::Push(vo, bytes) => self.handle(
                to,
                Event::Pushed {
                    from: sender,
                    vo,
                    bytes,
                    token: 0,
                },
            ),
            Parcel::Ask(id, bytes) => {
                self.numbers += 1;
                let channel = self.numbers;
                self.asked.insert(channel, (from, id));
                self.handle(
                    to,
                    Event::Requested {
                        from: sender,
                        bytes,
                        channel,
                    },
                );
            }
            Parcel::Answer(id, mut bytes) => {
                if self.loses_documents {
                    leave_out_documents(&mut bytes);
                }
                self.handle(
                    to,
                    Event::Answered {
                        from: sender,
                        id,
                        bytes: bytes_of(bytes),
                    },
                );
            }
        }
    }

    /// Hands back what is worked out by now at nodes that run.
    fn hand_back(&mut self) {
        for node in 0..self.nodes.len() {
            let now = self.elapsed_ms;
            let is_done = |(at, _): &(u64, Done)| *at <= now;
            while self.nodes[node].works.front().is_some_and(is_done) {
                let (_, done) = self.nodes[node].works.pop_front().expect("it is there");
                self.handle(node, Event::Done(done));
            }
        }
    }

    /// Lets `time` pass: messages arrive, timers fire.
    pub(crate) fn run(&mut self, time: Millis) {
        let end = self.elapsed_ms + time.0;
        loop {
            self.hand_back();
            let message = self.wire.keys().next().copied();
            let timer = (0..self.nodes.len())
                .filter(|node| self.nodes[*node].up)
                .map(|node| (self.wakeup_of(node), node))
                .min();
            let next = message.map(|(at, _)| at).into_iter();
            let next = next.chain(timer.map(|(at, _)| at));
            let works = self.nodes.iter().flat_map(|node| &node.works);
            let next = next.chain(works.map(|(at, _)| *at)).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.elapsed_ms = end;
                return;
            };
            self.elapsed_ms = self.elapsed_ms.max(next);
            if let Some(key) = message.filter(|(at, _)| *at == next) {
                let (from, to, parcel) = self.wire.remove(&key).expect("it was just seen");
                self.deliver(from, to, parcel);
            } else if let Some((_, node)) = timer.filter(|(at, _)| *at <= next) {
                self.nodes[node].ticked_at = self.elapsed_ms;
                self.handle(node, Event::Tick);
            }
        }
    }

    /// Lets everybody look at the clock, and all that is under way arrive.
    pub(crate) fn drain(&mut self) {
        let all_done = self.nodes.iter_mut().flat_map(|node| &mut node.works);
        all_done.for_each(|(at, _)| *at = 0);
        self.hand_back();
        for node in 0..self.nodes.len() {
            (0..8).for_each(|_| self.handle(node, Event::Tick));
        }
        for _ in 0..10_000 {
            let Some(((at, _), (from, to, parcel))) = self.wire.pop_first() else {
                return;
            };
            self.elapsed_ms = self.elapsed_ms.max(at);
            self.deliver(from, to, parcel);
        }
        panic!("the network does not come to rest");
    }

    fn wakeup_of(&self, node: usize) -> u64 {
        let place = &self.nodes[node];
        let wakeup = place.site.next_wakeup(MonoTime(self.elapsed_ms)).0;
        wakeup.max(place.ticked_at + self.tick_ms)
    }

    /// Connects everybody who is up and on one side.
    pub(crate) fn connect_all(&mut self) {
        self.on_pairs(Event::Connected);
    }

    fn on_pairs(&mut self, event: fn(SiteId) -> Event) {
        for a in 0..self.nodes.len() {
            for b in 0..self.nodes.len() {
                let reachable = self.side[a] == self.side[b] && self.nodes[b].up;
                if a != b && reachable {
                    self.handle(a, event(vo::site_id(b)));
                }
            }
        }
    }

    /// Cuts the mesh in two: nodes below `first` on one side, the others on the other.
    pub(crate) fn cut(&mut self, first: usize) {
        self.side = (0..self.nodes.len())
            .map(|node| usize::from(node >= first))
            .collect();
        for a in 0..self.nodes.len() {
            for b in (0..self.nodes.len()).filter(|b| (*b < first) != (a < first)) {
                self.handle(a, Event::Disconnected(vo::site_id(b)));
            }
        }
    }

    /// Heals the network, loss included.
    pub(crate) fn heal(&mut self) {
        let before = std::mem::replace(&mut self.side, vec![0; self.nodes.len()]);
        self.faults = CALM;
        for a in 0..self.nodes.len() {
            for b in (0..self.nodes.len()).filter(|b| before[a] != before[*b]) {
                self.handle(a, Event::Connected(vo::site_id(b)));
            }
        }
    }

    /// The process of a node is gone.
    pub(crate) fn stop(&mut self, node: usize) {
        self.nodes[node].up = false;
        self.nodes[node].works.clear();
        self.nodes[node].crash_after = None;
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.handle(other, Event::Disconnected(vo::site_id(node)));
        }
    }

    /// The node starts again on its store, and everybody connects.
    pub(crate) fn restart(&mut self, node: usize) {
        if self.nodes[node].up {
            self.stop(node);
        }
        self.elapsed_ms += 1;
        let now = self.now(node);
        self.nodes[node].restore(now.wall.0, now);
        self.handle(node, Event::Tick);
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            if self.nodes[other].up && self.side[other] == self.side[node] {
                self.handle(other, Event::Connected(vo::site_id(node)));
                self.handle(node, Event::Connected(vo::site_id(other)));
            }
        }
    }

    /// The node starts again on another store.
    pub(crate) fn restart_on(&mut self, node: usize, rows: Rows) {
        self.stop(node);
        self.nodes[node].rows = rows;
        self.restart(node);
    }

    /// Reports as a feed does; `None` where the node crashed before it answered.
    pub(crate) fn report(&mut self, node: usize, records: &[UsageRecord]) -> Option<Reported> {
        let records = records
            .iter()
            .map(|record| (record.clone(), self.nodes[node].mark(&record.key)))
            .collect();
        self.nodes[node].replies.clear();
        self.handle(node, Event::Report { ticket: 1, records });
        match self.nodes[node].replies.pop()? {
            Reply::Reported(reported) => Some(reported),
            Reply::Published(_) | Reply::Quota(_) | Reply::Advert(_) | Reply::Forward(_) => None,
        }
    }

    /// Hands in a document.
    pub(crate) fn publish(&mut self, node: usize, bytes: &[u8]) -> Result<String, String> {
        let bytes = bytes.to_vec();
        let by = "the owner".to_owned();
        self.handle(
            node,
            Event::Publish {
                ticket: 1,
                bytes,
                by,
            },
        );
        match self.nodes[node].replies.pop() {
            Some(Reply::Published(result)) => result,
            other => Err(format!("{other:?}")),
        }
    }

    /// A lying member can be reached by everybody from now on.
    pub(crate) fn admit(&mut self, index: usize, liar: Liar) {
        let site = vo::site_id(index);
        self.liars.insert(site, liar);
        for node in 0..self.nodes.len() {
            self.handle(node, Event::Connected(site));
        }
    }

    pub(crate) fn noticed(&self, node: usize, wanted: impl Fn(&Notice) -> bool) -> bool {
        self.nodes[node].notices.iter().any(wanted)
    }
}

fn leave_out_documents(bytes: &mut Vec<u8>) {
    if let Ok(Response::Pull(mut answer)) = Response::from_bytes(bytes) {
        answer.documents.clear();
        *bytes = Response::Pull(answer).to_bytes();
    }
}
