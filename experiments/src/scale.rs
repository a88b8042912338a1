//! How far and how fast a change travels in a large Grid, and what it costs.
//!
//! A Grid of N members of one VO with calm links of 10 to 50 ms, connections to 16 others and the
//! node's mesh of about four neighbours comes to rest. Then one site reports one job, later many
//! sites one each, and last one site many jobs that change many cells: what is sent beside the cells,
//! a signature above all, is most of a batch of one cell and little of a batch of many. Hops are
//! counted from neighbour to neighbour, by whichever way a change comes.
//!
//! Heartbeats come once a day here, so that what is measured is the change: in the idle traffic they
//! are added by calculation, one a minute from each site, as many copies as the change had.
//!
//! Invariant: all but the wall time and the resident memory is a function of size and seed.
//! Deliberately not here: faults. See "Numbers to live up to" in the design.

mod probe;
mod spread;

use std::time::Instant;

use fairmesh_cluster::Seed;
use fairmesh_model::Millis;
use fairmesh_site::Timing;
use serde::{Deserialize, Serialize};

use crate::figures::{Figure, Series, Texts};
use probe::Probe;
use simnet::network::{LinkSpec, NetworkSpec};
use simnet::vo::{DAY, OwnerSpec, Vo, VoSpec};
use simnet::world::{World, WorldSpec};
pub use spread::{CELLS_MAX, Spread};
use spread::{Received, Reports};

/// Bytes of a page of memory, as Linux counts them on the machines that we know.
const PAGE_BYTES: u64 = 4_096;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleSpec {
    /// How many sites.
    pub sites: usize,
    /// How many of them report at once in the burst.
    pub burst: usize,
    /// Cells that one site changes at once, at most [`CELLS_MAX`].
    pub cells: usize,
    /// The seed.
    pub seed: u64,
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// How many sites.
    pub sites: usize,
    /// The seed.
    pub seed: u64,
    /// One job.
    pub single: Spread,
    /// Many jobs at once.
    pub burst: Spread,
    /// Many cells of one site at once.
    pub bulk: Spread,
    /// Bytes that a node receives in a minute in which nothing happens and nobody has a heartbeat.
    pub idle_bytes_per_node_minute: f64,
    /// The same as it is on the wire.
    pub idle_wire_bytes_per_node_minute: f64,
    /// What heartbeats, one a minute from each site, would add to it.
    pub heartbeat_bytes_per_node_minute: f64,
    /// Resident memory that the Grid takes, shared by its nodes.
    pub resident_bytes_per_node: f64,
    /// Bytes of keys and values in a node's store.
    pub rows_bytes_per_node: f64,
    /// Steps that were taken.
    pub steps: u64,
    /// How much time went by in it, in seconds.
    pub simulated_s: f64,
    /// How long it took, seconds of the machine.
    pub wall_s: f64,
    /// How long a minute took in which nothing happened, seconds of the machine.
    pub idle_wall_s: f64,
}

impl Measured {
    /// Whether everybody held everything.
    pub fn is_complete(&self) -> bool {
        let all = [&self.single, &self.burst, &self.bulk];
        all.into_iter().all(|spread| spread.reached == self.sites)
    }

    /// The design's goal for hops: 2 × log2(N).
    pub fn hops_goal(&self) -> f64 {
        2.0 * (self.sites as f64).log2()
    }
}

