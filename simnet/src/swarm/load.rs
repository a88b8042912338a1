//! What the feeds of all sites report.
//!
//! A feed reports finished jobs, some in instalments and some after being requeued, lists running
//! ones, asks again until it is answered, sometimes repeats itself, sometimes says things in the
//! wrong order, and sometimes is days late. Times are true times, a little in the past: batch systems
//! whose clocks are wrong are a story of their own.
//!
//! Invariant: what is offered of a job only grows. A site whose store was lost is told of old jobs again once it has
//! heard what others hold of it: the marks went with the store.
//! Deliberately not here: who pays for a job, and how much (the oracle says that).

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{Millis, RunningJob, UsageRecord, WallTime};

use super::{LoadOptions, Options, VoOptions};
use crate::vo::job;

mod finals;
mod job;

use finals::Finals;

/// Unanswered records that are offered again in one report, at most.
const AGAIN_MAX: usize = 64;

/// Jobs that run at one site at a time, at most.
const RUNNING_MAX: usize = 4;

/// Instalments of one finished job, at most.
const INSTALMENTS_MAX: u64 = 3;

#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) record: UsageRecord,
    /// The VO, by its number.
    pub(crate) vo: Option<usize>,
}

/// A job that runs.
#[derive(Debug)]
struct Running {
    offer: Offer,
    /// When it will have ended, unless it is suspended.
    end: WallTime,
    /// When it must have ended.
    expected: WallTime,
    is_suspended: bool,
    /// When it was last looked at.
    seen: WallTime,
}

#[derive(Debug)]
struct Feed {
    random: Stream,
    jobs: u64,
    pending: Vec<Offer>,
    answered: Vec<Offer>,
    /// What was answered before the site lost its store.
    before: Vec<Offer>,
    running: Vec<Running>,
    corrections: Stream,
    finals: Finals,
}

#[derive(Debug)]
pub(crate) struct Feeds {
    feeds: Vec<Feed>,
    vos: Vec<VoOptions>,
    load: LoadOptions,
    repeat_permille: u64,
    late_permille: u64,
    ends_first: bool,
}

impl Feeds {
    pub(crate) fn new(seed: Seed, options: &Options) -> Self {
        let feed = |site| Feed {
            random: seed.stream(&format!("swarm feed {site}")),
            jobs: 0,
            pending: Vec::new(),
            answered: Vec::new(),
            before: Vec::new(),
            running: Vec::new(),
            corrections: seed.stream(&format!("swarm corrections {site}")),
            finals: Finals::new(seed, site, options.load),
        };
        Self {
            feeds: (0..options.sites).map(feed).collect(),
            vos: options.vos.clone(),
            load: options.load,
            repeat_permille: options.repeat_permille,
            late_permille: options.late_permille,
            ends_first: options.ends_first,
        }
    }

    /// The next report of a site that mounts these VOs.
    pub(crate) fn report(&mut self, site: usize, now: WallTime, mounted: &[usize]) -> Vec<Offer> {
        let new = 1 + self.feeds[site].random.index(3);
        for _ in 0..new {
            let offers = self.finished(site, now, mounted);
            self.feeds[site].pending.extend(offers);
        }
        let (repeat_permille, load) = (self.repeat_permille, self.load);
        let feed = &mut self.feeds[site];
        if self.ends_first {
            feed.running.iter_mut().for_each(|job| job.pass(now));
            feed.end_jobs();
        }
        let mut offers = here(&feed.pending, mounted);
        if !feed.answered.is_empty() && feed.random.below(1_000) < repeat_permille {
            let old = feed.answered[feed.random.index(feed.answered.len())].clone();
            if old.vo.is_none_or(|vo| mounted.contains(&vo)) {
                offers.push(old);
            }
        }
        if feed.random.below(1_000) < load.disorder_permille {
            offers.reverse();
        }
        offers
    }

