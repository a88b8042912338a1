//! A user takes a job back that he has handed in.
//!
//! What he wants is noted, durably, at each site that has had the job, one after the other; each asks the next one
//! again until it knows what came of it. Whoever runs commands beside the last node decides: a job whose command
//! never began begins no more; one that the batch system has is withdrawn there, if the owner has said how.
//!
//! Invariant: from the moment in which a site has noted it that site sends the job nowhere; and what is answered does
//! not change any more. So a job is taken back, or is with a batch system, and never both.
//! Deliberately not here: batch systems.

use fairmesh_model::{ContentHash, Now, SiteId};

use super::calls::{ForwardAnswer, ForwardReply};
use super::rows::Withdrawal;
use super::wire::End;
use crate::forward::handler::ForwardHandler;

impl ForwardHandler<'_> {
    /// The user takes a job back that he has handed in here.
    pub(super) fn withdraw_job(&mut self, now: Now, job: ContentHash) -> ForwardReply {
        let entry = self.forward.jobs.get(&job);
        if entry.is_none_or(|entry| entry.errand.is_none()) {
            return Err(format!("no job {job} was handed in here"));
        }
        self.want_back(now, job);
        Ok(ForwardAnswer::Settled)
    }

    /// Notes that a job is to be taken back, unless nothing of it is to be had any more. Who repeats it brings no
    /// news, and has nobody asked before that is due.
    fn want_back(&mut self, now: Now, job: ContentHash) {
        let kept = self.forward.machine.kept(&job.to_string());
        let Some((kept, entry)) = kept.zip(self.forward.jobs.get_mut(&job)) else {
            return;
        };
        let has_failed = matches!(entry.end(kept), Some(End::Failed { .. }));
        if entry.withdrawal == Withdrawal::None && !has_failed {
            entry.withdrawal = Withdrawal::Wanted;
            self.keep_job(&job.to_string());
            // Those who have it are asked at once.
            self.forward.ends_at = now.mono;
        }
    }

    /// A member's user takes a job back that it has sent here.
    pub(super) fn want_back_for(&mut self, now: Now, asker: SiteId, job: ContentHash) {
        let entry = self.forward.jobs.get(&job);
        if entry.is_some_and(|entry| entry.from.contains(&asker)) {
            self.want_back(now, job);
        }
    }

    /// What became of such a job, once that stays as it is.
    pub(super) fn end_of_withdrawn(&self, asker: SiteId, job: ContentHash) -> Option<End> {
        let end = self.end_for(asker, job)?;
        let entry = self.forward.jobs.get(&job);
        let may_change = entry.is_some_and(|entry| entry.is_wanted_back());
        (!may_change || matches!(end, End::Failed { .. })).then_some(end)
    }

    /// Whoever runs commands here has withdrawn a job from the batch system, or not.
    pub(super) fn settle_withdrawal(&mut self, job: ContentHash, is_withdrawn: bool) {
        if !self.forward.to_withdraw.contains(&job) {
            return;
        }
        let entry = self.forward.jobs.get_mut(&job).expect("it is listed");
        entry.withdrawal = Withdrawal::Answered;
        if is_withdrawn {
            entry.end = Some(End::withdrawn(Vec::new()));
        }
        self.keep_job(&job.to_string());
    }
}
