//! What sites really do, as it is seen between them and the world.
//!
//! Invariant: a watch changes nothing but the bytes that its garbage option breaks on purpose; a
//! layer below it that lies comes first, so that what is noted is what then happens.
//!
//! Deliberately not here: judging what was seen (the invariants).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use fairmesh_cluster::Stream;
use fairmesh_gossip::Head;
use fairmesh_gossip::wire::{Probe, Push, Request, Response, Summary};
use fairmesh_model::{
    Charter, ContentHash, Incarnation, JobKey, SharePolicy, Signed, SiteId, VoId, WallTime,
};
use fairmesh_site::{Advert, Effect, Event, HeadId, JobMark, Site, Table, Write, read_advert};

use crate::vo::Vo;
use crate::world::{RestartPlan, Tamper};

/// The kind of parts that hold adverts.
const ADVERT: u8 = 6;

/// A head that a site stores or pushes: its own, which it has just signed, or another's.
#[derive(Debug, Clone)]
pub struct HeadSeen {
    /// Who stores or pushes it.
    pub node: usize,
    /// What it says.
    pub head: Head,
    /// Hash of what was signed.
    pub hash: ContentHash,
    /// Whether its own site has it here.
    pub own: bool,
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

/// Documents, heads or parts of a VO that a node has answered with.
#[derive(Debug, Clone, Copy)]
pub struct ServedSeen {
    /// Who answers.
    pub node: usize,
    /// Of which VO.
    pub vo: VoId,
    /// Whom.
    pub to: SiteId,
    /// Whether it may have this answer: the newest charter that the node held then lists it, or the VO that it asked
    /// about as a reader; or an earlier charter lists it, and the answer has charters only.
    pub is_member: bool,
}

/// What a site says of its free CPUs in a head that it signs.
#[derive(Debug, Clone)]
pub struct AdvertSeen {
    /// Who.
    pub node: usize,
    /// When the head was signed, by its clock.
    pub signed: WallTime,
    /// What it says.
    pub advert: Advert,
}

/// What was seen since the last step.
#[derive(Debug, Default)]
pub struct Facts {
    /// Adverts in heads that their own nodes have signed, in order.
    pub adverts: Vec<AdvertSeen>,
    /// Heads, in order.
    pub heads: Vec<HeadSeen>,
    /// Probes, in order.
    pub probes: Vec<ProbeSeen>,
    /// Answers about VOs, in order.
    pub served: Vec<ServedSeen>,
    /// Nodes that have asked a peer for something.
    pub asked: Vec<usize>,
    /// Nodes that have asked a peer again and again: the peer has said nothing for so many answers but
    /// that it is to be asked in full.
    pub in_vain: Vec<(usize, SiteId, u32)>,
    /// Jobs that a healed site still refuses although it is known what they cost.
    pub untaken: Vec<(usize, String)>,
    /// Messages that were broken on their way.
    pub garbage: u64,
    /// Whether nothing is broken any more.
    pub is_calm: bool,
    /// Whether liars are silent: a while after the heal.
    pub is_still: bool,
    /// Liars that have lied so far, so that others could read it.
    pub lied: BTreeSet<usize>,
    /// Nodes that have taken from a push what it should not unpack to.
    pub unpacked: BTreeSet<usize>,
}

impl Facts {
    /// What was seen of other nodes than this, which is not judged.
    pub(crate) fn of_others(mut self, node: usize) -> Self {
        self.heads.retain(|seen| seen.node != node);
        self.probes.retain(|seen| seen.node != node);
        self.adverts.retain(|seen| seen.node != node);
        self.served.retain(|seen| seen.node != node);
        self.in_vain.retain(|(asker, ..)| *asker != node);
        self.asked.retain(|asker| *asker != node);
        self.untaken.retain(|(of, _)| *of != node);
        self.garbage = 0;
        self
    }

