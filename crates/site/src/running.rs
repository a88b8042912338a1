//! What runs here, as the owner's levels of the tree count it: by the last list, and less what has ended.
//!
//! An owner's levels are always current and *active*: they count what jobs have used, also of a VO that
//! counts jobs only when they end; and whole jobs that run, where the owner's history is of those alone.
//! The first is kept here by span, as it would be counted, and the second as one amount. Neither leaves
//! the site, and neither is stored: a start knows nothing of what runs until its feed lists it.
//!
//! Invariant: what a job has used is here or in the counters, and never in both.
//! Source: FSGrid (Elmroth and Gardfjäll, 2005); the thesis of Gardfjäll for what counts only while it
//! runs.

use std::collections::BTreeMap;

use fairmesh_model::{Span, WindowLength};

use crate::identity::Account;
use crate::moved::{Moved, moved};

/// Whose usage, and when.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) account: Account,
    /// Length of the windows that its usage is counted in.
    pub(crate) window: WindowLength,
    /// Where it lies; whole jobs lie nowhere.
    pub(crate) span: Option<Span>,
}

/// What a job that runs has used, where no counter has it; all of it, where that is what counts.
pub(crate) type Run = Vec<(Place, u64)>;

/// All that run, by job key.
#[derive(Debug, Default)]
pub(crate) struct Running {
    jobs: BTreeMap<Vec<u8>, Run>,
    sums: BTreeMap<Place, u64>,
}

impl Running {
    /// A list came: it replaces the one before.
    pub(crate) fn replace(&mut self, jobs: BTreeMap<Vec<u8>, Run>) -> Vec<Moved<Place>> {
        let mut sums: BTreeMap<Place, u64> = BTreeMap::new();
        for (place, charge) in jobs.values().flatten() {
            let sum = sums.entry(place.clone()).or_default();
            *sum = sum.saturating_add(*charge);
        }
        self.jobs = jobs;
        let before = std::mem::replace(&mut self.sums, sums);
        moved(
            before,
            self.rows().map(|(place, charge)| (place.clone(), charge)),
        )
    }

    /// A job has ended: the counters have it.
    pub(crate) fn end(&mut self, job: &[u8]) -> Vec<Moved<Place>> {
        let mut changes = Vec::new();
        for (place, charge) in self.jobs.remove(job).unwrap_or_default() {
            let before = self.sums.remove(&place).unwrap_or(0);
            let after = before.saturating_sub(charge);
            if after > 0 {
                self.sums.insert(place.clone(), after);
            }
            changes.push(Moved {
                key: place,
                before,
                after,
            });
        }
        changes
    }

    /// All of it, for a tree that has nothing.
    pub(crate) fn all(&self) -> Vec<Moved<Place>> {
        moved(
            [],
            self.rows().map(|(place, charge)| (place.clone(), charge)),
        )
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (&Place, u64)> {
        self.sums.iter().map(|(place, charge)| (place, *charge))
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{AccountPath, Window};

    use super::*;

    fn run(path: &str, parts: &[(u32, u64)]) -> Run {
        let part = |(window, charge): &(u32, u64)| {
            let place = Place {
                account: Account {
                    vo: None,
                    path: AccountPath::parse(path).expect("a path"),
                },
                window: WindowLength::HOUR,
                span: Some(Span::Window(Window(*window))),
            };
            (place, *charge)
        };
        parts.iter().map(part).collect()
    }

    fn list(jobs: Vec<Run>) -> BTreeMap<Vec<u8>, Run> {
        (0u8..).map(|name| vec![name]).zip(jobs).collect()
    }

    fn changes(moved: &[Moved<Place>]) -> Vec<(&str, u64, u64)> {
        let path = |moved: &'_ Moved<Place>| (moved.before, moved.after);
        let all = moved
            .iter()
            .map(|of| (of.key.account.path.as_str(), path(of)));
        all.map(|(path, (before, after))| (path, before, after))
            .collect()
    }

    #[test]
    fn a_list_replaces_the_one_before_and_a_job_that_ends_goes_alone() {
        let mut running = Running::default();
        let first = list(vec![run("/u", &[(1, 5)]), run("/u", &[(1, 2), (2, 4)])]);
        let moved = running.replace(first);
        assert_eq!(changes(&moved), [("/u", 0, 7), ("/u", 0, 4)]);
        assert_eq!(changes(&running.end(&[0])), [("/u", 7, 2)]);
        assert_eq!(running.end(&[0]), [], "once");
        let next = list(vec![run("/v", &[(2, 1)]), run("/u", &[(1, 2), (2, 4)])]);
        assert_eq!(changes(&running.replace(next)), [("/v", 0, 1)]);
        let moved = running.replace(BTreeMap::new());
        assert_eq!(changes(&moved), [("/u", 2, 0), ("/u", 4, 0), ("/v", 1, 0)]);
        assert_eq!(running.rows().count(), 0);
    }
}
