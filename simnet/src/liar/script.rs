//! What liars do to their messages.
//!
//! Invariant: only what enters or leaves a liar is changed, and what a liar sends to an honest site;
//! a while after the heal nobody changes any more what others hold; who has said what nobody can read has not lied
//! yet. Deliberately not here: the format
//! (`wire`).

use std::collections::{BTreeMap, VecDeque};

use fairmesh_cluster::{Seed, Stream};
use fairmesh_gossip::wire::Request;
use fairmesh_model::{SiteId, VoId, WindowLength};
use fairmesh_site::{Effect, Event};

use super::{Forged, How, Liar, Sent, named, wire};
use crate::facts::watch::SharedFacts;
use crate::vo::{Vo, site_id};
use crate::world::{RestartPlan, Tamper};

/// Pushes that a liar remembers.
const REMEMBERED: usize = 64;

/// Of so many ticks one is used for a forgery.
const FORGES_EVERY: u64 = 4;

struct One {
    how: How,
    random: Stream,
    pushed: VecDeque<(VoId, Vec<u8>)>,
    forger: wire::Forger,
    ticks: bool,
    /// The VO that the request is about which is being answered.
    asked: Option<VoId>,
}

/// All liars of a Grid.
pub(crate) struct Liars {
    of: BTreeMap<usize, One>,
    node_of: BTreeMap<SiteId, usize>,
    facts: SharedFacts,
}

impl Liars {
    pub(crate) fn new(seed: Seed, liars: &[Liar], vos: &[Vo], facts: SharedFacts) -> Self {
        let windows: BTreeMap<VoId, WindowLength> =
            vos.iter().map(|vo| (vo.id, vo.spec.window)).collect();
        let one = |liar: &Liar| {
            let one = One {
                how: named(&liar.lie)?.how,
                random: seed.stream(&format!("liar {}", liar.site)),
                pushed: VecDeque::new(),
                forger: wire::Forger::new(liar.site, windows.clone()),
                ticks: false,
                asked: None,
            };
            Some((liar.site, one))
        };
        let of: BTreeMap<usize, One> = liars.iter().filter_map(one).collect();
        Self {
            node_of: of.keys().map(|node| (site_id(*node), *node)).collect(),
            of,
            facts,
        }
    }

    fn is_over(&self) -> bool {
        self.facts.borrow().is_still
    }

    fn sends(&self, from: SiteId, how: Sent) -> bool {
        let liar = self.node_of.get(&from).and_then(|node| self.of.get(node));
        liar.is_some_and(|liar| liar.how == How::Sent(how))
    }
}

impl Tamper for Liars {
    fn event(&mut self, node: usize, event: &mut Event) {
        if let Some(liar) = self.of.get_mut(&node) {
            liar.ticks = matches!(event, Event::Tick);
            liar.asked = match event {
                Event::Requested { bytes, .. } => match Request::from_bytes(bytes) {
                    Ok(Request::Pull(pull)) => Some(pull.vo),
                    _ => None,
                },
                _ => None,
            };
        }
        if self.is_over() {
            return;
        }
        if let Event::Pushed { bytes, .. } = event
            && !self.of.contains_key(&node)
        {
            let of = self.of.iter();
            let caught = of.filter(|(_, liar)| liar.forger.caught.is_by(node, bytes));
            let mut facts = self.facts.borrow_mut();
            facts.lied.extend(caught.map(|(of, _)| *of));
        }
        if let Event::Requested {
            from,
            bytes,
            channel,
        } = event
            && self.sends(*from, Sent::Unasked)
        {
            let (from, id, bytes) = (*from, *channel, Some(std::mem::take(bytes)));
            *event = Event::Answered { from, id, bytes };
        }
    }

    fn restart(&mut self, node: usize, _plan: &mut RestartPlan) {
        for liar in self.of.values_mut() {
            liar.forger.caught.starts(node);
        }
    }

