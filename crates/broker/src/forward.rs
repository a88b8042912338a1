//! Passing a job from site to site, towards the class of machines that is worth most to it.
//!
//! Events of one site go in, effects come out by value and are carried out in order: what is kept or forgotten
//! is durable before what follows it.
//!
//! Invariants: of one job at most one copy is alive. Whoever forwards it keeps it until the receiver has
//! acknowledged, which the receiver does behind its own [`Effect::Keep`]. A copy is told from its repeats by the
//! hops that it has left, which fall with every forward: a message with as many as it was taken with, or more, is a
//! repeat, which is answered again and otherwise ignored. So no job goes round for ever. Nothing is changed of a job by
//! a message that is declined, whoever sends it, and a job that is here is moved by none.
//! Deliberately not here: what a class is worth (`utility`), messages, and the disk.
//! Source: Vasques, algorithm 2; durability, consent and repeats are ours.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{Millis, MonoTime, mutant, mutated};
use serde::{Deserialize, Serialize};

/// Hops that a job may take, unless told otherwise.
pub const TTL: u8 = 4;

/// Most hops that any site lets a job take: bounds how many sites one job can busy.
pub const TTL_MAX: u8 = 16;

/// Most sites that a job is told to have tried: bounds what travels with it, and how many sites that decline it one
/// job can busy.
pub const TRIED_MAX: usize = 64;

/// How long a sender waits for an answer before it repeats itself.
pub const RESEND: Millis = Millis::from_secs(5);

/// A job that sites pass on until one of them runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutedJob {
    /// Its key; a key is never used for a second job.
    pub job: String,
    /// The VO that the job's user is a member of.
    pub vo: String,
    /// Number of further sites that may pass it on.
    pub ttl: u8,
    /// Sites that it has been to or that have declined it, in order.
    pub tried: Vec<Tried>,
}

/// What came of a job at a site.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tried {
    /// Name of the site.
    pub site: String,
    /// Why it did not take the job, and is not asked again; `None` where it took the job and sent it on.
    pub said: Option<String>,
}

impl RoutedJob {
    fn has_declined(&self, site: &str) -> bool {
        let mut tried = self.tried.iter();
        tried.any(|tried| tried.said.is_some() && tried.site == site)
    }

    fn note(&mut self, site: &str, said: Option<String>) {
        let site = site.to_owned();
        self.tried.push(Tried { site, said });
    }
}

/// A class of machines that is worth something to a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// Name of the site.
    pub site: String,
    /// Name of the machine class.
    pub class: String,
    /// What it is worth to the job, in millionths.
    pub utility: u32,
    /// How much of the site is held and waited for, in millionths.
    pub load: u64,
    /// Whether the job could not start there at once: such a place comes behind all where it could.
    pub waits: bool,
}

/// What happens to a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A user hands in a job. `places` is what the site knows: its own classes as they are now, others' as told.
    FromUser {
        /// The job as its user handed it in.
        job: RoutedJob,
        /// Where it could go.
        places: Vec<Place>,
    },
    /// Another site hands on a job.
    FromSite {
        /// The site that sends the job.
        from: String,
        /// The job, with the hops that it had when it was sent.
        job: RoutedJob,
        /// The class that the sender wanted for it, if that is still free.
        wanted_free: Option<String>,
        /// Where it could go.
        places: Vec<Place>,
        /// Why this site takes no more jobs of that sender, if it does not.
        refuse: Option<String>,
    },
    /// A receiver has durably taken a job.
    Taken(Answer),
    /// A receiver does not take the job, and why; where else it could go.
    Declined(Answer, String, Vec<Place>),
    /// Other jobs have taken the class that a job was assigned to; where it could go now.
    ClassTaken(String, Vec<Place>),
    /// The batch system here has refused a job, and why; where else it could go.
    Refused(String, String, Vec<Place>),
    /// Nobody takes a job any more after so long a time: one that was sent, and not acknowledged, is given up.
    Expired(String),
    /// What was to be done with a job here is done for good: it is with the batch system, or its user knows.
    Settled(String),
    /// Time has passed: resend and give up what is due.
    Tick,
}

/// Which message is answered, and by whom. A late answer is for none that still waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The receiver of the message.
    pub from: String,
    /// The job's key.
    pub job: String,
    /// The hops that it had when it was sent.
    pub ttl: u8,
}

