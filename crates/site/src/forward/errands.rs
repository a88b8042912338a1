//! What people and programs beside the node say of jobs that are passed on: here is one for the mesh; the batch system
//! has that one, or has refused it.
//!
//! Invariant: what is answered is durable; a call that is repeated gets the same answer.

use fairmesh_broker::forward::{Event as Arrived, RoutedJob, State, TTL, TTL_MAX};
use fairmesh_model::{ContentHash, Now, Signed, cbor};
use serde_bytes::ByteBuf;

use crate::event::Reply;
use crate::forward::ForwardStats;
use crate::forward::calls::{
    ForwardAnswer, ForwardCall, ForwardReply, ForwardedJob, HereJob, Settlement, Withdrawn,
};
use crate::forward::handler::ForwardHandler;
use crate::forward::offer::{JobRequest, MISLEADING, OFFER_MAX, Offer};
use crate::forward::rows::Entry;
use crate::forward::table::has_ended;
use crate::forward::wire::{End, plain};
use crate::parts::Parts;
use crate::tickets::Ticket;

/// Most jobs of one user that are remembered: one user does not take all the room.
const JOBS_OF_USER_MAX: usize = 1_000;

impl ForwardHandler<'_> {
    pub(crate) fn take_forward_call(&mut self, now: Now, ticket: Ticket, call: ForwardCall) {
        let reply = match (self.cx.clock.refuses_all(), call) {
            (Some(why), _) => Err(why),
            (None, ForwardCall::HandIn(job, ttl)) => self.hand_in(now, *job, ttl),
            (None, ForwardCall::Settle(job, settlement)) => self.settle_job(now, job, settlement),
            (None, ForwardCall::Withdraw(job)) => self.withdraw_job(now, job),
            (None, ForwardCall::Withdrew(job, is_withdrawn)) => {
                self.settle_withdrawal(job, is_withdrawn);
                Ok(ForwardAnswer::Settled)
            }
        };
        self.cx.reply(ticket, Reply::Forward(Box::new(reply)));
    }

    fn hand_in(&mut self, now: Now, errand: JobRequest, ttl: Option<u8>) -> ForwardReply {
        let asked = ContentHash::of(&cbor::to_vec(&errand));
        if let Some(known) = self.known_errand(&errand, asked)? {
            return Ok(ForwardAnswer::HandedIn(known));
        }
        if self.has_wrong_clock() {
            let why = "the clock of this machine is off from the members', so it is not known until when the job may be taken";
            return Err(why.to_owned());
        }
        let places = self.places(now, &errand);
        let offer = Offer {
            origin: self.cx.id,
            issued: now.wall,
            until: now.wall.after(OFFER_MAX),
            job: errand,
        };
        let entry = Entry::of(&offer);
        let vo = entry.vo;
        let signed = Signed::sign(offer, &[&self.cx.key]).map_err(|error| error.to_string())?;
        let job = signed.hash();
        let entry = Entry {
            errand: Some(asked),
            offer: Some(ByteBuf::from(signed.bytes().to_vec())),
            ..entry
        };
        self.forward.insert(job, entry);
        self.forward.stats.handed_in += 1;
        let job_in = RoutedJob {
            job: job.to_string(),
            vo: vo.to_string(),
            ttl: ttl.unwrap_or(TTL).min(TTL_MAX),
            tried: Vec::new(),
        };
        let arrived = Arrived::FromUser {
            job: job_in,
            places,
        };
        self.step(now, arrived, None);
        Ok(ForwardAnswer::HandedIn(job))
    }

    /// The name of a job that was handed in before; an error where it cannot be handed in.
    fn known_errand(
        &self,
        errand: &JobRequest,
        asked: ContentHash,
    ) -> Result<Option<ContentHash>, String> {
        let bad = |why: &str| format!("job `{}`: {why}", errand.key.escape_debug());
        errand.validate().map_err(|why| bad(&why))?;
        if errand.is_misleading() {
            return Err(bad(MISLEADING));
        }
        if self.cx.config.forward.is_none() {
            let why =
                "the owner of this site passes no jobs on ([forward] in the node's configuration)";
            return Err(why.to_owned());
        }
        if !self.vos.is_founded(errand.vo) {
            return Err(bad("the charter of its VO has not come yet"));
        }
        let own = &self.forward.own;
        if let Some(known) = own.get(&(errand.user.clone(), errand.key.clone())) {
            return match self.forward.jobs[known].errand == Some(asked) {
                true => Ok(Some(*known)),
                false => Err(bad(
                    "this key is another job's, which asks for something else",
                )),
            };
        }
        let of_user = own.range((errand.user.clone(), String::new())..);
        let of_user = of_user.take_while(|((user, _), _)| *user == errand.user);
        if of_user.count() >= JOBS_OF_USER_MAX || self.forward.is_full(None) {
            return Err(bad("too many jobs were handed in within two days"));
        }
        Ok(None)
    }

    fn settle_job(&mut self, now: Now, job: ContentHash, settlement: Settlement) -> ForwardReply {
        let name = job.to_string();
        let kept = self.forward.machine.kept(&name);
        let Some(State::Here(routed, _)) = kept.map(|kept| &kept.state) else {
            // Said before, and the answer was lost.
            return match self.forward.jobs.contains_key(&job) {
                true => Ok(ForwardAnswer::Settled),
                false => Err(format!("no job {name} is known here")),
            };
        };
        let tried = routed.tried.clone();
        let end = match settlement {
            Settlement::Refused(why) => {
                let places = self.places_of(now, &name);
                self.step(now, Arrived::Refused(name, plain(&why), places), None);
                return Ok(ForwardAnswer::Settled);
            }
            Settlement::Submitted(batch) => {
                self.forward.stats.submitted += 1;
                End::Submitted {
                    site: self.cx.id,
                    batch: plain(&batch),
                }
            }
            Settlement::InDoubt(why) => {
                self.forward.stats.failed += 1;
                let why = plain(&why);
                End::Failed { why, tried }
            }
        };
        let entry = self
            .forward
            .jobs
            .get_mut(&job)
            .expect("the state machine keeps it");
        entry.end = Some(end);
        self.step(now, Arrived::Settled(name), None);
        Ok(ForwardAnswer::Settled)
    }
}

