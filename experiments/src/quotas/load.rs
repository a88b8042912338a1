//! Jobs of projects: each project submits at its own even pace, single-core jobs of one hour ± 40 % that ask for
//! 20 to 40 % more, as users do (Elmroth & Gardfjäll 2005, section 5).
//!
//! Invariant: a project's jobs follow from the seed and the project alone, so that runs which are compared have
//! the same load, job by job.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{Millis, WallTime};

use simnet::vo::{DAY, HOUR, START};

/// Run times are within so many percent of the mean.
const SPREAD_PERCENT: u64 = 40;

/// What one project submits.
#[derive(Debug, Clone)]
pub struct Load {
    /// Time between two jobs; not zero.
    pub interval: Millis,
    /// From this moment on, after the beginning.
    pub from: Millis,
    /// Up to this one, excluded.
    pub until: Millis,
    /// By how many percent requests exceed run times: at least, at most.
    pub over_percent: (u64, u64),
    /// Whether its users submit where it is cheapest; else, and among equals, where they are used to.
    pub follows_price: bool,
    /// How likely each site is, by the day.
    pub weights: fn(day: u64, sites: usize) -> Vec<u32>,
}

impl Load {
    /// So many core-hours, evenly over a time, at any site.
    pub fn even(core_hours: u64, time: Millis) -> Self {
        Self {
            interval: Millis((time.0 / core_hours.max(1)).max(1)),
            from: Millis(0),
            until: time,
            over_percent: (20, 40),
            follows_price: false,
            weights: |_, sites| vec![1; sites],
        }
    }
}

/// A job that is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: WallTime,
    /// Whose, as an index.
    pub project: usize,
    /// Where, as an index.
    pub site: usize,
    /// How long it runs.
    pub run: Millis,
    /// How long it asks to.
    pub asked: Millis,
}

/// The jobs, in order of time.
pub struct Arrivals {
    sites: usize,
    projects: Vec<(Load, Stream)>,
    next: BinaryHeap<Reverse<(WallTime, usize)>>,
}

impl Arrivals {
    /// What `seed` makes of these loads.
    pub fn new(seed: Seed, loads: &[Load], sites: usize) -> Self {
        let mut next = BinaryHeap::new();
        let stream = |(project, load): (usize, &Load)| {
            let mut stream = seed.stream(&format!("quotas load {project}"));
            // Projects do not keep step.
            let first = START
                .after(load.from)
                .after(Millis(stream.below(load.interval.0)));
            if first < START.after(load.until) {
                next.push(Reverse((first, project)));
            }
            (load.clone(), stream)
        };
        let projects = loads.iter().enumerate().map(stream).collect();
        Self {
            sites,
            projects,
            next,
        }
    }

    /// When the next comes, if any does.
    pub fn next_at(&self) -> Option<WallTime> {
        self.next.peek().map(|Reverse((at, _))| *at)
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let Reverse((at, project)) = self.next.pop()?;
        let (load, stream) = &mut self.projects[project];
        let next = at.after(load.interval);
        if next < START.after(load.until) {
            self.next.push(Reverse((next, project)));
        }
        let spread = HOUR.0 * SPREAD_PERCENT / 100;
        let run = stream.between(HOUR.0 - spread, HOUR.0 + spread);
        let (least, most) = load.over_percent;
        let over = run * stream.between(least * 10, most * 10) / 1_000;
        let day = at.since(START).0 / DAY.0;
        let site = stream.weighted(&(load.weights)(day, self.sites));
        Some(Arrival {
            at,
            project,
            site,
            run: Millis(run),
            asked: Millis(run + over),
        })
    }
}
