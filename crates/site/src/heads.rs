//! Heads: signing the site's own, and taking those of others.
//!
//! Invariant: a head is durable here before anybody else sees it, and so is what it changed of the
//! members' before it is passed on. What is refused changes nothing, is counted, and says who sent it
//! and why.

use std::collections::BTreeSet;

use fairmesh_gossip::wire::Push;
use fairmesh_gossip::{Absorbed, Change, PartKey, Refusal, Seen, Shared};
use fairmesh_model::{
    AccountPath, HashSecret, Incarnation, MonoTime, Now, SiteId, Span, VoId, WallTime, cbor,
    mutant, mutated,
};
use fairmesh_usage::{Cell, Paths, Table as UsageTable};

use crate::advert::own::advert_due_at;
use crate::audit::{self, AuditEntry};
use crate::config::Timing;
use crate::document::Document;
use crate::event::{Effect, PushToken, Verdict};
use crate::kinds::{AUDIT, REACH, USAGE, usage_slice};
use crate::notice::Notice;
use crate::own::is_placed;
use crate::published::{Step, Summed};
use crate::reach::{Reach, reach_row};
use crate::shares::Next;
use crate::site::Site;
use crate::store::{Table, Write, head_row, vo_key};
use crate::vo::Vo;
use crate::work::Work;

/// When the next head of a VO is due.
pub(crate) fn due(last: Option<MonoTime>, is_news: bool, timing: &Timing) -> MonoTime {
    let interval = if is_news {
        timing.publish
    } else {
        mutant!(HeartbeatsRare, timing.heartbeat, timing.heartbeat.times(4))
    };
    // The first one waits, too: a node that keeps crashing right after its start must not leave an
    // incarnation behind each time.
    let first = MonoTime(0).after(timing.publish);
    last.map_or(first, |at| at.after(interval))
}

/// Signing.
impl Site {
    /// Signs for every VO whose next head is due.
    pub(crate) fn publish_due(&mut self, now: Now) {
        for vo in self.publishing_vos() {
            if now.mono >= self.publish_due_at(vo) {
                self.publish(now, vo);
            }
        }
    }

    /// Signs everything that is not published, due or not.
    pub(crate) fn publish_all(&mut self, now: Now) {
        for vo in self.publishing_vos() {
            if self.own.has_unpublished(vo) {
                self.publish(now, vo);
            }
        }
    }

    /// The VOs that this site counts for, and for which it may sign now.
    pub(crate) fn publishing_vos(&self) -> Vec<VoId> {
        let may = self.vos.iter().filter(|(_, vo)| {
            vo.replica.is_member(self.cx.id) && self.cx.clock.standing.may_sign(vo.is_alone())
        });
        may.map(|(id, _)| *id).collect()
    }

    /// Signs a head over all that this site has of a VO.
    pub(crate) fn publish(&mut self, now: Now, vo: VoId) {
        let window = self.vos[&vo].window();
        let latest = now.wall.after(self.cx.config.timing.clock_tolerance);
        // What was counted while the clock was ahead, in windows that have not come, counts now.
        if self.own.is_ahead_of(vo, latest, window) && !mutated!(AheadNeverPlaced) {
            let all = self.vos.knows_own_past(self.cx.id, vo);
            self.usage()
                .change_own(Some(vo), |own| own.settle_future(vo, latest, window, all));
        }
        self.adverts_handler().bring_advert(now, vo);
        self.own.bring_reach(vo, latest);
        let incarnation = self.own.incarnation();
        let held = self.vos.listed(vo);
        let is_first = !held
            .replica
            .heads_of(self.cx.id)
            .any(|head| head.body().incarnation == incarnation);
        let changes = self.own.take_changes(vo, is_first, latest, window);
        let spans_of = |keys: &mut dyn Iterator<Item = &PartKey>| -> BTreeSet<Span> {
            keys.filter_map(usage_slice).map(|of| of.span).collect()
        };
        let changed = spans_of(&mut changes.iter().map(|(key, _)| key));
        let held = self.vos.listed(vo);
        let (change, push) =
            held.replica
                .publish(&held.kinds(), &self.cx.key, incarnation, now.wall, changes);
        held.published.update_description(&held.replica, self.cx.id);
        held.published_at = Some(now.mono);
        held.quota.published();
        self.cx.clock.last_head_at = self.cx.clock.last_head_at.max(now.wall);
        self.cx.stats.heads_published += 1;
        self.keep_rows(vo, &change);
        let left_out = spans_of(&mut change.left_out.iter());
        self.follow_left_out(now, vo, &changed, left_out);
        self.cx.effects.push(Effect::Push { vo, bytes: push });
        self.notice_over_capacity(now, vo, self.cx.id);
    }

