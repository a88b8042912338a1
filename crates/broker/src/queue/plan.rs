//! Which job goes where next.
//!
//! Invariant: what is released fits what is free at the sites, by the views and what they do not have yet of what was
//! sent; each release keeps every limit; a site whose word is contradicted by what this queue has there has at most one
//! job more that has not started.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{AccountPath, Millis, WallTime, mutated};

use super::limits::Held;
use super::{DOUBTED, Effect, Entry, Manager, Phase, Record, SHUNNED};
use crate::engine::{Engine, Request, judge};
use crate::selector::{Candidate, Draw, Selector};
use crate::view::SiteView;

/// What a round of planning goes by.
#[derive(Debug, Clone, Copy)]
pub struct Planning<'a> {
    /// The moment, by the same clock as that of the records.
    pub now: WallTime,
    /// Whose queue it is.
    pub vo: &'a str,
    /// Which engine decides what is available.
    pub engine: Engine,
    /// Views older than this are not used.
    pub silence: Option<Millis>,
    /// What is known of the sites.
    pub sites: &'a [SiteView],
}

/// By site, what accounts may have there, and what of a queue is there.
type AtSites = BTreeMap<String, (BTreeMap<AccountPath, u64>, Held)>;

/// What is left of one round.
struct Round {
    held: Held,
    /// Keys that wait, by account, the first of them last.
    queues: BTreeMap<AccountPath, Vec<String>>,
    /// Kinds of jobs that no site can have now: others like them, which may not go to the same sites, need not be
    /// tried.
    nowhere: BTreeSet<(u64, u64, Millis, AccountPath, Vec<String>)>,
    /// By site, disk that is kept for jobs in flight: from their placement to their end.
    reserved: BTreeMap<String, u64>,
    /// By site, where use is proportional by site: what accounts may have there, and what of this queue is there.
    at_sites: AtSites,
}

impl Round {
    fn hold(&mut self, entry: &Entry, site: &str) {
        let (account, cpus) = (&entry.job.account, entry.job.cpus);
        self.held.add(account, cpus);
        if entry.job.disk_mib > 0 && !mutated!(DiskUnreserved) {
            let reserved = self.reserved.entry(site.to_owned()).or_default();
            *reserved = reserved.saturating_add(entry.job.disk_mib);
        }
        if let Some((_, held)) = self.at_sites.get_mut(site) {
            held.add(account, cpus);
        }
    }
}

impl Manager {
    /// Releases all jobs that can be released now: in the order of groups, and in each in the order in which they came.
    pub fn plan(&mut self, planning: Planning<'_>, draw: Draw<'_>) -> Vec<Effect> {
        let mut out = Vec::new();
        self.doubt(&planning, &mut out);
        let mut round = Round {
            held: Held::default(),
            queues: self.queues(),
            nowhere: BTreeSet::new(),
            reserved: BTreeMap::new(),
            at_sites: self.at_sites(&planning),
        };
        for entry in self.entries.values().filter(|entry| entry.is_in_flight()) {
            round.hold(entry, &entry.site);
        }
        while let Some((job, site)) = self.next(&planning, &mut round, draw) {
            let entry = &self.entries[&job];
            round.hold(entry, &site);
            let (attempt, at) = (entry.attempt + 1, planning.now);
            let record = Record::Assigned {
                job: job.clone(),
                attempt,
                site,
                at,
            };
            // The other way round a kill in between would leave a job at a site, and nobody who knows.
            if mutated!(SubmittedFirst) {
                self.apply(&record);
                self.submit(&job, &mut out);
                out.push(Effect::Write(record));
            } else {
                self.write(record, &mut out);
                self.submit(&job, &mut out);
            }
        }
        out
    }

    /// Holds what sites say against what this queue has had there since before they said it: no clock and no delay
    /// explains that less is held and waited for.
    fn doubt(&mut self, planning: &Planning<'_>, out: &mut Vec<Effect>) {
        for site in planning.sites {
            let (known_at, said) = (known_at(site, planning.now), Candidate::of(site).used);
            let sent = self.chooser.sent(&site.name);
            let known = sent.map_or(0, |sent| sent.cpus_seen(known_at));
            if known > said && !self.is_doubted(&site.name, planning.now) {
                let (site, at) = (site.name.clone(), planning.now);
                let found = Record::Doubted {
                    site,
                    at,
                    known,
                    said,
                };
                self.write(found, out);
            }
        }
    }

    fn is_doubted(&self, site: &str, now: WallTime) -> bool {
        let at = self.doubted.get(site);
        at.is_some_and(|at| now.since(*at) < DOUBTED) && !mutated!(LiarBelieved)
    }