    /// What stays when what was seen has been judged.
    pub(crate) fn behind(&self) -> Self {
        Self {
            is_calm: self.is_calm,
            is_still: self.is_still,
            lied: self.lied.clone(),
            ..Self::default()
        }
    }
}

/// Facts, shared with whoever judges them.
pub type SharedFacts = Rc<RefCell<Facts>>;

/// The layer itself.
pub struct Watch {
    facts: SharedFacts,
    inner: Option<Box<dyn Tamper>>,
    garbage: Option<(Stream, u64)>,
    node_of: HashMap<SiteId, usize>,
    /// The request of a peer that a node handles now.
    asked: Option<PendingRequest>,
    /// How often in a row a peer has told a node to ask in full, and nothing else.
    in_vain: HashMap<(usize, SiteId), u32>,
    /// The last head of each incarnation that each node has of itself, of each VO: the next one is told in
    /// terms of it.
    last: HashMap<(usize, VoId), BTreeMap<Incarnation, Signed<Head>>>,
    /// What each node's own heads say of free CPUs.
    adverts: HashMap<HeadId, Advert>,
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
            asked: None,
            in_vain: HashMap::new(),
            last: HashMap::new(),
            adverts: HashMap::new(),
        }
    }

    fn note_writes(&mut self, node: usize, writes: &[Write]) {
        self.note_adverts(node, writes);
        let heads = writes.iter().filter(|write| write.table == Table::Heads);
        for bytes in heads.filter_map(|write| write.value.as_ref()) {
            if let Ok(signed) = Signed::parse(bytes) {
                self.note_head(node, signed);
            }
        }
    }

    /// An advert that has not changed is not written again with the next head.
    fn note_adverts(&mut self, node: usize, writes: &[Write]) {
        let own = |write: &Write| {
            let (id, part) = HeadId::of_key(&write.key)?;
            (self.node_of.get(&id.site) == Some(&node)).then(|| (id, part.first().copied()))
        };
        let own = writes.iter().filter_map(|write| Some((write, own(write)?)));
        let mut signed = Vec::new();
        for (write, (id, kind)) in own {
            match (write.table, kind, write.value.as_deref()) {
                (Table::Parts, Some(ADVERT), Some(bytes)) => {
                    let advert = read_advert(bytes).expect("the site has written it");
                    self.adverts.insert(id, advert);
                }
                (Table::Parts, Some(ADVERT), None) => drop(self.adverts.remove(&id)),
                (Table::Heads, None, Some(head)) => signed.push((id, head)),
                _ => {}
            }
        }
        let seen = signed.into_iter().filter_map(|(id, head)| {
            let head = Signed::<Head>::parse(head).ok()?;
            Some(AdvertSeen {
                node,
                signed: head.claimed().at,
                advert: self.adverts.get(&id)?.clone(),
            })
        });
        self.facts.borrow_mut().adverts.extend(seen);
    }

    fn note_head(&mut self, node: usize, signed: Signed<Head>) {
        let head = signed.claimed().clone();
        let own = self.node_of.get(&head.site) == Some(&node);
        let hash = signed.hash();
        let seen = HeadSeen {
            node,
            head,
            hash,
            own,
        };
        self.facts.borrow_mut().heads.push(seen);
        if own {
            let incarnation = signed.claimed().incarnation;
            let last = self.last.entry((node, signed.vo())).or_default();
            last.insert(incarnation, signed);
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

    fn note_served(&self, node: usize, bytes: &[u8]) {
        let Some(asked) = self.asked.as_ref().filter(|asked| asked.node == node) else {
            return;
        };
        let is_refused = bytes.len() < PROBE_BYTES_MAX
            && matches!(Response::from_bytes(bytes), Ok(Response::Refused(_)));
        if is_refused {
            return;
        }
        let lists = |charter: &Charter| charter.member(asked.from).is_some();
        let is_member = asked.is_listed
            || asked.newest(asked.vo).is_some_and(lists)
            || (has_only_charters(bytes, asked.vo) && asked.charters(asked.vo).any(lists));
        asked.note(&self.facts, asked.vo, is_member);
        if asked.reads {
            self.note_read(asked, bytes);
        }
    }

    /// Documents of another VO in an answer about one that mounts its policy.
    fn note_read(&self, asked: &PendingRequest, bytes: &[u8]) {
        let Ok(Response::Pull(answer)) = Response::from_bytes(bytes) else {
            return;
        };
        for document in &answer.documents {
            let charter = Signed::<Charter>::parse(document).map(|signed| signed.vo());
            let policy = Signed::<SharePolicy>::parse(document).map(|signed| signed.vo());
            let is_charter = charter.is_ok();
            let Some(vo) = charter.or(policy).ok().filter(|vo| *vo != asked.vo) else {
                continue;
            };
            let lists = |charter: &Charter| charter.readers.contains(&asked.vo);
            // A reader that is one no more has to learn it from the charter that says so.
            let is_reader = match is_charter {
                true => asked.charters(vo).any(lists),
                false => asked.newest(vo).is_some_and(lists),
            };
            asked.note(&self.facts, vo, is_reader);
        }
    }

    /// A peer says something to a node.
    fn note_word(&mut self, node: usize, event: &Event) {
        let (from, answer) = match event {
            Event::Answered { from, bytes, .. } => (*from, bytes.as_deref()),
            Event::Pushed { from, .. } | Event::Requested { from, .. } => (*from, None),
            _ => return,
        };
        let short = answer.filter(|bytes| bytes.len() < IN_FULL_BYTES_MAX);
        let is_in_full = short.is_some_and(|bytes| {
            matches!(Response::from_bytes(bytes), Ok(Response::Pull(answer)) if answer.need_full)
        });
        if is_in_full {
            let times = self.in_vain.entry((node, from)).or_default();
            *times += 1;
            self.facts.borrow_mut().in_vain.push((node, from, *times));
        } else {
            self.in_vain.remove(&(node, from));
        }
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

/// A peer's request for something of a VO, with the charters by which the node answers it: in the same step it may
/// adopt others, after its answer.
struct PendingRequest {
    node: usize,
    from: SiteId,
    vo: VoId,
    /// Whether the last charter that was signed lists the peer.
    is_listed: bool,
    /// Whether the VO mounts policies of others.
    reads: bool,
    /// The charters that the node holds, by VO, where the answer may depend on them.
    charters: BTreeMap<VoId, Vec<Charter>>,
}

impl PendingRequest {
    fn from_event(node: usize, event: &Event, site: &Site, vos: &[Vo]) -> Option<Self> {
        let Event::Requested { from, bytes, .. } = event else {
            return None;
        };
        let (vo, gets_documents) = match Request::from_bytes(bytes).ok()? {
            Request::Probe(_) => return None,
            Request::Pull(pull) => (pull.vo, pull.documents.is_some()),
            Request::Parts { vo, .. } => (vo, false),
        };
        let last = vos.iter().find(|held| held.id == vo);
        let is_listed = last.is_some_and(|vo| vo.charter.claimed().member(*from).is_some());
        let reads = gets_documents && last.is_some_and(|vo| vo.spec.mounts.is_some());
        // Almost always the last charter lists the peer, and no VO mounts another's policy.
        let needed = vos.iter().map(|held| held.id);
        let needed = needed.filter(|held| if *held == vo { !is_listed } else { reads });
        Some(Self {
            node,
            from: *from,
            vo,
            is_listed,
            reads,
            charters: needed
                .map(|vo| (vo, charters(site, vo).collect()))
                .collect(),
        })
    }

    fn charters(&self, vo: VoId) -> impl Iterator<Item = &Charter> {
        self.charters.get(&vo).into_iter().flatten()
    }

    fn newest(&self, vo: VoId) -> Option<&Charter> {
        self.charters(vo).max_by_key(|charter| charter.version)
    }

    fn note(&self, facts: &SharedFacts, vo: VoId, is_member: bool) {
        facts.borrow_mut().served.push(ServedSeen {
            node: self.node,
            vo,
            to: self.from,
            is_member,
        });
    }
}

impl Tamper for Watch {
    fn event(&mut self, node: usize, event: &mut Event) {
        if let Event::Pushed { bytes, .. }
        | Event::Requested { bytes, .. }
        | Event::Answered {
            bytes: Some(bytes), ..
        } = event
        {
            self.break_bytes(bytes);
        }
        if let Some(inner) = &mut self.inner {
            inner.event(node, event);
        }
        self.note_word(node, event);
    }

    fn handles(&mut self, node: usize, event: &Event, site: &Site, vos: &[Vo]) {
        self.asked = PendingRequest::from_event(node, event, site, vos);
    }

    fn effects(&mut self, node: usize, effects: &mut Vec<Effect>) {
        if let Some(inner) = &mut self.inner {
            inner.effects(node, effects);
        }
        for effect in effects.iter() {
            match effect {
                Effect::Persist(writes) => self.note_writes(node, writes),
                Effect::Push { vo, bytes } => {
                    let push = Push::from_bytes(bytes).ok();
                    let head = push.and_then(|push| {
                        let last = self.last.get(&(node, *vo)).into_iter();
                        let mut last = last.flat_map(BTreeMap::values).map(Some).chain([None]);
                        last.find_map(|last| push.head(last))
                    });
                    if let Some(head) = head {
                        self.note_head(node, head);
                    }
                }
                Effect::Ask { bytes, .. } => {
                    let request = Request::from_bytes(bytes);
                    self.facts
                        .borrow_mut()
                        .asked
                        .extend(request.is_ok().then_some(node));
                    if let Ok(Request::Probe(probe)) = request {
                        self.note_probe(node, &probe);
                    }
                }
                Effect::Answer { bytes, .. } => {
                    self.note_served(node, bytes);
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

/// The charters of a VO that a site holds, as a member or a reader.
fn charters(site: &Site, vo: VoId) -> impl Iterator<Item = Charter> {
    let read = site.read_documents().filter(move |(of, _)| *of == vo);
    let documents = site
        .documents(vo)
        .into_iter()
        .chain(read.map(|(_, bytes)| bytes));
    let charters = documents.filter_map(|bytes| Signed::<Charter>::parse(&bytes).ok());
    charters.map(|charter| charter.claimed().clone())
}

/// Whether an answer has nothing but charters of a VO.
fn has_only_charters(answer: &[u8], vo: VoId) -> bool {
    let Ok(Response::Pull(answer)) = Response::from_bytes(answer) else {
        return false;
    };
    let is_charter = |bytes: &[u8]| Signed::<Charter>::parse(bytes).is_ok_and(|of| of.vo() == vo);
    answer.heads.is_empty()
        && answer.proofs.is_empty()
        && answer.documents.iter().all(|bytes| is_charter(bytes))
}

/// An answer that says nothing but that it is to be asked in full is shorter.
const IN_FULL_BYTES_MAX: usize = 64;

/// Longest answer that is looked at: a probe of a few VOs is shorter, and longer ones are pulls.
const PROBE_BYTES_MAX: usize = 4_096;