    /// A job that somebody at a site takes back: one that was counted, now and then one that is not known
    /// there, or was taken back before.
    pub(crate) fn correction(&mut self, site: usize, mounted: &[usize]) -> Option<UsageRecord> {
        let feed = &mut self.feeds[site];
        let random = &mut feed.corrections;
        if random.below(1_000) >= self.load.correct_permille {
            return None;
        }
        let of = [&feed.answered, &feed.pending][usize::from(random.below(10) == 0)];
        let last = here(of, mounted);
        let last: Vec<&Offer> = last.iter().filter(|offer| !offer.record.running).collect();
        if last.is_empty() {
            return None;
        }
        Some(last[random.index(last.len())].record.clone())
    }

    /// Jobs of a minute, each of another user of the first VO.
    pub(crate) fn crowd(&mut self, site: usize, now: WallTime, mounted: &[usize]) -> Vec<Offer> {
        let ran = (now.before(Millis(120_000)), now.before(Millis(60_000)));
        let of_vo = |vo: &usize| {
            let vo = *vo;
            let account = VoOptions::name(vo);
            (0..self.load.crowd).map(move |user| {
                let (name, user) = (format!("crowd {site}-{user}"), format!("x{user}"));
                let record = job(name, &account, ("g0", &user), ran, 1);
                Offer {
                    record,
                    vo: Some(vo),
                }
            })
        };
        let offers: Vec<Offer> = mounted.first().into_iter().flat_map(of_vo).collect();
        self.feeds[site].pending.extend(offers.iter().cloned());
        offers
    }

    /// What a site has not been answered to.
    pub(crate) fn pending(&self, site: usize, mounted: &[usize]) -> Vec<Offer> {
        here(&self.feeds[site].pending, mounted)
    }

    /// The list of what runs at a site now. Jobs whose time has come are ended and wait to be
    /// reported.
    pub(crate) fn running(
        &mut self,
        site: usize,
        now: WallTime,
        mounted: &[usize],
    ) -> Vec<RunningJob> {
        let load = self.load;
        let feed = &mut self.feeds[site];
        for job in &mut feed.running {
            job.pass(now);
            if feed.random.below(1_000) < load.cancel_permille {
                job.end = job.offer.record.end;
            }
            if feed.random.below(1_000) < load.suspend_permille {
                job.is_suspended = !job.is_suspended;
            }
        }
        feed.end_jobs();
        if feed.running.len() < RUNNING_MAX && feed.random.below(2) == 0 {
            let job = self.started(site, now, mounted);
            self.feeds[site].running.push(job);
        }
        let listed = self.feeds[site].running.iter().filter(|job| {
            let vo = job.offer.vo;
            vo.is_none_or(|vo| mounted.contains(&vo))
        });
        let list = |job: &Running| RunningJob {
            record: UsageRecord {
                running: true,
                ..job.offer.record.clone()
            },
            expected_end: job.expected,
        };
        listed.map(list).collect()
    }

    /// Ends all jobs of a site that run, now.
    pub(crate) fn end_all(&mut self, site: usize, now: WallTime) {
        let feed = &mut self.feeds[site];
        for job in &mut feed.running {
            job.pass(now);
            job.end = job.offer.record.end;
        }
        feed.end_jobs();
    }

    /// The site has answered to a record.
    pub(crate) fn answered(&mut self, site: usize, offer: &Offer) {
        if self.done(site, offer) {
            self.feeds[site].answered.push(offer.clone());
        }
    }

    /// A job that has ended: it is reported with the next ones.
    pub(crate) fn hand_in(&mut self, site: usize, offer: Offer) {
        self.feeds[site].pending.push(offer);
    }

    /// The site refuses a record that nobody can charge: it is not offered again.
    pub(crate) fn done(&mut self, site: usize, offer: &Offer) -> bool {
        let pending = &mut self.feeds[site].pending;
        let before = pending.len();
        pending.retain(|pending| pending.record != offer.record);
        pending.len() < before
    }

