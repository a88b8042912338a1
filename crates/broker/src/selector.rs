//! In which order a broker tries the sites that may have a job.
//!
//! The papers name their selectors and leave what they compute open; what each does here is ours. RA: any.
//! RR: the next by name after the last one used. LRU: the one that this broker sent a job to longest ago
//! (GRUBER prints "last recently used"). LU: the least used. OBS: one job more to a site each time one of
//! those before has started. S-RA: any site at all, without asking whether it may be used; a baseline.
//! `fair`: where the submitter stands best, weighed with the wait. `eta`: the earliest estimated end.
//! `utility`: what has most of what the job wishes.
//!
//! Invariant: the order is a function of the candidates, of what the broker has sent before, and of the
//! draws; sites that can start a job now come before those where it would wait, and ties go by name.
//! Deliberately not here: which sites may have the job (`engine`), but for S-RA, which does not ask.
//! Sources: GRUBER (Euro-Par 2005), section 3.2; Vasques, algorithm 2.

mod history;
mod name;
mod score;

pub use history::Sent;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fairmesh_model::{Factor, Millis, WallTime, mutant, mutated};

use crate::view::SiteView;

/// Hands out numbers from 0 to the bound, which is excluded, each equally likely.
pub type Draw<'a> = &'a mut dyn FnMut(u64) -> u64;

/// How sites are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Selector {
    /// RA: a site at random.
    Random,
    /// RR: the sites in turn.
    RoundRobin,
    /// LRU: the site that was chosen longest ago.
    LeastRecentlyUsed,
    /// LU, by what all jobs hold and wait for.
    #[default]
    LeastUsed,
    /// LU, by what this broker has sent there and has not ended.
    LeastUsedByUs,
    /// OBS: a site where all jobs that this broker sent have started.
    Observant,
    /// S-RA: a site at random, without asking what is free.
    Naive,
    /// By the submitter's fairshare factor, and the wait.
    Fair,
    /// By the estimated end.
    Eta,
    /// The site with the highest partial utility.
    Utility,
}

/// A site that may have a job, as selectors see it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Candidate<'a> {
    /// Name of the site.
    pub site: &'a str,
    /// Whether the job can start now.
    pub now: bool,
    /// CPUs of all machines.
    pub total: u64,
    /// CPUs held and waited for by everybody, as known.
    pub used: u64,
    /// CPUs that nobody holds.
    pub free: u64,
    /// How long the job would wait; `None`: not known.
    pub wait: Option<Millis>,
    /// Speed of the site.
    pub spec: Factor,
    /// The submitter's fairshare factor there, in millionths; `None`: not known, and worth nothing.
    pub factor: Option<u32>,
    /// Partial utility of its best class, in millionths.
    pub utility: u32,
    /// Whether the broker is this site's own.
    pub own: bool,
    /// When what is known of it was so, by the broker's clock: what arrived after that is not in `used`.
    pub known_at: WallTime,
}

impl<'a> Candidate<'a> {
    /// What selectors see of a site; whether the job can start now is for an engine to say.
    pub fn of(site: &'a SiteView) -> Self {
        let free = site.idle();
        let held = site.total.saturating_sub(free);
        Self {
            site: &site.name,
            total: site.total,
            used: held.saturating_add(site.waiting),
            free,
            wait: site.wait,
            spec: site.spec,
            factor: site.factor,
            ..Self::default()
        }
    }
}

/// A broker's memory of what it sent where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chooser {
    /// The method of choice.
    pub selector: Selector,
    sent: BTreeMap<String, Sent>,
    last: Option<String>,
    count: u64,
}

impl Chooser {
    /// A broker that has sent nothing yet.
    pub fn new(selector: Selector) -> Self {
        Self {
            selector,
            ..Self::default()
        }
    }

    /// Indices of the candidates, the best first. All of them, but by OBS only those that are due.
    /// `wall` is the time that the job asks for, on the reference machine.
    pub fn rank(&self, candidates: &[Candidate<'_>], wall: Millis, draw: Draw<'_>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        // By name first, so that every later sort, which is stable, breaks its ties so; and so that equal
        // candidates meet equal draws, in whatever order the caller lists them.
        order.sort_by_key(|index| candidates[*index].site);
        let of = |index: usize| &candidates[index];
        match self.selector {
            Selector::Random | Selector::Naive => shuffle(&mut order, draw),
            Selector::RoundRobin => {
                let last = self.last.as_deref().filter(|_| !mutated!(RobinStays));
                order.sort_by_key(|index| last.is_some_and(|last| of(*index).site <= last));
            }
            Selector::LeastRecentlyUsed => {
                let last = |index: &usize| self.sent(of(*index).site).map_or(0, |sent| sent.number);
                order
                    .sort_by_key(|index| mutant!(RecentFirst, last(index), u64::MAX - last(index)));
            }
            Selector::LeastUsed | Selector::LeastUsedByUs => {
                let used: Vec<_> = candidates.iter().map(|of| self.used(of)).collect();
                order.sort_by(|a, b| {
                    let by_use = score::compare_used(used[*a], used[*b]);
                    by_use.then(of(*b).free.cmp(&of(*a).free))
                });
            }
            Selector::Observant => {
                order.retain(|index| self.is_due(of(*index).site));
                order.sort_by_key(|index| self.in_flight(of(*index).site));
            }
            Selector::Fair => {
                let wait_max = candidates.iter().filter_map(|of| of.wait).max();
                let score = |index: &usize| score::fair(of(*index), wait_max.unwrap_or_default());
                order.sort_by_key(|index| Reverse(score(index)));
            }
            Selector::Eta => order.sort_by_key(|index| score::ends_after(of(*index), wall)),
            Selector::Utility => {
                let used: Vec<_> = candidates.iter().map(|of| self.used(of)).collect();
                order.sort_by(|a, b| {
                    let better = |of: &Candidate<'_>| Reverse((of.utility, of.own));
                    let by_worth = better(of(*a)).cmp(&better(of(*b)));
                    by_worth.then(score::compare_used(used[*a], used[*b]))
                });
            }
        }
        if self.selector != Selector::Naive && !mutated!(WaitBeforeNow) {
            order.sort_by_key(|index| !of(*index).now);
        }
        order
    }

    /// What of `site` is used, of what. With what this broker sent that the view does not have, or many brokers
    /// with an old view would all send to the site that was least used then.
    fn used(&self, of: &Candidate<'_>) -> (u64, u64) {
        let sent = self.sent(of.site);
        let since = sent.map_or(0, |sent| sent.cpus_unseen(of.known_at));
        let used = match self.selector {
            Selector::LeastUsedByUs => sent.map_or(0, Sent::cpus),
            _ => of.used.saturating_add(mutant!(OwnUncounted, since, 0)),
        };
        (used, of.total)
    }
}

/// Fisher and Yates: every order equally likely.
fn shuffle(order: &mut [usize], draw: Draw<'_>) {
    for left in (1..order.len()).rev() {
        let drawn = draw(left as u64 + 1);
        order.swap(left, usize::try_from(drawn).expect("below a length"));
    }
}

#[cfg(test)]
pub(crate) mod tests;
