//! What a site remembers of jobs that are passed on, and the lists that it is found by.
//!
//! Invariant: the lists are what the entries and the state machine say.
//! Deliberately not here: what is durable, and messages.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_broker::forward::{Answer, Forwarder, Kept, State};
use fairmesh_model::{ContentHash, MonoTime, SiteId, WallTime};

use super::ForwardStats;
use super::rows::{Entry, is_open};
use super::wire::End;
use crate::config::SiteConfig;
use crate::forward::rows::row;
use crate::store::Write;
use crate::time::Clock;

/// Most jobs that are remembered: bounds memory and what a start reads, at half a KiB each. Larger ones of other
/// members count for several ([`Entry::places`]).
const JOBS_MAX: usize = 65_536;

/// Most of them that one member, or this site's own users together, can fill: eight liars fill the table.
const JOBS_OF_ONE_MAX: usize = JOBS_MAX / 8;

/// A request that is under way.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) of: SiteId,
    pub(super) at: MonoTime,
    pub(super) about: About,
}

/// What it is about.
#[derive(Debug)]
pub(super) enum About {
    Job(Answer),
    Ends(Vec<ContentHash>),
    Withdrawals(Vec<ContentHash>),
}

/// What a site knows of jobs that are passed on.
#[derive(Debug, Default)]
pub(crate) struct Forwarding {
    pub(super) machine: Forwarder,
    pub(super) jobs: BTreeMap<ContentHash, Entry>,
    /// Jobs that were handed in here, by user and key.
    pub(super) own: BTreeMap<(String, String), ContentHash>,
    /// Jobs for which anything is still to be done here.
    pub(super) open: BTreeSet<ContentHash>,
    /// Jobs that others have taken, and of which the end is not known, or whether they can still be taken back.
    pub(super) away: BTreeSet<(SiteId, ContentHash)>,
    /// Jobs that the batch system here has, and whose users take them back.
    pub(super) to_withdraw: BTreeSet<ContentHash>,
    /// How many places of the table each sender fills.
    pub(super) filled: BTreeMap<Option<SiteId>, usize>,
    pub(super) asks: BTreeMap<u64, PendingRequest>,
    pub(super) last_ask: u64,
    /// Jobs taken of each member in the minute that began then.
    pub(super) rates: BTreeMap<SiteId, (MonoTime, u32)>,
    /// CPUs that were sent to sites, and when: their adverts do not show them yet.
    pub(super) recent: Vec<(SiteId, WallTime, u64)>,
    pub(super) gc_at: MonoTime,
    pub(super) ends_at: MonoTime,
    pub(super) stats: ForwardStats,
}

impl Forwarding {
    /// With what the store had.
    pub(crate) fn restore(
        own: SiteId,
        accept: BTreeSet<String>,
        rows: Vec<(ContentHash, Kept, Entry)>,
    ) -> Self {
        let kept = rows
            .iter()
            .map(|(job, kept, _)| (job.to_string(), kept.clone()));
        let kept: BTreeMap<_, _> = kept.collect();
        // What is to be done for jobs that are here is asked for, and need not be said.
        let (machine, _) = Forwarder::start(&own.to_string(), accept, kept);
        let mut restored = Self {
            machine,
            ..Self::default()
        };
        for (job, _, entry) in rows {
            restored.insert(job, entry);
            restored.index(job);
        }
        restored
    }

    /// What the owner agrees to has changed.
    pub(crate) fn follow_consent(&mut self, config: &SiteConfig) {
        let accepted = config.accepted();
        self.machine.accept(accepted);
    }

    pub(super) fn insert(&mut self, job: ContentHash, mut entry: Entry) {
        // Of a row of a release before: whoever sends it later does not change whose room it takes.
        entry.first = entry.sender();
        entry.places = 1;
        *self.filled.entry(entry.sender()).or_default() += entry.places;
        if entry.errand.is_some() {
            self.own
                .insert((entry.user.clone(), entry.key.clone()), job);
        }
        self.jobs.insert(job, entry);
    }

