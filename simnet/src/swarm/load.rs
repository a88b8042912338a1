//! What the feeds of all sites report.
//!
//! A feed reports finished jobs, lists running ones, asks again until it is answered, sometimes
//! repeats itself and sometimes is days late. Times are true times, a little in the past: batch
//! systems whose clocks are wrong are a story of their own.
//!
//! Invariant: a job has one account, and what is offered of it only grows. A site whose store was
//! lost is not told of old jobs again, as the README asks of its operator: the marks went with it.

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{AccountPath, JobKey, Origin, RunningJob, UsageRecord, VoId, WallTime};

use super::{ModeOption, Options, VoOptions};
use crate::oracle::AccountKey;
use crate::vo::{Vo, path};

/// Unanswered records that are offered again in one report, at most.
const AGAIN_MAX: usize = 64;

/// Jobs that run at one site at a time, at most.
const RUNNING_MAX: usize = 4;

/// One record and what it must count for.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) record: UsageRecord,
    pub(crate) account: AccountKey,
    /// The VO, by its number.
    pub(crate) vo: Option<usize>,
    /// Whether an answer means that it is counted: instalments of a historical VO are not.
    pub(crate) counts: bool,
}

impl Offer {
    /// The charge from the job's start until the record's end: cores by time.
    pub(crate) fn charge(&self) -> u64 {
        u64::from(self.record.cores) * self.record.end.since(self.record.start).0
    }
}

#[derive(Debug)]
struct Feed {
    random: Stream,
    jobs: u64,
    pending: Vec<Offer>,
    answered: Vec<Offer>,
    running: Vec<(Offer, WallTime)>,
}

/// All feeds.
#[derive(Debug)]
pub(crate) struct Feeds {
    feeds: Vec<Feed>,
    vos: Vec<(VoId, VoOptions)>,
    repeat_permille: u64,
    late_permille: u64,
}

impl Feeds {
    pub(crate) fn new(seed: Seed, options: &Options, vos: &[Vo]) -> Self {
        let feed = |site| Feed {
            random: seed.stream(&format!("swarm feed {site}")),
            jobs: 0,
            pending: Vec::new(),
            answered: Vec::new(),
            running: Vec::new(),
        };
        Self {
            feeds: (0..options.sites).map(feed).collect(),
            vos: vos
                .iter()
                .map(|vo| vo.id)
                .zip(options.vos.clone())
                .collect(),
            repeat_permille: options.repeat_permille,
            late_permille: options.late_permille,
        }
    }

    /// The next report of a site that mounts these VOs.
    pub(crate) fn report(&mut self, site: usize, now: WallTime, mounted: &[usize]) -> Vec<Offer> {
        let new = 1 + self.feeds[site].random.index(3);
        for _ in 0..new {
            let job = self.finished(site, now, mounted);
            self.feeds[site].pending.push(job);
        }
        let repeat_permille = self.repeat_permille;
        let feed = &mut self.feeds[site];
        let mut offers = self_pending(feed, mounted);
        if !feed.answered.is_empty() && feed.random.below(1_000) < repeat_permille {
            let old = feed.answered[feed.random.index(feed.answered.len())].clone();
            if old.vo.is_none_or(|vo| mounted.contains(&vo)) {
                offers.push(old);
            }
        }
        offers
    }

    /// What a site has not been answered to.
    pub(crate) fn pending(&self, site: usize, mounted: &[usize]) -> Vec<Offer> {
        self_pending(&self.feeds[site], mounted)
    }

    /// The list of what runs at a site now. Jobs whose time has come are ended and wait to be
    /// reported.
    pub(crate) fn running(
        &mut self,
        site: usize,
        now: WallTime,
        mounted: &[usize],
    ) -> Vec<(Offer, WallTime)> {
        self.end_jobs(site, |end| end <= now);
        if self.feeds[site].running.len() < RUNNING_MAX && self.feeds[site].random.below(2) == 0 {
            let mut offer = self.finished(site, now, mounted);
            let ran = 60_000 + self.feeds[site].random.below(4 * 3_600_000);
            offer.record.start = now.before(fairmesh_model::Millis(1_000));
            let end = now.after(fairmesh_model::Millis(ran));
            self.feeds[site].running.push((offer, end));
        }
        let vos = &self.vos;
        let listed = self.feeds[site].running.iter_mut().map(|(offer, end)| {
            offer.record.end = now;
            let mode = offer.vo.map(|vo| vos[vo].1.mode);
            let mut offer = offer.clone();
            offer.record.running = true;
            offer.counts = mode != Some(ModeOption::Historical);
            (offer, *end)
        });
        let here = |(offer, _): &(Offer, WallTime)| offer.vo.is_none_or(|vo| mounted.contains(&vo));
        listed.filter(here).collect()
    }

