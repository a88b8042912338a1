//! What a broker has sent to each site, and what became of it.
//!
//! Invariant: a job is in flight from `sent` until `ended`, once; telling the same twice changes nothing.

use std::collections::BTreeMap;

use fairmesh_model::{WallTime, mutant, mutated};

use super::Chooser;

/// What was sent to one site.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sent {
    /// The number of the last one, counted over all sites from 1.
    pub number: u64,
    jobs: BTreeMap<String, InFlight>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InFlight {
    cpus: u64,
    at: WallTime,
    /// When its batch system was first heard to have it; `None`: it may be on its way.
    arrived: Option<WallTime>,
    started: bool,
}

impl InFlight {
    /// Whether a view of that moment has it.
    fn is_in_view(&self, known_at: WallTime) -> bool {
        let there = mutant!(OnTheWayForgotten, self.arrived, Some(self.at));
        there.is_some_and(|since| since < known_at)
    }
}

impl Sent {
    /// CPUs of all jobs that have not ended.
    pub fn cpus(&self) -> u64 {
        self.sum(|_| true)
    }

    /// CPUs of those that a view of that moment does not have: they were on their way, or sent later.
    pub fn cpus_unseen(&self, known_at: WallTime) -> u64 {
        self.sum(|job| !job.is_in_view(known_at))
    }

    /// CPUs of those that ran or waited there when the view was made.
    pub fn cpus_seen(&self, known_at: WallTime) -> u64 {
        self.sum(|job| job.is_in_view(known_at))
    }

    fn sum(&self, counts: impl Fn(&InFlight) -> bool) -> u64 {
        let jobs = self.jobs.values().filter(|job| counts(job));
        jobs.fold(0, |sum, job| sum.saturating_add(job.cpus))
    }
}

impl Chooser {
    /// A job was sent to `site`.
    pub fn note_sent(&mut self, site: &str, job: &str, cpus: u64, at: WallTime) {
        self.count += 1;
        self.last = Some(site.to_owned());
        let sent = self.sent.entry(site.to_owned()).or_default();
        sent.number = self.count;
        let job_sent = InFlight {
            cpus,
            at,
            arrived: None,
            started: false,
        };
        sent.jobs.insert(job.to_owned(), job_sent);
    }

    /// Its batch system has it, as was heard at `at`.
    pub fn note_arrived(&mut self, site: &str, job: &str, at: WallTime) {
        if let Some(job) = self.in_flight_mut(site, job) {
            // Records of earlier releases have no time: then it is when it was sent.
            job.arrived.get_or_insert(at.max(job.at));
        }
    }

    /// It has started there, as was heard at `at`.
    pub fn note_started(&mut self, site: &str, job: &str, at: WallTime) {
        self.note_arrived(site, job, at);
        if let Some(job) = self.in_flight_mut(site, job) {
            job.started = true;
        }
    }

    fn in_flight_mut(&mut self, site: &str, job: &str) -> Option<&mut InFlight> {
        self.sent.get_mut(site)?.jobs.get_mut(job)
    }

    /// It has ended there, however it did.
    pub fn note_ended(&mut self, site: &str, job: &str) {
        if let Some(sent) = self.sent.get_mut(site) {
            sent.jobs.remove(job);
        }
    }

    /// What was sent to `site`, if anything ever was.
    pub fn sent(&self, site: &str) -> Option<&Sent> {
        self.sent.get(site)
    }

    pub(super) fn in_flight(&self, site: &str) -> usize {
        self.sent(site).map_or(0, |sent| sent.jobs.len())
    }

    /// Whether one more is due by what was observed: every job that was sent there has started.
    pub(crate) fn is_due(&self, site: &str) -> bool {
        let sent = self.sent(site);
        sent.is_none_or(|sent| sent.jobs.values().all(|job| job.started))
            || mutated!(ObservantFloods)
    }
}