    /// The head has all of the spans that it `changed`, but for those that were `left_out`.
    fn follow_left_out(
        &mut self,
        now: Now,
        vo: VoId,
        changed: &BTreeSet<Span>,
        mut left_out: BTreeSet<Span>,
    ) {
        let before = &self.vos[&vo].left_out;
        if left_out.is_empty() && before.is_empty() {
            return;
        }
        self.own.hold_alone(vo, &left_out);
        left_out.extend(before.difference(changed));
        self.name_left_out(now, vo, left_out);
    }

    fn keep_rows(&mut self, vo: VoId, change: &Change) {
        let rows = change.rows.iter().map(|row| head_row(vo, row));
        let kept = rows.filter(|row| row.table != Table::Parts || !mutated!(PartsUnstored));
        self.cx.persist(kept.collect());
    }

    /// When a VO's next head is due.
    pub(crate) fn publish_due_at(&self, vo: VoId) -> MonoTime {
        let held = &self.vos[&vo];
        let last = held.published_at;
        let timing = &self.cx.config.timing;
        let usual = due(last, self.own.has_unpublished(vo), timing);
        let advert = advert_due_at(&self.cx.config, &self.vos, vo, due(last, true, timing));
        let usual = usual.min(advert.unwrap_or(usual));
        let usual = usual.min(self.cx.twin_due(last).unwrap_or(usual));
        held.quota.due(usual, last)
    }
}

