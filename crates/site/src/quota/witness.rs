//! Witnesses: before this site takes rights, it asks other members whether they hold the sender's row too
//! (docs/witnesses.md).
//!
//! Every connected member is asked, over the connection of the anti-entropy. A member that does not witness the row
//! yet is asked again and probed, because it or this site lacks a head. A member that has not witnessed [`WAIT_MAX`]
//! after all were asked counts as cut off. So a silent or refusing member delays transfers and stops none. Neither
//! does a sender of many small amounts: only a few of its slices are asked about at a time, and each sender's first
//! slice comes before the further slices of others.
//!
//! Invariant: two members that can reach each other never take rights that contradict each other. If only the sender
//! can be reached, rights are taken at once. At most [`QUESTIONS_MAX`] questions are pending. Deliberately not here:
//! what a member witnesses (`fairmesh_quota::Ledger::witnesses`).

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

/// Longest frame in bytes: a few hashes and numbers.
const BYTES_MAX: usize = 512;

/// Time before a member that has refused is asked again: a head must reach it, or its head must reach this site.
const ASK_AGAIN: Millis = Millis(200);

/// Time after which a member counts as cut off. Bounds how long a silent member delays a transfer; many times the
/// duration of an exchange of heads.
const WAIT_MAX: Millis = Millis::from_secs(5);

/// Slices of one sender that are asked about at a time: bounds the questions caused by a member that sends rights of
/// all slices. A draining site does that; its transfers then take a round trip for each eight slices.
const ROUNDS_MAX: usize = 8;

/// Pending questions in one VO: half of a node's limit on pending requests. Questions above that limit would fail at
/// once, as if the members had been asked.
const QUESTIONS_MAX: usize = 32;

impl QuotaHandler<'_> {
    /// Starts rounds for new offers, and takes the offers whose rounds are over.
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
        // Rounds that are over leave room for offers that were waiting.
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
            // The timeout starts when all were asked: waiting for room must not count as a member's silence.
            if round.until.is_none() && !round.open.values().any(|asked| *asked == Question::Never)
            {
                round.until = Some(now.mono.after(WAIT_MAX));
            }
        }
    }

    /// Answers a member that asks whether this site witnesses what was sent to it. A site without the VO agrees,
    /// because it takes no rights that could contradict the offer.
    pub(crate) fn answer_witness(&mut self, from: SiteId, channel: Channel, bytes: &[u8]) {
        let asked = unframed::<(VoId, Offer)>(WITNESS, bytes, BYTES_MAX);
        let witnesses = asked.is_some_and(|(vo, offer)| {
            let held = self.vos.get(&vo);
            held.is_none_or(|held| !held.is_founded() || held.quota.ledger.witnesses(from, &offer))
        });
        let bytes = framed(WITNESS, &witnesses);
        self.cx.answer(channel, bytes);
    }

    /// Takes a member's answer; `None` if there was none. A member of an earlier release sends something else, and is
    /// not waited for.
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
                    // One of the two lacks a head of the sender; the probe finds out which.
                    self.peers.gossip.probe(from);
                }
                Some(_) => _ = round.open.remove(&from),
                None => _ = round.open.insert(from, Question::Before),
            }
            // The answer leaves room for another question.
            let waiting = rounds.values_mut().filter(|round| round.until.is_none());
            waiting.for_each(|round| round.ask_at = MonoTime(0));
            return;
        }
    }
}

impl Vos {
    /// Stops waiting for a member whose connection has ended.
    pub(crate) fn cancel_requests(&mut self, peer: SiteId) {
        let all = self.values_mut();
        let rounds = all.flat_map(|held| held.quota.rounds.values_mut());
        rounds.for_each(|round| _ = round.open.remove(&peer));
    }
}

impl Quota {
    /// Ends the rounds in which no member is waited for any more. Returns their offers.
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

    /// Starts rounds for unconfirmed offers, as far as there is room. Offers about which no member can be asked are
    /// confirmed at once and returned.
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
            // The sender cannot be its own witness, and a site with a proof against it may say anything.
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
