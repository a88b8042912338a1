//! Asking other members whether they hold what this site was sent, before it is taken: docs/witnesses.md.
//!
//! Every member that is connected is asked, over the same connection as the anti-entropy. One that does not witness
//! it yet is asked again, and compared with meanwhile: it lacks a head, or this site does. Who has not witnessed it
//! when [`WAIT_MAX`] has passed since all were asked counts as cut off, so a member that is silent or says no delays
//! transfers and stops none. Nor does one that sends a little of everything, again and again: it is asked about a few of
//! these at a time, the rest waits, and of each sender's the first goes before what others have sent besides.
//!
//! Invariant: of members that can hear each other no two take rights that contradict each other. Where nobody but
//! the sender can be heard they are taken at once. At most [`QUESTIONS_MAX`] questions are under way.
//! Deliberately not here: what a member witnesses (`fairmesh_quota::Ledger::witnesses`).

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_gossip::Shared;
use fairmesh_model::{Millis, MonoTime, Now, SiteId, VoId, mutated};
use fairmesh_quota::Offer;

use crate::quota::Quota;
use crate::quota::handler::QuotaHandler;
use crate::quota::rounds::{Question, Round};
use crate::requests::{WITNESS, framed, numbered, unframed};
use crate::tickets::Channel;
use crate::vos::Vos;

/// Longest frame: a few hashes and numbers.
const BYTES_MAX: usize = 512;

/// Before this a member that has answered is not asked again: a head's way to it, and back what it brings.
const ASK_AGAIN: Millis = Millis(200);

/// After this a member counts as cut off. Bounds by how much one that is silent delays a transfer; many times what
/// a comparison of heads takes.
const WAIT_MAX: Millis = Millis::from_secs(5);

/// Slices of one sender that are asked about at a time: bounds what a member costs that sends to all of all slices. One
/// that drains sends as many as there are, which takes a round trip for each so many.
const ROUNDS_MAX: usize = 8;

/// Questions under way in one VO: half of the requests that a node has under way in all. Beyond these they would fail at
/// once, and nobody would have been asked.
const QUESTIONS_MAX: usize = 32;

impl QuotaHandler<'_> {
    /// Asks about what was sent to this site, and takes what was witnessed.
    pub(super) fn advance_witnesses(&mut self, now: Now, vo: VoId) {
        let held = self.vos.listed(vo);
        let has_offers = std::mem::take(&mut held.quota.has_offers);
        let is_due = |round: &Round| now.mono >= round.wakeup();
        if !has_offers && !held.quota.rounds.values().any(is_due) {
            return;
        }
        let members = self
            .peers
            .gossip
            .peers()
            .filter(|site| held.replica.is_member(*site));
        let members: BTreeSet<SiteId> = members.collect();
        let mut over = held.quota.end_rounds(now.mono, &members);
        // Where some are over there is room for others.
        if has_offers || !over.is_empty() {
            over.iter().for_each(|of| held.quota.ledger.confirm(of));
            over.extend(held.quota.begin_rounds(now.mono, &members));
        }
        self.ask_witnesses(now, vo);
        if !over.is_empty() {
            let quota = &mut self.vos.listed(vo).quota;
            quota.has_news = true;
            self.rights().keep_quota(vo);
        }
    }

    /// Asks those who have not been asked, or not for a while, of some rounds.
    fn ask_witnesses(&mut self, now: Now, vo: VoId) {
        let rounds = &mut self.vos.listed(vo).quota.rounds;
        let all = rounds.values().flat_map(|round| round.open.values());
        let under_way = all.filter(|asked| matches!(asked, Question::As(_))).count();
        let mut room = QUESTIONS_MAX.saturating_sub(under_way);
        let due = rounds.values_mut().filter(|round| now.mono >= round.ask_at);
        let mut due: Vec<&mut Round> = due.collect();
        due.sort_by_key(|round| round.turn);
        for round in due {
            round.ask_at = now.mono.after(ASK_AGAIN);
            let next = round.next();
            let idle = round.open.iter_mut().filter(|(_, asked)| **asked == next);
            for (to, asked) in idle.take(room) {
                room -= 1;
                self.quotas.last_want += 1;
                let id = numbered(WITNESS, self.quotas.last_want);
                *asked = Question::As(id);
                let bytes = framed(WITNESS, &(vo, &round.offer));
                self.cx.ask(*to, id, bytes);
            }
            if round.until.is_none() && !round.open.values().any(|asked| *asked == Question::Never)
            {
                round.until = Some(now.mono.after(WAIT_MAX));
            }
        }
    }

    /// A member asks whether this site witnesses what that one was sent. Who takes no part in the VO takes nothing
    /// that would contradict it.
    pub(crate) fn answer_witness(&mut self, from: SiteId, channel: Channel, bytes: &[u8]) {
        let asked = unframed::<(VoId, Offer)>(WITNESS, bytes, BYTES_MAX);
        let witnesses = asked.is_some_and(|(vo, offer)| {
            let held = self.vos.get(&vo);
            held.is_none_or(|held| !held.is_founded() || held.quota.ledger.witnesses(from, &offer))
        });
        let bytes = framed(WITNESS, &witnesses);
        self.cx.answer(channel, bytes);
    }

    /// A member has answered, or has not. One of an earlier release, which answers something else, is not waited for.
    pub(crate) fn take_witnessed(&mut self, from: SiteId, id: u64, bytes: Option<&[u8]>) {
        let is_asked = |round: &&mut Round| round.open.get(&from) == Some(&Question::As(id));
        for held in self.vos.values_mut() {
            let rounds = &mut held.quota.rounds;
            let Some(round) = rounds.values_mut().find(is_asked) else {
                continue;
            };
            match bytes.map(|bytes| unframed(WITNESS, bytes, BYTES_MAX)) {
                Some(Some(false)) if !mutated!(RefusalWitnesses) => {
                    round.open.insert(from, Question::Before);
                    self.peers.gossip.probe(from);
                }
                Some(_) => _ = round.open.remove(&from),
                None => _ = round.open.insert(from, Question::Before),
            }
            // There is room for another question.
            let waiting = rounds.values_mut().filter(|round| round.until.is_none());
            waiting.for_each(|round| round.ask_at = MonoTime(0));
            return;
        }
    }
}