/// What a site must do, in order. Assigning and failing a job are asked for again after a start until they
/// are [`Event::Settled`], so they must be safe to repeat; jobs have keys for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Make durable what is remembered of a job.
    Keep(String, Kept),
    /// Start the job here on a class.
    Assign {
        /// The job's key.
        job: String,
        /// The machine class that is reserved for it.
        class: String,
    },
    /// Send the job to a site for a class.
    Send(Sending),
    /// Tell a site that its message was taken; `from` is this site.
    Acknowledge {
        /// The site that sent the job.
        to: String,
        /// Identifies the message that is answered.
        answer: Answer,
    },
    /// Tell a site that the job is not taken.
    Decline {
        /// The site that sent the job.
        to: String,
        /// Identifies the message that is answered.
        answer: Answer,
        /// The reason for the sender, and for the user in the end.
        why: String,
    },
    /// Tell the user that the job runs nowhere, and what was tried.
    Fail(RoutedJob, Failure),
}

/// Why a job runs nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Failure {
    /// Nothing that it asks for is anywhere.
    #[error("no requirement of the job is met anywhere that takes it")]
    Nowhere,
    /// It has no hops left, and its best place is elsewhere.
    #[error("the job has been forwarded as often as it may be")]
    TooFar,
    /// Whoever it was sent to last has never answered.
    #[error("the site that it was sent to never answered, and may run it")]
    InDoubt,
}

/// In the place of the hops of a job that was never taken: more than any has, so that none is a repeat.
pub const UNTAKEN: u8 = u8::MAX;

/// What a site remembers of a job: enough to recognise repeats, and to go on after a start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Kept {
    /// The fewest hops that it was taken with; [`UNTAKEN`] where it was declined only.
    pub ttl: u8,
    /// The job's state at this site.
    pub state: State,
    /// With how many hops it came and was declined. A repeat of such a message is declined again, of any other
    /// acknowledged: a job that has fewer hops was taken with more by whoever was asked.
    pub declined: BTreeSet<u8>,
}

/// Where a job is, as far as one site knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum State {
    /// Assigned here, to a class.
    Here(RoutedJob, String),
    /// Sent on, and not yet acknowledged.
    Sent(Sending),
    /// To be told to its user as failed.
    Failed(RoutedJob, Failure),
    /// Nothing more is to be done here.
    #[default]
    Gone,
}

/// A job on its way to a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sending {
    /// The job as it is sent.
    pub job: RoutedJob,
    /// The receiving site.
    pub to: String,
    /// The class that the sender wants for it there.
    pub class: String,
}

/// Which of the messages before it one repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    None,
    Taken,
    Declined,
}

/// One site's part in forwarding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forwarder {
    site: String,
    accepts: BTreeSet<String>,
    kept: BTreeMap<String, Kept>,
    resend_at: BTreeMap<String, MonoTime>,
}

impl Forwarder {
    /// A site that takes jobs of some VOs from others, with what it had kept before it was started, and what
    /// is to be done of that now.
    pub fn start(
        site: &str,
        accept_forwarded: BTreeSet<String>,
        kept: BTreeMap<String, Kept>,
    ) -> (Self, Vec<Effect>) {
        let mut out = Vec::new();
        let mut started = Self {
            site: site.to_owned(),
            accepts: accept_forwarded,
            ..Self::default()
        };
        for (job, kept) in &kept {
            match &kept.state {
                State::Here(_, class) => out.push(assign(job, class)),
                State::Failed(job, why) => out.push(Effect::Fail(job.clone(), *why)),
                State::Sent(_) => _ = started.resend_at.insert(job.clone(), MonoTime(0)),
                State::Gone => {}
            }
        }
        (Self { kept, ..started }, out)
    }

    /// What an event comes to.
    pub fn handle(&mut self, now: MonoTime, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        match event {
            Event::FromUser { mut job, places } => {
                job.ttl = job.ttl.min(TTL_MAX);
                // A user who repeats himself has one job.
                if !self.kept.contains_key(&job.job) {
                    let seen = job.ttl.saturating_add(1);
                    self.decide(now, (job, seen), &places, &mut out);
                }
            }
            Event::FromSite {
                from,
                job,
                wanted_free,
                places,
                refuse,
            } => {
                self.receive(now, &from, job, refuse, (wanted_free, &places), &mut out);
            }
            Event::Taken(answer) => {
                if self.answered(&answer).is_some() {
                    self.settle(&answer.job, &mut out);
                }
            }
            Event::Declined(answer, why, places) => {
                if let Some((seen, Sending { mut job, to, .. })) = self.answered(&answer) {
                    job.note(&to, Some(why));
                    self.decide(now, (job, seen), &places, &mut out);
                }
            }
            Event::Refused(job, why, places) => {
                if let Some((seen, State::Here(mut job, _))) = self.seen_in(&job) {
                    job.note(&self.site, Some(why));
                    self.decide(now, (job, seen), &places, &mut out);
                }
            }
            Event::Expired(job) => {
                if let Some((seen, State::Sent(Sending { mut job, to, .. }))) = self.seen_in(&job) {
                    job.note(&to, Some("it has not answered".to_owned()));
                    self.fail(job, seen, Failure::InDoubt, &mut out);
                }
            }
            Event::ClassTaken(job, places) => self.class_taken(now, &job, places, &mut out),
            Event::Settled(job) => {
                let state = self.kept.get(&job).map(|kept| &kept.state);
                if matches!(state, Some(State::Here(..) | State::Failed(..))) {
                    self.settle(&job, &mut out);
                }
            }
            Event::Tick => self.resend(now, &mut out),
        }
        out
    }