/// Taking.
impl Site {
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
                let verdict = self.absorb_document(now, from, vo, Document::read(&bytes));
                self.judge(token, verdict);
            }
            Ok(Push::Head(head, delta)) => {
                self.absorb_push(now, from, (vo, token), |held, seen| {
                    let delta = delta.as_ref().map(|delta| delta.as_slice());
                    let kinds = held.kinds();
                    held.replica.take_push(&kinds, seen, from, &head, delta)
                });
            }
            Ok(Push::Next(next)) => self.absorb_push(now, from, (vo, token), |held, seen| {
                held.replica.take_next(&held.kinds(), seen, from, &next)
            }),
            Ok(Push::Proof(a, b)) => {
                self.absorb_push(now, from, (vo, token), |held, _| {
                    held.replica.take_proof(&a, &b)
                });
            }
        }
    }

    fn judge(&mut self, token: PushToken, verdict: Verdict) {
        self.cx.effects.push(Effect::Judge { token, verdict });
    }

    fn absorb_push(
        &mut self,
        now: Now,
        from: SiteId,
        (vo, token): (VoId, PushToken),
        take: impl FnOnce(&mut Vo, Seen) -> Result<Absorbed, Refusal>,
    ) {
        let seen = self.seen(now);
        let Some(held) = self.vos.get_mut(&vo).filter(|held| held.is_founded()) else {
            return self.judge(token, Verdict::Ignore);
        };
        let taken = take(held, seen);
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
        // Who gets it from here asks here for its content, and not again before the next exchange: it is
        // passed on once that can be answered. One head of a site waits.
        let held = self.vos.listed(vo);
        if let Some((_, older)) = held.bare.insert(site, (hash, token)) {
            self.judge(older, Verdict::Ignore);
        }
    }

    /// Takes the answer to one of our requests. What does not fit to what is held is asked for again in
    /// the next exchange, not at once.
    pub(crate) fn take_answer(&mut self, now: Now, from: SiteId, id: u64, bytes: Option<&[u8]>) {
        let arrivals = self
            .peers
            .gossip
            .answered(now, from, id, bytes, &mut self.vos);
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

    /// A probe has just shown of which VOs `from` holds what this site does. Where both halves are equal both go
    /// by one charter, so the heads of this site are among those compared: the peer holds none that is not here.
    /// Two sites without a charter agree on nothing, and one of them may have lost it.
    pub(crate) fn follow_agreements(&mut self, now: Now, from: SiteId) {
        for vo in self.vos.ids() {
            let held = self.vos.listed(vo);
            if held.is_founded() && self.peers.gossip.agreed_just_now(from, vo, now.mono) {
                held.told_by.insert(from);
                self.rights().hear(now, from, vo);
            }
        }
    }

    pub(crate) fn seen(&self, now: Now) -> Seen {
        Seen {
            now,
            tolerance: self.cx.config.timing.clock_tolerance,
        }
    }

    /// Keeps what was absorbed and lets everything that depends on it know. Says whether a push of it is
    /// passed on.
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
            // Whoever has not seen the fork is to.
            Ok(Absorbed::Known | Absorbed::Wanted | Absorbed::Gap) if !forks.is_empty() => {
                Verdict::Accept
            }
            // What does not fit is of anybody, and a flood of it would travel as far as it was passed on.
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
            // It waits until it is due: that is named while it lasts, and is no fault of who passed it on.
            Refusal::Future { site, at } => {
                self.cx.stats.refused += 1;
                self.cx.notice_clock(now, *site, at.since(now.wall), true);
            }
            _ => self.cx.refused(now.mono, vo, from, &refusal.to_string()),
        }
    }

    fn keep_proof(&mut self, now: Now, vo: VoId, site: SiteId) {
        self.cx.notice(now.mono, Notice::Forked { vo, site });
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
        self.keep_rows(vo, change);
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
                self.absorb_own(now, vo, &change.parts);
            }
            return;
        }
        if !self.vos[&vo].replica.is_member(site) {
            // Its parts were under way when a charter dropped it: kept, and read should it be listed again.
            return;
        }
        let held = self.vos.listed(vo);
        held.received.insert(site, now.mono);
        self.rights()
            .take_rights(vo, change.head.body(), &change.parts);
        let silence = self.cx.config.timing.silence;
        let held = self.vos.listed(vo);
        held.published.note(site, &change.parts);
        // Of several heads the one that was signed last says it, and which that is may have changed.
        let touches =
            |kind| change.other_newest || change.parts.iter().any(|key| key.kind() == kind);
        // Of the others nothing has changed: they are not looked at after each head.
        let weighed = held.silence_checked.as_mut();
        if let Some((_, due)) = weighed.filter(|_| !mutated!(SilenceUnlooked)) {
            *due = (*due).min(change.head.body().at.after(silence));
        }
        let changes = held.read_newest(site, touches, now.wall, silence);
        self.shares.change_in_flight((vo, site), &changes);
    }

    /// Lets the share tree follow some of what members' heads changed.
    pub(crate) fn follow_members(&mut self, now: Now) {
        let mut room = self.cx.config.timing.sweep_entries.div_ceil(2);
        for vo in self.vos.ids() {
            while room > 0 && self.follow_member(now, vo, &mut room) {}
        }
    }

    /// Goes one step; false where there is none.
    fn follow_member(&mut self, now: Now, vo: VoId, room: &mut usize) -> bool {
        let may_begin = !matches!(self.shares.next, Some(Next::Loading(_)));
        let held = self.vos.listed(vo);
        let Some((site, step)) = held.step(room, may_begin) else {
            return false;
        };
        let update = match step {
            Step::Nothing => return true,
            Step::Sum(sum) => {
                self.cx.effects.push(Effect::Work(Work::sum(vo, sum)));
                return true;
            }
            Step::Counted(update) => update,
        };
        self.cx.stats.cells_taken += update.moved.len() as u64;
        self.shares
            .move_member((vo, site), &mut held.published, &update.moved);
        let charge = update.taken_back;
        held.published.finish(update);
        if charge > 0 && !mutated!(TakenBackUnsaid) {
            self.cx
                .notice(now.mono, Notice::TookBack { vo, site, charge });
        }
        self.notice_over_capacity(now, vo, site);
        true
    }

    /// A large day of a member was summed up. A VO that was left since has forgotten it.
    pub(crate) fn take_sum(&mut self, vo: VoId, summed: Summed) {
        if let Some(held) = self.vos.get_mut(&vo) {
            held.published.take_sum(summed);
        }
    }

    /// Names a site that publishes more than it can have run, while it does.
    pub(crate) fn notice_over_capacity(&mut self, now: Now, vo: VoId, site: SiteId) {
        let notice = Notice::OverCapacity { vo, site };
        let is_over = self.vos.get(&vo).is_some_and(|held| {
            if site == self.cx.id {
                return self.own.is_over(vo, held.bounds());
            }
            held.published.is_over(site)
        });
        self.cx
            .notice_while(now.mono, notice, is_over && !mutated!(ExcessUnsaid));
    }

    /// Names all sites that publish more than they can have run, and no others: what the charter lists and
    /// declares has changed.
    pub(crate) fn notice_all_over_capacity(&mut self, now: Now, vo: VoId) {
        let sites = self.vos[&vo].published.sites();
        let is_of = |site: &SiteId| *site == self.cx.id || sites.contains(site);
        self.cx.notices.clear(
            |notice| !matches!(notice, Notice::OverCapacity { vo: of, site } if *of == vo && !is_of(site)),
        );
        for site in sites.into_iter().chain([self.cx.id]) {
            self.notice_over_capacity(now, vo, site);
        }
    }

    /// Days were merged, and some forgotten: there may be room again for these spans.
    pub(crate) fn try_left_out(&mut self, now: Now, vo: VoId, spans: BTreeSet<Span>) {
        self.own.publish_again(vo, spans.clone());
        self.name_left_out(now, vo, spans);
    }

    /// Names that usage of these spans is not published, while the site has any.
    fn name_left_out(&mut self, now: Now, vo: VoId, mut spans: BTreeSet<Span>) {
        spans.retain(|span| self.own.has(Some(vo), *span));
        let held = self.vos.listed(vo);
        let window = held.window();
        let until = spans.iter().map(|span| span.end(window)).max();
        held.left_out = spans;
        let said = until.map(|until| Notice::OverBudget { vo, until });
        let is_past = |of: &Notice| matches!(of, Notice::OverBudget { vo: of, .. } if *of == vo);
        self.cx
            .notices
            .clear(|of| !is_past(of) || said.as_ref() == Some(of));
        if let Some(said) = said {
            self.cx.notice(now.mono, said);
        }
    }

    /// A peer gave back what this site had published and does not know: it is joined in, and the next
    /// head covers it.
    pub(crate) fn absorb_own(&mut self, now: Now, vo: VoId, parts: &[PartKey]) {
        let held = &self.vos[&vo];
        let window = held.window();
        let audits = parts.iter().filter(|key| key.kind() == AUDIT);
        let audits = audits.flat_map(|key| held.replica.variants(self.cx.id, key));
        let audits: Vec<AuditEntry> = audits
            .filter_map(|bytes| audit::entries(bytes))
            .flatten()
            .collect();
        // Whole days, with what was known of them before: a head is told as a difference.
        let days = parts.iter().filter_map(usage_slice);
        let days: BTreeSet<u32> = days.map(|slice| slice.span.day(window)).collect();
        let mut cells = self.published_in(vo, |_, day| days.contains(&day));
        if cells.iter().any(|cell| is_placed(cell.0)) {
            // Of all days, and but for what this start has said: it may have published what has a place.
            cells = self.published_in(vo, |head, _| head != self.own.incarnation());
        }
        let past = self.past_reach(now, vo);
        let mut reach = self.own.reach.get(&Some(vo)).copied().unwrap_or_default();
        let absorbed = self.usage().change_own(Some(vo), |own| {
            let mut counted = own.absorb(vo, cells, window);
            if !counted.spans().is_empty() {
                reach = reach.given_back(past);
                counted.writes.push(reach_row(Some(vo), reach));
            }
            counted
        });
        if absorbed {
            self.own.reach.insert(Some(vo), reach);
            self.cx.notice(now.mono, Notice::Recovered { vo });
        }
        self.vos
            .change_audit(&mut self.own, vo, |audit| audit.join(audits));
        self.rights().absorb_own_rights(vo, parts);
        // It is covered at once, so that peers need not keep it. Another machine that runs would answer with a head.
        if self.cx.clock.twin_at.is_none() {
            let held = self.vos.listed(vo);
            held.published_at = None;
        }
    }

    /// The usage in heads of this site, by the heads' incarnations and by days.
    fn published_in(
        &self,
        vo: VoId,
        which: impl Fn(Incarnation, u32) -> bool,
    ) -> Vec<Cell<AccountPath>> {
        let (replica, window) = (&self.vos[&vo].replica, self.vos[&vo].window());
        let mut paths = Paths::new(HashSecret::of(&self.cx.key));
        let mut cells = Vec::new();
        for head in replica.heads_of(self.cx.id) {
            let head = head.body().incarnation;
            for (key, bytes) in replica.parts_of(self.cx.id, head, USAGE) {
                let Some(slice) = usage_slice(key).filter(|of| which(head, of.span.day(window)))
                else {
                    continue;
                };
                let table = UsageTable::read(bytes.clone(), &mut paths);
                cells.extend(table.cells().map(|(incarnation, id, counters)| {
                    (incarnation, slice.span, paths.path(id).clone(), counters)
                }));
            }
        }
        cells
    }

    /// Sites whose running jobs count: those that have signed lately. Looked at when the next of them may
    /// have been silent for too long, and whenever a head came or the clock went back.
    pub(crate) fn update_silent_members(&mut self, now: Now) {
        let silence = self.cx.config.timing.silence;
        for (vo, held) in self.vos.iter_mut() {
            let still = |(at, due): (WallTime, WallTime)| (at..=due).contains(&now.wall);
            if held.silence_checked.is_some_and(still) {
                continue;
            }
            let heads = held.replica.heads();
            let next = heads.map(|head| head.body().at.after(silence));
            let next = next.filter(|due| *due >= now.wall).min();
            held.silence_checked = Some((now.wall, next.unwrap_or(WallTime(u64::MAX))));
            for site in held.published.sites() {
                let counts = held.counts_expected(site, now.wall, silence);
                let changes = held.published.count_expected(site, counts);
                self.shares.change_in_flight((*vo, site), &changes);
            }
        }
    }

    /// Follows who is a member, and what the charter says of each: what members published that are new
    /// here is read from the heads that are held, and what those published that are none goes. Usage of
    /// the others stays as it was read.
    pub(crate) fn read_members(&mut self, now: Now, vo: VoId) {
        let held = self.vos.listed(vo);
        let members: BTreeSet<SiteId> = held.replica.heads().map(|head| head.body().site).collect();
        for site in held.published.sites() {
            if !members.contains(&site) && site != self.cx.id && !mutated!(RemovedStillCount) {
                held.published.drop_site(site);
            }
        }
        held.received.retain(|site, _| members.contains(site));
        let read: BTreeSet<SiteId> = held.published.sites().into_iter().collect();
        for site in members.into_iter().filter(|site| *site != self.cx.id) {
            if !read.contains(&site) && !mutated!(ReadmittedUnread) {
                held.published.read_new(&held.replica, site);
            }
            held.read_newest(site, |_| true, now.wall, self.cx.config.timing.silence);
        }
        held.published.update_description(&held.replica, self.cx.id);
        held.silence_checked = None;
    }

    /// Until when the counters reach in heads of this site's earlier starts that are held. What a second machine with
    /// its key signs meanwhile reaches to now: what came before this start is older than that, by whichever clock is
    /// ahead, ours or the members'.
    pub(crate) fn past_reach(&self, now: Now, vo: VoId) -> Reach {
        let replica = &self.vos[&vo].replica;
        let heads = replica
            .heads_of(self.cx.id)
            .map(|head| head.body().incarnation);
        let past = heads.filter(|head| *head != self.own.incarnation());
        let parts = past.flat_map(|head| replica.parts_of(self.cx.id, head, REACH));
        let reaches = parts.filter_map(|(_, bytes)| Reach::from_bytes(bytes));
        let reach = reaches.fold(Reach::default(), Reach::join);
        if now.mono == self.cx.clock.started.mono {
            // It was in the store.
            return reach;
        }
        let wall = self
            .cx
            .clock
            .own
            .wall
            .max(self.cx.clock.members.unwrap_or_default());
        let began = wall.before(now.mono.since(self.cx.clock.started.mono));
        // Jobs count that end as much later.
        reach.no_later_than(began.after(self.cx.config.timing.clock_tolerance))
    }
}