    /// Ends all jobs of a site that run, now.
    pub(crate) fn end_all(&mut self, site: usize, now: WallTime) {
        for (offer, end) in &mut self.feeds[site].running {
            *end = now.max(offer.record.end);
        }
        self.end_jobs(site, |_| true);
    }

    fn end_jobs(&mut self, site: usize, is_over: impl Fn(WallTime) -> bool) {
        let feed = &mut self.feeds[site];
        for (mut offer, end) in std::mem::take(&mut feed.running) {
            if is_over(end) {
                offer.record.end = end;
                feed.pending.push(offer);
            } else {
                feed.running.push((offer, end));
            }
        }
    }

    /// The site has answered to a finished job's record.
    pub(crate) fn answered(&mut self, site: usize, offer: &Offer) {
        let feed = &mut self.feeds[site];
        let before = feed.pending.len();
        feed.pending
            .retain(|pending| pending.record.key != offer.record.key);
        if feed.pending.len() < before {
            feed.answered.push(offer.clone());
        }
    }

    /// The site's marks of jobs are gone: nothing of before is ever offered again.
    pub(crate) fn lost(&mut self, site: usize) {
        let feed = &mut self.feeds[site];
        feed.pending.clear();
        feed.answered.clear();
        feed.running.clear();
    }

    fn finished(&mut self, site: usize, now: WallTime, mounted: &[usize]) -> Offer {
        let late_permille = self.late_permille;
        let feed = &mut self.feeds[site];
        let random = &mut feed.random;
        feed.jobs += 1;
        let name = format!("{site}-{}", feed.jobs);
        let late = random.below(1_000) < late_permille;
        let ago = if late {
            random.below(6 * 86_400_000)
        } else {
            random.below(600_000)
        };
        let end = now.before(fairmesh_model::Millis(ago));
        let start = end.before(fairmesh_model::Millis(random.between(1, 8 * 3_600_000)));
        let cores = u32::try_from(random.between(1, 64)).expect("few");
        // One in ten is the site's own, one in a hundred is nobody's.
        let draw = random.below(100);
        let vo = (draw >= 11 && !mounted.is_empty()).then(|| mounted[random.index(mounted.len())]);
        let (groups, users) = vo.map_or((2, 2), |vo| (self.vos[vo].1.groups, self.vos[vo].1.users));
        let group = format!("g{}", random.index(groups));
        // Now and then somebody whom no policy names.
        let user = random.index(users + 1) % (users + usize::from(random.below(20) == 0));
        let user = format!("u{user}");
        let (account, key) = match vo {
            Some(vo) => {
                let key = (Some(self.vos[vo].0), path(&format!("/{group}/{user}")));
                (VoOptions::name(vo), key)
            }
            None if draw == 0 => ("nobody".to_owned(), (None, AccountPath::root())),
            None => (
                "local".to_owned(),
                (None, path(&format!("/local/{group}/{user}"))),
            ),
        };
        Offer {
            record: record(name, account, (group, user), (start, end), cores),
            account: key,
            vo,
            counts: true,
        }
    }
}

fn record(
    job: String,
    account: String,
    (group, user): (String, String),
    (start, end): (WallTime, WallTime),
    cores: u32,
) -> UsageRecord {
    UsageRecord {
        key: JobKey {
            cluster: "swarm".to_owned(),
            job,
            instance: 0,
        },
        origin: Origin {
            user: Some(user),
            account: Some(account),
            group: Some(group),
            subject: None,
        },
        start,
        end,
        cores,
        gpus: 0,
        mem_mib: 0,
        placement: fairmesh_model::Placement::default(),
        running: false,
    }
}

fn self_pending(feed: &Feed, mounted: &[usize]) -> Vec<Offer> {
    let here = |offer: &&Offer| offer.vo.is_none_or(|vo| mounted.contains(&vo));
    feed.pending
        .iter()
        .filter(here)
        .take(AGAIN_MAX)
        .cloned()
        .collect()
}

/// The list as the site takes it.
pub(crate) fn running_jobs(listed: &[(Offer, WallTime)]) -> Vec<RunningJob> {
    let job = |(offer, end): &(Offer, WallTime)| RunningJob {
        record: offer.record.clone(),
        expected_end: *end,
    };
    listed.iter().map(job).collect()
}