    /// When a [`Event::Tick`] is due next.
    pub fn next_wakeup(&self) -> Option<MonoTime> {
        self.resend_at.values().min().copied()
    }

    /// Takes jobs of these VOs from others from now on.
    pub fn accept(&mut self, accept_forwarded: BTreeSet<String>) {
        self.accepts = accept_forwarded;
    }

    /// What is remembered of a job.
    pub fn kept(&self, job: &str) -> Option<&Kept> {
        self.kept.get(job)
    }

    /// Lets go of a job that nobody takes any more, whoever sends it.
    pub fn forget(&mut self, job: &str) {
        self.kept.remove(job);
        self.resend_at.remove(job);
    }

    fn seen_in(&self, job: &str) -> Option<(u8, State)> {
        let kept = self.kept.get(job)?;
        Some((kept.ttl, kept.state.clone()))
    }

    /// Whether a job that is sent is taken: it is not known from a message like it, and its owner consents.
    pub fn takes(&self, job: &RoutedJob) -> bool {
        let is_new = self.repeat(&job.job, job.ttl) == Repeat::None;
        is_new && lost(job.ttl).is_none() && self.accepts.contains(&job.vo)
    }

    fn repeat(&self, job: &str, ttl: u8) -> Repeat {
        match self.kept.get(job).filter(|_| !mutated!(RepeatTaken)) {
            Some(kept) if kept.declined.contains(&ttl) => Repeat::Declined,
            // Nobody else has a job that is here, so nobody can have sent it with fewer hops.
            Some(kept) if ttl >= kept.ttl || matches!(kept.state, State::Here(..)) => Repeat::Taken,
            _ => Repeat::None,
        }
    }

    fn receive(
        &mut self,
        now: MonoTime,
        from: &str,
        mut job: RoutedJob,
        refuse: Option<String>,
        (wanted_free, places): (Option<String>, &[Place]),
        out: &mut Vec<Effect>,
    ) {
        let (to, key, ttl) = (from.to_owned(), job.job.clone(), job.ttl);
        let answer = Answer {
            from: self.site.clone(),
            job: key.clone(),
            ttl,
        };
        let declines = |why: String| {
            let (to, answer) = (to.clone(), answer.clone());
            Effect::Decline { to, answer, why }
        };
        if let Some(why) = lost(ttl) {
            return out.push(declines(why));
        }
        match self.repeat(&key, ttl) {
            Repeat::Declined => {
                return out.push(declines("it has declined this before".to_owned()));
            }
            Repeat::Taken => return out.push(Effect::Acknowledge { to, answer }),
            Repeat::None => {}
        }
        let consents = self.accepts.contains(&job.vo);
        let closed = || "its owner takes no forwarded jobs of this VO".to_owned();
        if let Some(why) = refuse.or_else(|| (!consents).then(closed)) {
            // Durable too, or a message that comes twice could be taken after consent was given in between.
            self.keep_declined(&key, ttl, out);
            return out.push(declines(why));
        }
        job.ttl = mutant!(HopsUncounted, ttl - 1, ttl);
        job.note(from, None);
        match wanted_free {
            Some(class) => self.take(job, ttl, class, out),
            None => self.decide(now, (job, ttl), places, out),
        }
        // Right behind what was kept, and before the job goes anywhere.
        let place = mutant!(AcknowledgedEarly, 1, 0);
        out.insert(place, Effect::Acknowledge { to, answer });
    }