    fn effects(&mut self, node: usize, effects: &mut Vec<Effect>) {
        let is_over = self.is_over();
        for (_, liar) in self.of.iter_mut().filter(|(of, _)| **of != node) {
            effects
                .iter()
                .for_each(|of| liar.forger.sees_other(node, of));
            if liar.forger.is_unpacked() {
                self.facts.borrow_mut().unpacked.insert(node);
            }
        }
        let Some(liar) = self.of.get_mut(&node) else {
            return;
        };
        match liar.how {
            How::Forged(Forged::AskAgain) => {}
            // Nothing that it signs any more decides which of its heads stays.
            How::Forged(Forged::Contradiction) if is_over => {
                return wire::leave_out_heads(effects);
            }
            _ if is_over => return,
            _ => {}
        }
        for effect in effects.iter() {
            liar.forger.sees(effect);
            if let Effect::Push { vo, bytes } = effect {
                liar.pushed.push_back((*vo, bytes.clone()));
                liar.pushed.truncate(REMEMBERED);
            }
        }
        match liar.how {
            How::Told(_) | How::Sent(Sent::Unasked) => {}
            How::Sent(sent) => liar.send(sent, effects),
            How::Forged(Forged::AskAgain) => {
                for effect in effects {
                    if let Effect::Answer { bytes, .. } = effect {
                        wire::ask_again(bytes);
                    }
                }
            }
            How::Forged(forged) if forged.is_served() => {
                for effect in effects {
                    if let Effect::Answer { bytes, .. } = effect
                        && liar.forger.serve(forged, liar.asked, bytes)
                    {
                        self.facts.borrow_mut().lied.insert(node);
                    }
                }
            }
            How::Forged(forged) => {
                if liar.ticks && liar.random.below(FORGES_EVERY) == 0 {
                    let made = liar.forger.forge(forged, &mut liar.random);
                    if made.iter().any(|(vo, _)| liar.forger.is_read(forged, *vo)) {
                        self.facts.borrow_mut().lied.insert(node);
                    }
                    effects.extend(
                        made.into_iter()
                            .map(|(vo, bytes)| Effect::Push { vo, bytes }),
                    );
                }
            }
        }
    }
}

