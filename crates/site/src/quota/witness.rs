//! Asking other members whether they hold what this site was sent, before it is taken: docs/witnesses.md.
//!
//! Every member that is connected is asked, over the same connection as the anti-entropy. One that does not witness
//! it yet is asked again, and compared with meanwhile: it lacks a head, or this site does. Who has not witnessed it
//! when [`WAIT_MAX`] has passed counts as cut off, so a member that is silent or says no delays transfers and
//! stops none.
//!
//! Invariant: of members that can hear each other no two take rights that contradict each other. Where nobody but
//! the sender can be heard they are taken at once.
//! Deliberately not here: what a member witnesses (`fairmesh_quota::Ledger::witnesses`).

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_gossip::Shared;
use fairmesh_model::{Millis, MonoTime, Now, SiteId, VoId, mutated};
use fairmesh_quota::{Offer, SliceId};

use crate::event::{Channel, Effect};
use crate::requests::{framed, unframed};
use crate::site::Site;

/// First byte of every frame.
const FIRST: u8 = 5;

/// Longest frame: a few hashes and numbers.
const BYTES_MAX: usize = 512;

/// Marks the number of a question; rights, adverts and jobs have other bits.
const QUESTION: u64 = 1 << 60;

/// Before this a member that has answered is not asked again: a head's way to it, and back what it brings.
const ASK_AGAIN: Millis = Millis(200);

/// After this a member counts as cut off. Bounds by how much one that is silent delays a transfer; many times what
/// a comparison of heads takes.
const WAIT_MAX: Millis = Millis::from_secs(5);

/// What is asked about at present.
pub(super) type Rounds = BTreeMap<(SiteId, SliceId), Round>;

/// One offer, and who has not witnessed it yet.
#[derive(Debug)]
pub(super) struct Round {
    offer: Offer,
    until: MonoTime,
    ask_at: MonoTime,
    /// With the number of the question that is under way.
    open: BTreeMap<SiteId, Option<u64>>,
}

impl Round {
    /// When there is something to do.
    pub(super) fn wakeup(&self) -> MonoTime {
        let is_idle = self.open.values().any(Option::is_none);
        if is_idle {
            self.ask_at.min(self.until)
        } else {
            self.until
        }
    }
}

/// Whether a request asks whether this site witnesses an offer.
pub(crate) fn is_witness(bytes: &[u8]) -> bool {
    bytes.first() == Some(&FIRST)
}

impl Site {
    /// Whether the answer to a request is one to such a question.
    pub(crate) fn asked_to_witness(id: u64) -> bool {
        id & QUESTION != 0
    }

    /// Asks about what was sent to this site, and takes what was witnessed.
    pub(super) fn advance_witnesses(&mut self, now: Now, vo: VoId) {
        let held = self.vos.get_mut(&vo).expect("it was listed");
        let members = self
            .gossip
            .peers()
            .filter(|site| held.replica.is_member(*site));
        let members: BTreeSet<SiteId> = members.collect();
        let (ledger, rounds) = (&mut held.quota.ledger, &mut held.quota.rounds);
        for offer in ledger.unconfirmed() {
            rounds.entry((offer.from, offer.slice)).or_insert_with(|| {
                let others = members.iter().filter(|site| **site != offer.from);
                let others = others.filter(|_| !mutated!(WitnessesUnasked));
                Round {
                    offer,
                    until: now.mono.after(WAIT_MAX),
                    ask_at: now.mono,
                    open: others.map(|site| (*site, None)).collect(),
                }
            });
        }
        let mut over = Vec::new();
        rounds.retain(|_, round| {
            let can_say = |site: &SiteId| members.contains(site) && !ledger.is_distrusted(*site);
            round.open.retain(|site, _| can_say(site));
            let is_over = round.open.is_empty() || now.mono >= round.until;
            over.extend(is_over.then_some(round.offer));
            !is_over
        });
        for round in rounds.values_mut().filter(|round| now.mono >= round.ask_at) {
            round.ask_at = now.mono.after(ASK_AGAIN);
            let idle = round.open.iter_mut().filter(|(_, asked)| asked.is_none());
            for (to, asked) in idle {
                self.next_want += 1;
                let id = self.next_want | QUESTION;
                *asked = Some(id);
                let bytes = framed(FIRST, &(vo, &round.offer));
                self.effects.push(Effect::Ask { to: *to, id, bytes });
            }
        }
        if !over.is_empty() {
            over.iter().for_each(|offer| ledger.confirm(offer));
            held.quota.has_news = true;
            self.keep_quota(vo);
        }
    }

    /// A member asks whether this site witnesses what that one was sent. Who takes no part in the VO takes nothing
    /// that would contradict it.
    pub(crate) fn answer_witness(&mut self, from: SiteId, channel: Channel, bytes: &[u8]) {
        let asked = unframed::<(VoId, Offer)>(FIRST, bytes, BYTES_MAX);
        let witnesses = asked.is_some_and(|(vo, offer)| {
            let held = self.vos.get(&vo);
            held.is_none_or(|held| !held.is_founded() || held.quota.ledger.witnesses(from, &offer))
        });
        let bytes = framed(FIRST, &witnesses);
        self.effects.push(Effect::Answer { channel, bytes });
    }

    /// A member has answered, or has not. One of an earlier release, which answers something else, is not waited for.
    pub(crate) fn take_witnessed(&mut self, from: SiteId, id: u64, bytes: Option<&[u8]>) {
        let rounds = self
            .vos
            .values_mut()
            .flat_map(|held| held.quota.rounds.values_mut());
        let mut rounds = rounds.filter(|round| round.open.get(&from) == Some(&Some(id)));
        let Some(round) = rounds.next() else {
            return;
        };
        match bytes.map(|bytes| unframed(FIRST, bytes, BYTES_MAX)) {
            Some(Some(false)) => {
                round.open.insert(from, None);
                self.gossip.probe(from);
            }
            Some(_) => _ = round.open.remove(&from),
            None => _ = round.open.insert(from, None),
        }
    }
}
