//! Signing this site's own heads.
//!
//! Invariant: a head is durable here before anybody else gets it.

use std::collections::BTreeSet;

use fairmesh_gossip::PartKey;
use fairmesh_model::{MonoTime, Now, Span, VoId, mutant, mutated};

use crate::advert::own::{AdvertHandler, advert_due_at};
use crate::advert::sources::Sources;
use crate::config::Timing;
use crate::event::Effect;
use crate::kinds::usage_slice;
use crate::parts::{Cx, Own, Shares, Vos};
use crate::usage::UsageHandler;

/// When the next head of a VO is due.
fn due(last: Option<MonoTime>, is_news: bool, timing: &Timing) -> MonoTime {
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

pub(crate) struct PublishHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) shares: &'a mut Shares,
    pub(crate) sources: &'a mut Sources,
}

impl PublishHandler<'_> {
    fn usage(&mut self) -> UsageHandler<'_> {
        UsageHandler::new(self.cx, self.own, self.vos, self.shares)
    }

    /// Signs for every VO whose next head is due.
    pub(crate) fn publish_due(&mut self, now: Now) {
        for vo in publishing_vos(self.cx, self.vos) {
            if now.mono >= publish_due_at(self.cx, self.own, self.vos, vo) {
                self.publish(now, vo);
            }
        }
    }

    /// Signs everything that is not published, due or not.
    pub(crate) fn publish_all(&mut self, now: Now) {
        for vo in publishing_vos(self.cx, self.vos) {
            if self.own.has_unpublished(vo) {
                self.publish(now, vo);
            }
        }
    }

    /// Signs a head over all that this site has of a VO.
    pub(crate) fn publish(&mut self, now: Now, vo: VoId) {
        let (own, window) = (self.cx.id, self.vos[&vo].window());
        let latest = now.wall.after(self.cx.config.timing.clock_tolerance);
        // What was counted while the clock was ahead, in windows that have not come, counts now.
        if self.own.is_ahead_of(vo, latest, window) && !mutated!(AheadNeverPlaced) {
            let all = self.vos.knows_own_past(own, vo);
            self.usage()
                .change_own(Some(vo), |own| own.settle_future(vo, latest, window, all));
        }
        AdvertHandler::new(self.cx, self.own, self.vos, self.sources).bring_advert(now, vo);
        self.own.bring_reach(vo, latest);
        let incarnation = self.own.incarnation();
        let held = self.vos.listed(vo);
        let is_first = !held
            .replica
            .heads_of(own)
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
        held.published.update_description(&held.replica, own);
        held.published_at = Some(now.mono);
        held.quota.published();
        self.cx.clock.last_head_at = self.cx.clock.last_head_at.max(now.wall);
        self.cx.stats.heads_published += 1;
        self.cx.persist_head(vo, &change);
        let left_out = spans_of(&mut change.left_out.iter());
        self.follow_left_out(now, vo, &changed, left_out);
        self.cx.effects.push(Effect::Push { vo, bytes: push });
        self.usage().notice_over_capacity(now, vo, own);
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
        self.usage().notice_left_out(now, vo, left_out);
    }
}

/// The VOs that this site counts for, and for which it may sign now.
pub(crate) fn publishing_vos(cx: &Cx, vos: &Vos) -> Vec<VoId> {
    let may = vos
        .iter()
        .filter(|(_, vo)| vo.replica.is_member(cx.id) && cx.clock.standing.may_sign(vo.is_alone()));
    may.map(|(id, _)| *id).collect()
}

/// When a VO's next head is due.
pub(crate) fn publish_due_at(cx: &Cx, own: &Own, vos: &Vos, vo: VoId) -> MonoTime {
    let held = &vos[&vo];
    let last = held.published_at;
    let timing = &cx.config.timing;
    let usual = due(last, own.has_unpublished(vo), timing);
    let advert = advert_due_at(&cx.config, vos, vo, due(last, true, timing));
    let usual = usual.min(advert.unwrap_or(usual));
    let usual = usual.min(cx.twin_due(last).unwrap_or(usual));
    held.quota.due(usual, last)
}