    /// Brings the lists of what is to be done up to date with a job.
    pub(super) fn index(&mut self, job: ContentHash) {
        let kept = self.machine.kept(&job.to_string());
        let Some((kept, entry)) = kept.zip(self.jobs.get_mut(&job)) else {
            return;
        };
        let filled = self.filled.entry(entry.sender()).or_default();
        *filled = *filled - entry.places + entry.places(kept);
        entry.places = entry.places(kept);
        match is_open(kept) {
            true => self.open.insert(job),
            false => self.open.remove(&job),
        };
        let is_with_batch = matches!(entry.end, Some(End::Submitted { .. }));
        let is_ours = is_with_batch && entry.passed.is_none() && entry.is_wanted_back();
        match is_ours && matches!(kept.state, State::Gone) {
            true => self.to_withdraw.insert(job),
            false => self.to_withdraw.remove(&job),
        };
        if let Some(passed) = entry.passed {
            let is_unknown = entry.end.is_none() || entry.is_wanted_back();
            match matches!(kept.state, State::Gone) && is_unknown {
                true => self.away.insert((passed, job)),
                false => self.away.remove(&(passed, job)),
            };
        }
    }

    pub(super) fn forget(&mut self, job: ContentHash) {
        self.machine.forget(&job.to_string());
        let Some(entry) = self.jobs.remove(&job) else {
            return;
        };
        self.open.remove(&job);
        self.to_withdraw.remove(&job);
        self.away.retain(|(_, of)| *of != job);
        if entry.errand.is_some() {
            self.own.remove(&(entry.user.clone(), entry.key.clone()));
        }
        if let Some(filled) = self.filled.get_mut(&entry.sender()) {
            *filled -= entry.places;
        }
    }

    /// The rows of all jobs that are remembered: nobody else holds them.
    pub(crate) fn rows(&self) -> Vec<Write> {
        let jobs = self.jobs.iter();
        jobs.filter_map(|(job, entry)| self.row(*job, entry))
            .collect()
    }

    pub(super) fn row(&self, job: ContentHash, entry: &Entry) -> Option<Write> {
        let kept = self.machine.kept(&job.to_string())?;
        Some(row(job, Some((kept, entry))))
    }

    /// Whether one more job of a sender would be more than is remembered.
    pub(super) fn is_full(&self, of: Option<SiteId>) -> bool {
        let filled = self.filled.get(&of).copied().unwrap_or_default();
        filled >= JOBS_OF_ONE_MAX || self.filled.values().sum::<usize>() >= JOBS_MAX
    }

    /// CPUs that were sent to a site since it told how it is.
    pub(super) fn sent_since(&self, site: SiteId, at: WallTime) -> u64 {
        let sent = self
            .recent
            .iter()
            .filter(|(to, when, _)| *to == site && *when >= at);
        sent.map(|(_, _, cpus)| cpus).sum()
    }

    /// What is remembered of a job, by the state machine's name for it.
    pub(super) fn entry(&self, name: &str) -> Option<&Entry> {
        self.jobs.get(&name.parse().ok()?)
    }

    /// Jobs of a member for which anything is to be done here.
    pub(super) fn open_of(&self, member: SiteId) -> usize {
        let open = self.open.iter().filter_map(|job| self.jobs.get(job));
        open.filter(|entry| entry.from.contains(&member)).count()
    }
}

/// Whether nobody is to begin with a job any more: where it was handed in it is forgotten a day later.
pub(super) fn has_ended(entry: &Entry, clock: &Clock) -> bool {
    clock.standing.may_forget() && entry.until <= clock.own.wall
}

impl Entry {
    /// Whose room in the table it takes.
    fn sender(&self) -> Option<SiteId> {
        match self.errand {
            Some(_) => None,
            None => self.first.or_else(|| self.from.first().copied()),
        }
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_model::VoId;

    use super::*;
    use crate::forward::rows::Withdrawal;

    #[test]
    fn a_job_takes_the_room_of_whoever_sent_it_first_until_it_is_forgotten() {
        let [low, high] = [1, 9].map(|byte| SiteId::from_bytes([byte; 32]));
        let mut table = Forwarding::default();
        for number in 0..JOBS_OF_ONE_MAX {
            let job = ContentHash::of(&number.to_be_bytes());
            let entry = Entry {
                vo: VoId::from_bytes([0; 32]),
                key: "j".to_owned(),
                user: "ann".to_owned(),
                cpus: 1,
                until: WallTime(0),
                from: BTreeSet::from([high]),
                first: None,
                errand: None,
                offer: None,
                passed: None,
                end: None,
                withdrawal: Withdrawal::None,
                places: 0,
            };
            table.insert(job, entry);
            let entry = table.jobs.get_mut(&job).expect("it was just entered");
            entry.from.insert(low);
            table.forget(job);
        }
        assert!(!table.is_full(Some(high)) && !table.is_full(Some(low)));
    }
}