    /// The site's marks of jobs are gone. What was answered is told once more at the heal.
    pub(crate) fn lost(&mut self, site: usize) {
        let feed = &mut self.feeds[site];
        feed.pending.clear();
        feed.before.append(&mut feed.answered);
        feed.running.clear();
    }

    /// What was answered before a loss, for a site that mounts these VOs.
    pub(crate) fn before_loss(&self, site: usize, mounted: &[usize]) -> Vec<Offer> {
        let mut offers = self.feeds[site].before.clone();
        offers.retain(|offer| offer.vo.is_none_or(|vo| mounted.contains(&vo)));
        offers
    }

    /// A job that has ended, as its feed tells of it: once, or in instalments and after a requeue.
    fn finished(&mut self, site: usize, now: WallTime, mounted: &[usize]) -> Vec<Offer> {
        let (load, late_permille) = (self.load, self.late_permille);
        let mut offer = self.job(site, mounted);
        let random = &mut self.feeds[site].random;
        let is_late = random.below(1_000) < late_permille;
        let ago = if is_late {
            random.below(6 * 86_400_000)
        } else {
            random.below(600_000)
        };
        let end = now.before(Millis(ago));
        let start = end.before(Millis(random.between(1, 8 * 3_600_000)));
        (offer.record.start, offer.record.end) = (start, end);
        let mut offers = Vec::new();
        if random.below(1_000) < load.requeue_permille {
            // It ran for a while, was put back into the queue, and ran again from its beginning.
            let mut first = offer.clone();
            first.record.end = start.after(Millis(end.since(start).0 / 3));
            offer.record.key.instance = 1;
            offer.record.start = first.record.end.after(Millis(end.since(start).0 / 10));
            offers.push(first);
        }
        let mut of_last_run = Vec::new();
        if random.below(1_000) < load.instalment_permille {
            let ran = end.since(offer.record.start).0;
            let count = random.between(1, INSTALMENTS_MAX);
            for part in 1..=count {
                let mut instalment = offer.clone();
                instalment.record.running = true;
                instalment.record.end = offer.record.start.after(Millis(ran * part / (count + 1)));
                of_last_run.push(instalment);
            }
        }
        of_last_run.push(offer);
        self.feeds[site].finals.finish(&mut of_last_run);
        offers.append(&mut of_last_run);
        if self.feeds[site].random.below(1_000) < load.disorder_permille {
            offers.reverse();
        }
        offers
    }

    /// A job that has just started.
    fn started(&mut self, site: usize, now: WallTime, mounted: &[usize]) -> Running {
        let mut offer = self.job(site, mounted);
        let random = &mut self.feeds[site].random;
        let ran = 60_000 + random.below(4 * 3_600_000);
        let asked = ran + random.below(4 * 3_600_000);
        offer.record.start = now.before(Millis(1_000));
        offer.record.end = now;
        Running {
            offer,
            end: now.after(Millis(ran)),
            expected: now.after(Millis(asked)),
            is_suspended: false,
            seen: now,
        }
    }
}

impl Feed {
    fn end_jobs(&mut self) {
        for mut job in std::mem::take(&mut self.running) {
            if job.end <= job.offer.record.end {
                job.offer.record.end = job.end;
                self.finals.finish(std::slice::from_mut(&mut job.offer));
                self.pending.push(job.offer);
            } else {
                self.running.push(job);
            }
        }
    }
}

impl Running {
    /// Time passes: a suspended job uses nothing, and will end and be ended so much later.
    fn pass(&mut self, now: WallTime) {
        let passed = now.since(self.seen);
        self.seen = now;
        if self.is_suspended {
            self.expected = self.expected.after(passed);
        } else {
            self.offer.record.end = self.offer.record.end.after(passed);
        }
    }
}

/// Those that a site which mounts these VOs is told of.
fn here(pending: &[Offer], mounted: &[usize]) -> Vec<Offer> {
    let here = |offer: &&Offer| offer.vo.is_none_or(|vo| mounted.contains(&vo));
    pending
        .iter()
        .filter(here)
        .take(AGAIN_MAX)
        .cloned()
        .collect()
}
