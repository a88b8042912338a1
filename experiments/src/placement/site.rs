//! One pretended site: what its owner has promised, what others hold of it, and its batch system's queue.
//!
//! Invariant: CPUs that run a job stay with it to its end; others get what is left. Jobs start in the order in which
//! they came, at the moments at which the batch system looks.
//!
//! Deliberately not here: who sends jobs ([`super::hosts`]).

use std::collections::{BTreeMap, VecDeque};

use fairmesh_broker::sla::Sign;
use fairmesh_broker::{SiteView, Standing};
use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{Factor, Millis, Share, WallTime};

/// The VO's name in views.
pub const VO: &str = "vo";

/// Sites of a Grid.
pub const SITES: usize = 15;

/// CPUs of a site, least and most, and of all of them.
const CPUS: (u64, u64) = (16, 200);
const CPUS_IN_ALL: std::ops::RangeInclusive<u64> = 800..=1_000;

/// Percent of a site that others hold, least and most.
const OTHERS: (u64, u64) = (30, 80);

/// How attempts fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Faults {
    /// A site fails 0 to 6 % of its attempts.
    Benign,
    /// A site fails 0 to 100 % of its attempts.
    Harsh,
    /// As benign, but two sites fail everything within a minute.
    BlackHoles,
}

/// What is drawn of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawn {
    /// Its name.
    pub name: String,
    /// CPUs.
    pub cpus: u64,
    /// CPUs that the VO may hold (BP).
    pub limit: u64,
    /// Time between two looks of its batch system.
    pub cycle: Millis,
    /// Speed.
    pub spec: Factor,
    /// Attempts that fail, in millionths.
    pub fails: u64,
    /// Whether every attempt fails at once.
    pub is_black_hole: bool,
    /// Whether it says that all of its CPUs are free.
    pub lies: bool,
    /// What others hold in the mean, in percent.
    others: u64,
}

impl Faults {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Benign, "benign"),
        (Self::Harsh, "harsh"),
        (Self::BlackHoles, "black-holes"),
    ];

    fn fails_max(self) -> u64 {
        match self {
            Self::Harsh => 1_000_000,
            Self::Benign | Self::BlackHoles => 60_000,
        }
    }
}

/// The sites of one Grid, `liars` of which lie.
pub fn draw(seed: Seed, faults: Faults, liars: usize) -> Vec<Drawn> {
    let mut stream = seed.stream("placement/cpus");
    let cpus = loop {
        let drawn: Vec<u64> = (0..SITES).map(|_| size(&mut stream)).collect();
        if CPUS_IN_ALL.contains(&drawn.iter().sum()) {
            break drawn;
        }
    };
    let mut stream = seed.stream("placement/sites");
    let mut sites: Vec<Drawn> = cpus
        .into_iter()
        .enumerate()
        .map(|(index, cpus)| Drawn {
            name: format!("site-{index:02}"),
            cpus,
            limit: (cpus * stream.between(30, 80) / 100).max(1),
            cycle: Millis::from_secs(stream.between(20, 120)),
            spec: Factor::from_millionths(
                800_000 + 100_000 * u32::try_from(stream.below(5)).expect("small"),
            ),
            fails: stream.between(0, faults.fails_max()),
            is_black_hole: false,
            lies: false,
            others: stream.between(OTHERS.0, OTHERS.1),
        })
        .collect();
    let mut stream = seed.stream("placement/bad-sites");
    let mut order: Vec<usize> = (0..SITES).collect();
    for left in (1..SITES).rev() {
        order.swap(left, stream.index(left + 1));
    }
    for index in order
        .iter()
        .take(if faults == Faults::BlackHoles { 2 } else { 0 })
    {
        sites[*index].is_black_hole = true;
    }
    for index in order.iter().rev().take(liars) {
        sites[*index].lies = true;
    }
    sites
}

/// Most sites are small: the cube of an even draw.
fn size(stream: &mut Stream) -> u64 {
    let drawn = stream.between(0, 1_000);
    CPUS.0 + (CPUS.1 - CPUS.0) * drawn.pow(3) / 1_000_000_000
}

/// A site at one moment.
#[derive(Debug)]
pub struct Site {
    /// What was drawn.
    pub drawn: Drawn,
    /// Attempts that wait, the first first.
    pub waiting: VecDeque<usize>,
    /// Attempts that run.
    pub running: u64,
    /// What others would hold, in percent.
    others: u64,
    stream: Stream,
}

impl Site {
    /// A site that runs nothing for the VO.
    pub fn new(seed: Seed, drawn: Drawn) -> Self {
        Self {
            stream: seed.stream(&format!("placement/others/{}", drawn.name)),
            others: drawn.others,
            drawn,
            waiting: VecDeque::new(),
            running: 0,
        }
    }

    /// A minute passes: what others hold wanders, and comes back to its mean.
    pub fn wander(&mut self) {
        // Up to 6 percent up or down, and a tenth of the way back.
        let moved = 10 * self.others + 10 * self.stream.between(0, 12) + self.drawn.others;
        let moved = moved.saturating_sub(60 + self.others) / 10;
        self.others = moved.clamp(OTHERS.0, OTHERS.1);
    }

    /// CPUs that others hold.
    pub fn held_by_others(&self) -> u64 {
        let wanted = self.drawn.cpus * self.others / 100;
        wanted.min(self.drawn.cpus - self.running)
    }

    /// CPUs that nobody holds.
    pub fn free(&self) -> u64 {
        self.drawn.cpus - self.held_by_others() - self.running
    }

    /// What is held and waited for, of all CPUs.
    pub fn load(&self) -> f64 {
        let used = self.drawn.cpus - self.free() + self.waiting.len() as u64;
        used as f64 / self.drawn.cpus as f64
    }

    /// What it says of itself.
    pub fn view(&self) -> SiteView {
        let cpus = self.drawn.cpus;
        let honest = (self.free(), self.waiting.len() as u64);
        let (free, waiting) = if self.drawn.lies { (cpus, 0) } else { honest };
        let standing = Standing {
            epoch_share: Share::WHOLE,
            sign: Sign::AtMost,
            burst_used: if self.drawn.lies { 0 } else { self.running },
            burst_limit: self.drawn.limit,
            // Others start at once or not at all: all that waits here is the VO's.
            waiting,
            ..Standing::default()
        };
        SiteView {
            name: self.drawn.name.clone(),
            total: cpus,
            free: Some(free),
            waiting,
            vos: BTreeMap::from([(VO.into(), standing.into())]),
            spec: self.drawn.spec,
            ..SiteView::default()
        }
    }
}

/// A view and when it was made.
#[derive(Debug)]
pub struct Seen {
    /// What the site said then.
    pub view: SiteView,
    /// Then.
    pub at: WallTime,
}
