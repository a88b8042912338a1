//! What a broker has sent to each site, and what became of it.
//!
//! Invariant: a job is in flight from `sent` until `ended`, once; telling the same twice changes nothing.

use std::collections::BTreeMap;

use fairmesh_model::{WallTime, mutated};

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
    started: bool,
}

impl Sent {
    /// CPUs of all jobs that have not ended.
    pub fn cpus(&self) -> u64 {
        self.jobs
            .values()
            .fold(0, |sum, job| sum.saturating_add(job.cpus))
    }

    /// CPUs of those that were sent at `known_at` or later.
    pub fn cpus_since(&self, known_at: WallTime) -> u64 {
        let since = self.jobs.values().filter(|job| job.at >= known_at);
        since.fold(0, |sum, job| sum.saturating_add(job.cpus))
    }
}

impl Chooser {
    /// A job was sent to `site`.
    pub fn note_sent(&mut self, site: &str, job: &str, cpus: u64, at: WallTime) {
        self.count += 1;
        self.last = Some(site.to_owned());
        let sent = self.sent.entry(site.to_owned()).or_default();
        sent.number = self.count;
        let started = false;
        sent.jobs
            .insert(job.to_owned(), InFlight { cpus, at, started });
    }

    /// It has started there.
    pub fn note_started(&mut self, site: &str, job: &str) {
        let job = self
            .sent
            .get_mut(site)
            .and_then(|sent| sent.jobs.get_mut(job));
        if let Some(job) = job {
            job.started = true;
        }
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

    /// Whether OBS sends one more: every job that it sent there has started.
    pub(super) fn is_due(&self, site: &str) -> bool {
        let sent = self.sent(site);
        sent.is_none_or(|sent| sent.jobs.values().all(|job| job.started))
            || mutated!(ObservantFloods)
    }
}