/// Builds a Grid, lets it come to rest, and measures.
pub fn measure(spec: &ScaleSpec) -> Measured {
    fairmesh_model::signed::remember_verdicts();
    fairmesh_model::signed::remember_documents();
    let began = Instant::now();
    let resident_before = resident_bytes();
    let (mut world, vo) = grid(spec);
    let probe = Probe::new(spec.sites);
    world.set_tamper(Some(Box::new(probe.clone())));
    world.run_for(Millis(30_000));
    let rested = world.run_until_quiet(Millis(10_000), Millis(600_000));
    assert!(rested, "a calm Grid agrees in ten minutes");
    world.run_for(Millis(60_000));
    let before = spread::received(&world);
    let idle_began = Instant::now();
    world.run_for(Millis(60_000));
    let idle_wall_s = idle_began.elapsed().as_secs_f64();
    let after = spread::received(&world);
    let idle = Received {
        payload: after.payload - before.payload,
        wire: after.wire - before.wire,
    };
    let middle = spec.sites / 2;
    let mut spread = |reports: Reports| spread::spread(&mut world, &vo, &probe, reports, idle);
    let single = spread(Reports::of_sites(&[middle]));
    let count = spec.burst.clamp(1, spec.sites);
    let apart = spec.sites / count;
    let many: Vec<usize> = (0..count).map(|number| number * apart).collect();
    let burst = spread(Reports::of_sites(&many));
    let bulk = spread(Reports::of_cells(middle, spec.cells.min(CELLS_MAX)));
    let rows = |node: usize| -> u64 {
        let rows = world.node(node).disk.rows();
        let bytes = rows.iter().map(|(_, key, value)| key.len() + value.len());
        bytes.sum::<usize>() as u64
    };
    let resident = resident_bytes().saturating_sub(resident_before);
    Measured {
        sites: spec.sites,
        seed: spec.seed,
        heartbeat_bytes_per_node_minute: (spec.sites - 1) as f64
            * single.copies_per_node
            * spread::heartbeat_bytes(&single),
        single,
        burst,
        bulk,
        idle_bytes_per_node_minute: idle.payload,
        idle_wire_bytes_per_node_minute: idle.wire,
        resident_bytes_per_node: resident as f64 / spec.sites as f64,
        rows_bytes_per_node: rows(middle) as f64,
        steps: world.steps(),
        simulated_s: world.now().0 as f64 / 1_000.0,
        wall_s: began.elapsed().as_secs_f64(),
        idle_wall_s,
    }
}

fn grid(spec: &ScaleSpec) -> (World, Vo) {
    let vo = Vo::found(0, VoSpec::small("grid", spec.sites)).expect("a valid VO");
    let owner = OwnerSpec {
        timing: Timing {
            heartbeat: DAY,
            ..Timing::default()
        },
        ..OwnerSpec::default()
    };
    let mut world = WorldSpec::of_vos(spec.sites, std::slice::from_ref(&vo), &owner);
    world.tick = Millis(2_000);
    world.log_entries = 0;
    world.network = NetworkSpec {
        link: LinkSpec {
            latency_ms: 10,
            jitter_ms: 40,
            ..LinkSpec::CALM
        },
        ..NetworkSpec::default()
    };
    let world = World::founded(Seed(spec.seed), world, std::slice::from_ref(&vo));
    (world, vo)
}

/// Memory of this process, as the kernel sees it; 0 where it does not say.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1);
    pages
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * PAGE_BYTES
}

/// The corners of a curve that stays what it is until it changes, drawn to `end`.
fn steps(curve: &[(f64, f64)], end: f64) -> Vec<(f64, f64)> {
    let mut corners = Vec::new();
    for (x, y) in curve {
        let before = corners.last().map(|(_, before)| (*x, *before));
        corners.extend(before);
        corners.push((*x, *y));
    }
    let last = corners.last().map(|(_, last)| (end, *last));
    corners.extend(last);
    corners
}

/// How many sites hold one job's change after how many milliseconds, by size of the Grid.
pub fn figure(all: &[Measured]) -> Figure {
    let last_ms = all.iter().map(|measured| measured.single.last_ms).max();
    let series = all.iter().enumerate().map(|(group, measured)| {
        let points = steps(&measured.single.curve, last_ms.unwrap_or(0) as f64);
        Series::new(format!("{} sites", measured.sites), group, points)
    });
    let texts = Texts {
        name: "scale",
        title: "How fast one job's change reaches all sites",
        caption: "Share of sites that hold the change, by milliseconds since it was published. \
                  Links take 10 to 50 ms; each site passes it on to about four neighbours.",
        x_label: "milliseconds",
        y_label: "sites, percent",
    };
    texts.lines(series).within(0.0, 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_reaches_all_of_forty_sites_in_few_hops() {
        let spec = ScaleSpec {
            sites: 40,
            burst: 4,
            cells: 100,
            seed: 1,
        };
        let measured = measure(&spec);
        assert!(measured.is_complete(), "{measured:?}");
        assert!(f64::from(measured.single.hops_max) <= measured.hops_goal());
        assert!(measured.single.copies_per_node >= 1.0);
        assert!(measured.single.wire_bytes_per_node > measured.single.bytes_per_node);
        assert!(measured.single.cell_bytes < measured.single.batch_bytes);
        assert_eq!((measured.burst.jobs, measured.burst.cells), (4, 4));
        assert_eq!((measured.bulk.jobs, measured.bulk.cells), (100, 100));
        assert!(measured.bulk.against_cells() < measured.single.against_cells());
        let again = measure(&spec);
        assert_eq!(again.single, measured.single);
        figure(&[measured]).to_svg().expect("it can be drawn");
    }
}