    /// Takes the job for a class here, sends it on, or gives it up. `seen` is what a repeat of it is known by.
    fn decide(
        &mut self,
        now: MonoTime,
        (job, seen): (RoutedJob, u8),
        places: &[Place],
        out: &mut Vec<Effect>,
    ) {
        let open = places
            .iter()
            .filter(|place| place.utility > 0 && !job.has_declined(&place.site));
        let best = open.min_by(|a, b| {
            let elsewhere = |place: &Place| place.site != self.site;
            let better = a.waits.cmp(&b.waits);
            let better = better
                .then(b.utility.cmp(&a.utility))
                .then(elsewhere(a).cmp(&elsewhere(b)));
            let better = better.then(a.load.cmp(&b.load));
            better.then_with(|| (&a.site, &a.class).cmp(&(&b.site, &b.class)))
        });
        match best {
            None => self.fail(job, seen, Failure::Nowhere, out),
            Some(best) if best.site == self.site => self.take(job, seen, best.class.clone(), out),
            Some(_) if job.ttl == 0 || job.tried.len() >= TRIED_MAX => {
                self.fail(job, seen, Failure::TooFar, out)
            }
            Some(best) => {
                let key = job.job.clone();
                let (to, class) = (best.site.clone(), best.class.clone());
                let sending = Sending { job, to, class };
                let state = mutant!(SentAndForgotten, State::Sent(sending.clone()), State::Gone);
                self.keep(&key, seen, state, out);
                self.resend_at.insert(key, now.after(RESEND));
                out.push(Effect::Send(sending));
            }
        }
    }

    fn take(&mut self, job: RoutedJob, seen: u8, class: String, out: &mut Vec<Effect>) {
        let effect = assign(&job.job, &class);
        self.keep(&job.job.clone(), seen, State::Here(job, class), out);
        out.push(effect);
    }

    fn fail(&mut self, job: RoutedJob, seen: u8, why: Failure, out: &mut Vec<Effect>) {
        self.keep(&job.job, seen, State::Failed(job.clone(), why), out);
        out.push(Effect::Fail(job, why));
    }

    /// A job whose class others have taken is decided about anew, and queued there only if it is worth
    /// something nowhere else.
    fn class_taken(
        &mut self,
        now: MonoTime,
        job: &str,
        mut places: Vec<Place>,
        out: &mut Vec<Effect>,
    ) {
        let Some(Kept {
            ttl,
            state: State::Here(routed, class),
            ..
        }) = self.kept.get(job).cloned()
        else {
            return;
        };
        places.retain(|place| {
            let is_here = place.site == self.site;
            place.utility > 0 && (!is_here || place.class != class) && (is_here || routed.ttl > 0)
        });
        match places.is_empty() {
            true => out.push(assign(job, &class)),
            false => self.decide(now, (routed, ttl), &places, out),
        }
    }

    /// Makes durable that nothing is to be done for a job any more.
    fn settle(&mut self, job: &str, out: &mut Vec<Effect>) {
        if let Some(ttl) = self.kept.get(job).map(|kept| kept.ttl) {
            self.keep(job, ttl, State::Gone, out);
        }
    }

    fn keep(&mut self, job: &str, ttl: u8, state: State, out: &mut Vec<Effect>) {
        self.resend_at.remove(job);
        let kept = self.kept.entry(job.to_owned()).or_default();
        (kept.ttl, kept.state) = (ttl, state);
        out.push(Effect::Keep(job.to_owned(), kept.clone()));
    }

    /// What was taken of the job stays as it is: whoever sends it with fewer hops proves nothing.
    fn keep_declined(&mut self, job: &str, ttl: u8, out: &mut Vec<Effect>) {
        let untaken = || Kept {
            ttl: UNTAKEN,
            ..Kept::default()
        };
        let kept = self.kept.entry(job.to_owned()).or_insert_with(untaken);
        kept.declined.insert(ttl);
        out.push(Effect::Keep(job.to_owned(), kept.clone()));
    }

    /// What an answer is to, if that was sent to whoever answers, and was sent last.
    fn answered(&self, answer: &Answer) -> Option<(u8, Sending)> {
        let kept = self.kept.get(&answer.job)?;
        let State::Sent(sending) = &kept.state else {
            return None;
        };
        let is_last = sending.job.ttl == answer.ttl
            && (sending.to == answer.from || mutated!(AnyAnswerCounts));
        is_last.then(|| (kept.ttl, sending.clone()))
    }

    fn resend(&mut self, now: MonoTime, out: &mut Vec<Effect>) {
        for (job, at) in &mut self.resend_at {
            let state = self.kept.get(job).map(|kept| &kept.state);
            if let Some(State::Sent(sending)) = state.filter(|_| *at <= now) {
                *at = now.after(RESEND);
                out.push(Effect::Send(sending.clone()));
            }
        }
    }
}

/// Why a message cannot be a sound sender's: he gives up a job without hops, and lets none have more than anybody may.
fn lost(ttl: u8) -> Option<String> {
    let is_lost = ttl == 0 || ttl > TTL_MAX;
    is_lost.then(|| format!("a job that is sent has 1 to {TTL_MAX} hops, and this one {ttl}"))
}

fn assign(job: &str, class: &str) -> Effect {
    Effect::Assign {
        job: job.to_owned(),
        class: class.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
