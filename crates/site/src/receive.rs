//! Heads of other sites: pushed, or contained in replies to this site's requests.
//!
//! Invariant: the changes of a head are durable here before the head is forwarded. A refused head changes nothing, is
//! counted, and its notice names the sender and the reason.

use fairmesh_gossip::wire::Push;
use fairmesh_gossip::{Absorbed, Arrival, Change, ReceivedAt, Refusal, Shared};
use fairmesh_model::{Now, SiteId, VoId, cbor, mutated};

use crate::document::{Document, READ_AT_ONCE_BYTES_MAX};
use crate::documents::DocumentHandler;
use crate::event::{Effect, Verdict};
use crate::inbox::{Bringer, STEP_BYTES, bytes_of, split_off};
use crate::notice::Notice;
use crate::parts::{Cx, Inbox, Own, Peers, Shares, Vos};
use crate::quota::rights::RightsHandler;
use crate::store::{Table, Write, vo_key};
use crate::tickets::PushToken;
use crate::usage::UsageHandler;
use crate::vo::Vo;
use crate::work::Work;

/// Takes heads and documents.
pub(crate) struct HeadHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) shares: &'a mut Shares,
    pub(crate) inbox: &'a mut Inbox,
    pub(crate) peers: &'a mut Peers,
}

impl HeadHandler<'_> {
    fn usage(&mut self) -> UsageHandler<'_> {
        UsageHandler::new(self.cx, self.own, self.vos, self.shares)
    }

    fn rights(&mut self) -> RightsHandler<'_> {
        RightsHandler::new(self.cx, self.own, self.vos)
    }

    fn documents(&mut self) -> DocumentHandler<'_> {
        DocumentHandler {
            cx: self.cx,
            own: self.own,
            vos: self.vos,
            shares: self.shares,
            peers: self.peers,
        }
    }

    /// Absorbs a push and judges it: at once, or a head without its content when that is here.
    pub(crate) fn take_push(
        &mut self,
        now: Now,
        from: SiteId,
        vo: VoId,
        bytes: &[u8],
        token: PushToken,
    ) {
        match Push::from_bytes(bytes) {
            Err(error) => {
                self.cx.refused(now.mono, vo, from, &error.to_string());
                self.judge(token, Verdict::Reject);
            }
            Ok(Push::Document(bytes)) => {
                let verdict =
                    self.documents()
                        .absorb_document(now, from, vo, Document::read(&bytes));
                self.judge(token, verdict);
            }
            Ok(Push::Head(head, delta)) => {
                self.absorb_push(now, from, (vo, token), |held, received| {
                    let delta = delta.as_ref().map(|delta| delta.as_slice());
                    let kinds = held.kinds();
                    held.replica.take_push(&kinds, received, from, &head, delta)
                });
            }
            Ok(Push::Next(next)) => self.absorb_push(now, from, (vo, token), |held, received| {
                held.replica.take_next(&held.kinds(), received, from, &next)
            }),
            Ok(Push::Proof(a, b)) => {
                self.absorb_push(now, from, (vo, token), |held, _| {
                    held.replica.take_proof(&a, &b)
                });
            }
        }
    }

    fn judge(&mut self, token: PushToken, verdict: Verdict) {
        self.cx
            .effects
            .push(Effect::ReportValidation { token, verdict });
    }

    fn absorb_push(
        &mut self,
        now: Now,
        from: SiteId,
        (vo, token): (VoId, PushToken),
        take: impl FnOnce(&mut Vo, ReceivedAt) -> Result<Absorbed, Refusal>,
    ) {
        let received = self.received_at(now);
        // Without a charter nobody is a member: the push is not the sender's fault, and must not be forwarded either.
        let Some(held) = self.vos.get_mut(&vo).filter(|held| held.is_founded()) else {
            return self.judge(token, Verdict::Ignore);
        };
        let taken = take(held, received);
        if matches!(taken, Ok(Absorbed::Gap | Absorbed::Bare(_))) {
            self.peers.gossip.suspect_behind(from, vo);
        }
        let bare = match &taken {
            Ok(Absorbed::Bare(head)) => Some((head.body().site, head.hash())),
            _ => None,
        };
        let verdict = self.absorbed(now, from, vo, taken);
        let Some((site, hash)) = bare else {
            return self.judge(token, verdict);
        };
        // A receiver asks the sender for the content, and not again before the next exchange. So the head is
        // forwarded only when this site can answer. One head of each site waits; a newer one replaces it.
        let held = self.vos.listed(vo);
        if let Some((_, older)) = held.bare.insert(site, (hash, token)) {
            self.judge(older, Verdict::Ignore);
        }
    }

    /// Takes the reply to one of our requests. Data that does not apply is requested again in the next exchange, not
    /// at once: two nodes that refuse something of each other would otherwise exchange it without pause.
    pub(crate) fn take_answer(&mut self, now: Now, from: SiteId, id: u64, bytes: Option<&[u8]>) {
        let arrivals = self.peers.gossip.answered(now, from, id, bytes, self.vos);
        self.inbox.bring(from, arrivals);
        self.cx.watch_peer(&self.peers.gossip, now, from);
        self.follow_agreements(now, from);
        if self.peers.gossip.agreed_at(from) == Some(now.mono) {
            let agreed = self.vos.iter();
            let agreed = agreed.filter(|(vo, _)| {
                self.peers.gossip.agreed_on(from, **vo) || mutated!(LandedUnagreed)
            });
            agreed.for_each(|(vo, held)| self.own.landed(*vo, &held.left_out));
        }
    }

    /// Follows up a probe that has just shown for which VOs `from` holds what this site does. If both hashes are
    /// equal, both sites use one charter, so this site's heads were compared too: the peer holds none that is not
    /// here. Sites without a charter agree on nothing, because one of them may have lost it.
    pub(crate) fn follow_agreements(&mut self, now: Now, from: SiteId) {
        for vo in self.vos.ids() {
            let held = self.vos.listed(vo);
            if held.is_founded() && self.peers.gossip.agreed_just_now(from, vo, now.mono) {
                held.told_by.insert(from);
                self.rights().hear(now, from, vo);
            }
        }
    }

    pub(crate) fn received_at(&self, now: Now) -> ReceivedAt {
        ReceivedAt {
            now,
            tolerance: self.cx.config.timing.clock_tolerance,
        }
    }

    /// Persists what was absorbed and updates everything that depends on it. Returns whether a push of it is forwarded.
    pub(crate) fn absorbed(
        &mut self,
        now: Now,
        from: SiteId,
        vo: VoId,
        taken: Result<Absorbed, Refusal>,
    ) -> Verdict {
        let held = self.vos.get_mut(&vo);
        let forks = held.map_or_else(Vec::new, |held| held.replica.forks_found());
        for site in &forks {
            self.keep_proof(now, vo, *site);
        }
        match taken {
            // Forwarded although nothing else changed: every member must learn of the fork.
            Ok(Absorbed::Known | Absorbed::Wanted | Absorbed::Gap) if !forks.is_empty() => {
                Verdict::Accept
            }
            // Anyone can make deltas that do not apply, and a flood of them would travel as far as they were forwarded.
            Ok(Absorbed::Known | Absorbed::Wanted | Absorbed::Gap | Absorbed::Bare(_)) => {
                Verdict::Ignore
            }
            Ok(Absorbed::Changed(change)) => {
                self.take_change(now, vo, &change);
                Verdict::Accept
            }
            Err(refusal) => {
                self.note_refusal(now, vo, from, &refusal);
                if refusal.is_lie() {
                    Verdict::Reject
                } else {
                    Verdict::Ignore
                }
            }
        }
    }

    fn note_refusal(&mut self, now: Now, vo: VoId, from: SiteId, refusal: &Refusal) {
        match refusal {
            Refusal::Waits(_) => {}
            // The head waits until it is due. The notice is about its site's clock, not about the peer that forwarded
            // it.
            Refusal::Future { site, at } => {
                self.cx.stats.refused += 1;
                self.cx.notice_clock(now, *site, at.since(now.wall), true);
            }
            _ => self.cx.refused(now.mono, vo, from, &refusal.to_string()),
        }
    }

    fn keep_proof(&mut self, now: Now, vo: VoId, site: SiteId) {
        self.cx.notice(now.mono, Notice::Forked { vo, site });
        // Before anything else of the site is taken: it may have sent the same rights under both heads.
        self.vos.distrust_rights(vo, site);
        if let Some(heads) = self.vos[&vo].replica.proof_of(site) {
            let [a, b] = heads.map(|head| serde_bytes::ByteBuf::from(head.bytes().to_vec()));
            let row = cbor::to_vec(&(&a, &b));
            self.cx.persist(vec![Write::set(
                Table::Proofs,
                vo_key(vo, site.as_bytes()),
                row,
            )]);
            let bytes = Push::Proof(a, b).to_bytes();
            self.cx.effects.push(Effect::Push { vo, bytes });
        }
    }

    /// A head came into force.
    fn take_change(&mut self, now: Now, vo: VoId, change: &Change) {
        // Before the verdict below, which forwards the head: peers may then ask this site for it after a crash.
        self.cx.persist_head(vo, change);
        self.cx.stats.heads_taken += 1;
        let site = change.head.body().site;
        self.cx.clear_clock(site);
        let held = self.vos.listed(vo);
        if let Some((bare, token)) = held.bare.remove(&site) {
            let verdict = match bare == change.head.hash() {
                true => Verdict::Accept,
                false => Verdict::Ignore,
            };
            self.judge(token, verdict);
        }
        if site == self.cx.id {
            self.cx
                .watch_twin(now, self.own.incarnation(), change.head.body());
            if !mutated!(OwnHeadUnread) {
                self.usage().absorb_own(now, vo, &change.parts);
            }
            return;
        }
        if !self.vos[&vo].replica.is_member(site) {
            // A charter dropped the site while its parts were being fetched. They are kept, and read if it is listed
            // again.
            return;
        }
        let held = self.vos.listed(vo);
        held.received.insert(site, now.mono);
        self.rights()
            .take_rights(vo, change.head.body(), &change.parts);
        let silence = self.cx.config.timing.silence;
        let held = self.vos.listed(vo);
        held.published.note(site, &change.parts);
        // For these kinds only the newest head counts, and another head may be the newest now.
        let touches =
            |kind| change.other_newest || change.parts.iter().any(|key| key.kind() == kind);
        // Only this site's next check moves. Checking all members after each head would cost the number of members
        // squared.
        let weighed = held.silence_checked.as_mut();
        if let Some((_, due)) = weighed.filter(|_| !mutated!(SilenceUnlooked)) {
            *due = (*due).min(change.head.body().at.after(silence));
        }
        let changes = held.read_newest(site, touches, now.wall, silence);
        self.shares.change_in_flight((vo, site), &changes);
    }

    /// Takes in some of what waits in the inbox, in steps of bounded work, so that look-ups and reports are not
    /// delayed.
    pub(crate) fn take_in(&mut self, now: Now) {
        while self.inbox.reading.is_none()
            && let Some((ticket, by, bytes)) = self.inbox.handed_in.pop_front()
        {
            self.read(now, Bringer::Owner(ticket, by), bytes);
        }
        let mut room = STEP_BYTES;
        while room > 0
            && self.inbox.reading.is_none()
            && let Some((from, vo, mut arrival)) = self.inbox.brought.pop_front()
        {
            if let Some(rest) = split_off(&mut arrival, room) {
                self.inbox.brought.push_front((from, vo, rest));
            }
            let held = self.vos.get(&vo).map(|held| &held.replica);
            room = room.saturating_sub(bytes_of(&arrival, held).max(1));
            self.take_arrival(now, from, vo, arrival);
        }
    }

    /// Takes a large document that was parsed outside the site's task.
    pub(crate) fn take_read(&mut self, now: Now, document: Option<Document>) {
        if let Some(from) = self.inbox.reading.take() {
            self.take_document(now, from, document);
        }
    }

    fn read(&mut self, now: Now, from: Bringer, bytes: Vec<u8>) {
        if bytes.len() <= READ_AT_ONCE_BYTES_MAX {
            return self.take_document(now, from, Document::read(&bytes));
        }
        self.inbox.reading = Some(from);
        self.cx.effects.push(Effect::Work(Work::read(bytes)));
    }

    fn take_arrival(&mut self, now: Now, from: SiteId, vo: VoId, arrival: Arrival) {
        let received = self.received_at(now);
        let held = self.vos.get_mut(&vo).filter(|held| held.is_founded());
        let taken: Vec<Result<Absorbed, Refusal>> = match (arrival, held) {
            (Arrival::Document(bytes), _) => {
                return self.read(now, Bringer::Peer(from, vo), bytes.into_vec());
            }
            // The charter defines the members and the length of a window. A head that is checked without it, even one
            // of this site's own, would be refused for good. So nothing is taken, and a later exchange brings all of
            // it.
            (_, None) => return,
            (Arrival::HeadsEnd, Some(held)) => {
                held.told_by.insert(from);
                return;
            }
            (Arrival::Proof(a, b), Some(held)) => vec![held.replica.take_proof(&a, &b)],
            (Arrival::Head(item), Some(held)) => {
                let kinds = held.kinds();
                vec![held.replica.take_item(&kinds, received, from, item)]
            }
            (Arrival::Parts(id, parts), Some(held)) => {
                let kinds = held.kinds();
                let next = self.inbox.brought.front();
                let follow = matches!(next, Some((_, _, Arrival::Parts(of, _))) if *of == id);
                match follow {
                    true => held.replica.take_some_parts(&kinds, now.mono, id, parts),
                    false => held.replica.take_parts(&kinds, now.mono, from, id, parts),
                }
            }
        };
        for taken in taken {
            self.absorbed(now, from, vo, taken);
        }
    }

    /// Takes a document that was read.
    pub(crate) fn take_document(&mut self, now: Now, from: Bringer, document: Option<Document>) {
        match from {
            Bringer::Owner(ticket, by) => {
                self.documents().take_handed_in(now, ticket, &by, document)
            }
            Bringer::Peer(peer, vo) => {
                _ = self.documents().absorb_document(now, peer, vo, document);
            }
        }
    }
}
