//! Quotas in time, and requests of members for rights.

use std::collections::BTreeSet;

use fairmesh_model::{CoreMillis, Millis, MonoTime, Now, SiteId, VoId, mutated};
use fairmesh_quota::Want;

use super::wire;
use crate::advert::sources::Sources;
use crate::parts::{Cx, Own, Peers, Quotas, Shares, Vos};
use crate::quota::query::QuotaQuery;
use crate::quota::rights::RightsHandler;
use crate::quota::rounds::Round;
use crate::quota::{ASK_AGAIN, GIVE_AGAIN};
use crate::requests::{WANT, numbered};
use crate::tickets::Channel;

/// Time between two ticks of a ledger: expiry, settlement, and requests for rights.
const TICK: Millis = Millis::from_secs(1);

/// Decides holds, asks members for rights and gives them rights.
pub(crate) struct QuotaHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) shares: &'a Shares,
    pub(crate) sources: &'a mut Sources,
    pub(crate) quotas: &'a mut Quotas,
    pub(crate) peers: &'a mut Peers,
}

impl QuotaHandler<'_> {
    pub(super) fn rights(&mut self) -> RightsHandler<'_> {
        RightsHandler::new(self.cx, self.own, self.vos)
    }

    pub(super) fn query(&self) -> QuotaQuery<'_> {
        QuotaQuery {
            cx: self.cx,
            vos: self.vos,
            tree: &self.shares.tree,
            sources: self.sources,
        }
    }

    /// Does what is due: expiry, thaw, requests, witnesses, and waiting calls. Calls come last, because the steps
    /// before may bring their rights.
    pub(crate) fn advance_quotas(&mut self, now: Now) {
        for vo in self.vos.ids() {
            let held = &self.vos[&vo];
            let last = held.quota.ticked_at;
            let is_due = last.is_none_or(|at| now.mono >= at.after(TICK));
            if is_due && held.charter().is_some() {
                self.tick_quota(now, vo);
            }
            self.advance_witnesses(now, vo);
            self.answer_waiting(now, vo);
        }
    }

    fn tick_quota(&mut self, now: Now, vo: VoId) {
        let connected: BTreeSet<SiteId> = self.peers.gossip.peers().collect();
        self.post_price(now, vo);
        let held = self.vos.listed(vo);
        let quota = &mut held.quota;
        let before = quota.ticked_at.replace(now.mono).unwrap_or(now.mono);
        // A clock that is not confirmed must not expire holds or end slices: they go on with the monotonic clock.
        quota.wall = match self.cx.clock.standing.may_forget() || mutated!(WrongClockExpires) {
            true => now.wall,
            false => quota.wall.after(now.mono.since(before)),
        };
        let wall = quota.wall;
        let was_frozen = quota.ledger.is_frozen();
        quota.ledger.tick(wall);
        if was_frozen && !quota.ledger.is_frozen() {
            quota.heard();
        }
        if quota.is_on {
            quota.burns.look(wall, &quota.ledger);
            quota.asked.retain(|_, again| now.mono < *again);
            quota.given.retain(|_, at| now.mono < at.after(GIVE_AGAIN));
            // A frozen site probes the members that it must hear, instead of waiting for the random probes.
            for site in quota
                .ledger
                .unheard()
                .filter(|site| connected.contains(site))
            {
                self.peers.gossip.probe(site);
            }
            let asked = std::mem::take(&mut quota.asked);
            let can_hear =
                |site, slice| connected.contains(&site) && !asked.contains_key(&(site, slice));
            let wants = quota.ledger.wants(wall, can_hear);
            quota.asked = asked;
            self.ask_for_rights(now, vo, wants);
        }
        self.follow_funded(now, vo);
        self.rights().keep_quota(vo);
    }

    pub(super) fn ask_for_rights(&mut self, now: Now, vo: VoId, wants: Vec<(SiteId, Want)>) {
        for (to, want) in wants {
            let quota = &mut self.vos.listed(vo).quota;
            let again = now.mono.after(ASK_AGAIN);
            quota.asked.insert((to, want.slice), again);
            self.quotas.last_want += 1;
            let id = numbered(WANT, self.quotas.last_want);
            let bytes = wire::want(vo, &want);
            self.quotas.stats.asked += 1;
            self.cx.ask(to, id, bytes);
        }
    }

    /// Answers a member's request for rights. The reply only states the amount; the rights are sent by the next head.
    pub(crate) fn answer_want(&mut self, now: Now, from: SiteId, channel: Channel, bytes: &[u8]) {
        let given = wire::read_want(bytes).map_or(CoreMillis(0), |(vo, want)| {
            self.give_rights(now, from, vo, &want)
        });
        let bytes = wire::given(given);
        self.cx.answer(channel, bytes);
    }

    fn give_rights(&mut self, now: Now, to: SiteId, vo: VoId, want: &Want) -> CoreMillis {
        let Some(held) = self.vos.get_mut(&vo) else {
            return CoreMillis(0);
        };
        let is_early = held.quota.given.get(&to);
        let is_early = is_early.is_some_and(|at| now.mono < at.after(GIVE_AGAIN));
        if is_early || !held.replica.is_member(to) {
            return CoreMillis(0);
        }
        let given = held.quota.ledger.give(now.wall, to, want);
        if given.0 == 0 {
            return given;
        }
        held.quota.given.insert(to, now.mono);
        // The head goes out at once: a job at the other site waits for the rights.
        held.quota.is_urgent = true;
        self.quotas.stats.transfers += 1;
        self.quotas.stats.sent = self.quotas.stats.sent.saturating_add(given.0);
        self.rights().keep_quota(vo);
        given
    }
}

impl Vos {
    /// When the next waiting call, question to a witness, or tick is due.
    pub(crate) fn quota_wakeup(&self) -> Option<MonoTime> {
        let due = self.values().filter_map(|held| {
            let waits = held.quota.waiting.iter().map(|call| call.until);
            let ticks = held.quota.ticked_at.filter(|_| held.quota.is_on);
            let rounds = held.quota.rounds.values().map(Round::wakeup);
            waits
                .chain(rounds)
                .chain(ticks.map(|at| at.after(TICK)))
                .min()
        });
        due.min()
    }

    /// Takes a member's reply to a request for rights; `None` if there was none.
    pub(crate) fn take_given(&mut self, now: Now, from: SiteId, bytes: Option<&[u8]>) {
        let given = bytes.and_then(wire::read_given).unwrap_or_default();
        let quotas = self.values_mut().map(|held| &mut held.quota);
        quotas.for_each(|quota| quota.take_given(now.mono, from, given));
    }
}
