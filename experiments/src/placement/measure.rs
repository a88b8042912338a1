//! What is measured of a run.
//!
//! Invariant: measures are GRUBER's, by their definitions: of a host, and of a run the mean of its hosts.
//! Source: GRUBER (Euro-Par 2005), section 4.1.

use std::collections::BTreeMap;

use fairmesh_broker::SiteView;
use fairmesh_model::Millis;

use crate::experiment::{deviation, mean};

const HOUR_MS: f64 = 3_600_000.0;

/// What GRUBER measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Jobs that ended well, percent.
    Comp,
    /// Attempts after the first of a job.
    Replan,
    /// Time of jobs that ended well, of all CPUs of the sites used from the first submission to the end, percent.
    Util,
    /// From the arrival in a site's queue to the start, seconds, in the mean.
    Delay,
    /// From the first submission to the last end, hours.
    Time,
}

/// Of one submit host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostMeasures {
    /// Jobs handed in.
    pub jobs: usize,
    /// Jobs that failed too often.
    pub given_up: usize,
    /// Attempts that did not start in time.
    pub late: u64,
    /// When each job ended well, in order, since the begin.
    pub well: Vec<Millis>,
    replanned: u64,
    waited: Millis,
    started: u64,
    ran: Millis,
    /// CPUs of the sites that it has sent to.
    cpus: BTreeMap<usize, u64>,
    last: Millis,
}

/// Of one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunMeasures {
    /// By host.
    pub hosts: Vec<HostMeasures>,
    /// Most CPUs that a group, and the VO, had at sites at once.
    pub group_max: u64,
    /// The VO's.
    pub vo_max: u64,
    /// Starts beyond the VO's burst limit at a site.
    pub beyond: u64,
    /// Attempts that were sent to sites that lie.
    pub sent_to_liars: u64,
    /// What gives liars away.
    pub doubts: Doubts,
    /// The first thing that must not be, if anything was.
    pub broken: Option<String>,
    variances: (f64, u64),
}

/// What speaks against what a site says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Doubts {
    lies: Vec<bool>,
    /// When it first said that the VO holds less than a host knew to run there, by site.
    contradicted: Vec<Option<Millis>>,
    /// Attempts that did not start in time, by site.
    late: Vec<u64>,
}

impl Measure {
    /// All, with their names and units.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Comp, "Comp %"),
        (Self::Replan, "Replan"),
        (Self::Util, "Util %"),
        (Self::Delay, "Delay s"),
        (Self::Time, "Time h"),
    ];

    /// Of a run.
    pub fn of(self, run: &RunMeasures) -> f64 {
        let values: Vec<f64> = run.hosts.iter().map(|host| self.of_host(host)).collect();
        mean(&values)
    }

    fn of_host(self, host: &HostMeasures) -> f64 {
        let time = host.last.0.max(1) as f64;
        match self {
            Self::Comp => 100.0 * host.well.len() as f64 / host.jobs.max(1) as f64,
            Self::Replan => host.replanned as f64,
            Self::Util => {
                100.0 * host.ran.0 as f64 / (time * host.cpus.values().sum::<u64>().max(1) as f64)
            }
            Self::Delay => host.waited.0 as f64 / 1_000.0 / host.started.max(1) as f64,
            Self::Time => time / HOUR_MS,
        }
    }
}

impl HostMeasures {
    /// An attempt was sent to a site of so many CPUs.
    pub fn sent(&mut self, number: u32, cpus: u64, site: usize) {
        self.replanned += u64::from(number > 1);
        self.cpus.insert(site, cpus);
    }

    /// An attempt has started.
    pub fn started(&mut self, waited: Millis) {
        self.started += 1;
        self.waited.0 += waited.0;
    }

    /// An attempt that ends well runs for so long.
    pub fn ran(&mut self, time: Millis) {
        self.ran.0 += time.0;
    }

    /// An attempt has ended.
    pub fn ended(&mut self, at: Millis, is_well: bool) {
        self.last = at;
        if is_well {
            self.well.push(at);
        }
    }
}

impl RunMeasures {
    /// Notes what must not be.
    pub fn broken(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// Notes how loaded sites are at one moment.
    pub fn sample(&mut self, loads: impl Iterator<Item = f64>) {
        let loads: Vec<f64> = loads.collect();
        let deviation = deviation(&loads);
        self.variances.0 += deviation * deviation;
        self.variances.1 += 1;
    }

    /// Variance of load between sites, in the mean over the time in which jobs waited at the first host.
    pub fn load_variance(&self) -> f64 {
        self.variances.0 / self.variances.1.max(1) as f64
    }

    /// Attempts that did not start in time.
    pub fn late(&self) -> u64 {
        self.hosts.iter().map(|host| host.late).sum()
    }

    /// Percent of all jobs that had ended well so long after the begin.
    pub fn completed(&self, at: Millis) -> f64 {
        let (mut ended, mut jobs) = (0, 0);
        for host in &self.hosts {
            ended += host.well.partition_point(|end| *end <= at);
            jobs += host.jobs;
        }
        100.0 * ended as f64 / jobs.max(1) as f64
    }
}

impl Doubts {
    /// Of sites of which these lie.
    pub fn new(lies: Vec<bool>) -> Self {
        let (contradicted, late) = (vec![None; lies.len()], vec![0; lies.len()]);
        Self {
            lies,
            contradicted,
            late,
        }
    }

    /// An attempt did not start in time.
    pub fn late(&mut self, site: usize) {
        self.late[site] += 1;
    }

    /// A host knows that so many of its CPUs were in use at the site when the view was made.
    pub fn compare(&mut self, site: usize, known: u64, view: &SiteView, passed: Millis) {
        let said = view
            .vos
            .values()
            .next()
            .map_or(0, |standing| standing.burst_used);
        if known > said {
            self.contradicted[site].get_or_insert(passed);
        }
    }

    /// When each site that lies was first contradicted, in minutes.
    pub fn found(&self) -> Vec<Option<f64>> {
        let of = self
            .contradicted
            .iter()
            .zip(&self.lies)
            .filter(|(_, lies)| **lies);
        of.map(|(at, _)| at.map(|at| at.0 as f64 / 60_000.0))
            .collect()
    }

    /// Honest sites that were contradicted.
    pub fn wronged(&self) -> usize {
        let of = self
            .contradicted
            .iter()
            .zip(&self.lies)
            .filter(|(_, lies)| !**lies);
        of.filter(|(at, _)| at.is_some()).count()
    }

    /// Late attempts at sites that lie, and at honest ones.
    pub fn late_by_honesty(&self) -> (u64, u64) {
        let of = |wanted: bool| {
            let late = self.late.iter().zip(&self.lies);
            late.filter(|(_, lies)| **lies == wanted)
                .map(|(late, _)| late)
                .sum()
        };
        (of(true), of(false))
    }
}