impl One {
    fn send(&mut self, how: Sent, effects: &mut Vec<Effect>) {
        match how {
            Sent::Garbage => {
                for effect in effects {
                    if let Effect::Push { bytes, .. }
                    | Effect::Ask { bytes, .. }
                    | Effect::Answer { bytes, .. } = effect
                        && !bytes.is_empty()
                        && self.random.below(2) == 0
                    {
                        let at = self.random.index(bytes.len());
                        bytes[at] ^= 1 << self.random.below(8);
                    }
                }
            }
            Sent::Replays if self.ticks && !self.pushed.is_empty() => {
                let (vo, bytes) = self.pushed[self.random.index(self.pushed.len())].clone();
                effects.push(Effect::Push { vo, bytes });
            }
            Sent::Withheld => {
                let random = &mut self.random;
                effects.retain(|effect| match effect {
                    Effect::Push { .. } => false,
                    Effect::Answer { .. } => random.below(2) == 0,
                    _ => true,
                });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use fairmesh_gossip::Replica;
    use fairmesh_gossip::wire::Push;
    use fairmesh_model::Incarnation;
    use fairmesh_site::{Table, Write};

    use super::*;
    use crate::vo::{START, VoSpec, site_key};

    /// Seed 80000791: a liar lost its store before anybody had its first head, and told its lies in terms of that one.
    #[test]
    fn who_changes_a_head_that_nobody_has_has_not_lied_yet() {
        let vo = Vo::found(0, VoSpec::small("grid", 2)).expect("a valid VO");
        let mut replica = Replica::new(vo.id, site_id(0));
        let mut sign = || {
            let (key, at) = (site_key(0), START);
            replica.publish(&wire::AnyKind, &key, Incarnation(1), at, Vec::new())
        };
        let (change, push) = sign();
        let keep = || {
            let key = [&vo.id.as_bytes()[..], site_id(0).as_bytes(), &[0; 8]].concat();
            let value = change.head.bytes().to_vec();
            vec![Effect::Persist(vec![Write::set(Table::Heads, key, value)])]
        };
        let has_lied = |lie: &str, kept_by: usize| {
            let (site, lie) = (0, lie.to_owned());
            let facts = SharedFacts::default();
            let vos = std::slice::from_ref(&vo);
            let mut liars = Liars::new(Seed(1), &[Liar { site, lie }], vos, Rc::clone(&facts));
            let (vo, bytes) = (vo.id, push.clone());
            liars.effects(0, &mut vec![Effect::Push { vo, bytes }]);
            liars.effects(kept_by, &mut keep());
            let mut forged = Vec::new();
            while forged.is_empty() {
                liars.event(0, &mut Event::Tick);
                liars.effects(0, &mut forged);
            }
            let is_push = |of: &Effect| matches!(of, Effect::Push { bytes, .. } if Push::from_bytes(bytes).is_ok());
            assert!(forged.iter().all(is_push));
            facts.borrow().lied.contains(&0)
        };
        assert!(!has_lied("old-usage", 0), "only it has its head");
        assert!(has_lied("old-usage", 1));
        assert!(
            has_lied("ahead", 0),
            "a date is read without the head before"
        );
    }

    /// Seed 100000168: a liar was cut off whenever it contradicted itself, and one site alone got one of two heads.
    #[test]
    fn who_contradicts_himself_has_lied_to_who_holds_one_head_and_gets_the_other() {
        let vo = Vo::found(0, VoSpec::small("grid", 2)).expect("a valid VO");
        let mut replica = Replica::new(vo.id, site_id(0));
        let (key, at) = (site_key(0), START);
        let (change, push) = replica.publish(&wire::AnyKind, &key, Incarnation(1), at, Vec::new());
        let lie = "contradiction".to_owned();
        let facts = SharedFacts::default();
        let liar = Liar { site: 0, lie };
        let vos = std::slice::from_ref(&vo);
        let mut liars = Liars::new(Seed(1), &[liar], vos, Rc::clone(&facts));
        let (vo, bytes) = (vo.id, push);
        liars.effects(0, &mut vec![Effect::Push { vo, bytes }]);
        // The first that it forges has the number of that head, and other content.
        let mut forged = Vec::new();
        while forged.is_empty() {
            liars.event(0, &mut Event::Tick);
            liars.effects(0, &mut forged);
        }
        let gets = |liars: &mut Liars, node: usize| {
            for effect in &forged {
                let Effect::Push { vo, bytes } = effect else {
                    panic!("a push");
                };
                let mut event = Event::Pushed {
                    from: site_id(0),
                    vo: *vo,
                    bytes: bytes.clone(),
                    token: 0,
                };
                liars.event(node, &mut event);
            }
            facts.borrow().lied.contains(&0)
        };
        assert!(!gets(&mut liars, 1), "it holds no head");
        let key = [
            &vo.as_bytes()[..],
            site_id(0).as_bytes(),
            &1_u64.to_be_bytes(),
        ]
        .concat();
        let value = change.head.bytes().to_vec();
        let mut keeps = vec![Effect::Persist(vec![Write::set(Table::Heads, key, value)])];
        liars.effects(2, &mut keeps);
        assert!(!gets(&mut liars, 1), "another one holds it");
        liars.effects(1, &mut keeps);
        let mut plan = RestartPlan {
            incarnation: Incarnation(2),
            random: 0,
            rows: Vec::new(),
        };
        liars.restart(1, &mut plan);
        assert!(!gets(&mut liars, 1), "its disk may be a new one");
        liars.effects(1, &mut keeps);
        assert!(gets(&mut liars, 1));
    }
}
