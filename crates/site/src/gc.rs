//! Garbage collection, once a day: windows of old days are merged into days, and data without weight is dropped.

use fairmesh_fairshare::OLD_DAYS;
use fairmesh_gossip::Shared;
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{Now, Span, WallTime, mutant};

use crate::event::Effect;
use crate::parts::{Cx, Jobs, Own, Shares, Vos};
use crate::quota::rights::RightsHandler;
use crate::store::head_row;
use crate::time::GC_GRACE;
use crate::trees::warn_of_documents;
use crate::usage::UsageHandler;

pub(crate) struct GcHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) shares: &'a mut Shares,
    pub(crate) jobs: &'a mut Jobs,
}

impl GcHandler<'_> {
    fn usage(&mut self) -> UsageHandler<'_> {
        UsageHandler::new(self.cx, self.own, self.vos, self.shares)
    }

    fn rights(&mut self) -> RightsHandler<'_> {
        RightsHandler::new(self.cx, self.own, self.vos)
    }

    /// Collects garbage if it is due and the clock may be trusted: what a wrong clock forgets is lost.
    pub(crate) fn collect_garbage(&mut self, now: Now) {
        let day = now.wall.0 / DAY_MS;
        let is_early = now.mono < self.cx.clock.started.mono.after(GC_GRACE);
        let is_done = mutant!(
            HouseKeptOnce,
            day == self.cx.clock.last_gc_day,
            self.cx.clock.last_gc_day > 0
        );
        if is_early || is_done || !self.cx.clock.standing.may_forget() {
            return;
        }
        self.cx.clock.last_gc_day = day;
        let mut horizon = self.shares.tree.local_horizon(&self.cx.config, now.wall);
        let past = mutant!(LocalForgottenEarly, horizon, now.wall);
        let window = self.cx.config.local_window;
        self.usage()
            .change_own(None, |own| own.forget(None, past, window));
        for vo in self.vos.ids() {
            let held = self.vos.listed(vo);
            // Marks must outlive the usage of every VO. While one cannot be judged, no mark is forgotten.
            if !self.cx.clock.standing.may_sign(held.is_alone()) || !held.is_founded() {
                horizon = WallTime(0);
                continue;
            }
            let (window, past) = (held.window(), held.horizon(now.wall));
            horizon = mutant!(LastHorizonHolds, horizon.min(past), past);
            let left_out = std::mem::take(&mut held.left_out);
            let rows = held
                .replica
                .forget_removed(mutant!(RemovedForgotten, past, now.wall));
            self.cx
                .persist(rows.iter().map(|row| head_row(vo, row)).collect());
            let today = window.day_of(window.window_at(now.wall));
            let is_old = |day: Span| today.saturating_sub(day.day(window)) >= OLD_DAYS;
            self.usage()
                .change_own(Some(vo), |own| own.merge_days(Some(vo), window, is_old));
            let past = mutant!(ForgottenEarly, past, now.wall);
            self.usage()
                .change_own(Some(vo), |own| own.forget(Some(vo), past, window));
            self.vos
                .change_audit(self.own, vo, |audit| audit.forget(past));
            self.rights().forget_quota(vo, past);
            self.usage().try_left_out(now, vo, left_out);
        }
        horizon = horizon.min(self.horizon_of_left(now.wall));
        warn_of_documents(self.cx, self.vos, now);
        let rows = self.jobs.forget_refunds(now.wall, horizon);
        self.cx.persist(rows);
        let rows = self.jobs.forget_instalments(horizon);
        self.cx.persist(rows);
        let before = mutant!(MarksForgottenEarly, horizon, now.wall);
        let at = now.wall;
        self.cx.effects.push(Effect::ForgetMarks { before, at });
    }

    /// The time before which no usage counts in VOs that the owner has left. Their usage is still there when the
    /// owner names one again, so the marks of its jobs must be kept.
    fn horizon_of_left(&self, now: WallTime) -> WallTime {
        let counting = self.vos.left.iter().filter_map(|(vo, held)| {
            let past = held.horizon(now);
            let past = if held.is_founded() { past } else { WallTime(0) };
            let counts = |span: Span| span.end(held.window()) > past;
            self.own.spans(Some(*vo)).any(counts).then_some(past)
        });
        counting.min().unwrap_or(WallTime(u64::MAX))
    }
}
