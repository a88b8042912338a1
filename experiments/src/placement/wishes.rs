//! What Vasques' experiment draws: resources of four clusters, users, and jobs with options.
//!
//! Invariant: every way of matching meets the same draws. What the draft does not print (lengths of jobs, limits of
//! time, levels of speed) is ours, and stands here.
//! Source: Vasques, "A Decentralized Utility-based Grid Scheduling Algorithm" (draft), its evaluation.

use fairmesh_broker::utility::{Choice, Class, ONE, Requirement, Wish, Wishes};
use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{Factor, Millis};

/// Clusters, and resources of each.
pub const CLUSTERS: usize = 4;
/// Resources of a cluster.
pub const RESOURCES: usize = 20;
/// Users, dealt to clusters at random.
pub const USERS: usize = 70;
/// Jobs of a user.
pub const JOBS: usize = 20;

/// Mean of the gaps between two jobs of all users, in their unit.
const GAP_MEAN: f64 = 2.0;

const SYSTEMS: [&str; 4] = ["linux", "macos", "solaris", "windows"];
const ARCHITECTURES: [&str; 2] = ["32", "64"];
const CORES: [u64; 4] = [1, 2, 4, 8];
/// Speeds, in millionths.
const SPEEDS: [u32; 4] = [500_000, 1_000_000, 1_500_000, 2_000_000];
/// Most time that a job may take, in percent of its time on the reference machine.
const TIMES: [u64; 4] = [50, 75, 100, 200];

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Whose it is.
    pub user: usize,
    /// To which cluster he hands it in.
    pub cluster: usize,
    /// When, since the begin.
    pub at: Millis,
    /// What it asks for, and its time on the reference machine.
    pub wishes: Wishes,
}

/// All that is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawn {
    /// Resources by cluster; `cpus` are jobs that run at once.
    pub clusters: Vec<Vec<Class<'static>>>,
    /// Jobs in the order in which they come.
    pub jobs: Vec<Job>,
}

impl Drawn {
    /// Draws everything. `load` is the percentage of all cores that the jobs keep busy while they come, on machines
    /// of the reference's speed; `unit` is that of the gaps.
    pub fn of(seed: Seed, load: u64, unit: Millis) -> Self {
        let mut stream = seed.stream("wishes/resources");
        let clusters: Vec<Vec<Class<'static>>> = (0..CLUSTERS)
            .map(|_| (0..RESOURCES).map(|_| resource(&mut stream)).collect())
            .collect();
        let cores: u64 = clusters
            .iter()
            .flatten()
            .map(|of: &Class<'_>| of.cpus)
            .sum();
        let length = cores * load * unit.0 * 2 / 100;
        let mut stream = seed.stream("wishes/users");
        let homes: Vec<usize> = (0..USERS).map(|_| stream.index(CLUSTERS)).collect();
        let mut turns: Vec<usize> = (0..USERS * JOBS).map(|turn| turn % USERS).collect();
        for left in (1..turns.len()).rev() {
            turns.swap(left, stream.index(left + 1));
        }
        let mut stream = seed.stream("wishes/jobs");
        let mut at = Millis(0);
        let mut job = |user: usize| {
            at.0 += gap(&mut stream) * unit.0;
            let work = Millis(stream.between(length / 2, length * 3 / 2).max(1));
            let wishes = wishes(&mut stream, work);
            Job {
                user,
                cluster: homes[user],
                at,
                wishes,
            }
        };
        let jobs = turns.into_iter().map(&mut job).collect();
        Self { clusters, jobs }
    }
}

fn resource(stream: &mut Stream) -> Class<'static> {
    Class {
        os: SYSTEMS[stream.index(4)],
        arch: ARCHITECTURES[stream.index(2)],
        cpus: CORES[stream.index(4)],
        spec: Factor::from_millionths(SPEEDS[stream.index(4)]),
        count: 1,
        ..Class::default()
    }
}

fn wishes(stream: &mut Stream, work: Millis) -> Wishes {
    let systems = SYSTEMS.map(|name| Wish::Os(name.to_owned()));
    let architectures = ARCHITECTURES.map(|name| Wish::Arch(name.to_owned()));
    let times = TIMES.map(|percent| Wish::Time(Millis((work.0 * percent).div_ceil(100))));
    let speeds = SPEEDS.map(|speed| Wish::Spec(Factor::from_millionths(speed)));
    let requirements = vec![
        options(stream, systems.to_vec()),
        options(stream, architectures.to_vec()),
        options(stream, times.to_vec()),
        options(stream, speeds.to_vec()),
    ];
    Wishes::new(requirements, work).expect("within all limits")
}

/// Some of them, each with a value: one of four quarters of the range, and somewhere in it.
fn options(stream: &mut Stream, mut wishes: Vec<Wish>) -> Requirement {
    let kept = 1 + stream.index(wishes.len());
    let mut options = Vec::new();
    while options.len() < kept {
        let wish = wishes.swap_remove(stream.index(wishes.len()));
        let quarter = ONE / 4;
        let in_it = stream.between(1, quarter.into());
        let value = quarter * u32::try_from(stream.below(4)).expect("small")
            + u32::try_from(in_it).expect("small");
        options.push(Choice { wish, value });
    }
    Requirement {
        options,
        weight: ONE,
    }
}

/// A Poisson number (Knuth): how many even draws until their product is below e to the minus mean.
fn gap(stream: &mut Stream) -> u64 {
    let least = (-GAP_MEAN).exp();
    let mut product = 1.0;
    for count in 0.. {
        product *= stream.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        if product < least {
            return count;
        }
    }
    unreachable!("the product falls")
}