impl Vos {
    /// A connection has ended: its member is not waited for.
    pub(crate) fn cancel_requests(&mut self, peer: SiteId) {
        let all = self.values_mut();
        let rounds = all.flat_map(|held| held.quota.rounds.values_mut());
        rounds.for_each(|round| _ = round.open.remove(&peer));
    }
}

impl Quota {
    /// The offers that everybody has witnessed who is waited for: they are asked about no more.
    fn end_rounds(&mut self, now: MonoTime, members: &BTreeSet<SiteId>) -> Vec<Offer> {
        let mut over = Vec::new();
        let ledger = &self.ledger;
        self.rounds.retain(|_, round| {
            let can_say = |site: &SiteId| members.contains(site) && !ledger.is_distrusted(*site);
            round.open.retain(|site, _| can_say(site));
            let is_over = round.open.is_empty() || round.until.is_some_and(|until| now >= until);
            over.extend(is_over.then_some(round.offer));
            !is_over
        });
        over
    }

    /// Begins to ask about what was sent to this site, as far as there is room. What nobody can be asked about is taken.
    fn begin_rounds(&mut self, now: MonoTime, members: &BTreeSet<SiteId>) -> Vec<Offer> {
        let mut alone = Vec::new();
        let mut of_senders: BTreeMap<SiteId, usize> = BTreeMap::new();
        for (from, _) in self.rounds.keys() {
            *of_senders.entry(*from).or_default() += 1;
        }
        for offer in self.ledger.unconfirmed() {
            let place = (offer.from, offer.slice);
            let of_sender = of_senders.entry(offer.from).or_default();
            if *of_sender >= ROUNDS_MAX || self.rounds.contains_key(&place) {
                continue;
            }
            let can_say = |site: &SiteId| *site != offer.from && !self.ledger.is_distrusted(*site);
            let others = members.iter().filter(|site| can_say(site));
            let others = others.filter(|_| !mutated!(WitnessesUnasked));
            let open: BTreeMap<_, _> = others.map(|site| (*site, Question::Never)).collect();
            if open.is_empty() {
                alone.push(offer);
                continue;
            }
            let round = Round {
                offer,
                until: None,
                ask_at: now,
                turn: (*of_sender, now),
                open,
            };
            *of_sender += 1;
            self.rounds.insert(place, round);
        }
        alone.iter().for_each(|offer| self.ledger.confirm(offer));
        alone
    }
}