    /// What accounts may have at each site, where that is bounded.
    fn at_sites(&self, planning: &Planning<'_>) -> AtSites {
        let bounded = self.limits.by_site.as_ref().map(|_| planning.sites);
        let sites = bounded.unwrap_or_default().iter();
        let at_site = |site: &SiteView| {
            let limits = self.limits.at_site(site.may_hold(planning.vo).unwrap_or(0));
            (site.name.clone(), (limits, Held::default()))
        };
        sites.map(at_site).collect()
    }

    /// Keys that wait, by account, the first of them last.
    fn queues(&self) -> BTreeMap<AccountPath, Vec<String>> {
        let mut queues: BTreeMap<AccountPath, Vec<String>> = BTreeMap::new();
        let waiting = self.entries().filter(|entry| entry.phase == Phase::Queued);
        for entry in waiting {
            let queue = queues.entry(entry.job.account.clone()).or_default();
            queue.push(entry.job.key.clone());
        }
        queues.values_mut().for_each(|queue| queue.reverse());
        queues
    }

    /// The next job that can be released, and where. What cannot be is taken from the queues of this round:
    /// room at sites and below limits only shrinks while jobs are released.
    fn next(
        &self,
        planning: &Planning<'_>,
        round: &mut Round,
        draw: Draw<'_>,
    ) -> Option<(String, String)> {
        let mut accounts: Vec<AccountPath> = round.queues.keys().cloned().collect();
        accounts.sort_by(|a, b| round.held.compare(&self.limits, a, b));
        for account in accounts {
            let queue = round.queues.get_mut(&account).expect("a key of the map");
            while let Some(key) = queue.pop() {
                let entry = &self.entries[&key];
                if !round
                    .held
                    .has_room(&self.limits.cpus, &account, entry.job.cpus)
                {
                    queue.clear();
                    break;
                }
                let shunned = shunned(entry, planning.now);
                let job = &entry.job;
                let kind = (job.cpus, job.disk_mib, job.wall, account.clone(), shunned);
                if round.nowhere.contains(&kind) {
                    continue;
                }
                let shared = (&round.at_sites, &round.reserved);
                if let Some(site) = self.choose(planning, (entry, &kind.4), shared, draw) {
                    return Some((key, site));
                }
                round.nowhere.insert(kind);
            }
        }
        None
    }

    /// The site that an attempt of a job goes to, if one can start it now. Sites where it would wait have no free
    /// room, and are not flooded.
    fn choose(
        &self,
        planning: &Planning<'_>,
        (entry, shunned): (&Entry, &[String]),
        (at_sites, reserved): (&AtSites, &BTreeMap<String, u64>),
        draw: Draw<'_>,
    ) -> Option<String> {
        let mut request = Request::of_cpus(planning.vo, entry.job.cpus);
        (request.wall, request.staged_mib) = (entry.job.wall, entry.job.disk_mib);
        let naive = self.chooser.selector == Selector::Naive;
        let mut candidates = Vec::new();
        for site in planning
            .sites
            .iter()
            .filter(|site| naive || !shunned.contains(&site.name))
        {
            let doubted = self.is_doubted(&site.name, planning.now);
            let (account, cpus) = (&entry.job.account, entry.job.cpus);
            let here = at_sites.get(&site.name);
            let has_room = here.is_none_or(|(limits, held)| held.has_room(limits, account, cpus));
            if (doubted && !self.chooser.is_due(&site.name)) || !has_room {
                continue;
            }
            let known_at = known_at(site, planning.now);
            let sent = self.chooser.sent(&site.name);
            let sent = sent.map_or(0, |sent| sent.cpus_unseen(known_at));
            let reserved = reserved.get(&site.name).copied().unwrap_or(0);
            let view = match (sent, reserved) {
                (0, 0) => Cow::Borrowed(site),
                _ => {
                    let view = site.clone().with_sent(planning.vo, sent);
                    Cow::Owned(view.with_reserved(planning.vo, reserved))
                }
            };
            let now = judge(planning.engine, &view, &request, planning.silence).is_now();
            if now || naive {
                candidates.push(Candidate {
                    now,
                    known_at,
                    ..Candidate::of(site)
                });
            }
        }
        let order = self.chooser.rank(&candidates, entry.job.wall, draw);
        Some(candidates[*order.first()?].site.to_owned())
    }
}

/// When a site stood as its view has it. Of a view whose age nobody knows all that was sent may be missing.
fn known_at(site: &SiteView, now: WallTime) -> WallTime {
    site.age.map_or(WallTime(0), |age| now.before(age))
}

/// Sites that have failed a job too short a time ago to be tried again for it.
fn shunned(entry: &Entry, now: WallTime) -> Vec<String> {
    let recent = entry
        .failed
        .iter()
        .filter(|(_, at)| now.since(**at) < SHUNNED);
    let sites = recent.map(|(site, _)| site.clone());
    sites.filter(|_| !mutated!(FailedSiteAgain)).collect()
}