impl Parts {
    /// The names of all jobs that were handed in or taken here and are remembered, of those that were handed in first.
    pub fn forwarded_ids(&self) -> impl Iterator<Item = ContentHash> + '_ {
        let all = self.forward.jobs.iter();
        let others = all.filter(|(_, entry)| entry.errand.is_none());
        let own = self.forward.own.values();
        own.chain(others.map(|(id, _)| id)).copied()
    }

    /// The forwarded job with this name, if it is known.
    pub fn forwarded_job(&self, id: ContentHash) -> Option<ForwardedJob> {
        let entry = self.forward.jobs.get(&id)?;
        let kept = self.forward.machine.kept(&id.to_string())?;
        Some(ForwardedJob {
            id,
            vo: entry.vo,
            key: entry.key.clone(),
            user: entry.user.clone(),
            cpus: entry.cpus,
            is_own: entry.errand.is_some(),
            from: entry.from.clone(),
            stage: entry.stage(kept)?,
            withdrawal: entry.withdrawal,
        })
    }

    /// Those that are to be handed to the batch system here.
    pub fn forwarded_here(&self) -> impl Iterator<Item = HereJob> + '_ {
        self.forward.open.iter().filter_map(|id| {
            let kept = self.forward.machine.kept(&id.to_string())?;
            let State::Here(_, class) = &kept.state else {
                return None;
            };
            let entry = self.forward.jobs.get(id)?;
            let offer = entry.offer()?;
            Some(HereJob {
                id: *id,
                visit: kept.ttl,
                class: class.clone(),
                offer: offer.claimed().clone(),
                is_withdrawn: entry.is_wanted_back() || has_ended(entry, &self.cx.clock),
            })
        })
    }

    /// Jobs that the batch system here has, and whose users take them back.
    pub fn to_withdraw(&self) -> impl Iterator<Item = Withdrawn> + '_ {
        self.forward.to_withdraw.iter().filter_map(|id| {
            let entry = self.forward.jobs.get(id)?;
            let Some(End::Submitted { batch, .. }) = &entry.end else {
                return None;
            };
            Some(Withdrawn {
                id: *id,
                visit: self.forward.machine.kept(&id.to_string())?.ttl,
                key: entry.key.clone(),
                user: entry.user.clone(),
                batch: batch.clone(),
            })
        })
    }

    /// Counters for the metrics.
    pub fn forward_stats(&self) -> ForwardStats {
        ForwardStats {
            waiting: self.forward.open.len() as u64,
            ..self.forward.stats
        }
    }
}
