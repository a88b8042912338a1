//! What members published, as the share tree follows it, and what the operator is told of it.
//!
//! Invariant: usage counts of the sites that the charter in force lists, whenever they published it.

use std::collections::BTreeSet;

use fairmesh_model::{Now, SiteId, Span, VoId, WallTime, mutated};

use crate::event::Effect;
use crate::notice::Notice;
use crate::published::Step;
use crate::shares::Next;
use crate::usage::UsageHandler;
use crate::work::Work;

impl UsageHandler<'_> {
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
        self.notice_left_out(now, vo, spans);
    }

    /// Names that usage of these spans is not published, while the site has any.
    pub(crate) fn notice_left_out(&mut self, now: Now, vo: VoId, mut spans: BTreeSet<Span>) {
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
}
