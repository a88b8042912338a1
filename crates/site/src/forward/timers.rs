//! What time brings to jobs that are passed on: they are sent again, asked for, given up and at last forgotten.
//!
//! Invariant: nothing is forgotten that a member could still send, whatever the clock here says.

use std::collections::BTreeMap;

use fairmesh_broker::forward::Event as Arrived;
use fairmesh_model::{ContentHash, Millis, Now, SiteId};

use super::rows;
use super::table::{About, PendingRequest};
use super::wire::{ENDS_MAX, Message};
use crate::forward::handler::ForwardHandler;
use crate::time::GC_GRACE;

/// How long after its offer has ended a job is remembered: as far as two clocks may be apart.
const REMEMBERED: Millis = Millis::from_secs(86_400);

/// How often it is looked for what has ended.
const GC_EVERY: Millis = Millis::from_secs(10);

/// How often a member is asked what became of a job.
const ASK_AGAIN: Millis = Millis::from_secs(5);

impl ForwardHandler<'_> {
    pub(crate) fn advance_forward(&mut self, now: Now) {
        if self.forward.jobs.is_empty() {
            return;
        }
        if self
            .forward
            .machine
            .next_wakeup()
            .is_some_and(|at| at <= now.mono)
        {
            self.step(now, Arrived::Tick, None);
        }
        if now.mono >= self.forward.ends_at {
            self.forward.ends_at = now.mono.after(ASK_AGAIN);
            self.ask_for_ends(now);
        }
        if now.mono >= self.forward.gc_at {
            self.forward.gc_at = now.mono.after(GC_EVERY);
            self.collect_garbage(now);
        }
    }

    /// Asks those who have taken jobs what became of them.
    fn ask_for_ends(&mut self, now: Now) {
        let mut by_site: BTreeMap<(SiteId, bool), Vec<ContentHash>> = BTreeMap::new();
        for (site, job) in &self.forward.away {
            let is_wanted_back = self.forward.jobs[job].is_wanted_back();
            let of_site = by_site.entry((*site, is_wanted_back)).or_default();
            of_site.push(*job);
        }
        for ((to, is_wanted_back), mut jobs) in by_site {
            // Another part of many at each time.
            let turn = usize::try_from(self.forward.last_ask).unwrap_or_default() % jobs.len();
            jobs.rotate_left(turn);
            jobs.truncate(ENDS_MAX);
            if self.may_ask(to) {
                let (message, about) = match is_wanted_back {
                    true => (Message::Withdraw(jobs.clone()), About::Withdrawals(jobs)),
                    false => (Message::Ends(jobs.clone()), About::Ends(jobs)),
                };
                self.ask_member(now, to, about, &message);
            }
        }
    }

    /// Gives up what nobody answers for, and lets go of what nobody takes any more.
    fn collect_garbage(&mut self, now: Now) {
        let timeout = self.cx.config.timing.request_timeout;
        let forward = &mut self.forward;
        let is_young = |asked: &PendingRequest| now.mono < asked.at.after(timeout).after(timeout);
        forward.asks.retain(|_, asked| is_young(asked));
        let silence = self.cx.config.timing.silence;
        forward
            .recent
            .retain(|(_, at, _)| now.wall.since(*at) <= silence);
        let minute = Millis::from_secs(60);
        forward
            .rates
            .retain(|_, (began, _)| now.mono < began.after(minute));
        // By a clock that may be wrong nothing is given up or forgotten.
        let is_early = now.mono < self.cx.clock.started.mono.after(GC_GRACE);
        if is_early || !self.cx.clock.standing.may_forget() {
            return;
        }
        let open = forward
            .open
            .iter()
            .map(|job| (*job, forward.jobs[job].until));
        let over = open.filter(|(_, until)| *until <= now.wall);
        let over: Vec<ContentHash> = over.map(|(job, _)| job).collect();
        let old = forward.jobs.iter();
        let old = old.filter(|(job, entry)| {
            now.wall >= entry.until.after(REMEMBERED) && !forward.open.contains(*job)
        });
        let old: Vec<ContentHash> = old.map(|(job, _)| *job).collect();
        for job in over {
            // Of one that is here nothing comes: it waits for the batch system.
            self.step(now, Arrived::Expired(job.to_string()), None);
        }
        let gone = old.iter().map(|job| rows::row(*job, None)).collect();
        self.cx.persist(gone);
        old.into_iter().for_each(|job| self.forward.forget(job));
    }
}
